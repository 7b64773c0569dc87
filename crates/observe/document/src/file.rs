//! Reads and checks the text of a model file. Each error is one line and says what to do next.

use crate::schema::{Model, SCHEMA};
use serde::Deserialize;
use std::collections::BTreeSet;

/// The reason why a text is not a usable model. Every message says what to do next.
#[derive(Debug, thiserror::Error)]
pub enum ModelFileError {
    /// The file is empty.
    #[error("the model file is empty. Make it again with `onbeat model TRACE`.")]
    Empty,
    /// The text ends in the middle.
    #[error("the model file is cut off in line {line}. Make it again with `onbeat model TRACE`.")]
    Truncated {
        /// The line in which the text ends.
        line: usize,
    },
    /// The text is not JSON.
    #[error("not a model file: the JSON is wrong at {0}. Make a model with `onbeat model TRACE`.")]
    NotJson(String),
    /// The text is JSON, but not a model.
    #[error("JSON, but not an onbeat model (\"schema\": \"{SCHEMA}\" is missing). Make a model with `onbeat model TRACE`.")]
    Foreign,
    /// The model has a schema of another version.
    #[error("the model has schema '{found}', but this onbeat reads '{SCHEMA}'. Make the model again with this version's `onbeat model TRACE`.")]
    Schema {
        /// The schema that the file names.
        found: String,
    },
    /// A field is missing or has the wrong type.
    #[error("the model file is damaged: {0}. Make it again with `onbeat model TRACE`.")]
    Field(String),
    /// Fields contradict one another.
    #[error("the model file contradicts itself: {0}. Make it again with `onbeat model TRACE`.")]
    Inconsistent(String),
}

/// Reads and checks the text of a model file.
pub fn read(bytes: &[u8]) -> Result<Model, ModelFileError> {
    #[derive(Deserialize)]
    struct Header {
        schema: Option<serde_json::Value>,
    }
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(ModelFileError::Empty);
    }
    let syntax = |e: serde_json::Error| {
        if e.is_eof() {
            ModelFileError::Truncated { line: e.line() }
        } else {
            ModelFileError::NotJson(format!("line {}, column {}", e.line(), e.column()))
        }
    };
    // The first check is whether the text is JSON, whatever its structure.
    let _: serde::de::IgnoredAny = serde_json::from_slice(bytes).map_err(syntax)?;
    let header: Header = serde_json::from_slice(bytes).map_err(|_| ModelFileError::Foreign)?;
    match header.schema {
        Some(serde_json::Value::String(s)) if s == SCHEMA => {}
        Some(serde_json::Value::String(s)) if s.starts_with("onbeat-model/") => {
            return Err(ModelFileError::Schema {
                found: crate::text::shorten(&s, 60),
            })
        }
        _ => return Err(ModelFileError::Foreign),
    }
    let model: Model =
        serde_json::from_slice(bytes).map_err(|e| ModelFileError::Field(e.to_string()))?;
    check(&model)?;
    Ok(model)
}

/// Checks that all references are valid, because exports and reports follow them.
fn check(model: &Model) -> Result<(), ModelFileError> {
    let name = |id: &str| crate::text::shorten(&crate::text::visible(id), 60);
    let mut known = BTreeSet::new();
    for callback in &model.callbacks {
        if !known.insert(callback.id.as_str()) {
            return Err(ModelFileError::Inconsistent(format!(
                "callback '{}' occurs twice",
                name(&callback.id)
            )));
        }
    }
    let missing = |what: &str, id: &str| {
        ModelFileError::Inconsistent(format!(
            "{what} names '{}', which is not a callback",
            name(id)
        ))
    };
    for edge in &model.edges {
        for end in [&edge.from, &edge.to] {
            if !known.contains(end.as_str()) {
                return Err(missing("an edge", end));
            }
        }
    }
    for junction in &model.junctions {
        for id in junction.inputs.iter().chain([&junction.callback]) {
            if !known.contains(id.as_str()) {
                return Err(missing("a junction", id));
            }
        }
    }
    for chain in &model.chains {
        if chain.callbacks.is_empty() {
            return Err(ModelFileError::Inconsistent(format!(
                "chain '{}' is empty",
                name(&chain.id)
            )));
        }
        for id in &chain.callbacks {
            if !known.contains(id.as_str()) {
                return Err(missing("a chain", id));
            }
        }
    }
    Ok(())
}
