//! What must hold for any bytes given as requirements: shared by the fuzz target and the test that
//! replays its corpus.
use onbeat_check::{check, read};

/// A requirements file of any bytes: refused in one line, or requirements that a model can be held
/// against.
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

/// A model of nothing: rules have to bear it.
const MODEL: &str =
    r#"{"schema":"onbeat-model/1","runs":[],"callbacks":[],"edges":[],"junctions":[],"chains":[]}"#;
