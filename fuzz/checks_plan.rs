//! Guarantees of the reader of plans, for any bytes. The fuzz target and the test that replays its
//! corpus share this file.
use onbeat_plan::{file, validate};

/// Reads any bytes as a plan file. Checks that the reader returns a one-line error, or a valid plan
/// that is the same after it is written and read again.
pub fn plan(data: &[u8]) {
    match file::read(data) {
        Ok(plan) => {
            assert_eq!(validate(&plan), Ok(()));
            let text = file::write(&plan).expect("a plan can be written");
            assert_eq!(file::read(text.as_bytes()).as_ref(), Ok(&plan), "{text}");
        }
        Err(error) => {
            let text = error.to_string();
            assert_eq!(text.lines().count(), 1, "{text}");
            assert!(!text.chars().any(char::is_control), "{text:?}");
        }
    }
}
