//! Reads the policy, which lists the names that a redacted model shows. Each error is one line that
//! names the place and the way out.

use onbeat_document::text::{shorten, visible};
use onbeat_document::Model;
use onbeat_yaml::YamlError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The names that a redacted model shows (docs/policy-format.md). All other names are hidden.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    pub visible: Visible,
    /// If set, hidden callbacks are collapsed into parts, which have the timing of these callbacks.
    /// Otherwise all callbacks stay, with replaced names.
    pub collapse: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            visible: Visible::default(),
            collapse: true,
        }
    }
}

/// The names that stay in a redacted model. A name that ends in `/**` stands for all names below
/// it.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Visible {
    /// The full names of visible topics, services and actions.
    pub topics: Vec<String>,
    /// The full names of visible nodes. All their callbacks are visible too.
    pub nodes: Vec<String>,
    /// The ids of visible callbacks. The names of their nodes and inputs are visible too.
    pub callbacks: Vec<String>,
    pub threads: Vec<String>,
    pub modes: Vec<String>,
    pub hosts: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // The messages say the rest.
pub enum PolicyError {
    #[error("{}{said}", at.map_or(String::new(), |at| format!("line {at}: ")))]
    Yaml { at: Option<u64>, said: String },
    #[error("visible.{list}[{at}]: '{name}' {said}")]
    Name {
        list: &'static str,
        at: usize,
        name: String,
        said: &'static str,
    },
}

/// Reads and checks the text of a policy.
///
/// # Errors
///
/// Returns a [`PolicyError`] if the text is not YAML, has an unknown key or a wrong value, or lists
/// an invalid name.
pub fn read(bytes: &[u8]) -> Result<Policy, PolicyError> {
    let policy: Policy = onbeat_yaml::read(bytes).map_err(|e| match e {
        YamlError::Content { at, said, there } => {
            let said = shorten(&visible(&said), 160);
            let there = there.map(|l| format!(" in '{}'", shorten(&visible(&l), 60)));
            let said = said + &there.unwrap_or_default();
            PolicyError::Yaml { at, said }
        }
        YamlError::Empty => PolicyError::Yaml {
            at: None,
            said: "the policy is empty. Name the visible parts, like `visible: {topics: [/scan]}`"
                .into(),
        },
        other => PolicyError::Yaml {
            at: None,
            said: other.to_string(),
        },
    })?;
    policy.validate()?;
    Ok(policy)
}

impl Policy {
    fn validate(&self) -> Result<(), PolicyError> {
        let v = &self.visible;
        let with_slash = [("topics", &v.topics), ("nodes", &v.nodes)];
        for (list, names) in with_slash {
            for (at, name) in names.iter().enumerate() {
                let fault = |said| PolicyError::Name {
                    list,
                    at,
                    name: shorten(&visible(name), 60),
                    said,
                };
                let stem = name.strip_suffix("/**").unwrap_or(name);
                if !name.starts_with('/') {
                    return Err(fault("is not a full name. Begin it with a slash"));
                }
                if stem.contains('*') {
                    return Err(fault(
                        "has a star in the middle. Only `/**` at the end stands for several names",
                    ));
                }
            }
        }
        Ok(())
    }

