//! Why there is no channel.

use nix::errno::Errno;
use onbeat_flow::{CreateError, OpenError};
use thiserror::Error;

/// Why there is no channel.
#[derive(Debug, Error)]
pub enum LinkError {
    /// The name has characters or a length that no channel's name may have.
    #[error("'{}' is no name for a channel: use 1 to 80 letters, digits and _ . - /", name.escape_default())]
    Name {
        /// The name that was given; untrusted.
        name: String,
    },
    /// There is no channel of that name.
    #[error("there is no channel '{name}' that this user may attach to: create it first")]
    NotThere {
        /// Name of the channel.
        name: String,
    },
    /// There is a channel of that name already.
    #[error("there is a channel '{name}' already, of process {pid}: attach to it, or end that")]
    Exists {
        /// Name of the channel.
        name: String,
        /// A process that uses it.
        pid: u32,
    },
    /// There are several channels of that name.
    #[error("there are several channels '{name}', of processes {pids:?}: end all but one")]
    Several {
        /// Name of the channels.
        name: String,
        /// For each of them, a process that uses it.
        pids: Vec<u32>,
    },
    /// Another process has been creating a channel of that name for too long.
    #[error(
        "channel '{name}': another process is creating it and does not finish: is it stopped?"
    )]
    Busy {
        /// Name of the channel.
        name: String,
    },
    /// It could not be created with these options.
    #[error("channel '{name}': {reason}")]
    Create {
        /// Name of the channel.
        name: String,
        /// What is wrong with the options.
        reason: CreateError,
    },
    /// It is not the channel that these options describe, or not a channel at all.
    #[error("channel '{name}': {reason}")]
    Open {
        /// Name of the channel.
        name: String,
        /// What is wrong with it.
        reason: OpenError,
    },
    /// Another process could shorten its memory while this one uses it.
    #[error("channel '{name}' can be shortened under its users: it was not made by onbeat")]
    Unsealed {
        /// Name of the channel.
        name: String,
    },
    /// The kernel has refused a call.
    #[error("channel '{name}': cannot {what}: {errno}{}", hint(*errno))]
    System {
        /// Name of the channel.
        name: String,
        /// What the call was for.
        what: &'static str,
        /// The kernel's error.
        errno: Errno,
    },
}

fn hint(errno: Errno) -> &'static str {
    match errno {
        Errno::ENOMEM | Errno::ENOSPC => " (use fewer, or smaller, payloads)",
        Errno::EMFILE | Errno::ENFILE => " (raise `ulimit -n`)",
        _ => "",
    }
}
