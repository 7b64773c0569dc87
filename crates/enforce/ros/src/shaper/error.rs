//! The errors of a shaper that cannot start, or ends.

use crate::page::MAX_OUTPUTS;
use crate::rcl::RclError;
use onbeat_flow::thread::ThreadError;
use thiserror::Error;

/// The reason why a shaper cannot start, or ends. The messages explain the fields.
#[allow(missing_docs)]
#[derive(Debug, Error)]
pub enum ShaperError {
    #[error(transparent)]
    Rcl(#[from] RclError),
    #[error(transparent)]
    Thread(#[from] ThreadError),
    #[error(
        "cannot start a thread for {topic}: {reason}. Free memory or raise the limit of threads"
    )]
    Spawn {
        topic: String,
        reason: std::io::Error,
    },
    /// The configuration has no outputs, or more than [`MAX_OUTPUTS`].
    #[error("the configuration has {0} outputs. Give 1 to {MAX_OUTPUTS}")]
    Outputs(usize),
    #[error("the output {topic}, held on {held}, is invalid. Give two different topics, and a capacity and a depth from 1 to 100000")]
    Output {
        /// The topic to which the nodes subscribe that take the output.
        topic: String,
        /// The topic on which the output is held back.
        held: String,
    },
    #[error("the configuration must have either page_fd or table, but has both or none. Give exactly one of them")]
    NoTable,
    #[error("the table of slots for {topic} is invalid: {reason}")]
    Table { topic: String, reason: String },
    #[error("descriptor {fd} cannot be used as {what}: {reason}. Pass an open descriptor that the shaper inherits")]
    Descriptor {
        fd: i32,
        /// The purpose of the descriptor, for example `the pipe for reports`.
        what: &'static str,
        reason: std::io::Error,
    },
    #[error("publishers of the held topic {topic} announce different types, {first} and {second}. Remap an output to this topic only in nodes that publish one of these types")]
    Types {
        topic: String,
        first: String,
        second: String,
    },
    #[error("shaping {topic} ended: {reason}")]
    Worker { topic: String, reason: String },
}
