//! A side of a channel that receives.

use crate::channel::{stats_of, ConsumerStats, ProducerStats, Shared, LOOK_NS};
use crate::clock::now_ns;
use crate::faults::point;
use crate::options::OnDeath;
use crate::ring::{before, Ring};
use crate::signal::Waker;
use crate::sync::Ordering;
use std::cell::Cell;
use std::ops::Deref;
use std::sync::Arc;
use thiserror::Error;

/// Why nothing was received.
#[derive(Debug, Clone, Copy, Error, PartialEq, Eq)]
pub enum ReceiveError {
    /// The consumer holds as many items as it may.
    #[error("{held} items are held at a time at most: drop one before receiving the next, or raise `held`")]
    TooManyHeld {
        /// The channel's option.
        held: usize,
    },
    /// The producer died, everything was received, and the channel is to fail then.
    #[error("the producer died: start it again, or attach to the channel that its successor made")]
    ProducerDied,
    /// The producer is gone, and what is left comes when the held items are dropped: the policy
    /// exchanges buffers when the consumer is done with its own.
    #[error("items are left, but they come only when those that are held are dropped: drop them")]
    HeldBack,
    /// The item is not one of the channel's type.
    #[error("an item of {bytes} bytes is not of the channel's type: what sends it?")]
    NotOfType {
        /// Its length.
        bytes: usize,
    },
}

/// A side that receives.
pub struct Consumer {
    shared: Arc<Shared>,
    index: usize,
    waker: Option<Waker>,
    held: Cell<usize>,
    /// The value that `newest` showed last.
    kept: Cell<Option<u32>>,
}

impl std::fmt::Debug for Consumer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Consumer {} with {:?}", self.index, self.stats())
    }
}

impl Consumer {
    pub(crate) fn new(shared: Arc<Shared>, index: usize, waker: Option<Waker>) -> Consumer {
        Consumer {
            shared,
            index,
            waker,
            held: Cell::new(0),
            kept: Cell::new(None),
        }
    }

