//! Remaps topics on command lines: puts `--ros-args -r NODE:TOPIC:=HELD` at the right place.
//!
//! rcl reads a rule as follows. The part before the first colon is a node's *name*, not its full
//! name, so nodes of the same name in several namespaces all match. The topic's full name
//! distinguishes them. rcl compares the left side with the name in the code, made absolute. It
//! takes the first rule that matches and applies no second rule to the result. So the new rules
//! come first. If the command line already remaps another name to the topic, a new rule remaps that
//! name to the held topic.

use thiserror::Error;

/// The reason why a topic cannot be remapped on a command line.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[allow(missing_docs)] // The messages say the rest.
pub enum RemapError {
    #[error(
        "'{0}' is not the name of a node or topic. Names consist of letters, digits, '_' and '/'"
    )]
    Name(String),
    #[error("`{0} launch` starts a launch file, which accepts no remapping on the command line. Use an overlay of the launch file")]
    Launch(String),
    #[error("the command to start is empty. Write it after --")]
    Empty,
}

/// The remapping of one topic of one node to another topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// The node, by its name or its full name with namespace.
    pub node: String,
    /// The absolute name of the topic that the node's code uses.
    pub topic: String,
    /// The topic to which messages of `topic` go instead.
    pub held: String,
}

impl Move {
    /// Returns the two sides of the remapping rule: `NODE:TOPIC` and the held topic.
    ///
    /// # Errors
    ///
    /// Fails if a name is invalid.
    pub fn sides(&self) -> Result<(String, String), RemapError> {
        let node = self.node.rsplit('/').next().unwrap_or_default();
        let is_valid = |name: &str| {
            !name.is_empty()
                && name
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '/')
        };
        for name in [node, &self.topic, &self.held] {
            if !is_valid(name) {
                return Err(RemapError::Name(name.to_string()));
            }
        }
        Ok((format!("{node}:{}", self.topic), self.held.clone()))
    }
}

/// Returns the words (`--ros-args -r RULE`) that remap one topic, for a command line without other
/// ROS arguments.
pub fn remap_args(node: &str, topic: &str, held: &str) -> Result<Vec<String>, RemapError> {
    let (left, right) = Move {
        node: node.into(),
        topic: topic.into(),
        held: held.into(),
    }
    .sides()?;
    Ok(vec![
        "--ros-args".into(),
        "-r".into(),
        format!("{left}:={right}"),
    ])
}

/// Returns `command` with remapping rules for `moves`. The rules for `moves` come before the
/// command's own rules, so that they take precedence.
pub fn remap_command(command: &[String], moves: &[Move]) -> Result<Vec<String>, RemapError> {
    let program = command.first().ok_or(RemapError::Empty)?;
    if program.rsplit('/').next() == Some("ros2") && command.get(1).is_some_and(|w| w == "launch") {
        return Err(RemapError::Launch(program.clone()));
    }
    let mut rules = Vec::new();
    for m in moves {
        let (left, right) = m.sides()?;
        let node = left.split(':').next().unwrap_or_default();
        for (rule_node, from) in rules_to_topic(command, &m.topic, &m.node) {
            if rule_node.is_none_or(|w| w == node) {
                rules.extend(["-r".into(), format!("{node}:{from}:={right}")]);
            }
        }
        rules.extend(["-r".to_string(), format!("{left}:={right}")]);
    }
    let mut out = command.to_vec();
    if rules.is_empty() {
        return Ok(out);
    }
    match command.iter().position(|w| w == "--ros-args") {
        Some(at) => {
            out.splice(at + 1..at + 1, rules);
        }
        None => {
            out.push("--ros-args".into());
            out.extend(rules);
        }
    }
    Ok(out)
}

/// Returns the absolute form of a name from a node's code or from a rule. A relative name gets the
/// namespace of `full_node`; `~` stands for this node.
fn absolute(name: &str, full_node: &str) -> String {
    let namespace = full_node.rsplit_once('/').map_or("", |(space, _)| space);
    match name.strip_prefix('~') {
        _ if name.starts_with('/') => name.to_owned(),
        Some(rest) => format!("{full_node}/{}", rest.trim_start_matches('/')),
        None => format!("{namespace}/{name}"),
    }
}

