//! Defines the options that select a part of a recording. `onbeat replay` and `onbeat convert` share them.

use onbeat_replay::chain::Choice;
use onbeat_terminal::units::parse_duration;
use std::ops::RangeInclusive;
use std::time::Duration;

#[derive(clap::Args)]
pub struct Selection {
    /// Take these streams only; * stands for any characters
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    topics: Vec<String>,
    /// Leave these streams out; * stands for any characters
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    exclude: Vec<String>,
    /// Take CAN frames with these hexadecimal identifiers only
    #[arg(long, value_name = "ID,FROM-TO,...", value_delimiter = ',', value_parser = parse_ids)]
    ids: Vec<RangeInclusive<u32>>,
    /// Give stream A the name B
    #[arg(long, value_name = "A:=B", value_parser = parse_remap)]
    remap: Vec<(String, String)>,
    /// Skip this much recorded time at the beginning
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "0s")]
    pub start: Duration,
    /// Shorten longer times without an item to this, for example steps of the recorder's clock
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    max_gap: Option<Duration>,
}

fn parse_remap(text: &str) -> Result<(String, String), String> {
    match text.split_once(":=") {
        Some((from, to)) if !from.is_empty() && !to.is_empty() => Ok((from.into(), to.into())),
        _ => Err("write OLD:=NEW, for example /scan:=/front/scan".into()),
    }
}

fn parse_ids(text: &str) -> Result<RangeInclusive<u32>, String> {
    let number = |digits: &str| u32::from_str_radix(digits.trim_start_matches("0x"), 16);
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    match (number(from), number(to)) {
        (Ok(from), Ok(to)) if from <= to && to <= 0x1fff_ffff => Ok(from..=to),
        _ => Err("write hexadecimal identifiers, for example 123 or 200-2ff".into()),
    }
}

impl Selection {
    pub fn choice(&self) -> Choice {
        Choice {
            only: self.topics.clone(),
            without: self.exclude.clone(),
            rename: self.remap.clone(),
            ids: self.ids.clone(),
            start_ns: i64::try_from(self.start.as_nanos()).unwrap_or(i64::MAX),
            times: 1,
            max_gap_ns: self
                .max_gap
                .map(|gap| u64::try_from(gap.as_nanos()).unwrap_or(u64::MAX)),
            ..Choice::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_and_new_names_are_parsed_or_refused() {
        assert_eq!(parse_ids("200-2ff"), Ok(0x200..=0x2ff));
        assert_eq!(parse_ids("0x7"), Ok(7..=7));
        for wrong in ["", "xyz", "3-2", "20000000"] {
            assert!(parse_ids(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_remap("/a:=/b"), Ok(("/a".into(), "/b".into())));
        assert!(parse_remap("/a=/b").is_err() && parse_remap(":=/b").is_err());
    }
}
