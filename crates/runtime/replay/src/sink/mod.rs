//! Where items go: one trait, one module for each kind of device.

mod can;
mod ethernet;
mod interface;
pub mod ros;
mod udp;

pub use can::Can;
pub use ethernet::Ethernet;
pub use udp::Udp;

use crate::item::StreamId;
use std::io;

/// What became of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// It left.
    Left,
    /// The sink cannot play it: a packet without a UDP payload, a frame of a wrong length.
    Unsuitable,
}

/// Why an item has not left.
#[derive(Debug)]
pub enum Refused {
    /// The device or the consumer is not ready. The same item can be put again.
    Busy,
    /// It never will.
    Failed(io::Error),
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Refused {
        match (error.kind(), error.raw_os_error()) {
            (io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted, _) => Refused::Busy,
            // The device's queue is full; poll does not tell when it is not.
            (_, Some(libc::ENOBUFS)) => Refused::Busy,
            _ => Refused::Failed(error),
        }
    }
}

/// A device under test, or the way to it. Used by one thread, the player.
pub trait Sink: Send {
    /// What it is called in messages, as `udp:10.0.0.2:7400`.
    fn name(&self) -> String;

    /// Plays an item of that stream. Called by a thread with a real-time priority: does not allocate
    /// and takes no lock that another priority can hold, as far as the device's driver or the
    /// middleware allows; waits for the device for milliseconds at most.
    ///
    /// # Errors
    /// The item has not left.
    fn put(&mut self, stream: StreamId, bytes: &[u8]) -> Result<Put, Refused>;

    /// Whether [`Sink::put`] is busy until the consumer has consumed enough: only then can a replay
    /// be paced by the consumer.
    fn gives_credit(&self) -> bool {
        false
    }

    /// Waits until the consumer has everything, or until `deadline_ns` (CLOCK_MONOTONIC). Not real-time
    /// safe.
    fn settle(&mut self, _deadline_ns: u64) {}
}

/// A sink that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{sink}: {fault}")]
pub struct SinkError {
    /// Its name.
    pub sink: String,
    /// What is wrong, and the way out.
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
