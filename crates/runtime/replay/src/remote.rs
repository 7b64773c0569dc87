//! A recording from one host to another over a link: here a loader reads it and sends it on, there it is a
//! [`Source`], with a buffer and a player of its own (HIL paper, Figure 1).
//!
//! Credits reach from the receiving buffer to the sending loader: while there is no room, nothing is taken from the
//! link, and the sender waits. So the network can make nothing late that the buffer covers, and loses nothing.
//!
//! The bytes of the link's messages, one after the other, are records: a length (`u32`, little endian), then a
//! [`Record`] of so many bytes. A record may lie in several messages, and a message may have many.

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

/// How often a side that waits for the other looks whether it is to stop.
const LOOK_NS: u64 = 100_000_000;

/// What both ends of the link agree on: 4 MiB on their way at most.
pub const SIZES: Sizes = Sizes {
    credits: 16,
    message_bytes: 256 << 10,
    value_bytes: 0,
};

/// Waits for the other side, so long at most. Not real-time safe.
///
/// # Errors
/// It is not there, or does not fit.
pub fn meet(link: &dyn Backend, wait: Option<Duration>) -> Result<Halves, SetupError> {
    let ns = |wait: Duration| u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
    let until = wait.map(|wait| now_ns().saturating_add(ns(wait)));
    link.initialize(SIZES, Memory::Allot, until)
}

#[cfg(test)]
mod tests;
