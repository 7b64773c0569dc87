//! The side of a channel that sends.

use crate::channel::{ProducerStats, Shared, LOOK_NS};
use crate::clock::now_ns;
use crate::options::OnDeath;
use crate::region::PRODUCER;
use crate::ring::CONSUMER;
use crate::sync::Ordering;
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
        /// Bytes asked for.
        asked: usize,
        /// The channel's.
        most: usize,
    },
    /// Every payload of the pool is in use: somebody did not give back what they hold.
    #[error("all {slots} payloads are in use: does a consumer keep its items?")]
    Exhausted {
        /// Payloads in the pool.
        slots: usize,
    },
}

/// Why an item was not sent.
#[derive(Debug, Clone, Copy, Error, PartialEq, Eq)]
pub enum SendError {
    /// Not all expected consumers have attached yet.
    #[error("{attached} of {expected} consumers have attached: create all, then start")]
    NotStarted {
        /// Are there.
        attached: usize,
        /// Are waited for.
        expected: usize,
    },
    /// A consumer has consumed too little.
    #[error("no credit: a consumer still has {in_flight} items")]
    NoCredit {
        /// Items before the slowest consumer.
        in_flight: u64,
    },
    /// A consumer died, and the channel is to fail then.
    #[error("a consumer died: call `resume` to go on without it")]
    ConsumerDied,
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

/// An item that was not sent, with the way to try again.
#[derive(Debug, Error)]
#[error("{reason}")]
pub struct Refused<'p> {
    /// Why.
    pub reason: SendError,
    /// The item, still to be sent.
    pub loan: Loan<'p>,
}

/// The side that sends.
pub struct Producer {
    shared: Arc<Shared>,
    /// Where the search for a free payload begins.
    cursor: usize,
    /// A consumer died since somebody last decided.
    failed: AtomicBool,
    /// Consumers that had died when somebody last looked.
    lost: AtomicU64,
}

impl std::fmt::Debug for Producer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Producer that has done {:?}", self.stats())
    }
}

impl Producer {
    pub(crate) fn new(shared: Arc<Shared>) -> Producer {
        let lost = shared.lost().load(Ordering::Relaxed);
        Producer {
            shared,
            cursor: 0,
            failed: AtomicBool::new(false),
            lost: AtomicU64::new(lost),
        }
    }

