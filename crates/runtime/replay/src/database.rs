//! Reads the names of CAN messages from DBC files.

use crate::pattern::fits;
use crate::source::can::{ERROR, EXTENDED};
use can_dbc::{Dbc, MessageId};
use std::collections::BTreeMap;

/// The size of the largest DBC file that onbeat reads, in bytes. DBC files of whole vehicles have a
/// few megabytes.
pub const MOST_BYTES: u64 = 64 << 20;
/// The name of the pseudo-message in which DBC files store signals that belong to no message.
const NO_MESSAGE: &str = "VECTOR__INDEPENDENT_SIG_MSG";
const IDENTIFIER: u32 = 0x1fff_ffff;

/// The CAN messages of one or more DBC files, by identifier.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Database {
    messages: BTreeMap<FrameId, String>,
}

/// The identifier of a CAN frame, with 11 or 29 bits. In the order of `FrameId`s, identifiers with
/// 11 bits come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameId {
    /// True if the identifier has 29 bits, false if it has 11.
    pub is_extended: bool,
    /// The identifier without the flag bits of `struct can_frame`.
    pub id: u32,
}

impl FrameId {
    /// Returns the identifier in the first word of `struct can_frame`, or `None` for an error
    /// frame.
    pub fn of_word(word: u32) -> Option<FrameId> {
        (word & ERROR == 0).then_some(FrameId {
            is_extended: word & EXTENDED != 0,
            id: word & IDENTIFIER,
        })
    }
}

impl std::fmt::Display for FrameId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.is_extended {
            true => write!(f, "{:08X}", self.id),
            false => write!(f, "{:03X}", self.id),
        }
    }
}

impl Database {
    /// Adds the messages of a DBC file. If two files contain the same identifier, the name of the
    /// first file is used.
    ///
    /// # Errors
    /// Fails with a sentence if `file` is not a complete DBC file. No message is added then.
    pub fn add(&mut self, file: &[u8]) -> Result<(), String> {
        // Only comments, units and descriptions of values have other characters than ASCII.
        let text = String::from_utf8_lossy(file);
        let dbc = Dbc::try_from(text.as_ref()).map_err(|error| {
            let line = line_of(&error.to_string());
            let line = line.map_or(String::new(), |line| format!(" (line {line})"));
            format!("not a whole DBC file{line}. Give a file that a DBC editor can open")
        })?;
        for message in dbc.messages {
            if message.name != NO_MESSAGE {
                let id = match message.id {
                    MessageId::Standard(id) => (false, id.into()),
                    MessageId::Extended(id) => (true, id),
                };
                let (is_extended, id) = id;
                let id = FrameId { is_extended, id };
                self.messages.entry(id).or_insert(message.name);
            }
        }
        Ok(())
    }

    /// Returns the name of the CAN message with this identifier, or `None` if no file contains this
    /// identifier.
    pub fn name(&self, id: FrameId) -> Option<&str> {
        self.messages.get(&id).map(String::as_str)
    }

    /// Returns the identifiers of all messages whose names match `pattern`. `*` stands for any
    /// characters.
    pub fn ids(&self, pattern: &str) -> Vec<FrameId> {
        let named = self.messages.iter().filter(|(_, name)| fits(pattern, name));
        named.map(|(id, _)| *id).collect()
    }
}

/// Returns the line number from a parser error, whose text begins with `--> LINE:COLUMN`.
fn line_of(error: &str) -> Option<u32> {
    let (_, place) = error.split_once("--> ")?;
    place.split_once(':')?.0.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &[u8] = b"VERSION \"\"\n\nBU_: ECU\n\n\
        BO_ 291 EngineData: 8 ECU\n SG_ Temp : 0|8@1+ (1,0) [0|0] \"\xb0C\" ECU\n\n\
        BO_ 2147483939 EngineFar: 8 Vector__XXX\n\n\
        BO_ 3221225472 VECTOR__INDEPENDENT_SIG_MSG: 0 Vector__XXX\n SG_ Old : 0|1@1+ (1,0) [0|0] \"\" ECU\n";

    #[test]
    fn can_messages_with_11_and_29_bit_identifiers_have_their_names() {
        let mut database = Database::default();
        database.add(FILE).unwrap();
        let (near, far) = (FrameId::of_word(0x123), FrameId::of_word(EXTENDED | 0x123));
        let (near, far) = (near.unwrap(), far.unwrap());
        assert_eq!(database.name(near), Some("EngineData"));
        assert_eq!(database.name(far), Some("EngineFar"));
        assert_eq!(
            (near.to_string(), far.to_string()),
            ("123".into(), "00000123".into())
        );
        assert_eq!(database.ids("Engine*"), [near, far]);
        assert_eq!(database.ids("EngineFar"), [far]);
        assert_eq!(database.ids("VECTOR*"), []);
        assert_eq!(FrameId::of_word(ERROR | 0x123), None);
        let error = database.add(&FILE[..80]).unwrap_err();
        assert!(error.contains("(line 6)"), "{error}");
        for torn in 0..FILE.len() {
            let _ = Database::default().add(&FILE[..torn]);
        }
    }
}
