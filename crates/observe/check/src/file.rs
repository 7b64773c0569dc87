//! Reads a requirements file. Each error is one line that names the place and the way out.

use crate::requirements::{CallbackRule, ChainRule, Requirements};
use onbeat_document::text::{shorten, visible};
use onbeat_yaml::YamlError;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // The messages say the rest.
pub enum RequirementsError {
    #[error("{}{said}", at.map_or(String::new(), |at| format!("line {at}: ")))]
    Yaml { at: Option<u64>, said: String },
    #[error("{place}: {said}")]
    Rule {
        /// The rule's place in the file, such as `chains[0]`.
        place: String,
        said: &'static str,
    },
}

/// Reads and checks the text of a requirements file.
///
/// # Errors
///
/// Returns a [`RequirementsError`] if the text is not YAML, has an unknown key or a wrong value, or
/// has a rule that limits nothing.
pub fn read(bytes: &[u8]) -> Result<Requirements, RequirementsError> {
    let requirements: Requirements = onbeat_yaml::read(bytes).map_err(|e| match e {
        YamlError::Content { at, said, there } => {
            let said = shorten(&visible(&said), 160);
            let there = there.map(|l| format!(" in '{}'", shorten(&visible(&l), 60)));
            RequirementsError::Yaml {
                at,
                said: said + &there.unwrap_or_default(),
            }
        }
        YamlError::Empty => RequirementsError::Yaml {
            at: None,
            said: "the requirements file is empty. Write one with `onbeat check MODEL --init FILE`"
                .into(),
        },
        other => RequirementsError::Yaml {
            at: None,
            said: other.to_string(),
        },
    })?;
    validate(&requirements)?;
    Ok(requirements)
}

fn validate(all: &Requirements) -> Result<(), RequirementsError> {
    let fault = |place: String, said| Err(RequirementsError::Rule { place, said });
    let sure = all.confidence();
    if !(0.5..1.0).contains(&sure) {
        return fault(
            "confidence".into(),
            "write a confidence from 0.5 to below 1, like 0.95",
        );
    }
    let miss = all.miss();
    if !(miss > 0.0 && miss < 1.0) {
        return fault(
            "miss".into(),
            "write a share above 0% and below 100%, like 1%",
        );
    }
    for (i, rule) in all.chains.iter().enumerate() {
        if let Some(said) = chain(rule) {
            return fault(format!("chains[{i}]"), said);
        }
    }
    for (i, rule) in all.callbacks.iter().enumerate() {
        if let Some(said) = callback(rule) {
            return fault(format!("callbacks[{i}]"), said);
        }
    }
    for (i, rule) in all.topics.iter().enumerate() {
        let names_only = crate::requirements::TopicRule {
            topic: rule.topic.clone(),
            to: rule.to.clone(),
            ..Default::default()
        };
        if rule.topic.is_empty() {
            return fault(format!("topics[{i}]"), "name a topic: `topic: /scan`");
        }
        if *rule == names_only {
            return fault(format!("topics[{i}]"), LIMITS_NOTHING);
        }
    }
    for (name, paths) in [
        ("paths", &all.structure.paths),
        ("no_paths", &all.structure.no_paths),
    ] {
        if let Some(i) = paths.iter().position(Vec::is_empty) {
            return fault(
                format!("structure.{name}[{i}]"),
                "name the nodes and topics of the path, like [/lidar, /brake]",
            );
        }
    }
    Ok(())
}

const LIMITS_NOTHING: &str = "the rule limits nothing. Add a limit, or remove the rule";

fn chain(rule: &ChainRule) -> Option<&'static str> {
    let by_ends = rule.from.is_some() || rule.to.is_some() || !rule.through.is_empty();
    let names_only = ChainRule {
        chain: rule.chain.clone(),
        from: rule.from.clone(),
        to: rule.to.clone(),
        through: rule.through.clone(),
        ..ChainRule::default()
    };
    match (rule.chain.is_some(), by_ends) {
        (true, true) => Some("name a chain either by `chain`, or by `from`, `to` and `through`"),
        (false, false) => {
            Some("name a chain: by `chain` (its id), or by `from`, `to` and `through`")
        }
        _ => (*rule == names_only).then_some(LIMITS_NOTHING),
    }
}

fn callback(rule: &CallbackRule) -> Option<&'static str> {
    let names_only = CallbackRule {
        callback: rule.callback.clone(),
        node: rule.node.clone(),
        ..CallbackRule::default()
    };
    match (&rule.callback, &rule.node) {
        (Some(_), Some(_)) => Some("the rule has both `callback` and `node`. Remove one of them"),
        (None, None) => Some(
            "the rule names no callback. Add `callback` (the id of a callback) or `node` (the name of a node)",
        ),
        _ => (*rule == names_only).then_some(LIMITS_NOTHING),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_in_a_requirements_file_is_reported_with_its_entry_or_line() {
        for (text, said) in [
            ("", "--init"),
            (
                "chains:\n  - from: /a\n",
                "chains[0]: the rule limits nothing",
            ),
            (
                "chains:\n  - latency: {max: 5ms}\n",
                "chains[0]: name a chain",
            ),
            (
                "chains:\n  - chain: ab\n    from: /a\n    jitter: 1ms\n",
                "name a chain either by",
            ),
            (
                "chains:\n  - chain: ab\n    latency: {max: 5}\n",
                "line 3: '5' is not a time with a unit",
            ),
            (
                "chains:\n  - chain: ab\n    latency: {median: 5ms}\n",
                "'median' is not a statistic",
            ),
            ("chains:\n  - chain: ab\n    latncy: {max: 5ms}\n", "latncy"),
            (
                "callbacks:\n  - load: 10%\n",
                "callbacks[0]: the rule names no callback",
            ),
            (
                "topics:\n  - topic: /scan\n",
                "topics[0]: the rule limits nothing",
            ),
            ("topics:\n  - rate: 9Hz..\n", "topics[0]: name a topic"),
            ("confidence: 2\n", "confidence: write a confidence from 0.5"),
            ("miss: 0%\n", "miss: write a share above 0%"),
            ("structure:\n  paths: [[]]\n", "structure.paths[0]: name"),
        ] {
            let error = read(text.as_bytes()).expect_err(text).to_string();
            assert!(error.contains(said), "{text}: {error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }
}
