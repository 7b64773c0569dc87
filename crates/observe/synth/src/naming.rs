//! Rules that remove the parts of node names that differ from run to run: process ids, addresses
//! and counters.

use regex_lite::Regex;
use std::borrow::Cow;
use std::fmt;

/// A rule that replaces the part of a node's full name that a regular expression matches.
#[derive(Debug, Clone)]
pub struct NameRule {
    pattern: Regex,
    /// The replacement text. `$1` and `${name}` stand for groups of the pattern.
    replacement: String,
}

#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameRuleError {
    #[error(
        "the name rule '{0}' has no '=', or nothing before it. Write it as 'REGEX=REPLACEMENT'."
    )]
    Form(String),
    #[error("the name rule '{rule}' has no valid regular expression before its last '=': {why}. Correct the expression.")]
    Regex { rule: String, why: String },
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

/// Rules for node names that ROS 2's own programs and libraries generate. They apply to every
/// model.
const BUILT_IN: &[&str] = &[
    // tf2_ros appends the address of the listener.
    "(transform_listener_impl)_[0-9a-f]+$=$1",
    // launch, rqt and rviz append the process id. In a container, that differs from the recorded
    // one.
    "(launch_ros|rqt_gui_(?:py|cpp)_node|rviz2?)_[0-9]+$=$1",
    // ros2cli appends the process id; its daemon appends a random number.
    "(_ros2cli)_[0-9]+$=$1",
    "(_ros2cli_daemon_[0-9]+)_[0-9a-f]{8,}$=$1",
    // AnonName of launch appends the process id and a random number to the machine's name.
    "_[0-9]+_[0-9]{12,}$=",
    // Addresses of programs, heaps, libraries and stacks on x86-64 and aarch64.
    "_(?:0x)?(?:5[56]|7[ef]|aaaa|ffff)[0-9a-f]{8,10}$=",
];

#[derive(Debug, Clone)]
pub(crate) struct NameRules(Vec<NameRule>);

impl Default for NameRules {
    fn default() -> Self {
        Self::with(&[])
    }
}

impl NameRules {
    pub(crate) fn with(users: &[NameRule]) -> Self {
        // All built-in rules parse; a test checks this.
        let built_in = BUILT_IN.iter().filter_map(|rule| rule.parse().ok());
        NameRules(built_in.chain(users.iter().cloned()).collect())
    }

    /// Returns the name that the model gives a node of the process `pid`. Skips a rule that would
    /// leave an empty name.
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

fn without_pid(name: &str, pid: u32) -> Option<&str> {
    // A number of one or two digits was probably chosen by the user.
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
    fn parts_of_names_that_differ_between_runs_are_removed() {
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
    fn name_rules_of_the_user_apply_beside_the_built_in_ones() {
        assert_eq!(named("/worker_17", &["/worker_[0-9]+=/worker"]), "/worker");
        assert_eq!(named("/a=b_3", &["(a=b)_[0-9]=$1"]), "/a=b");
        assert_eq!(
            named("/all", &[".*="]),
            "/all",
            "a rule that leaves an empty name is not applied"
        );
        let rule: NameRule = "(x)_[0-9]+=$1".parse().unwrap();
        assert_eq!(rule.to_string(), "(x)_[0-9]+=$1");
        let why = |text: &str| text.parse::<NameRule>().unwrap_err().to_string();
        assert!(why("abc").contains("REGEX=REPLACEMENT"));
        assert!(why("=abc").contains("REGEX=REPLACEMENT"));
        assert!(why("(a=b").starts_with("the name rule '(a=b' has no valid regular expression"));
    }
}
