//! Junctions that a user states: whether a node's subscriptions wait for one another before a topic
//! is published. Users state them if the data do not decide.

use crate::schema::{JunctionKind, Matching};
use std::fmt;

/// A statement of the user about a node: it waits for several inputs before it publishes a topic,
/// or it does not wait for them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct StatedJunction {
    /// The full name of the node that the statement is about, for example `/fusion`.
    pub node: String,
    /// The topics of the awaited inputs. An empty list stands for all inputs for which the node can
    /// wait according to the recorded data.
    pub inputs: Vec<String>,
    /// The topic that the node publishes when it has its inputs.
    pub topic: String,
    /// The kind of junction. With `and`, the node waits for all inputs; with `or`, one input is
    /// enough.
    pub kind: JunctionKind,
    /// The rule by which an `and` joins items. `approximate` joins the items whose chains began
    /// closest together.
    pub matching: Matching,
}

#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JunctionParseError {
    #[error("cannot read the junction '{0}'. Write it as 'NODE -> TOPIC = and' or 'NODE(INPUT, INPUT) -> TOPIC = and'.")]
    Form(String),
    #[error(
        "the junction '{0}' has an unknown kind. End it with '= and', '= approximate' or '= or'."
    )]
    Kind(String),
    #[error("the junction '{0}' has fewer than two inputs in its brackets, or ends with '= or'. Write at least two different inputs, and end it with '= and' or '= approximate'.")]
    Inputs(String),
}

impl std::str::FromStr for StatedJunction {
    type Err = JunctionParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let form = || JunctionParseError::Form(text.into());
        let (rest, kind) = text.rsplit_once('=').ok_or_else(form)?;
        let (kind, matching) = match kind.trim() {
            "and" => (JunctionKind::And, Matching::InTurn),
            "approximate" => (JunctionKind::And, Matching::Nearest),
            "or" => (JunctionKind::Or, Matching::InTurn),
            _ => return Err(JunctionParseError::Kind(text.into())),
        };
        let (node, topic) = rest.split_once("->").ok_or_else(form)?;
        let (node, topic) = (node.trim(), topic.trim());
        let (node, inputs) = match node.strip_suffix(')') {
            Some(list) => {
                let (node, list) = list.split_once('(').ok_or_else(form)?;
                let mut inputs: Vec<String> = list.split(',').map(|i| i.trim().into()).collect();
                inputs.sort();
                inputs.dedup();
                (node.trim(), inputs)
            }
            None => (node, Vec::new()),
        };
        let empty = node.is_empty() || topic.is_empty() || inputs.iter().any(String::is_empty);
        if empty || topic.contains("->") {
            return Err(form());
        }
        if !inputs.is_empty() && (inputs.len() < 2 || kind == JunctionKind::Or) {
            return Err(JunctionParseError::Inputs(text.into()));
        }
        Ok(StatedJunction {
            node: node.into(),
            inputs,
            topic: topic.into(),
            kind,
            matching,
        })
    }
}

impl fmt::Display for StatedJunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.node)?;
        if !self.inputs.is_empty() {
            write!(f, "({})", self.inputs.join(", "))?;
        }
        let kind = match (self.kind, self.matching) {
            (JunctionKind::And, Matching::InTurn) => "and",
            (JunctionKind::And, Matching::Nearest) => "approximate",
            (JunctionKind::Or, _) => "or",
        };
        write!(f, " -> {} = {kind}", self.topic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stated_junction_has_a_node_a_topic_and_a_kind() {
        let stated: StatedJunction = "/f ->/out= and".parse().unwrap();
        assert_eq!(
            (stated.node.as_str(), stated.topic.as_str()),
            ("/f", "/out")
        );
        assert_eq!((stated.kind, stated.inputs.len()), (JunctionKind::And, 0));
        assert_eq!(stated.to_string(), "/f -> /out = and");
        let stated: StatedJunction = "/f(/b,/a)->/out=and".parse().unwrap();
        assert_eq!(stated.to_string(), "/f(/a, /b) -> /out = and");
        assert_eq!(stated.to_string().parse(), Ok(stated));
        let or: StatedJunction = "/f -> /out = or".parse().unwrap();
        assert_eq!(or.kind, JunctionKind::Or);
        let nearest: StatedJunction = "/f -> /out = approximate".parse().unwrap();
        assert_eq!(nearest.matching, Matching::Nearest);
        assert_eq!(nearest.to_string(), "/f -> /out = approximate");
    }

    #[test]
    fn the_error_for_a_wrong_junction_says_how_to_write_one() {
        let error = |text: &str| text.parse::<StatedJunction>().unwrap_err();
        for text in [
            "/f -> /out",
            "/f = and",
            " -> /out = and",
            "/f(/a,) -> /o = and",
        ] {
            assert_eq!(error(text), JunctionParseError::Form(text.into()));
        }
        assert!(matches!(
            error("/f -> /o = xor"),
            JunctionParseError::Kind(_)
        ));
        for text in ["/f(/a) -> /o = and", "/f(/a, /b) -> /o = or"] {
            assert_eq!(error(text), JunctionParseError::Inputs(text.into()));
        }
    }
}
