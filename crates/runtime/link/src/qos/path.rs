//! The interface between the promises and a backend: sends and receives messages with heads.

use super::head::{Head, Kind, HEAD_BYTES};
use crate::interface::{End, SendError};
use onbeat_flow::clock::now_ns;

#[derive(Debug, Clone, Copy)]
pub struct Request {
    pub bytes: usize,
    pub deadline_ns: Option<u64>,
    pub expires_ns: Option<u64>,
    pub is_checked: bool,
    pub stale_may_leave: bool,
}

impl Request {
    /// Lets `fill` write the content into the slot behind the head, and then writes the head. The
    /// head states for how long the content stays fresh from now on. Returns the head.
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

#[derive(Debug, Clone, Copy)]
pub struct Arrived {
    pub number: u64,
    pub expires_ns: Option<u64>,
}

pub trait Sends: Send {
    fn send(
        &mut self,
        request: Request,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<Head, SendError>;

    fn publish(
        &mut self,
        request: Request,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<Head, SendError>;
}

pub trait Receives: Send {
    fn receive(
        &mut self,
        deadline_ns: Option<u64>,
        take: &mut dyn FnMut(Arrived, &[u8]),
    ) -> Result<bool, End>;

    fn read(
        &mut self,
        deadline_ns: Option<u64>,
        take: &mut dyn FnMut(Arrived, &[u8]),
    ) -> Result<bool, End>;
}
