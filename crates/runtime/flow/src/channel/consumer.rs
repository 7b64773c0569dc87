//! The receiving side of a channel: items that are borrowed in place, and waiting for them.

use super::delivery;
use super::events::{EndEvents, LinkId};
use super::options::OnDeath;
use super::reclaim::{self, LIVENESS_NS};
use super::ring::{before, Ring};
use super::state::{ChannelState, CLOSED, SEVERED};
use super::stats::{self, ConsumerStats, ProducerStats};
use crate::memory::atomics::Ordering;
use crate::testing::point;
use crate::wait::{clock::now_ns, Waker};
use std::cell::Cell;
use std::ops::Deref;
use std::sync::Arc;
use thiserror::Error;

/// Why nothing was received.
#[derive(Debug, Clone, Copy, Error, PartialEq, Eq)]
pub enum ReceiveError {
    /// The consumer borrows as many items as the channel allows.
    #[error("{borrowed} items are in use, the limit: drop one before receiving the next, or raise `borrowed`")]
    TooManyBorrowed {
        /// The limit: `borrowed` in the channel's options.
        borrowed: usize,
    },
    /// The producer died, all items are received, and the channel's [`OnDeath`] is `Fail`.
    #[error("the producer died: start it again, or attach to the channel that its successor made")]
    ProducerDied,
    /// The producer is gone, and its last items come only after the consumer has dropped the items
    /// that it borrows: the policy exchanges buffers only when the consumer's is empty.
    #[error("more items come only after the items in use are dropped: drop them")]
    BufferInUse,
    /// What connects the channel to its producer has broken, and all items that came are received.
    #[error("the link to the producer has broken: connect anew")]
    Severed,
    /// The item is not a value of the channel's type.
    #[error("an item of {bytes} bytes is not of the channel's type: what sends it?")]
    NotOfType {
        /// Length of the item.
        bytes: usize,
    },
}

/// The receiving side of a channel.
pub struct Consumer {
    state: Arc<ChannelState>,
    index: usize,
    waker: Option<Waker>,
    /// Number of items in use.
    borrowed: Cell<usize>,
    /// Slot of the value that `newest` returned last.
    newest: Cell<Option<u32>>,
    ahead: Ahead,
    events: EndEvents,
}

/// Slots of items that [`Consumer::peek`] has shown and nobody has received yet, oldest first. As
/// many as may be borrowed.
struct Ahead {
    slots: Box<[Cell<u32>]>,
    first: Cell<usize>,
    count: Cell<usize>,
}

impl Ahead {
    fn new(most: usize) -> Ahead {
        Ahead {
            slots: (0..most).map(|_| Cell::new(0)).collect(),
            first: Cell::new(0),
            count: Cell::new(0),
        }
    }

    fn at(&self, nth: usize) -> &Cell<u32> {
        &self.slots[(self.first.get() + nth) % self.slots.len()]
    }

    fn push(&self, slot: u32) {
        self.at(self.count.get()).set(slot);
        self.count.set(self.count.get() + 1);
    }

    fn pop(&self) -> Option<u32> {
        let left = self.count.get().checked_sub(1)?;
        let slot = self.at(0).get();
        self.first.set((self.first.get() + 1) % self.slots.len());
        self.count.set(left);
        Some(slot)
    }
}

impl std::fmt::Debug for Consumer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Consumer {} with {:?}", self.index, self.stats())
    }
}

/// Why a wait for an item ended.
enum Wait {
    /// There may be an item, or it is time to check whether the producer is alive.
    Again,
    Expired,
    /// The producer has announced its end.
    Closed,
}

impl Consumer {
    pub(crate) fn new(state: Arc<ChannelState>, index: usize, waker: Option<Waker>) -> Consumer {
        let depth = state.options.policy.depth();
        let link = state.link.get();
        Consumer {
            events: link.map_or_else(EndEvents::default, |l| EndEvents::receiving(l, depth)),
            ahead: Ahead::new(state.options.borrowed),
            state,
            index,
            waker,
            borrowed: Cell::new(0),
            newest: Cell::new(None),
        }
    }

