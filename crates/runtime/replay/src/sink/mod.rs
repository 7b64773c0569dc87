//! Defines the trait of sinks, which play items, with one module for each kind of device.

mod can;
mod ethernet;
mod fragments;
pub mod qos;
mod requests;
pub mod ros;
pub(crate) mod udp;

pub use can::Can;
pub use ethernet::Ethernet;
pub use requests::RequestFigures;
pub use udp::{Ports, Udp};

use crate::bus::Speed;
use crate::item::StreamId;
use std::io;

/// The result of [`Sink::put`] if the sink has dealt with the item. The caller must not offer the
/// item again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// The sink has sent the item.
    Left,
    /// The item is a fragment of a datagram. The sink sends it together with the last fragment.
    Kept,
    /// The sink has sent the item together with earlier fragments of its datagram.
    Joined {
        /// The number of fragments of the datagram, including this item.
        parts: u32,
    },
    /// The sink cannot play the item, for example a packet without a UDP payload or a frame of a
    /// wrong length.
    Unsuitable,
}

/// The reason why a sink has not accepted an item.
#[derive(Debug)]
pub enum Refused {
    /// The device or the consumer is not ready. The caller may offer the same item again.
    Busy,
    /// The sink can never send the item, because of this error.
    Failed(io::Error),
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Refused {
        match (error.kind(), error.raw_os_error()) {
            (io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted, _) => Refused::Busy,
            // The queue of the device is full. `poll` does not report when it has room again.
            (_, Some(libc::ENOBUFS)) => Refused::Busy,
            _ => Refused::Failed(error),
        }
    }
}

/// A connection to the device under test, to which a replay sends items. Only the player's thread
/// uses a sink.
pub trait Sink: Send {
    /// Returns the name that messages use for the sink, for example `udp:10.0.0.2:7400`.
    fn name(&self) -> String;

    /// Sends an item of the stream. A thread with a real-time priority calls this function. The
    /// function waits for the device for a few milliseconds at most. As far as the driver or the
    /// middleware permits, the function allocates no memory, and takes no lock that a thread of
    /// another priority can hold.
    ///
    /// # Errors
    /// Fails if the item was not sent.
    fn put(&mut self, stream: StreamId, bytes: &[u8]) -> Result<Put, Refused>;

    /// Returns true if [`Sink::put`] returns [`Refused::Busy`] until the consumer has consumed
    /// enough items. The consumer can pace the replay only through such a sink.
    fn gives_credit(&self) -> bool {
        false
    }

    /// Returns the interface and the bitrates of the CAN bus on which the sink plays. Returns
    /// `None` if the sink does not play on a CAN bus or the bitrates are unknown.
    fn bus(&self) -> Option<(&str, Speed)> {
        None
    }

    /// Waits until the consumer has received all items, or until `deadline_ns` (CLOCK_MONOTONIC).
    /// Not real-time safe.
    fn settle(&mut self, _deadline_ns: u64) {}

    /// Returns the figures of the requests that the sink sent, one entry for each service. The
    /// player calls it once, at the end.
    fn requests(&mut self) -> Vec<RequestFigures> {
        Vec::new()
    }
}

/// The error of a sink that cannot be opened or used. Its message names the sink and the way out.
#[derive(Debug, thiserror::Error)]
#[error("{sink}: {fault}")]
pub struct SinkError {
    /// The name of the sink, for example `udp:10.0.0.2:7400`.
    pub sink: String,
    /// A sentence with the fault of the sink, and with the way out.
    pub fault: String,
}

impl SinkError {
    pub(crate) fn new(sink: impl Into<String>, fault: impl Into<String>) -> SinkError {
        SinkError {
            sink: sink.into(),
            fault: fault.into(),
        }
    }
}
