//! Sends a recording from one host to another over a link. A loader reads and sends it on the first
//! host. On the second host it is a [`Source`] with its own buffer and player (Konheiser et al.,
//! Figure 1).
//!
//! Credits reach from the receiving buffer to the sending loader. While the buffer is full, nothing
//! is taken from the link, and the sender waits. The network therefore loses nothing, and delays no
//! item for longer than the buffer covers.
//!
//! The bytes of the link's messages form one sequence of records. A record is a length (`u32`,
//! little endian), followed by a [`Record`] of that many bytes. One record may span several
//! messages, and one message may hold many records.

mod receiver;
mod record;
mod sender;

pub use receiver::Remote;
#[doc(hidden)]
pub use record::records;
pub use sender::{send, SendFault, Sent};

use onbeat_flow::clock::now_ns;
use onbeat_link::interface::{Backend, Halves, Memory, SetupError, Sizes};
use std::time::Duration;
#[cfg(doc)]
use {crate::item::Source, record::Record};

const LOOK_NS: u64 = 100_000_000;

/// The sizes of the channel that links two hosts. They must be equal on both ends. At most 4 MiB
/// are in transit.
pub const SIZES: Sizes = Sizes {
    credits: 16,
    message_bytes: 256 << 10,
    value_bytes: 0,
};

/// Waits for the peer for at most `wait`. Returns the two directions of the link. Not real-time
/// safe.
///
/// # Errors
/// Fails if the peer does not appear in time, or if its sizes differ.
pub fn meet(link: &dyn Backend, wait: Option<Duration>) -> Result<Halves, SetupError> {
    let ns = |wait: Duration| u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
    let until = wait.map(|wait| now_ns().saturating_add(ns(wait)));
    link.initialize(SIZES, Memory::Allot, until)
}

#[cfg(test)]
mod tests;
