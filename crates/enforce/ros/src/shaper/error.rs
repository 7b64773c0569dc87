//! Why a shaper cannot start, or ends.

use crate::page::MAX_OUTPUTS;
use crate::rcl::RclError;
use onbeat_flow::thread::ThreadError;
use thiserror::Error;

/// Why there is no shaper.
#[derive(Debug, Error)]
pub enum ShaperError {
    /// ROS 2 refused something.
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
        /// Topic of the output.
        topic: String,
        /// The system's reason.
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
        /// Topic on which it is held back.
        held: String,
    },
    /// The configuration has neither table nor page, or both.
    #[error("the configuration needs either page_fd or table")]
    NoTable,
    /// A fixed table that cannot be.
    #[error("the table of {topic}: {reason}")]
    Table {
        /// Topic of the output.
        topic: String,
        /// What is wrong.
        reason: String,
    },
    /// An inherited descriptor cannot be used.
    #[error("descriptor {fd} cannot be used as {what}: {reason}: hand over an open one that is inherited")]
    Descriptor {
        /// The descriptor, as the command line gave it.
        fd: i32,
        /// Its purpose.
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
        /// Topic of the output.
        topic: String,
        /// The thread's error.
        reason: String,
    },
}
