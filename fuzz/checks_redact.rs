//! Guarantees of the reader of policies, for any bytes. The fuzz target and the test that replays
//! its corpus share this file.
use onbeat_redact::{cuts, read, redact, Key};

/// Reads any bytes as a policy. Checks that the reader returns a one-line error, or a policy by
/// which a model can be redacted.
pub fn policy(data: &[u8]) {
    match read(data) {
        Ok(policy) => {
            let model: onbeat_document::Model = serde_json::from_str(MODEL).expect("a model");
            let key = Key::new(&[7; 32]).expect("long enough");
            assert!(cuts(&model, &policy).is_empty());
            let redacted =
                redact(&model, &policy, &key).expect("a model without any names can be redacted");
            assert!(redacted.model.callbacks.is_empty());
        }
        Err(error) => {
            let text = error.to_string();
            assert_eq!(text.lines().count(), 1, "{text}");
            assert!(!text.chars().any(char::is_control), "{text:?}");
        }
    }
}

const MODEL: &str =
    r#"{"schema":"onbeat-model/1","runs":[],"callbacks":[],"edges":[],"junctions":[],"chains":[]}"#;
