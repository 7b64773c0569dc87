//! The errors of channels between hosts.

use crate::interface::{End, SetupError};
use crate::tcp::KeyError;
use crate::LinkError;
use onbeat_flow::{CreateError, Options};
use thiserror::Error;

/// The reason why the address of a link cannot be used.
#[allow(missing_docs)] // The messages say the rest.
#[derive(Debug, Error)]
pub enum PlaceError {
    #[error("'{}' is not a link address. Write shm://NAME, tcp://IP:PORT?key=FILE or verbs://IP:PORT?key=FILE", .0.escape_debug())]
    Text(String),
    #[error("'{}' has no key. Add ?key=FILE (onbeat link key FILE makes one).", .0.escape_debug())]
    NoKey(String),
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error("verbs:// needs onbeat-link with the feature `verbs`. Build it with that feature, or use tcp://.")]
    NoVerbs,
    #[error("only channels over tcp:// and verbs:// go through a port in chunks. Leave out `on_port` and `chunk_bytes`.")]
    NoPort,
    #[error("only a sending host can have several receiving hosts. Use `and_to` on Links::sending with tcp:// or verbs://.")]
    SecondHost,
    #[error("the port number {first} + {number} of a channel is larger than 65535. Begin with a smaller port number.")]
    Port { first: u16, number: u16 },
}

/// The reason why a channel between hosts could not be opened.
#[allow(missing_docs)] // The messages say the rest.
#[derive(Debug, Error)]
pub enum LinksError {
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error("channel '{channel}': {reason}")]
    Setup { channel: String, reason: SetupError },
    #[error(transparent)]
    End(#[from] SetupError),
    #[error("channel '{channel}': the two hosts ask for different channels: this host has '{ours}', the other '{theirs}'. Ask for the same channels in the same order on both.")]
    Differs {
        channel: String,
        ours: String,
        /// The first line of the other host's description of its channel that differs from this
        /// host's line, `ours`. It is untrusted, and escaped.
        theirs: String,
    },
    #[error(
        "channel '{channel}': the other host did not report which channel it asks for: {}. Check that the other host runs its program and asks for the same channels.",
        why(reason)
    )]
    Silent {
        channel: String,
        /// The reason why the link ended. `None` if the other host was silent until the deadline.
        reason: Option<End>,
    },
    #[error("channel '{channel}': {reason}")]
    Create {
        channel: String,
        reason: CreateError,
    },
    #[error("channel '{channel}': Policy::Swap does not work between hosts. Use Policy::Credit.")]
    Swap { channel: String },
    #[error("channel '{channel}': cannot start its relay: {reason}")]
    Relay { channel: String, reason: String },
    #[error("channel '{channel}' was opened with other options before: {before:?}. Use the same options.")]
    Opened {
        channel: String,
        before: Box<Options>,
    },
    #[error(
        "one address has port numbers for at most 65536 channels. Use a second address for more."
    )]
    TooMany,
    #[error(transparent)]
    Machine(#[from] LinkError),
}

fn why(reason: &Option<End>) -> String {
    match reason {
        None => "the other host was silent for too long".into(),
        Some(end) => end.to_string(),
    }
}