    /// The channel's name in recordings, if it has one.
    pub fn link(&self) -> Option<&LinkId> {
        self.state.link.get()
    }

    /// No recorder sees its items from now on: it passes them on.
    pub fn set_unseen(&mut self) {
        self.events = EndEvents::default();
    }

    fn ring(&self) -> Ring<'_> {
        self.state.ring(self.index)
    }

    /// Receives the next item, if there is one, to be read in place. It counts as consumed when it
    /// is dropped. Fails if the consumer borrows as many items as the channel allows. Real-time
    /// safe: a system call only to wake a sleeping producer.
    pub fn try_receive(&self) -> Result<Option<Item<'_>>, ReceiveError> {
        let limit = self.state.options.borrowed;
        if self.ahead.count.get() == 0 && self.borrowed.get() >= limit {
            return Err(ReceiveError::TooManyBorrowed { borrowed: limit });
        }
        let Some(slot) = self.take() else {
            return Ok(None);
        };
        self.borrowed.set(self.borrowed.get() + 1);
        let item = self.item(slot, Use::Borrowed);
        self.events.received(item.sequence());
        Ok(Some(item))
    }

    /// Shows a waiting item without receiving it: the next one is number 0. `None` if so many do not
    /// wait, or may not be borrowed. An item that was shown is in use until it is received and
    /// dropped: no newer one replaces it, and its credit is not back. For a task's condition on
    /// contents. Real-time safe: no allocation, no system call, at most `nth` steps.
    pub fn peek(&mut self, nth: usize) -> Option<&[u8]> {
        let (ahead, limit) = (&self.ahead, self.state.options.borrowed);
        while ahead.count.get() <= nth {
            if ahead.count.get() + self.borrowed.get() >= limit {
                return None;
            }
            ahead.push(self.take_waiting()?);
        }
        let slot = ahead.at(nth).get() as usize;
        let bytes = self.bytes(slot);
        // SAFETY: as for an item: the consumer refers to the slot, and does so until it has
        // received and dropped the item, for which it must not be borrowed any more.
        Some(unsafe { self.state.slot(slot).payload(bytes) })
    }

    /// As [`Consumer::try_receive`]; `None` also if the consumer borrows as many as it may.
    pub fn receive(&self) -> Option<Item<'_>> {
        self.try_receive().ok().flatten()
    }

    /// Receives the next item. Sleeps until there is one, until `deadline_ns` (CLOCK_MONOTONIC), or
    /// until the producer is gone and all items are received. A consumer with a [`Waker`] sleeps at
    /// the waker.
    ///
    /// # Errors
    /// - The consumer borrows as many items as it may.
    /// - The producer is gone, and its last items come only after the consumer has dropped the
    ///   items that it borrows ([`Policy::Swap`](crate::Policy::Swap)).
    /// - The producer died, and the channel's [`OnDeath`] is `Fail`.
    /// - The channel was severed: [`ReceiveError::Severed`].
    pub fn receive_until(
        &self,
        deadline_ns: Option<u64>,
    ) -> Result<Option<Item<'_>>, ReceiveError> {
        let (state, ring) = (&self.state, self.ring());
        loop {
            let wait = self.wait(deadline_ns);
            let item = self.try_receive()?;
            // While the producer replaces the last item by a newer one, there is none for a moment.
            if item.is_some() {
                return Ok(item);
            }
            let is_blocked = ring.waiting() > 0 && self.borrowed.get() > 0;
            match wait {
                Wait::Expired => return Ok(None),
                Wait::Closed if !is_blocked && self.is_severed() => {
                    return Err(ReceiveError::Severed)
                }
                Wait::Closed if !is_blocked => return Ok(None),
                Wait::Again if !reclaim::is_orphaned(state) => continue,
                _ => {}
            }
            if is_blocked {
                return Err(ReceiveError::BufferInUse);
            }
            // Nobody fills a dead producer's buffer up: its items come now.
            let tail = ring.tail().load(Ordering::Acquire);
            ring.urgent().store(tail, Ordering::Relaxed);
            if ring.waiting() == 0 && state.options.on_death == OnDeath::Fail {
                return Err(ReceiveError::ProducerDied);
            }
        }
    }

    /// Sleeps until there may be an item, until the deadline, or until the next check for the
    /// producer's death.
    fn wait(&self, deadline_ns: Option<u64>) -> Wait {
        let (state, ring) = (&self.state, self.ring());
        let mut closed = false;
        let ready = || {
            closed = state.closed().load(Ordering::Acquire) != 0;
            let is_ahead = self.ahead.count.get() > 0;
            closed || is_ahead || before(ring.head().number(), delivery::end(state, &ring))
        };
        let check = state.memory().is_shared().then(|| now_ns() + LIVENESS_NS);
        let until = [deadline_ns, check].into_iter().flatten().min();
        match &self.waker {
            Some(waker) => waker.wait(until, ready),
            None => ring.signal().wait(until, ready),
        };
        if closed {
            Wait::Closed
        } else if deadline_ns.is_some_and(|d| now_ns() >= d) {
            Wait::Expired
        } else {
            Wait::Again
        }
    }

    /// The newest complete value, even if it was returned before; `None` before the first. Skips
    /// older ones: at most as many as can wait at once.
    pub fn newest(&mut self) -> Option<Item<'_>> {
        let mut is_new = false;
        for _ in 0..=self.state.options.policy.depth() + self.ahead.count.get() {
            let Some(slot) = self.take() else { break };
            is_new = true;
            if let Some(old) = self.newest.replace(Some(slot)) {
                self.state.release(old, self.index);
            }
            self.ring().consumed().fetch_add(1, Ordering::Release);
            self.state.producer_signal().notify();
        }
        let slot = self.newest.get()?;
        let item = self.item(slot, Use::Newest);
        if is_new {
            self.events.received(item.sequence());
        }
        Some(item)
    }

    /// Number of items that can be received now. Real-time safe.
    pub fn waiting(&self) -> u32 {
        let ring = self.ring();
        let (head, end) = (ring.head().number(), delivery::end(&self.state, &ring));
        let ahead = self.ahead.count.get() as u32;
        if before(head, end) {
            ahead + end.wrapping_sub(head)
        } else {
            ahead
        }
    }

    /// When the item that [`Consumer::receive`] would return was sent, in ns (CLOCK_MONOTONIC); `None`
    /// if none waits. Of an item that a newer one replaces meanwhile, it may be the newer one's time.
    /// Real-time safe.
    pub fn next_sent_ns(&self) -> Option<u64> {
        let (state, ring) = (&self.state, self.ring());
        let slot = if self.ahead.count.get() > 0 {
            self.ahead.at(0).get()
        } else {
            let head = ring.head().number();
            before(head, delivery::end(state, &ring)).then(|| ring.slot(head))?
        };
        // A number from another process may be nonsense.
        let is_slot = (slot as usize) < state.layout.slots;
        is_slot.then(|| state.slot(slot as usize).time_ns().load(Ordering::Relaxed))
    }

    /// Whether the producer has announced its end, and all items are received.
    pub fn is_over(&self) -> bool {
        let is_closed = self.state.closed().load(Ordering::Acquire) == CLOSED;
        is_closed && self.ahead.count.get() == 0 && self.ring().waiting() == 0
    }

    /// Whether what connects the channel to its producer has broken; items that came before may
    /// still wait. Real-time safe.
    pub fn is_severed(&self) -> bool {
        self.state.closed().load(Ordering::Acquire) == SEVERED
    }

    /// Whether the producer, in another process, died without announcing its end. A system call.
    pub fn is_orphaned(&self) -> bool {
        reclaim::is_orphaned(&self.state)
    }

    /// Counters of this consumer.
    pub fn stats(&self) -> ConsumerStats {
        let stats = stats::of_consumer(&self.ring());
        ConsumerStats {
            waiting: stats.waiting + self.ahead.count.get() as u64,
            ..stats
        }
    }

    /// Counters of the channel's producers.
    pub fn producer_stats(&self) -> ProducerStats {
        stats::of_producer(&self.state)
    }

    /// The next item's slot: of those that were shown first.
    fn take(&self) -> Option<u32> {
        self.ahead.pop().or_else(|| self.take_waiting())
    }

    fn take_waiting(&self) -> Option<u32> {
        let (state, ring) = (&self.state, self.ring());
        let mut end = delivery::end(state, &ring);
        // Twice, since the producer may have replaced everything before `end` by something newer.
        for _ in 0..2 {
            point();
            if let Some(slot) = ring.pop(end) {
                point();
                if (slot as usize) < state.layout.slots {
                    return Some(slot);
                }
                // Nonsense from another process; it counts as consumed.
                ring.consumed().fetch_add(1, Ordering::Release);
                return None;
            }
            end = delivery::end(state, &ring);
        }
        None
    }

    fn item(&self, slot: u32, used_as: Use) -> Item<'_> {
        let slot = slot as usize;
        Item {
            consumer: self,
            slot,
            // Read once, so that later writes of other processes do not change it.
            bytes: self.bytes(slot),
            used_as,
        }
    }

    /// Length of the item in a slot, which another process may have written.
    fn bytes(&self, slot: usize) -> usize {
        let length = self.state.slot(slot).length().load(Ordering::Relaxed) as usize;
        length.min(self.state.layout.payload)
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        let state = &self.state;
        if let Some(waker) = &self.waker {
            waker.leave(state.memory(), self.ring().signal_offset());
        }
        // If the producer does not finish its delivery meanwhile, it cleans the ring itself.
        reclaim::clean_beside_producer(state, self.index);
        state.region().release(self.index + 1);
        // The producer may wait for this consumer's credits.
        state.producer_signal().notify();
    }
}

