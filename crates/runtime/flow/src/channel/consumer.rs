//! The receiving side of a channel: reads items in place, and waits for them.

use super::delivery;
use super::events::{EndEvents, LinkId};
use super::options::OnDeath;
use super::reclaim::{self, LIVENESS_NS};
use super::ring::{precedes, Ring};
use super::state::{ChannelState, CLOSED, SEVERED};
use super::stats::{self, ConsumerStats, ProducerStats};
use crate::memory::atomics::Ordering;
use crate::testing::point;
use crate::wait::{clock::now_ns, Waker};
use std::cell::Cell;
use std::ops::Deref;
use std::sync::Arc;
use thiserror::Error;

/// The reason why a consumer received nothing.
#[allow(missing_docs)] // The messages say the rest.
#[derive(Debug, Clone, Copy, Error, PartialEq, Eq)]
pub enum ReceiveError {
    #[error("the consumer already borrows {borrowed} items, its limit. Drop an item before receiving the next, or raise `borrowed`.")]
    TooManyBorrowed { borrowed: usize },
    #[error("the producer died. Start it again, or attach to the channel of its successor.")]
    ProducerDied,
    /// The producer is gone, and items from it still wait. The consumer gets these items only after
    /// it has dropped the items that it borrows, because [`Policy::Swap`](crate::Policy::Swap)
    /// exchanges buffers only when the consumer's buffer is empty.
    #[error("no more items can come while the consumer uses earlier ones. Drop the items in use.")]
    BufferInUse,
    #[error("the link to the producer has broken. Connect again.")]
    Severed,
    #[error("an item of {bytes} bytes is not a value of the channel's type. Check the program that sends it.")]
    NotOfType { bytes: usize },
}

/// The receiving side of a channel.
pub struct Consumer {
    state: Arc<ChannelState>,
    index: usize,
    waker: Option<Waker>,
    borrowed: Cell<usize>,
    /// The payload slot of the value that [`Consumer::newest`] returned last.
    newest: Cell<Option<u32>>,
    peeked: PeekedItems,
    events: EndEvents,
}

/// The slots of items that [`Consumer::peek`] has shown and the consumer has not received yet,
/// oldest first. There are at most as many as the consumer may borrow.
struct PeekedItems {
    slots: Box<[Cell<u32>]>,
    first: Cell<usize>,
    count: Cell<usize>,
}