/// Returns the names that remapping rules of the command line map to the topic. Each name comes
/// with the node in its rule, if any.
fn rules_to_topic<'a>(
    command: &'a [String],
    topic: &str,
    full_node: &str,
) -> Vec<(Option<&'a str>, &'a str)> {
    let mut found = Vec::new();
    let mut inside = false;
    let mut words = command.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--ros-args" => inside = true,
            "--" => inside = false,
            "-r" | "--remap" if inside => {
                let Some((left, right)) = words.next().and_then(|r| r.split_once(":=")) else {
                    continue;
                };
                // A rule may name its kind. Rules for services and nodes are skipped.
                let (rule_node, from) = match left.split_once("://") {
                    Some(("rostopic", name)) => (None, name),
                    Some(_) => continue,
                    None => match left.split_once(':') {
                        Some((node, name)) => (Some(node), name),
                        None => (None, left),
                    },
                };
                if absolute(right, full_node) == topic && !from.starts_with("__") {
                    found.push((rule_node, from));
                }
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(String::from).collect()
    }

    fn pose() -> Move {
        Move {
            node: "/loc/ndt".into(),
            topic: "/pose".into(),
            held: "/pose/held".into(),
        }
    }

    fn moved(command: &str) -> String {
        remap_command(&words(command), &[pose()]).unwrap().join(" ")
    }

    #[test]
    fn remapping_rules_are_inserted_where_ros_parses_them() {
        assert_eq!(moved("a b"), "a b --ros-args -r ndt:/pose:=/pose/held");
        assert_eq!(
            moved("a --ros-args -p x:=1 -- rest"),
            "a --ros-args -r ndt:/pose:=/pose/held -p x:=1 -- rest"
        );
        assert_eq!(
            moved("a -r b --ros-args -r out:=/pose -r cam:in:=/pose -r ndt:o2:=/pose -r __ns:=/pose"),
            "a -r b --ros-args -r ndt:out:=/pose/held -r ndt:o2:=/pose/held -r ndt:/pose:=/pose/held \
             -r out:=/pose -r cam:in:=/pose -r ndt:o2:=/pose -r __ns:=/pose"
        );
        // Relative and private names belong to the node.
        let base = "a --ros-args -r ndt:out:=/pose/held -r ndt:/pose:=/pose/held";
        let near = Move {
            node: "/ndt".into(),
            ..pose()
        };
        let command = words("a --ros-args -r out:=pose");
        let moved_near = remap_command(&command, &[near]).unwrap().join(" ");
        assert_eq!(moved_near, format!("{base} -r out:=pose"));
        assert_eq!(
            moved("a --ros-args -r out:=pose"),
            "a --ros-args -r ndt:/pose:=/pose/held -r out:=pose",
            "that is /loc/pose"
        );
        assert_eq!(absolute("~/x", "/loc/ndt"), "/loc/ndt/x");
        assert_eq!(absolute("x", "/loc/ndt"), "/loc/x");
        assert_eq!(
            remap_args("n", "/t", "/h").unwrap(),
            words("--ros-args -r n:/t:=/h")
        );
    }

    #[test]
    fn commands_and_names_that_cannot_be_remapped_are_refused() {
        let refused =
            |c: &str, m: &Move| remap_command(&words(c), std::slice::from_ref(m)).unwrap_err();
        let launch = refused("/opt/bin/ros2 launch x", &pose());
        assert_eq!(launch, RemapError::Launch("/opt/bin/ros2".into()));
        assert_eq!(refused("", &pose()), RemapError::Empty);
        let bad = Move {
            topic: "/a:=b".into(),
            ..pose()
        };
        assert_eq!(refused("x", &bad), RemapError::Name("/a:=b".into()));
    }

    proptest! {
        #[test]
        fn added_remapping_rules_precede_competing_rules_and_change_no_argument(
            command in prop::collection::vec(prop::sample::select(
                vec!["x", "--ros-args", "-r", "a:=/pose", "ndt:/pose:=/b", "--", "-p"]), 1..12),
        ) {
            let command: Vec<String> = command.iter().map(|w| w.to_string()).collect();
            let out = remap_command(&command, &[pose()]).unwrap();
            let added = out.len() - command.len();
            let at = (0..=command.len()).find(|&i| {
                out[..i] == command[..i] && out[i + added..] == command[i..]
                    && out[i..i + added].iter().any(|w| w == "ndt:/pose:=/pose/held")
            });
            prop_assert!(at.is_some(), "{:?}", out);
            let ours = out.iter().position(|w| w == "ndt:/pose:=/pose/held").unwrap();
            let block = out.iter().position(|w| w == "--ros-args").unwrap();
            prop_assert!(out[block..ours].iter().all(|w| w != "ndt:/pose:=/b"));
            prop_assert!(out[block..ours].iter().all(|w| w != "--"));
        }
    }
}
