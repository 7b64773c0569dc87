//! Guarantees of the reader of requirements, for any bytes. The fuzz target and the test that
//! replays its corpus share this file.
use onbeat_check::{check, read};

/// Reads any bytes as a requirements file. Checks that the reader returns a one-line error, or
/// requirements that a model can be checked against.
pub fn requirements(data: &[u8]) {
    match read(data) {
        Ok(wanted) => {
            let model: onbeat_document::Model = serde_json::from_str(MODEL).expect("a model");
            for finding in check(&model, &wanted) {
                assert!(!finding.requirement.is_empty());
            }
        }
        Err(error) => {
            let text = error.to_string();
            assert_eq!(text.lines().count(), 1, "{text}");
            assert!(!text.chars().any(char::is_control), "{text:?}");
        }
    }
}

/// An empty model, against which all requirements can be checked.
const MODEL: &str =
    r#"{"schema":"onbeat-model/1","runs":[],"callbacks":[],"edges":[],"junctions":[],"chains":[]}"#;