    /// A payload of so many bytes, to be written and sent; its old content is still there. Looks
    /// at each payload of the pool twice at most.
    pub fn loan(&mut self, bytes: usize) -> Result<Loan<'_>, LoanError> {
        let places = self.shared.places;
        if bytes > places.payload {
            return Err(LoanError::TooLarge {
                asked: bytes,
                most: places.payload,
            });
        }
        self.shared.reap(false);
        let slot = match self.free_slot() {
            Some(slot) => Some(slot),
            None if self.shared.region().is_shared() => {
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
            slots: places.slots,
        })
    }

    fn free_slot(&mut self) -> Option<usize> {
        let slots = self.shared.places.slots;
        for _ in 0..slots {
            let slot = self.cursor;
            self.cursor = (self.cursor + 1) % slots;
            // Whoever gave it back is done reading.
            if self.shared.references(slot).load(Ordering::Acquire) == 0 {
                return Some(slot);
            }
        }
        None
    }

    /// Sends a copy of these bytes, waiting if the policy says so.
    pub fn send(&mut self, payload: &[u8]) -> Result<(), SendCopyError> {
        let mut loan = self.loan(payload.len())?;
        loan.copy_from_slice(payload);
        Ok(loan.send()?)
    }

    /// Lets consumers have what is in the producer's buffer of a swap as soon as their own is
    /// empty.
    pub fn flush(&mut self) {
        self.shared.notify_all(|ring| {
            let tail = ring.tail().load(Ordering::Relaxed);
            ring.urgent().store(tail, Ordering::Relaxed);
        });
    }

    /// Looks whether consumers in other processes have died, takes back what they held, and acts as
    /// the channel's [`OnDeath`] says; how many died. A producer that waits, or finds no payload,
    /// does this by itself; one that never waits should now and then. A system call for each
    /// consumer.
    pub fn check_consumers(&self) -> u64 {
        if !self.shared.region().is_shared() {
            return 0;
        }
        self.shared.reap(true);
        let lost = self.shared.lost().load(Ordering::Relaxed);
        let died = lost.wrapping_sub(self.lost.swap(lost, Relaxed));
        if died > 0 {
            match self.shared.options.on_death {
                OnDeath::Continue => {}
                OnDeath::Pause => self.shared.started().store(0, Ordering::Relaxed),
                OnDeath::Fail => self.failed.store(true, Relaxed),
            }
        }
        died
    }

    /// Goes on after [`SendError::ConsumerDied`].
    pub fn resume(&mut self) {
        self.failed.store(false, Relaxed);
    }

    /// What was done so far.
    pub fn stats(&self) -> ProducerStats {
        self.shared.stats()
    }

    /// Why an item cannot be sent just now.
    fn obstacle(&self) -> Option<SendError> {
        let shared = &self.shared;
        if self.failed.load(Relaxed) {
            return Some(SendError::ConsumerDied);
        }
        if shared.started().load(Ordering::Relaxed) == 0 {
            let (attached, expected) = (shared.attached(), shared.options.expected);
            if attached < expected {
                return Some(SendError::NotStarted { attached, expected });
            }
            shared.started().store(1, Ordering::Relaxed);
        }
        if !shared.options.policy.waits() {
            return None;
        }
        shared
            .rings()
            .filter(|r| r.state().load(Ordering::Acquire) == CONSUMER && !shared.has_credit(r))
            .map(|r| u64::from(r.in_flight()))
            .max()
            .map(|in_flight| SendError::NoCredit { in_flight })
    }

    /// Waits until an item can be sent.
    fn wait(&self, deadline_ns: Option<u64>) -> Result<(), SendError> {
        if self.obstacle().is_none() {
            return Ok(());
        }
        let shared = &self.shared;
        shared.stalls().fetch_add(1, Ordering::Relaxed);
        let since = now_ns();
        loop {
            // Who waits for another process looks now and then whether it still lives.
            let look = shared.region().is_shared().then(|| now_ns() + LOOK_NS);
            let until = [deadline_ns, look].into_iter().flatten().min();
            let ready = shared.producer_signal().wait(until, || {
                matches!(self.obstacle(), None | Some(SendError::ConsumerDied))
            });
            let over = deadline_ns.is_some_and(|d| now_ns() >= d);
            if ready || over {
                shared
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
        self.shared.reap(false);
        self.shared.closed().store(1, Ordering::Release);
        self.shared.notify_all(|_| ());
        self.shared.region().release(PRODUCER);
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
    /// Sends it, waiting for as long as the policy says, and for the consumers that are expected.
    /// Refused only if a consumer died and the channel is to fail then.
    pub fn send(self) -> Result<(), SendError> {
        self.send_by(None).map_err(|refused| refused.reason)
    }

    /// Sends it if that is possible at once.
    pub fn try_send(self) -> Result<(), Refused<'p>> {
        match self.producer.obstacle() {
            None => {
                self.deliver();
                Ok(())
            }
            Some(reason) => Err(Refused { reason, loan: self }),
        }
    }

    /// Sends it as soon as possible, until `deadline_ns` (CLOCK_MONOTONIC).
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
        let shared = &self.producer.shared;
        shared.deliver(self.slot, self.bytes, now_ns());
    }
}

impl Deref for Loan<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let shared = &self.producer.shared;
        // SAFETY: nobody refers to the slot, and a loan borrows the one producer, so that it is
        // the only one.
        unsafe { shared.payload(self.slot, self.bytes) }
    }
}

impl DerefMut for Loan<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        let shared = &self.producer.shared;
        // SAFETY: as above, and `self` is borrowed mutably.
        unsafe { shared.payload_mut(self.slot, self.bytes) }
    }
}
