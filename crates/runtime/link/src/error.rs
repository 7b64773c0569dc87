//! The errors of creating a channel and of attaching to one.

use nix::errno::Errno;
use onbeat_flow::{CreateError, OpenError};
use thiserror::Error;

/// The reason why a channel could not be created, or a process could not attach to it. In each
/// variant, `name` is the name that the caller gave. The name is untrusted.
#[allow(missing_docs)] // The messages say the rest.
#[derive(Debug, Error)]
pub enum LinkError {
    #[error("'{}' is not a channel name. Use 1 to 80 letters, digits and _ . - /", name.escape_default())]
    Name { name: String },
    #[error("this user has no channel '{name}'. Create the channel first.")]
    NotThere { name: String },
    #[error(
        "channel '{name}' exists already, in process {pid}. Attach to it, or end that process."
    )]
    Exists { name: String, pid: u32 },
    /// Several channels of the calling user have that name. Channels of other users do not count.
    #[error(
        "several channels have the name '{name}', in processes {pids:?}. End all but one of them."
    )]
    Several { name: String, pids: Vec<u32> },
    #[error(
        "channel '{name}': another process is creating the channel and does not finish. Check whether that process is stopped."
    )]
    Busy { name: String },
    #[error("channel '{name}': {reason}")]
    Create { name: String, reason: CreateError },
    #[error("channel '{name}': {reason}")]
    Open { name: String, reason: OpenError },
    #[error("channel '{name}' was not made by onbeat: another process could shorten its memory. Choose another name.")]
    Unsealed { name: String },
    #[error("channel '{name}': cannot {what}: {errno}{}", hint(*errno))]
    System {
        name: String,
        what: &'static str,
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
