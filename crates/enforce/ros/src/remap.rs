//! Command lines with a topic moved away: `--ros-args -r NODE:TOPIC:=HELD` at the right place.
//!
//! Rules as rcl reads them: the part before the first colon is a node's *name* (not its full name,
//! so nodes of one name in several namespaces all match; the topic's full name tells them apart). A
//! rule's left side is compared with the name that the code uses, made absolute; the first rule
//! that matches is taken, and no second one is applied to its result. So ours come first, and where
//! the command line already moves another name to the topic, that name is moved to the held one.

use thiserror::Error;

/// Why a topic cannot be moved on a command line.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RemapError {
    /// A name that is none.
    #[error("'{0}' is no name of a node or topic: letters, digits, '_' and '/' are expected")]
    Name(String),
    /// Launch files start their nodes themselves.
    #[error("`{0} launch` starts nodes by a launch file, which takes no remapping: use an overlay of the launch file")]
    Launch(String),
    /// Nothing to start.
    #[error("there is no command to start: give one")]
    Empty,
}

/// One topic of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// The node, by name or full name.
    pub node: String,
    /// The topic as the node's code has it, absolute.
    pub topic: String,
    /// Where it goes.
    pub held: String,
}

impl Move {
    /// The rule's two sides: `NODE:TOPIC` and the held topic.
    pub fn sides(&self) -> Result<(String, String), RemapError> {
        let node = self.node.rsplit('/').next().unwrap_or_default();
        let fine = |name: &str| {
            !name.is_empty()
                && name
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '/')
        };
        for name in [node, &self.topic, &self.held] {
            if !fine(name) {
                return Err(RemapError::Name(name.to_string()));
            }
        }
        Ok((format!("{node}:{}", self.topic), self.held.clone()))
    }
}

/// The words that move one topic, for a command line without others.
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

/// A command line with topics moved.
pub fn remap_command(command: &[String], moves: &[Move]) -> Result<Vec<String>, RemapError> {
    let program = command.first().ok_or(RemapError::Empty)?;
    if program.rsplit('/').next() == Some("ros2") && command.get(1).is_some_and(|w| w == "launch") {
        return Err(RemapError::Launch(program.clone()));
    }
    let mut rules = Vec::new();
    for m in moves {
        let (left, right) = m.sides()?;
        let node = left.split(':').next().unwrap_or_default();
        for (whose, from) in existing(command, &m.topic, &m.node) {
            if whose.is_none_or(|w| w == node) {
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

/// A name as a node's code or rule may give it, made absolute: relative ones are the node's
/// namespace's, those with `~` its own.
fn absolute(name: &str, full_node: &str) -> String {
    let namespace = full_node.rsplit_once('/').map_or("", |(space, _)| space);
    match name.strip_prefix('~') {
        _ if name.starts_with('/') => name.to_owned(),
        Some(rest) => format!("{full_node}/{}", rest.trim_start_matches('/')),
        None => format!("{namespace}/{name}"),
    }
}

/// Names that rules of the command line move to the topic, with the node that each is for.
fn existing<'a>(
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
                // A topic's rule may say so; those of services and names do not concern us.
                let (whose, from) = match left.split_once("://") {
                    Some(("rostopic", name)) => (None, name),
                    Some(_) => continue,
                    None => match left.split_once(':') {
                        Some((node, name)) => (Some(node), name),
                        None => (None, left),
                    },
                };
                if absolute(right, full_node) == topic && !from.starts_with("__") {
                    found.push((whose, from));
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
    fn places() {
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
        // Relative and private names are the node's.
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
    fn what_cannot_be_moved() {
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
        /// Nothing is lost or reordered, and ours is before any rule that it could compete with.
        #[test]
        fn only_words_are_added(command in prop::collection::vec(
            prop::sample::select(vec!["x", "--ros-args", "-r", "a:=/pose", "ndt:/pose:=/b", "--", "-p"]),
            1..12)) {
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
