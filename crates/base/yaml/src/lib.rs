//! Reads YAML files that people write: bounded in size and depth, without anchors, each key once.
//!
//! An error has a line number, a sentence and the text of that line. The caller makes them safe for
//! a terminal.

use serde::de::DeserializeOwned;
use serde::Serialize;

/// A list that is written on one line of YAML, such as `[1, 2]`.
pub use serde_saphyr::FlowSeq;

/// The size in bytes of the longest YAML file that onbeat reads. Files that describe a large system
/// have a hundredth of this size.
pub const MAX_BYTES: usize = 1 << 20;

#[allow(missing_docs)] // The messages say the rest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum YamlError {
    #[error("the file is empty")]
    Empty,
    #[error("the file is too long: {bytes} bytes, but at most {MAX_BYTES} are read")]
    TooLong { bytes: usize },
    #[error("byte {at} is not UTF-8")]
    NotText { at: usize },
    #[error("{said}")]
    Content {
        at: Option<u64>,
        /// The message of the YAML parser, on one line. It can contain words of the file.
        said: String,
        there: Option<String>,
    },
}

/// Parses YAML into a value of type `T`.
///
/// # Errors
/// Returns a [`YamlError`] with the reason.
pub fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, YamlError> {
    let text = text(bytes)?;
    let options = serde_saphyr::options! {
        with_snippet: false,
        duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::Error,
        budget: serde_saphyr::budget! {
            max_depth: 16,
            flow_nesting_limit: 16,
            max_documents: 1,
            max_nodes: 100_000,
            max_events: 300_000,
            // Without anchors, an input cannot grow by expansion.
            max_anchors: 0,
            max_aliases: 0,
            max_merge_keys: 0,
        },
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|e| {
        let at = e.location().map(|l| l.line()).filter(|&l| l > 0);
        let options = serde_saphyr::render_options! {
            snippets: serde_saphyr::SnippetMode::Off
        };
        let said = one_line(&e.without_snippet().render_with_options(options));
        let there = at.and_then(|at| text.lines().nth(usize::try_from(at - 1).ok()?));
        let there = there.map(str::trim).filter(|l| !l.is_empty());
        YamlError::Content {
            at,
            said,
            there: there.map(String::from),
        }
    })
}

fn text(bytes: &[u8]) -> Result<&str, YamlError> {
    if bytes.len() > MAX_BYTES {
        return Err(YamlError::TooLong { bytes: bytes.len() });
    }
    let text = std::str::from_utf8(bytes).map_err(|e| YamlError::NotText {
        at: e.valid_up_to(),
    })?;
    let says_nothing = |l: &str| l.is_empty() || l.starts_with('#');
    match text.lines().map(str::trim).all(says_nothing) {
        true => Err(YamlError::Empty),
        false => Ok(text),
    }
}

fn one_line(said: &str) -> String {
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    match said.rfind(" at line ") {
        Some(end) => said[..end].to_string(),
        None => said,
    }
}

/// Writes a value as YAML.
///
/// # Errors
/// Returns the writer's message, on one line.
pub fn write<T: Serialize>(value: &T) -> Result<String, String> {
    let options = serde_saphyr::ser_options! {
        prefer_block_scalars: false,
    };
    serde_saphyr::to_string_with_options(value, options).map_err(|e| one_line(&e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn fault(text: &str) -> YamlError {
        read::<BTreeMap<String, u8>>(text.as_bytes()).expect_err("no such map")
    }

    #[test]
    fn a_yaml_error_contains_its_line() {
        assert_eq!(
            read("a: 1\nb: 2\n".as_bytes()),
            Ok(BTreeMap::from([("a".to_string(), 1), ("b".into(), 2)]))
        );
        for (text, line) in [
            ("a: 1\nb: many\n", 2),
            ("a: 1\na: 2\n", 2),
            ("a: 1\nb: &x 2\n", 2),
            ("a: 1\n\nb: [\n", 3),
        ] {
            let YamlError::Content { at, said, there } = fault(text) else {
                panic!("{text}");
            };
            assert!(
                at.is_some_and(|at| at.abs_diff(line) <= 1),
                "{text}: {at:?}"
            );
            assert!(
                !said.contains('\n') && !said.contains(" at line "),
                "{said}"
            );
            assert!(there.is_none_or(|l| text.contains(&l)));
        }
        assert_eq!(fault("# nothing\n\n"), YamlError::Empty);
        let bytes = read::<u8>(b"a: \xff").expect_err("no text");
        assert_eq!(bytes, YamlError::NotText { at: 3 });
        let long = vec![b'a'; MAX_BYTES + 1];
        assert_eq!(
            read::<String>(&long),
            Err(YamlError::TooLong {
                bytes: MAX_BYTES + 1
            })
        );
    }

    #[test]
    fn deep_and_large_yaml_texts_are_refused_quickly() {
        assert!(matches!(
            fault(&"[".repeat(100_000)),
            YamlError::Content { .. }
        ));
        let bomb = "a: &a [1,1]\nb: &b [*a,*a]\nc: [*b,*b]\n";
        assert!(matches!(fault(bomb), YamlError::Content { .. }));
    }
}
