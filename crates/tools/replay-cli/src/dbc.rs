//! Reads the DBC files of `--dbc`, and the identifiers that `--ids` names with them.

use onbeat_replay::database::{Database, FrameId, MOST_BYTES};
use onbeat_terminal::term::one_line;
use onbeat_terminal::CliError;
use std::fs::File;
use std::io::Read;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

pub fn read(paths: &[PathBuf]) -> Result<Database, CliError> {
    let mut database = Database::default();
    for path in paths {
        let failed = |fault: &str| {
            let path = one_line(&path.display().to_string());
            super::failed(format!("{path}: {fault}"))
        };
        let bytes = bytes(path).map_err(|error| failed(&error.to_string()))?;
        if bytes.len() as u64 > MOST_BYTES {
            return Err(failed("larger than 64 MB. Is it a DBC file?"));
        }
        database.add(&bytes).map_err(|fault| failed(&fault))?;
    }
    Ok(database)
}

fn bytes(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = File::open(path)?;
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The values of `--ids`: ranges of CAN identifiers, and messages from the DBC files of `--dbc`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Ids {
    pub ranges: Vec<RangeInclusive<u32>>,
    pub messages: Vec<FrameId>,
}

impl Ids {
    /// Parses the values of `--ids`. A value that is the name of a message in the database means
    /// this message, even if it could be a hexadecimal number.
    pub fn parse(words: &[String], database: &Database) -> Result<Ids, String> {
        let mut ids = Ids::default();
        for word in words {
            let messages = database.ids(word);
            match parse_range(word) {
                _ if !messages.is_empty() => ids.messages.extend(messages),
                Some(range) => ids.ranges.push(range),
                None if *database == Database::default() => {
                    return Err(format!(
                        "--ids {word}: write hexadecimal identifiers, for example 123 or 200-2ff. Names of messages need --dbc FILE"
                    ))
                }
                None => {
                    return Err(format!(
                        "--ids {word}: neither a message of the DBC file (--dbc) nor a hexadecimal identifier. `onbeat info --dbc` lists the messages"
                    ))
                }
            }
        }
        Ok(ids)
    }
}

fn parse_range(text: &str) -> Option<RangeInclusive<u32>> {
    let number = |digits: &str| u32::from_str_radix(digits.trim_start_matches("0x"), 16).ok();
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let (from, to) = (number(from)?, number(to)?);
    (from <= to && to <= 0x1fff_ffff).then_some(from..=to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_and_names_of_messages_are_parsed_or_refused() {
        let mut database = Database::default();
        let file = "VERSION \"\"\n\nBU_: A\n\nBO_ 16 ACC: 8 A\n\nBO_ 17 Brake_1: 8 A\n\nBO_ 18 Brake_2: 8 A\n";
        database.add(file.as_bytes()).unwrap();
        let parse = |words: &[&str], database: &Database| {
            let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
            Ids::parse(&words, database)
        };
        let found = parse(&["200-2ff", "0xacc", "ACC", "Brake_*"], &database).unwrap();
        assert_eq!(found.ranges, [0x200..=0x2ff, 0xacc..=0xacc]);
        let numbers: Vec<u32> = found.messages.iter().map(|id| id.id).collect();
        assert_eq!(numbers, [16, 17, 18]);
        for wrong in ["", "xyz", "3-2", "20000000"] {
            let error = parse(&[wrong], &Database::default()).unwrap_err();
            assert!(error.contains("--dbc FILE"), "{error}");
            assert!(parse(&[wrong], &database).is_err(), "{wrong}");
        }
    }
}
