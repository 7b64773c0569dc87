//! The sending side of a channel: loans of payloads, sending, waiting for consumers.

use super::delivery;
use super::events::{EndEvents, LinkId};
use super::options::OnDeath;
use super::reclaim::{self, Search, LIVENESS_NS};
use super::ring::CONSUMER;
use super::state::{ChannelState, CLOSED, SEVERED};
use super::stats::{self, ProducerStats};
use crate::memory::atomics::Ordering;
use crate::memory::region::PRODUCER;
use crate::wait::clock::now_ns;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use thiserror::Error;

/// Why a payload could not be loaned.
#[derive(Debug, Clone, Copy, Error, PartialEq, Eq)]
pub enum LoanError {
    /// It is larger than the channel's payloads.
    #[error("a payload of {asked} bytes does not fit: the channel was made for {most}")]
    TooLarge {
        /// Bytes of the request.
        asked: usize,
        /// Bytes of the channel's largest payload.
        most: usize,
    },
    /// All payloads of the pool are in use: a participant does not give them back.
    #[error("all {slots} payloads are in use: does a consumer keep its items?")]
    Exhausted {
        /// Payloads in the pool.
        slots: usize,
    },
}

/// Why an item was not sent.
#[derive(Debug, Clone, Copy, Error, PartialEq, Eq)]
pub enum SendError {
    /// Some expected consumers have not attached yet.
    #[error("{attached} of {expected} consumers have attached: create all, then start")]
    NotStarted {
        /// Number of consumers that are attached.
        attached: usize,
        /// Number of consumers that are expected.
        expected: usize,
    },
    /// A consumer has not consumed enough.
    #[error("no credit: a consumer still has {in_flight} items")]
    NoCredit {
        /// Items that the slowest consumer has not consumed.
        in_flight: u64,
    },
    /// A consumer died, and the channel's [`OnDeath`] is `Fail`.
    #[error("a consumer died: call `resume` to go on without it")]
    ConsumerDied,
    /// What connects the channel to its consumers has broken.
    #[error("the link to the consumers has broken: connect anew")]
    Severed,
}

/// Why a copy of some bytes was not sent.
#[derive(Debug, Clone, Copy, Error, PartialEq, Eq)]
pub enum SendCopyError {
    /// There was no payload for it.
    #[error(transparent)]
    Loan(#[from] LoanError),
    /// It could not be sent.
    #[error(transparent)]
    Send(#[from] SendError),
}

/// An item that was not sent, and can be sent again.
#[derive(Debug, Error)]
#[error("{reason}")]
pub struct Refused<'p> {
    /// Why it was not sent.
    pub reason: SendError,
    /// The item.
    pub loan: Loan<'p>,
}

/// The sending side of a channel.
pub struct Producer {
    state: Arc<ChannelState>,
    /// Where the search for a free payload begins.
    cursor: usize,
    /// A consumer died, and `resume` was not called since.
    failed: AtomicBool,
    /// Consumers that had died at the last check.
    lost: AtomicU64,
    events: EndEvents,
}

impl std::fmt::Debug for Producer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Producer with {:?}", self.stats())
    }
}

impl Producer {
    pub(crate) fn new(state: Arc<ChannelState>) -> Producer {
        let lost = state.lost().load(Ordering::Relaxed);
        let depth = state.options.policy.depth();
        let link = state.link.get();
        Producer {
            events: link.map_or_else(EndEvents::default, |l| EndEvents::sending(l, depth)),
            state,
            cursor: 0,
            failed: AtomicBool::new(false),
            lost: AtomicU64::new(lost),
        }
    }

    /// The channel's name in recordings, if it has one.
    pub fn link(&self) -> Option<&LinkId> {
        self.state.link.get()
    }

    /// No recorder sees its items from now on: it passes on what something else has sent.
    pub fn set_unseen(&mut self) {
        self.events = EndEvents::default();
    }

