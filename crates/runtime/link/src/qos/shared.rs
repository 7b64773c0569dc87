//! The state that the two halves and the thread of a link with acknowledgement share.
//!
//! The halves take the lock for some dozen instructions; it inherits priority. `out` is held while
//! a slot is written, and for at most a millisecond while no slot is free. Order of locks: `out`, a
//! slot, the state.

use super::counts::Counters;
use super::fresh::Transit;
use super::head::{Head, Kind, HEAD_BYTES};
use super::path::Arrived;
use super::status::{Status, STATUS_BYTES};
use super::window::{Inbox, Outbox};
use crate::interface::{End, Halves, Incoming, Outgoing, SendError, Sizes};
use crate::pi::{Bell, Lock};
use onbeat_flow::clock::now_ns;
use std::sync::Arc;

/// The longest time for which a thread keeps the lock `out` while it waits for a free slot of the
/// backend, in ns.
pub const SLICE_NS: u64 = 1_000_000;

#[derive(Debug, Clone, Copy)]
pub struct Got {
    pub bytes: usize,
    pub arrived: Arrived,
}

#[derive(Debug, Clone, Copy)]
pub struct Kept {
    pub bytes: usize,
    pub content: Option<u32>,
    pub expires_ns: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hand {
    Thread,
    Wanted,
    Application,
}

#[derive(Debug, Default)]
pub struct Ends {
    /// Two flags: whether this end's application has dropped its sending half, and whether it has
    /// dropped its receiving half.
    pub ours: (bool, bool),
    /// The number of messages that the peer has sent. `None` while the peer may send more.
    pub last: Option<u64>,
    pub peer_receives_no_more: bool,
    pub end: Option<End>,
    pub stopping: bool,
}

#[derive(Debug, Default)]
pub struct News {
    pub unacknowledged: Option<u64>,
    pub corrupt: bool,
    pub silent: bool,
}

#[derive(Debug)]
pub struct State {
    pub outbox: Outbox,
    pub inbox: Inbox,
    pub got: Vec<Option<Got>>,
    pub kept: Vec<Option<Kept>>,
    pub transit: Transit,
    pub ends: Ends,
    pub news: News,
    pub hand: Hand,
    pub status_due: bool,
    pub asks: bool,
    pub status_sent_ns: u64,
}

pub struct Shared {
    pub sizes: Sizes,
    pub counters: Arc<Counters>,
    state: Lock<State>,
    pub bell: Bell,
    pub out: Lock<Box<dyn Outgoing>>,
    pub incoming: Lock<Box<dyn Incoming>>,
    pub got: Vec<Lock<Box<[u8]>>>,
    pub kept: Vec<Lock<Box<[u8]>>>,
}

fn slots(count: usize, bytes: usize) -> Vec<Lock<Box<[u8]>>> {
    let slot = |_| Lock::new(vec![0; bytes].into_boxed_slice());
    (0..count).map(slot).collect()
}

impl Shared {
    pub fn new(
        sizes: Sizes,
        counters: Arc<Counters>,
        (outgoing, incoming): Halves,
        outbox: Outbox,
        transit: Transit,
        keeps: bool,
    ) -> Shared {
        let (credits, bytes) = (sizes.credits, sizes.message_bytes);
        let state = State {
            outbox,
            inbox: Inbox::new(credits),
            got: vec![None; credits],
            kept: vec![None; credits],
            transit,
            ends: Ends::default(),
            news: News::default(),
            hand: Hand::Thread,
            status_due: true,
            asks: false,
            status_sent_ns: now_ns(),
        };
        Shared {
            sizes,
            counters,
            state: Lock::new(state),
            bell: Bell::new(),
            out: Lock::new(outgoing),
            incoming: Lock::new(incoming),
            got: slots(credits, bytes),
            kept: slots(if keeps { credits } else { 0 }, bytes),
        }
    }

    pub fn lock(&self) -> crate::pi::Guard<'_, State> {
        self.state.lock()
    }

    pub fn place(&self, number: u64) -> usize {
        (number % self.sizes.credits as u64) as usize
    }

    /// Sends the peer a status of this end. If the backend has no free slot, the link's thread
    /// sends it later.
    pub fn send_status(&self) {
        let mut out = self.out.lock();
        let mut state = self.lock();
        state.status_due = false;
        let (consumed, arrived) = state.inbox.progress();
        let status = Status {
            consumed,
            arrived,
            last: state.ends.ours.0.then_some(state.outbox.next()),
            receives_no_more: state.ends.ours.1,
            asks: std::mem::take(&mut state.asks),
        };
        let oldest = state.outbox.oldest();
        drop(state);
        let until = now_ns() + SLICE_NS;
        let bytes = HEAD_BYTES + STATUS_BYTES;
        let sent = out.send(bytes, Some(until), &mut |slot| {
            let content = status.bytes();
            let mut head = Head::new(Kind::Status, 0, now_ns()).checking(&content);
            head.oldest = oldest;
            slot[..HEAD_BYTES].copy_from_slice(&head.bytes());
            slot[HEAD_BYTES..].copy_from_slice(&content);
        });
        drop(out);
        let mut state = self.lock();
        match sent {
            Ok(_) => state.status_sent_ns = now_ns(),
            Err(SendError::NoCredit { .. }) => {
                state.status_due = true;
                state.asks |= status.asks;
            }
            // The thread finds out how the link has ended.
            Err(_) => {}
        }
    }

    pub fn ended(&self, end: End) {
        self.lock().ends.end.get_or_insert(end);
        self.bell.ring();
    }
}

impl State {
    pub fn end_of_sending(&self) -> Option<End> {
        let closed = self.ends.peer_receives_no_more.then_some(End::Closed);
        self.ends.end.clone().or(closed)
    }

    pub fn end_of_receiving(&self) -> Option<End> {
        let is_over = self.ends.last == Some(self.inbox.progress().0);
        is_over.then_some(End::Closed).or(self.ends.end.clone())
    }

    pub fn is_settled(&self) -> bool {
        let is_done = self.outbox.is_done() || self.ends.peer_receives_no_more;
        self.ends.end.is_some() || is_done && !self.status_due
    }
}
