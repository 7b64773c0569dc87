//! Rules by which node names lose what differs from run to run: process ids, addresses, counters.

use regex_lite::Regex;
use std::borrow::Cow;
use std::fmt;

/// Rewrites the part of a node's full name that a regular expression matches.
#[derive(Debug, Clone)]
pub struct NameRule {
    pattern: Regex,
    /// May contain `$1` or `${name}`.
    replacement: String,
}

/// Why a text is no rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameRuleError {
    /// There is no `=` in it, or nothing before it.
    #[error("the rule '{0}' is not written as 'REGEX=REPLACEMENT'")]
    Form(String),
    /// The regular expression is none, or too large.
    #[error("the rule '{rule}' has no regular expression before its last '=': {why}")]
    Regex {
        /// The rule.
        rule: String,
        /// What is wrong with it.
        why: String,
    },
}

impl std::str::FromStr for NameRule {
    type Err = NameRuleError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.rsplit_once('=').filter(|(regex, _)| !regex.is_empty());
        let (regex, replacement) = parts.ok_or_else(|| NameRuleError::Form(text.into()))?;
        let pattern = Regex::new(regex).map_err(|e| NameRuleError::Regex {
            rule: text.into(),
            why: e.to_string().replace('\n', " "),
        })?;
        Ok(NameRule {
            pattern,
            replacement: replacement.into(),
        })
    }
}

impl fmt::Display for NameRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.pattern, self.replacement)
    }
}

impl PartialEq for NameRule {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

/// Names that ROS 2's own programs and libraries make, which hold for every model.
const BUILT_IN: &[&str] = &[
    // tf2_ros: the address of the listener.
    "(transform_listener_impl)_[0-9a-f]+$=$1",
    // launch, rqt, rviz: the process id, in containers another one than the recording's.
    "(launch_ros|rqt_gui_(?:py|cpp)_node|rviz2?)_[0-9]+$=$1",
    // ros2cli: the process id; of the daemon a random number.
    "(_ros2cli)_[0-9]+$=$1",
    "(_ros2cli_daemon_[0-9]+)_[0-9a-f]{8,}$=$1",
    // launch's AnonName: the process id and a random number after the machine's name.
    "_[0-9]+_[0-9]{12,}$=",
    // Addresses of programs, heaps, libraries and stacks on x86-64 and aarch64.
    "_(?:0x)?(?:5[56]|7[ef]|aaaa|ffff)[0-9a-f]{8,10}$=",
];

/// All rules of a model: the built-in ones, then the user's.
#[derive(Debug, Clone)]
pub(crate) struct NameRules(Vec<NameRule>);

impl Default for NameRules {
    fn default() -> Self {
        Self::with(&[])
    }
}

impl NameRules {
    pub(crate) fn with(users: &[NameRule]) -> Self {
        // A test parses every built-in rule.
        let built_in = BUILT_IN.iter().filter_map(|rule| rule.parse().ok());
        NameRules(built_in.chain(users.iter().cloned()).collect())
    }

    /// A full name of a node of this process, as models call it. A rule that leaves nothing of a
    /// name does not apply to it.
    pub(crate) fn apply<'n>(&self, full_name: &'n str, pid: u32) -> Cow<'n, str> {
        let mut name = Cow::Borrowed(full_name);
        let is_name = |text: &str| !text.ends_with('/') && !text.is_empty();
        if let Some(rest) = without_pid(full_name, pid).filter(|rest| is_name(rest)) {
            name = Cow::Borrowed(rest);
        }
        for NameRule {
            pattern,
            replacement,
        } in &self.0
        {
            let next = match pattern.replace(&name, replacement) {
                Cow::Owned(next) if next != *name && is_name(&next) => next,
                _ => continue,
            };
            name = Cow::Owned(next);
        }
        name
    }
}

/// A name without the id of its process at its end.
fn without_pid(name: &str, pid: u32) -> Option<&str> {
    // One of two digits is rather a number that somebody gave.
    let rest = name.strip_suffix(&pid.to_string()).filter(|_| pid > 99)?;
    rest.strip_suffix('_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str, rules: &[&str]) -> String {
        let users: Vec<NameRule> = rules.iter().map(|r| r.parse().unwrap()).collect();
        NameRules::with(&users).apply(name, 4711).into_owned()
    }

    #[test]
    fn what_differs_from_run_to_run_is_taken_out() {
        assert_eq!(NameRules::with(&[]).0.len(), BUILT_IN.len());
        for (name, expected) in [
            (
                "/transform_listener_impl_5581c7a3b2d0",
                "/transform_listener_impl",
            ),
            ("/ns/launch_ros_12345", "/ns/launch_ros"),
            ("/rviz2_99", "/rviz2"),
            ("/rqt_gui_py_node_7", "/rqt_gui_py_node"),
            ("/_ros2cli_12", "/_ros2cli"),
            (
                "/_ros2cli_daemon_0_1f0e4b2a9c7d4f6e8a5b3c2d1e0f9a8b",
                "/_ros2cli_daemon_0",
            ),
            ("/talker_host_4242_8123456789012345678", "/talker_host"),
            ("/listener_7f3a5c001230", "/listener"),
            ("/worker_4711", "/worker"),
        ] {
            assert_eq!(named(name, &[]), expected);
        }
        for stays in [
            "/camera_1",
            "/lidar_front",
            "/velodyne_00012345",
            "/4711",
            "/a/b_2",
        ] {
            assert_eq!(named(stays, &[]), stays);
        }
    }

    #[test]
    fn a_user_adds_rules() {
        assert_eq!(named("/worker_17", &["/worker_[0-9]+=/worker"]), "/worker");
        assert_eq!(named("/a=b_3", &["(a=b)_[0-9]=$1"]), "/a=b");
        assert_eq!(named("/all", &[".*="]), "/all", "nothing would be left");
        let rule: NameRule = "(x)_[0-9]+=$1".parse().unwrap();
        assert_eq!(rule.to_string(), "(x)_[0-9]+=$1");
        let why = |text: &str| text.parse::<NameRule>().unwrap_err().to_string();
        assert!(why("abc").contains("REGEX=REPLACEMENT"));
        assert!(why("=abc").contains("REGEX=REPLACEMENT"));
        assert!(why("(a=b").starts_with("the rule '(a=b' has no regular expression"));
    }
}
