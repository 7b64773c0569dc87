//! Threads of a node's process that run no callback, such as the middleware's.

use super::ThreadUse;
use crate::dist::Dist;
use serde::{Deserialize, Serialize};

/// A group of equally named threads that run no callback and make no call of ROS 2.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Helper {
    /// The full names of the nodes in the threads' process, sorted. They are untrusted.
    pub nodes: Vec<String>,
    /// The name that the threads share, without the numbers at its end. It is untrusted.
    pub name: String,
    pub figures: HelperFigures,
    pub threads: Vec<ThreadUse>,
}

/// The waits and the CPU time of helper threads.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct HelperFigures {
    /// The waits for a CPU: from when a thread could run until it ran.
    pub ready_ns: Dist,
    pub exec_ns: u64,
    /// The time from the first event of the group's threads to the last, in ns.
    pub observed_ns: u64,
}

/// Removes the numbers at the end of a thread's name, such as ports and counters of similar
/// threads.
pub fn kind_of(name: &str) -> &str {
    let kind = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    if kind.is_empty() {
        name
    } else {
        kind
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_differ_only_in_numbers_have_one_name() {
        for (name, kind) in [
            ("dds.shm.29161", "dds.shm"),
            ("dds.asyn.0.1", "dds.asyn"),
            ("recvUC", "recvUC"),
            ("rx-0", "rx-"),
            ("42", "42"),
            ("", ""),
        ] {
            assert_eq!(kind_of(name), kind);
        }
    }
}
