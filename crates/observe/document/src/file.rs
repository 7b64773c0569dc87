//! Writes model files, and reads and checks them. Each error is one line and says what to do next.

use crate::schema::{Model, SCHEMA};
use serde::{Deserialize, Serialize};
use serde_json::ser::{CompactFormatter, Formatter};
use std::collections::BTreeSet;
use std::io::{self, Write};

/// The reason why a text is not a usable model. Every message says what to do next.
#[allow(missing_docs)]
#[derive(Debug, thiserror::Error)]
pub enum ModelFileError {
    #[error("the model file is empty. Make it again with `onbeat model TRACE`.")]
    Empty,
    #[error("the model file is cut off in line {line}. Make it again with `onbeat model TRACE`.")]
    Truncated { line: usize },
    #[error("the model file is not valid JSON at {0}. Make a model with `onbeat model TRACE`.")]
    NotJson(String),
    #[error("the file is JSON, but not an onbeat model (\"schema\": \"{SCHEMA}\" is missing). Make a model with `onbeat model TRACE`.")]
    Foreign,
    #[error("the model has schema '{found}', but this onbeat reads '{SCHEMA}'. Make the model again with this version's `onbeat model TRACE`.")]
    Schema { found: String },
    #[error("the model file is damaged: {0}. Make it again with `onbeat model TRACE`.")]
    Field(String),
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

/// Checks that all callbacks, edges and runs exist whose ids occur in a part of the model. Exports
/// and reports rely on this.
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

/// Writes a model: a line for each callback, edge, chain and so on, and no other white space.
///
/// # Errors
/// Fails if writing to `out` fails.
pub fn write(out: &mut dyn Write, model: &Model) -> io::Result<()> {
    let lines = Lines::default();
    model.serialize(&mut serde_json::Serializer::with_formatter(
        &mut *out, lines,
    ))?;
    out.write_all(b"\n")
}

/// A JSON formatter that begins a line for each field of the file and for each element of these
/// fields.
#[derive(Default)]
struct Lines {
    depth: usize,
    has_value: bool,
}

const ELEMENTS: usize = 2;

impl Lines {
    fn end<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        let breaks = self.depth <= ELEMENTS && self.has_value;
        self.depth -= 1;
        self.has_value = true;
        match breaks {
            true => out.write_all(b"\n"),
            false => Ok(()),
        }
    }

    fn begin<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        if !first {
            out.write_all(b",")?;
        }
        match self.depth <= ELEMENTS {
            true => out.write_all(b"\n"),
            false => Ok(()),
        }
    }
}

impl Formatter for Lines {
    fn begin_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.depth += 1;
        self.has_value = false;
        CompactFormatter.begin_array(out)
    }

    fn end_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.end(out)?;
        CompactFormatter.end_array(out)
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.begin(out, first)
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.has_value = true;
        Ok(())
    }

    fn begin_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.depth += 1;
        self.has_value = false;
        CompactFormatter.begin_object(out)
    }

    fn end_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.end(out)?;
        CompactFormatter.end_object(out)
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.begin(out, first)
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.has_value = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conclude::{conclude, testing::run};

    #[test]
    fn a_model_file_has_a_line_for_each_callback() {
        let (a, b) = ("/a:timer(1ms)", "/b:subscription(/x)");
        let evidence = run("r").with_callback(a, 10).with_callback(b, 10);
        let model = conclude(evidence.with_edge(a, b, "/x", 10));
        let mut text = Vec::new();
        write(&mut text, &model).unwrap();
        assert_eq!(read(&text).unwrap(), model);
        let text = String::from_utf8(text).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0..3],
            ["{", "\"schema\":\"onbeat-model/1\",", "\"runs\":["]
        );
        let of = |id: &str| format!("{{\"id\":\"{id}\",");
        assert!(lines.iter().any(|l| l.starts_with(&of(a))), "{text}");
        assert!(lines.contains(&"\"junctions\":[],"), "{text}");
        assert_eq!(lines.last(), Some(&"}"));
    }
}