impl PeekedItems {
    fn new(most: usize) -> PeekedItems {
        PeekedItems {
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

enum Wait {
    /// The consumer must look again, because an item may have arrived or the producer may have
    /// died.
    Again,
    Expired,
    Closed,
}

impl Consumer {
    pub(crate) fn new(state: Arc<ChannelState>, index: usize, waker: Option<Waker>) -> Consumer {
        let depth = state.options.policy.depth();
        let link = state.link.get();
        Consumer {
            events: link.map_or_else(EndEvents::default, |l| EndEvents::receiving(l, depth)),
            peeked: PeekedItems::new(state.options.borrowed),
            state,
            index,
            waker,
            borrowed: Cell::new(0),
            newest: Cell::new(None),
        }
    }

    /// Returns the channel's name in recordings, if it has one.
    pub fn link(&self) -> Option<&LinkId> {
        self.state.link.get()
    }

    /// Hides this consumer from recorders. A relay calls this, because it only passes items on.
    pub fn set_unseen(&mut self) {
        self.events = EndEvents::default();
    }

    fn ring(&self) -> Ring<'_> {
        self.state.ring(self.index)
    }

    /// Receives the next item, if there is one, to be read in place. The item counts as consumed
    /// when it is dropped. Fails if the consumer already borrows as many items as the channel
    /// allows. Real-time safe: makes a system call only to wake a sleeping producer.
    pub fn try_receive(&self) -> Result<Option<Item<'_>>, ReceiveError> {
        let limit = self.state.options.borrowed;
        if self.peeked.count.get() == 0 && self.borrowed.get() >= limit {
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

    /// Shows a waiting item without receiving it. `nth` 0 stands for the next item.
    ///
    /// Returns `None` if at most `nth` items wait, or if the consumer may not borrow `nth` + 1
    /// items. A shown item is in use until it is received and dropped: no newer item replaces it,
    /// and the producer does not get its credit back. A task's condition on contents reads items
    /// this way. Real-time safe: no allocation, no system call, at most `nth` steps.
    pub fn peek(&mut self, nth: usize) -> Option<&[u8]> {
        let (peeked, limit) = (&self.peeked, self.state.options.borrowed);
        while peeked.count.get() <= nth {
            if peeked.count.get() + self.borrowed.get() >= limit {
                return None;
            }
            peeked.push(self.take_waiting()?);
        }
        let slot = peeked.at(nth).get() as usize;
        let bytes = self.bytes(slot);
        // SAFETY: as for an item, the consumer refers to the slot until it has received and dropped
        // the item. The caller cannot do that while it borrows these bytes.
        Some(unsafe { self.state.slot(slot).payload(bytes) })
    }

    /// Receives the next item. Returns `None` if none waits, or if the consumer already borrows as
    /// many as it may.
    pub fn receive(&self) -> Option<Item<'_>> {
        self.try_receive().ok().flatten()
    }

    /// Receives the next item. Sleeps until there is one, until `deadline_ns` (CLOCK_MONOTONIC), or
    /// until the producer is gone and all items are received. A consumer with a [`Waker`] sleeps at
    /// the waker.
    ///
    /// # Errors
    /// - [`ReceiveError::TooManyBorrowed`]: the consumer borrows as many items as it may.
    /// - [`ReceiveError::BufferInUse`]: the producer is gone, and its last items come only after
    ///   the consumer has dropped the items that it borrows
    ///   ([`Policy::Swap`](crate::Policy::Swap)).
    /// - [`ReceiveError::ProducerDied`]: the producer died, and the channel's [`OnDeath`] is
    ///   `Fail`.
    /// - [`ReceiveError::Severed`]: the link between the channel and its producer has broken.
    pub fn receive_until(
        &self,
        deadline_ns: Option<u64>,
    ) -> Result<Option<Item<'_>>, ReceiveError> {
        let (state, ring) = (&self.state, self.ring());
        loop {
            let wait = self.wait(deadline_ns);
            let item = self.try_receive()?;
            // While the producer replaces the last item with a newer one, the ring is empty for a
            // moment.
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
            // A dead producer never fills its buffer. Its items are released now.
            let tail = ring.tail().load(Ordering::Acquire);
            ring.urgent().store(tail, Ordering::Relaxed);
            if ring.waiting() == 0 && state.options.on_death == OnDeath::Fail {
                return Err(ReceiveError::ProducerDied);
            }
        }
    }

    fn wait(&self, deadline_ns: Option<u64>) -> Wait {
        let (state, ring) = (&self.state, self.ring());
        let mut closed = false;
        let ready = || {
            closed = state.closed().load(Ordering::Acquire) != 0;
            let has_peeked = self.peeked.count.get() > 0;
            closed
                || has_peeked
                || precedes(ring.head().number(), delivery::takeable_end(state, &ring))
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

    /// Returns the newest complete value, even if it was returned before, or `None` before the
    /// first one. Skips older values, at most as many as can wait at once.
    pub fn newest(&mut self) -> Option<Item<'_>> {
        let mut is_new = false;
        for _ in 0..=self.state.options.policy.depth() + self.peeked.count.get() {
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

    /// Returns the number of items that can be received now. Real-time safe.
    pub fn waiting(&self) -> u32 {
        let ring = self.ring();
        let (head, end) = (
            ring.head().number(),
            delivery::takeable_end(&self.state, &ring),
        );
        let peeked = self.peeked.count.get() as u32;
        if precedes(head, end) {
            peeked + end.wrapping_sub(head)
        } else {
            peeked
        }
    }

    /// Returns when the next item was sent, in ns (CLOCK_MONOTONIC), or `None` if no item waits. If
    /// a newer item replaces it during the call, the time may be the newer item's. Real-time safe.
    pub fn next_sent_ns(&self) -> Option<u64> {
        let (state, ring) = (&self.state, self.ring());
        let slot = if self.peeked.count.get() > 0 {
            self.peeked.at(0).get()
        } else {
            let head = ring.head().number();
            precedes(head, delivery::takeable_end(state, &ring)).then(|| ring.slot(head))?
        };
        // Another process may have written any number here.
        let is_slot = (slot as usize) < state.layout.slots;
        is_slot.then(|| state.slot(slot as usize).time_ns().load(Ordering::Relaxed))
    }

    /// Reports whether the producer has announced its end and all items are received.
    pub fn is_over(&self) -> bool {
        let is_closed = self.state.closed().load(Ordering::Acquire) == CLOSED;
        is_closed && self.peeked.count.get() == 0 && self.ring().waiting() == 0
    }

    /// Reports whether the link between the channel and its producer has broken. Items that arrived
    /// before may still wait. Real-time safe.
    pub fn is_severed(&self) -> bool {
        self.state.closed().load(Ordering::Acquire) == SEVERED
    }

    /// Reports whether the producer, in another process, died without announcing its end. Makes a
    /// system call.
    pub fn is_orphaned(&self) -> bool {
        reclaim::is_orphaned(&self.state)
    }

    /// Returns how many items wait for this consumer, are in use, or were dropped.
    pub fn stats(&self) -> ConsumerStats {
        let stats = stats::of_consumer(&self.ring());
        ConsumerStats {
            waiting: stats.waiting + self.peeked.count.get() as u64,
            ..stats
        }
    }

    /// Returns how many items this channel's producers have sent, and how long the producers have
    /// waited for consumers.
    pub fn producer_stats(&self) -> ProducerStats {
        stats::of_producer(&self.state)
    }

    fn take(&self) -> Option<u32> {
        self.peeked.pop().or_else(|| self.take_waiting())
    }

    fn take_waiting(&self) -> Option<u32> {
        let (state, ring) = (&self.state, self.ring());
        let mut end = delivery::takeable_end(state, &ring);
        // Two attempts: the producer may have replaced everything before `end` with something
        // newer.
        for _ in 0..2 {
            point();
            if let Some(slot) = ring.pop(end) {
                point();
                if (slot as usize) < state.layout.slots {
                    return Some(slot);
                }
                // Another process wrote an invalid number. The entry counts as consumed.
                ring.consumed().fetch_add(1, Ordering::Release);
                return None;
            }
            end = delivery::takeable_end(state, &ring);
        }
        None
    }

    fn item(&self, slot: u32, used_as: Use) -> Item<'_> {
        let slot = slot as usize;
        Item {
            consumer: self,
            slot,
            // The length is read only once, so that later writes of other processes cannot change
            // it.
            bytes: self.bytes(slot),
            used_as,
        }
    }

    /// Reads the length in bytes of the item in a slot. Returns at most the size of a payload,
    /// because another process may have written any number into the shared memory.
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
        // If the producer does not finish its delivery in time, it cleans the ring itself.
        reclaim::clean_beside_producer(state, self.index);
        state.region().release(self.index + 1);
        // The producer may be waiting for this consumer's credits.
        state.producer_signal().notify();
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Use {
    Borrowed,
    /// The item is the newest value. The consumer refers to it until a newer value replaces it. The
    /// item already counts as consumed.
    Newest,
}

/// An item that a consumer has received. It is read where the producer has written it.
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
    /// Returns the number of the item, from 0 since the channel was created. A gap means lost
    /// items.
    pub fn sequence(&self) -> u64 {
        let slot = self.consumer.state.slot(self.slot);
        slot.sequence().load(Ordering::Relaxed)
    }

    /// Returns when the item was sent, in ns (CLOCK_MONOTONIC).
    pub fn sent_ns(&self) -> u64 {
        let slot = self.consumer.state.slot(self.slot);
        slot.time_ns().load(Ordering::Relaxed)
    }
}

impl Deref for Item<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let slot = self.consumer.state.slot(self.slot);
        // SAFETY: the item refers to the slot, so the producer does not loan it again. The
        // producer's writes are visible, because `take` read the slot's number with Acquire.
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
