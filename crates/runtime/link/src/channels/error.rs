//! Why there is no channel between hosts.

use crate::interface::{End, SetupError};
use crate::tcp::KeyError;
use crate::LinkError;
use onbeat_flow::{CreateError, Options};
use thiserror::Error;

/// Why a place cannot be used.
#[derive(Debug, Error)]
pub enum PlaceError {
    /// The text is no place.
    #[error("'{}' is no place of a link: write shm://NAME, tcp://IP:PORT?key=FILE or verbs://IP:PORT?key=FILE", .0.escape_debug())]
    Text(String),
    /// Peers without a key would not know each other.
    #[error("'{}' names no key: add ?key=FILE (onbeat link key FILE makes one)", .0.escape_debug())]
    NoKey(String),
    /// The key file cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The program was built without RDMA.
    #[error("verbs:// needs onbeat-link with the feature `verbs`")]
    NoVerbs,
    /// What connects the hosts does not cut messages into chunks.
    #[error("only channels over tcp:// and verbs:// go through a port in chunks: leave out `on_port` and `chunk_bytes`")]
    NoPort,
    /// Only what is sent can go to several hosts.
    #[error("only a host that sends, not over shm://, has several others: `and_to` is for Links::sending with tcp:// or verbs://")]
    SecondHost,
    /// There is no port of that number.
    #[error("port {first} + {number} does not exist: begin with a smaller one")]
    Port {
        /// Port of the first channel.
        first: u16,
        /// Number of the channel.
        number: u16,
    },
}

/// Why there is no channel between hosts.
#[derive(Debug, Error)]
pub enum LinksError {
    /// Where the other host is, cannot be used.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// There is no link.
    #[error("channel '{channel}': {reason}")]
    Setup {
        /// Name of the channel.
        channel: String,
        /// Why.
        reason: SetupError,
    },
    /// An end of a link could not be made.
    #[error(transparent)]
    End(#[from] SetupError),
    /// The hosts have not asked for the same channel.
    #[error("channel '{channel}': this host has '{ours}', the other '{theirs}': ask for the same channels in the same order")]
    Differs {
        /// Name of the channel.
        channel: String,
        /// What this host has.
        ours: String,
        /// What the other has; untrusted, and escaped.
        theirs: String,
    },
    /// The link ended, or the other host said nothing, before both had agreed.
    #[error(
        "channel '{channel}': the other host has not said what it wants: {}",
        why(reason)
    )]
    Silent {
        /// Name of the channel.
        channel: String,
        /// None if it was silent until the deadline.
        reason: Option<End>,
    },
    /// The channel cannot be created on this host.
    #[error("channel '{channel}': {reason}")]
    Create {
        /// Name of the channel.
        channel: String,
        /// What is wrong with the options.
        reason: CreateError,
    },
    /// This policy exchanges buffers, which hosts do not share.
    #[error("channel '{channel}': Policy::Swap does not reach another host: use Policy::Credit")]
    Swap {
        /// Name of the channel.
        channel: String,
    },
    /// Somebody else is the channel's producer, or the process can have no more threads.
    #[error("channel '{channel}': cannot start its relay: {reason}")]
    Relay {
        /// Name of the channel.
        channel: String,
        /// What went wrong.
        reason: String,
    },
    /// It was asked for with other options before.
    #[error("channel '{channel}' was opened with other options before: {before:?}")]
    Opened {
        /// Name of the channel.
        channel: String,
        /// The options.
        before: Box<Options>,
    },
    /// Each channel needs a port.
    #[error("too many channels: one place has 65536 at most")]
    TooMany,
    /// There is no such channel on this machine.
    #[error(transparent)]
    Machine(#[from] LinkError),
}

fn why(reason: &Option<End>) -> String {
    match reason {
        None => "it was silent for too long".into(),
        Some(end) => end.to_string(),
    }
}
