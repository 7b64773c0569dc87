//! Why a shaper cannot start, or ends.

use crate::page::MAX_OUTPUTS;
use crate::rcl::RclError;
use onbeat_flow::thread::ThreadError;
use thiserror::Error;

/// Why there is no shaper.
#[derive(Debug, Error)]
pub enum ShaperError {
    /// ROS 2.
    #[error(transparent)]
    Rcl(#[from] RclError),
    /// A thread cannot have its policy or CPU.
    #[error(transparent)]
    Thread(#[from] ThreadError),
    /// A thread cannot be started.
    #[error(
        "cannot start a thread for {topic}: {reason}: free memory or raise the limit of threads"
    )]
    Spawn {
        /// Its output.
        topic: String,
        /// What the system said.
        reason: std::io::Error,
    },
    /// Too many outputs, or none.
    #[error("{0} outputs are configured: give 1 to {MAX_OUTPUTS}")]
    Outputs(usize),
    /// An output that cannot be.
    #[error("the output {topic} is held on {held}: give two topics that differ, and a capacity and depth of 1 to 100000")]
    Output {
        /// Topic under its own name.
        topic: String,
        /// Where it is held.
        held: String,
    },
    /// Neither table nor page, or both.
    #[error("the configuration needs either page_fd or table")]
    NoTable,
    /// A fixed table that cannot be.
    #[error("the table of {topic}: {reason}")]
    Table {
        /// Its output.
        topic: String,
        /// What is wrong.
        reason: String,
    },
    /// A descriptor.
    #[error("descriptor {fd} cannot be used as {what}: {reason}: hand over an open one that is inherited")]
    Descriptor {
        /// Its number.
        fd: i32,
        /// For what.
        what: &'static str,
        /// What is wrong.
        reason: std::io::Error,
    },
    /// Publishers that do not agree.
    #[error("publishers of {topic} announce different types, {first} and {second}: remap only one of their nodes")]
    Types {
        /// The held topic.
        topic: String,
        /// One type.
        first: String,
        /// Another.
        second: String,
    },
    /// A thread of an output ended.
    #[error("shaping {topic} ended: {reason}")]
    Worker {
        /// Its output.
        topic: String,
        /// What it said.
        reason: String,
    },
}
