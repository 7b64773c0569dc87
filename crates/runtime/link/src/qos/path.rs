//! Between the promises and a backend: how messages with heads get to the peer and back.

use super::head::{Head, Kind, HEAD_BYTES};
use crate::interface::{End, SendError};
use onbeat_flow::clock::now_ns;

/// What the application wants to send.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    pub bytes: usize,
    pub deadline_ns: Option<u64>,
    /// When it becomes stale.
    pub expires_ns: Option<u64>,
    pub is_checked: bool,
    pub stale_may_leave: bool,
}

impl Request {
    /// Lets `fill` write the content behind the place of the head, and then the head: what it took
    /// until now is subtracted from what remains. Returns the head.
    pub fn write(&self, slot: &mut [u8], mut head: Head, fill: &mut dyn FnMut(&mut [u8])) -> Head {
        let (place, content) = slot.split_at_mut(HEAD_BYTES);
        fill(content);
        head.sent_ns = now_ns();
        head.remaining_ns = self.expires_ns.map(|e| e.saturating_sub(head.sent_ns));
        if head.remaining_ns == Some(0) && !self.stale_may_leave {
            head.kind = Kind::Void;
        } else if self.is_checked {
            head = head.checking(content);
        }
        place.copy_from_slice(&head.bytes());
        head
    }
}

/// A message or value that came intact.
#[derive(Debug, Clone, Copy)]
pub struct Arrived {
    pub number: u64,
    /// When it becomes stale.
    pub expires_ns: Option<u64>,
}

/// The way of messages to the peer.
pub trait Sends: Send {
    /// Sends one; its head. One of kind [`Kind::Void`] says that it became too old.
    fn send(
        &mut self,
        request: Request,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<Head, SendError>;

    /// Publishes a value.
    fn publish(
        &mut self,
        request: Request,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<Head, SendError>;
}

/// The way of messages from the peer.
pub trait Receives: Send {
    /// The next one that came intact. `false` if none came until the deadline.
    fn receive(
        &mut self,
        deadline_ns: Option<u64>,
        take: &mut dyn FnMut(Arrived, &[u8]),
    ) -> Result<bool, End>;

    /// The newest value.
    fn read(
        &mut self,
        deadline_ns: Option<u64>,
        take: &mut dyn FnMut(Arrived, &[u8]),
    ) -> Result<bool, End>;
}