    /// Loans a payload of `bytes` bytes, to be written and sent; its old content is still there.
    /// Real-time safe: checks each payload of the pool at most twice, and makes system calls only
    /// across processes when all payloads are in use.
    pub fn loan(&mut self, bytes: usize) -> Result<Loan<'_>, LoanError> {
        let layout = self.state.layout;
        if bytes > layout.payload {
            return Err(LoanError::TooLarge {
                asked: bytes,
                most: layout.payload,
            });
        }
        reclaim::reap(&self.state, Search::Left);
        let slot = match self.free_slot() {
            Some(slot) => Some(slot),
            None if self.state.memory().is_shared() => {
                self.check_consumers();
                self.free_slot()
            }
            None => None,
        };
        slot.map(|slot| Loan {
            producer: self,
            slot,
            bytes,
        })
        .ok_or(LoanError::Exhausted {
            slots: layout.slots,
        })
    }

    fn free_slot(&mut self) -> Option<usize> {
        let slots = self.state.layout.slots;
        for _ in 0..slots {
            let slot = self.cursor;
            self.cursor = (self.cursor + 1) % slots;
            // The last consumer that gave it back has finished reading.
            if self.state.slot(slot).references().load(Ordering::Acquire) == 0 {
                return Some(slot);
            }
        }
        None
    }

    /// Sends a copy of these bytes. Waits if the policy says so.
    pub fn send(&mut self, payload: &[u8]) -> Result<(), SendCopyError> {
        let mut loan = self.loan(payload.len())?;
        loan.copy_from_slice(payload);
        Ok(loan.send()?)
    }

    /// With [`Policy::Swap`](crate::Policy::Swap): consumers get the producer's buffer as soon as
    /// their own is empty, even if it is not full yet.
    pub fn flush(&mut self) {
        delivery::notify_all(&self.state, |ring| {
            let tail = ring.tail().load(Ordering::Relaxed);
            ring.urgent().store(tail, Ordering::Relaxed);
        });
    }

    /// Checks whether consumers in other processes have died, reclaims their payloads, and acts as
    /// the channel's [`OnDeath`] says. Returns how many died since the last check. A producer that
    /// waits, or finds no payload, calls this itself; one that never waits should call it now and
    /// then. Costs a system call for each consumer.
    pub fn check_consumers(&self) -> u64 {
        if !self.state.memory().is_shared() {
            return 0;
        }
        reclaim::reap(&self.state, Search::LeftAndDead);
        let lost = self.state.lost().load(Ordering::Relaxed);
        let died = lost.wrapping_sub(self.lost.swap(lost, Relaxed));
        if died > 0 {
            match self.state.options.on_death {
                OnDeath::Continue => {}
                OnDeath::Pause => self.state.started().store(0, Ordering::Relaxed),
                OnDeath::Fail => self.failed.store(true, Relaxed),
            }
        }
        died
    }

    /// Continues after [`SendError::ConsumerDied`].
    pub fn resume(&mut self) {
        self.failed.store(false, Relaxed);
    }

    /// Gives the next item this number, if it is larger than its own would be: those between were
    /// lost before they came to this producer, a relay's. Real-time safe.
    pub fn skip_to(&mut self, sequence: u64) {
        self.state.sent().fetch_max(sequence, Ordering::Release);
    }

    /// Tells consumers that no more items come, as dropping this producer would.
    pub fn end(&mut self) {
        let closed = self.state.closed();
        // A channel that was severed stays so.
        let ended = closed.compare_exchange(0, CLOSED, Ordering::AcqRel, Ordering::Relaxed);
        if ended.is_ok() {
            delivery::notify_all(&self.state, |_| ());
        }
    }

    /// Takes [`Producer::end`] back: a successor would, too.
    pub fn go_on(&mut self) {
        let closed = self.state.closed();
        let _ = closed.compare_exchange(CLOSED, 0, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Ends, as one that does not know whether more would have come: consumers get
    /// [`ReceiveError::Severed`](crate::ReceiveError::Severed) after the last item.
    pub fn sever(self) {
        self.state.closed().store(SEVERED, Ordering::Release);
    }

    /// Number of consumers that are attached; one that died counts until that is found out.
    /// Real-time safe.
    pub fn consumers(&self) -> usize {
        stats::attached(&self.state)
    }

    /// Counters of the channel's producers.
    pub fn stats(&self) -> ProducerStats {
        stats::of_producer(&self.state)
    }

    /// Why an item cannot be sent now; `None` if it can.
    fn obstacle(&self) -> Option<SendError> {
        let state = &self.state;
        if self.failed.load(Relaxed) {
            return Some(SendError::ConsumerDied);
        }
        if state.closed().load(Ordering::Acquire) == SEVERED {
            return Some(SendError::Severed);
        }
        if state.started().load(Ordering::Relaxed) == 0 {
            let (attached, expected) = (stats::attached(state), state.options.expected);
            if attached < expected {
                return Some(SendError::NotStarted { attached, expected });
            }
            state.started().store(1, Ordering::Relaxed);
        }
        if !state.options.policy.waits() {
            return None;
        }
        let lacks_credit = |r: &_| !delivery::has_credit(state, r);
        state
            .rings()
            .filter(|r| r.state().load(Ordering::Acquire) == CONSUMER && lacks_credit(r))
            .map(|r| u64::from(r.in_flight()))
            .max()
            .map(|in_flight| SendError::NoCredit { in_flight })
    }

    /// Waits until an item can be sent.
    fn wait(&self, deadline_ns: Option<u64>) -> Result<(), SendError> {
        if self.obstacle().is_none() {
            return Ok(());
        }
        let state = &self.state;
        state.stalls().fetch_add(1, Ordering::Relaxed);
        let since = now_ns();
        loop {
            // Across processes, wake up now and then and check whether consumers are alive.
            let check = state.memory().is_shared().then(|| now_ns() + LIVENESS_NS);
            let until = [deadline_ns, check].into_iter().flatten().min();
            let ready = state.producer_signal().wait(until, || {
                matches!(
                    self.obstacle(),
                    None | Some(SendError::ConsumerDied | SendError::Severed)
                )
            });
            let expired = deadline_ns.is_some_and(|d| now_ns() >= d);
            if ready || expired {
                state
                    .stalled_ns()
                    .fetch_add(now_ns() - since, Ordering::Relaxed);
                return self.obstacle().map_or(Ok(()), Err);
            }
            self.check_consumers();
        }
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        reclaim::reap(&self.state, Search::Left);
        let closed = self.state.closed();
        // A channel that was severed stays so.
        let _ = closed.compare_exchange(0, CLOSED, Ordering::AcqRel, Ordering::Relaxed);
        delivery::notify_all(&self.state, |_| ());
        self.state.region().release(PRODUCER);
    }
}

/// A payload that the producer fills. Dropping it unsent gives it back.
pub struct Loan<'p> {
    producer: &'p Producer,
    slot: usize,
    bytes: usize,
}

