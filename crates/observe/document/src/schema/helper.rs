//! Threads of a node's process that run no callback, such as the middleware's.

use super::ThreadUse;
use crate::dist::Dist;
use serde::{Deserialize, Serialize};

/// Threads of one name that run no callback and make no call of ROS 2.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Helper {
    /// Full names of the nodes of its process, sorted (untrusted).
    pub nodes: Vec<String>,
    /// Its name (untrusted), without the numbers at its end: threads of one name are one.
    pub name: String,
    /// What was measured.
    pub figures: HelperFigures,
    /// How it was scheduled.
    pub threads: Vec<ThreadUse>,
}

/// What such threads did.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct HelperFigures {
    /// Waits for a CPU: from when it could run until it did.
    pub ready_ns: Dist,
    /// Time on a CPU.
    pub exec_ns: u64,
    /// Time from its first event to its last.
    pub observed_ns: u64,
}

/// A thread's name without the numbers at its end: ports, and numbers of equal threads.
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
    fn threads_of_one_kind_have_one_name() {
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