    /// Returns the names in the policy that do not occur in the model. Such names are misspelled,
    /// or belong to another build.
    pub fn unknown(&self, model: &Model) -> Vec<String> {
        let mut topics: BTreeSet<&str> = BTreeSet::new();
        let (mut nodes, mut ids, mut threads) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for c in &model.callbacks {
            nodes.extend(
                [Some(c.node.as_str()), c.caller.as_deref()]
                    .into_iter()
                    .flatten(),
            );
            ids.insert(c.id.as_str());
            threads.extend(c.threads.iter().map(|t| t.comm.as_str()));
            topics.insert(&c.input);
            topics.extend(c.outputs.iter().map(String::as_str));
        }
        topics.extend(model.edges.iter().map(|e| e.topic.as_str()));
        topics.extend(model.actions.iter().map(|a| a.name.as_str()));
        let modes = model.runs.iter().map(|r| r.mode.as_str()).collect();
        let hosts = model.runs.iter().map(|r| r.host.as_str()).collect();
        let v = &self.visible;
        let mut unknown = Vec::new();
        for (asked, known) in [
            (&v.topics, &topics),
            (&v.nodes, &nodes),
            (&v.callbacks, &ids),
            (&v.threads, &threads),
            (&v.modes, &modes),
            (&v.hosts, &hosts),
        ] {
            let is_known = |a: &&String| {
                let mut known = known.iter();
                known.any(|k| is_one(a, k) || is_one(a, stem(k).0))
            };
            unknown.extend(asked.iter().filter(|a| !is_known(a)).cloned());
        }
        unknown
    }
}

fn is_one(asked: &str, name: &str) -> bool {
    match asked.strip_suffix("/**") {
        Some(above) => name
            .strip_prefix(above)
            .is_some_and(|rest| rest.starts_with('/')),
        None => asked == name,
    }
}

pub(crate) fn is_any(asked: &[String], name: &str) -> bool {
    asked.iter().any(|a| is_one(a, name))
}

/// Splits a name into the part that the user chose and the suffix that ROS 2 appends for actions
/// and services.
pub(crate) fn stem(name: &str) -> (&str, &str) {
    const SUFFIXES: [&str; 8] = [
        "send_goal/request",
        "send_goal/response",
        "cancel_goal/request",
        "cancel_goal/response",
        "get_result/request",
        "get_result/response",
        "feedback",
        "status",
    ];
    if let Some(at) = name.find("/_action/") {
        let rest = &name[at + "/_action/".len()..];
        let bare = |s: &&str| s.split('/').next() == Some(rest);
        if SUFFIXES.contains(&rest) || SUFFIXES.iter().any(bare) {
            return name.split_at(at);
        }
    }
    let service = ["/request", "/response"].into_iter();
    let mut cut = service.filter_map(|end| name.strip_suffix(end));
    match cut.next() {
        Some(base) if !base.is_empty() => name.split_at(base.len()),
        _ => (name, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_that_ros_appends_are_not_part_of_a_name() {
        for (name, parts) in [
            ("/scan", ("/scan", "")),
            ("/sv1/request", ("/sv1", "/request")),
            ("/arm/_action/feedback", ("/arm", "/_action/feedback")),
            (
                "/arm/_action/send_goal/response",
                ("/arm", "/_action/send_goal/response"),
            ),
            ("/arm/_action/get_result", ("/arm", "/_action/get_result")),
            ("/arm/_action/secret", ("/arm/_action/secret", "")),
            ("/request", ("/request", "")),
        ] {
            assert_eq!(stem(name), parts);
        }
    }

    #[test]
    fn two_stars_in_a_policy_stand_for_all_names_below() {
        let asked = ["/lidar/**".to_string(), "/cmd".into()];
        for (name, is_meant) in [
            ("/lidar/front/points", true),
            ("/lidar", false),
            ("/lidars/front", false),
            ("/cmd", true),
            ("/cmd/raw", false),
        ] {
            assert_eq!(is_any(&asked, name), is_meant, "{name}");
        }
    }

    #[test]
    fn a_mistake_in_a_policy_is_reported_with_its_entry_or_line() {
        for (text, said) in [
            ("", "the policy is empty"),
            ("visible: {topic: [/a]}\n", "topic"),
            (
                "visible:\n  topics: [scan]\n",
                "visible.topics[0]: 'scan' is not a full name",
            ),
            (
                "visible:\n  nodes: [/a, '/b*']\n",
                "visible.nodes[1]: '/b*' has a star",
            ),
            ("collapse: perhaps\n", "line 1"),
        ] {
            let error = read(text.as_bytes()).expect_err(text).to_string();
            assert!(error.contains(said), "{text}: {error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }
}