/// What an item is to its consumer.
#[derive(Clone, Copy, PartialEq)]
enum Use {
    /// Received; consumed when it is dropped.
    Borrowed,
    /// Kept by the consumer as its newest value, and consumed already.
    Newest,
}

/// An item, read where the producer has written it.
pub struct Item<'c> {
    consumer: &'c Consumer,
    slot: usize,
    bytes: usize,
    used_as: Use,
}

impl std::fmt::Debug for Item<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Item {} of {} bytes", self.sequence(), self.bytes)
    }
}

impl Item<'_> {
    /// Number of the item since the channel was created, from 0: a gap is a loss.
    pub fn sequence(&self) -> u64 {
        let slot = self.consumer.state.slot(self.slot);
        slot.sequence().load(Ordering::Relaxed)
    }

    /// When it was sent, in ns (CLOCK_MONOTONIC).
    pub fn sent_ns(&self) -> u64 {
        let slot = self.consumer.state.slot(self.slot);
        slot.time_ns().load(Ordering::Relaxed)
    }
}

impl Deref for Item<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let slot = self.consumer.state.slot(self.slot);
        // SAFETY: the item refers to the slot, so that the producer does not loan it again. What
        // the producer has written is visible, because `take` read the slot's number with Acquire.
        unsafe { slot.payload(self.bytes) }
    }
}

impl Drop for Item<'_> {
    fn drop(&mut self) {
        if self.used_as == Use::Newest {
            return;
        }
        let consumer = self.consumer;
        consumer.borrowed.set(consumer.borrowed.get() - 1);
        point();
        consumer.state.release(self.slot as u32, consumer.index);
        point();
        consumer.ring().consumed().fetch_add(1, Ordering::Release);
        point();
        consumer.state.producer_signal().notify();
    }
}