    fn ring(&self) -> Ring<'_> {
        self.shared.ring(self.index)
    }

    /// The next item, if there is one, to be read in place. It counts as consumed when it is
    /// dropped. Where it is more than the consumer may hold, nothing is received.
    pub fn try_receive(&self) -> Result<Option<Item<'_>>, ReceiveError> {
        let held = self.shared.options.held;
        if self.held.get() >= held {
            return Err(ReceiveError::TooManyHeld { held });
        }
        let Some(slot) = self.take() else {
            return Ok(None);
        };
        self.held.set(self.held.get() + 1);
        Ok(Some(self.item(slot, false)))
    }

    /// The next item, if there is one; `None` also while as many are held as may be.
    pub fn receive(&self) -> Option<Item<'_>> {
        self.try_receive().ok().flatten()
    }

    /// The next item. Sleeps until there is one or it is `deadline_ns` (CLOCK_MONOTONIC), or until
    /// the producer has gone and everything was received. A consumer with a [`Waker`] sleeps there.
    /// Errors: as many are held as may be; the producer is gone and what it left waits for what is
    /// held ([`Policy::Swap`](crate::Policy::Swap)); it died, and the channel is to fail then.
    pub fn receive_until(
        &self,
        deadline_ns: Option<u64>,
    ) -> Result<Option<Item<'_>>, ReceiveError> {
        let (shared, ring) = (&self.shared, self.ring());
        loop {
            let mut gone = false;
            let ready = || {
                gone = shared.closed().load(Ordering::Acquire) != 0;
                gone || before(ring.head().number(), shared.end(&ring))
            };
            // Who waits for another process looks now and then whether it still lives.
            let look = shared.region().is_shared().then(|| now_ns() + LOOK_NS);
            let until = [deadline_ns, look].into_iter().flatten().min();
            match &self.waker {
                Some(waker) => waker.wait(until, ready),
                None => ring.signal().wait(until, ready),
            };
            let item = self.try_receive()?;
            let over = deadline_ns.is_some_and(|d| now_ns() >= d);
            // While the producer drops the last item for a newer one, there is none for a moment.
            if item.is_some() {
                return Ok(item);
            }
            if (gone || over) && !(gone && ring.waiting() > 0 && self.held.get() > 0) {
                return Ok(None);
            }
            if !gone && !shared.is_orphaned() {
                continue;
            }
            if ring.waiting() > 0 && self.held.get() > 0 {
                return Err(ReceiveError::HeldBack);
            }
            // Nobody fills a dead producer's buffer up: what is in it comes now.
            let tail = ring.tail().load(Ordering::Acquire);
            ring.urgent().store(tail, Ordering::Relaxed);
            if ring.waiting() == 0 && shared.options.on_death == OnDeath::Fail {
                return Err(ReceiveError::ProducerDied);
            }
        }
    }

    /// The newest complete value, also if it was shown before; `None` before the first. Older ones
    /// are passed over, at most as many as can wait at once.
    pub fn newest(&mut self) -> Option<Item<'_>> {
        for _ in 0..=self.shared.options.policy.depth() {
            let Some(slot) = self.take() else { break };
            if let Some(old) = self.kept.replace(Some(slot)) {
                self.shared.release(old, self.index);
            }
            self.ring().consumed().fetch_add(1, Ordering::Release);
            self.shared.producer_signal().notify();
        }
        let slot = self.kept.get()?;
        Some(self.item(slot, true))
    }

    /// Items that may be received now. Real-time safe.
    pub fn waiting(&self) -> u32 {
        let (head, end) = (self.ring().head().number(), self.shared.end(&self.ring()));
        if before(head, end) {
            end.wrapping_sub(head)
        } else {
            0
        }
    }

    /// The producer has gone, and everything was received.
    pub fn is_over(&self) -> bool {
        self.shared.closed().load(Ordering::Acquire) != 0 && self.ring().waiting() == 0
    }

    /// The producer, in another process, died without a word. A system call.
    pub fn is_orphaned(&self) -> bool {
        self.shared.is_orphaned()
    }

    /// How far this consumer has got.
    pub fn stats(&self) -> ConsumerStats {
        stats_of(&self.ring())
    }

    /// What the producer has done.
    pub fn producer_stats(&self) -> ProducerStats {
        self.shared.stats()
    }

    fn take(&self) -> Option<u32> {
        let ring = self.ring();
        let mut end = self.shared.end(&ring);
        // Once more if the producer has dropped everything before `end` for something newer.
        for _ in 0..2 {
            point();
            if let Some(slot) = ring.pop(end) {
                point();
                if (slot as usize) < self.shared.places.slots {
                    return Some(slot);
                }
                // Nonsense that somebody wrote; it counts as consumed.
                ring.consumed().fetch_add(1, Ordering::Release);
                return None;
            }
            end = self.shared.end(&ring);
        }
        None
    }

    fn item(&self, slot: u32, kept: bool) -> Item<'_> {
        let slot = slot as usize;
        let length = self.shared.length(slot).load(Ordering::Relaxed) as usize;
        Item {
            consumer: self,
            slot,
            // Read once, so that it stays what it was.
            bytes: length.min(self.shared.places.payload),
            kept,
        }
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        let shared = &self.shared;
        if let Some(waker) = &self.waker {
            waker.leave(shared, self.index);
        }
        // If the producer does not get done meanwhile, it cleans up itself.
        shared.clean_beside_producer(self.index);
        shared.region().release(self.index + 1);
        // Its credits are back.
        shared.producer_signal().notify();
    }
}

/// An item, read where the producer has written it.
pub struct Item<'c> {
    consumer: &'c Consumer,
    slot: usize,
    bytes: usize,
    kept: bool,
}

impl std::fmt::Debug for Item<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Item {} of {} bytes", self.sequence(), self.bytes)
    }
}

impl Item<'_> {
    /// Number of the item since the channel was made, from 0: a gap is a loss.
    pub fn sequence(&self) -> u64 {
        let shared = &self.consumer.shared;
        shared.sequence(self.slot).load(Ordering::Relaxed)
    }

    /// When it was sent (CLOCK_MONOTONIC).
    pub fn sent_ns(&self) -> u64 {
        let shared = &self.consumer.shared;
        shared.time(self.slot).load(Ordering::Relaxed)
    }
}

impl Deref for Item<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let shared = &self.consumer.shared;
        // SAFETY: the item refers to the slot, so that the producer does not loan it again; what
        // was written before is seen, because the slot's number was read with Acquire.
        unsafe { shared.payload(self.slot, self.bytes) }
    }
}

impl Drop for Item<'_> {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        let consumer = self.consumer;
        consumer.held.set(consumer.held.get() - 1);
        point();
        consumer.shared.release(self.slot as u32, consumer.index);
        point();
        consumer.ring().consumed().fetch_add(1, Ordering::Release);
        point();
        consumer.shared.producer_signal().notify();
    }
}