impl std::fmt::Debug for Loan<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Loan of {} bytes", self.bytes)
    }
}

impl<'p> Loan<'p> {
    /// Sends it. Waits for expected consumers, and for credit if the policy says so. Fails only if
    /// a consumer died and the channel's [`OnDeath`] is `Fail`.
    pub fn send(self) -> Result<(), SendError> {
        self.send_by(None).map_err(|refused| refused.reason)
    }

    /// Sends it if that is possible at once. Real-time safe: a system call only for each consumer
    /// that sleeps.
    pub fn try_send(self) -> Result<(), Refused<'p>> {
        match self.producer.obstacle() {
            None => {
                self.deliver();
                Ok(())
            }
            Some(reason) => Err(Refused { reason, loan: self }),
        }
    }

    /// Sends it as soon as possible; waits until `deadline_ns` (CLOCK_MONOTONIC) at most.
    pub fn send_until(self, deadline_ns: u64) -> Result<(), Refused<'p>> {
        self.send_by(Some(deadline_ns))
    }

    fn send_by(self, deadline_ns: Option<u64>) -> Result<(), Refused<'p>> {
        match self.producer.wait(deadline_ns) {
            Ok(()) => {
                self.deliver();
                Ok(())
            }
            Err(reason) => Err(Refused { reason, loan: self }),
        }
    }

    fn deliver(&self) {
        let state = &self.producer.state;
        self.producer
            .events
            .sent(state.sent().load(Ordering::Relaxed));
        delivery::deliver(state, self.slot, self.bytes, now_ns());
    }
}

impl Deref for Loan<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let slot = self.producer.state.slot(self.slot);
        // SAFETY: no consumer refers to the slot, and a loan borrows the one producer, so that it
        // is the only loan.
        unsafe { slot.payload(self.bytes) }
    }
}

impl DerefMut for Loan<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        let slot = self.producer.state.slot(self.slot);
        // SAFETY: as above, and `self` is borrowed mutably.
        unsafe { slot.payload_mut(self.bytes) }
    }
}
