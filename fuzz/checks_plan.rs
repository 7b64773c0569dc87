//! What must hold for any bytes given as a plan: shared by the fuzz target and the test that replays
//! its corpus.
use onbeat_plan::{file, validate};

/// A plan file of any bytes: refused in one line, or a valid plan that survives writing and reading.
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
