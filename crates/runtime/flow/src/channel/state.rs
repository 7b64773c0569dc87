//! The state that a channel's participants share: its memory, and within a process their wakers.

use super::events::LinkId;
use super::layout::{head, MemoryLayout};
use super::options::Options;
use super::pool::Slot;
use super::ring::Ring;
use crate::memory::atomics::{AtomicU32, AtomicU64};
use crate::memory::region::Region;
use crate::memory::Memory;
use crate::wait::{Signal, Waker, WakerWords};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, OnceLock};

pub(crate) const CLOSED: u32 = 1;
pub(crate) const SEVERED: u32 = 2;

pub(crate) struct ChannelState {
    /// The options, copied into this process. The channel's memory is not trusted, and its options
    /// are never read again.
    pub(crate) options: Options,
    pub(crate) layout: MemoryLayout,
    memory: Memory,
    pub(crate) link: OnceLock<LinkId>,
    /// The waker of each consumer, or null if the consumer's thread sleeps at its own ring. Each
    /// pointer leads into an `Arc`. The `Arc` is dropped when the ring is cleaned, and the producer
    /// then no longer uses the pointer.
    wakers: Box<[AtomicPtr<WakerWords>]>,
}

impl ChannelState {
    pub(crate) fn new(options: Options, layout: MemoryLayout, memory: Memory) -> Arc<ChannelState> {
        Arc::new(ChannelState {
            options,
            layout,
            memory,
            link: OnceLock::new(),
            wakers: (0..layout.consumers)
                .map(|_| AtomicPtr::default())
                .collect(),
        })
    }

    #[inline]
    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    #[inline]
    pub(crate) fn region(&self) -> &dyn Region {
        self.memory.region()
    }

    #[inline]
    pub(crate) fn ring(&self, consumer: usize) -> Ring<'_> {
        Ring::new(&self.memory, &self.layout, consumer)
    }

    #[inline]
    pub(crate) fn rings(&self) -> impl Iterator<Item = Ring<'_>> {
        (0..self.layout.consumers).map(|c| self.ring(c))
    }

    #[inline]
    pub(crate) fn slot(&self, slot: usize) -> Slot<'_> {
        Slot::new(&self.memory, &self.layout, slot)
    }

    /// Removes a consumer's reference to a slot. Does nothing if no slot has this number.
    #[inline]
    pub(crate) fn release(&self, slot: u32, consumer: usize) {
        if (slot as usize) < self.layout.slots {
            self.slot(slot as usize).release(consumer);
        }
    }

    #[inline]
    pub(crate) fn producer_signal(&self) -> Signal<'_> {
        Signal::at(&self.memory, head::SIGNAL)
    }

    /// Returns the number of items sent, which is also the number of the next item.
    #[inline]
    pub(crate) fn sent(&self) -> &AtomicU64 {
        self.memory.u64(head::SENT)
    }

    pub(crate) fn unheard(&self) -> &AtomicU64 {
        self.memory.u64(head::UNHEARD)
    }

    pub(crate) fn stalls(&self) -> &AtomicU64 {
        self.memory.u64(head::STALLS)
    }

    pub(crate) fn stalled_ns(&self) -> &AtomicU64 {
        self.memory.u64(head::STALLED_NS)
    }

    #[inline]
    pub(crate) fn started(&self) -> &AtomicU32 {
        self.memory.u32(head::STARTED)
    }

    #[inline]
    pub(crate) fn closed(&self) -> &AtomicU32 {
        self.memory.u32(head::CLOSED)
    }

    pub(crate) fn producers(&self) -> &AtomicU32 {
        self.memory.u32(head::PRODUCERS)
    }

    /// Returns the number of consumers that have died since the channel was created.
    pub(crate) fn lost(&self) -> &AtomicU64 {
        self.memory.u64(head::LOST)
    }

    /// Returns the word in which the producer notes the delivery in progress, so that another
    /// process can finish it: the slot of the item plus 1, or 0 without a delivery. While the
    /// producer flushes, ends or severs the channel, it is `u64::MAX`.
    #[inline]
    pub(crate) fn delivering(&self) -> &AtomicU64 {
        self.memory.u64(head::DELIVERING)
    }

    /// Returns the word in which the producer notes the ring whose oldest entry it is dropping: the
    /// ring's number plus 1, or 0 if it is dropping none.
    #[inline]
    pub(crate) fn dropping(&self) -> &AtomicU64 {
        self.memory.u64(head::DROPPING)
    }

    /// Returns the word in which the producer notes the head that the ring in `dropping` had before
    /// the drop.
    #[inline]
    pub(crate) fn dropped_head(&self) -> &AtomicU64 {
        self.memory.u64(head::DROPPED_HEAD)
    }

    #[inline]
    pub(crate) fn notify(&self, consumer: usize) {
        let waker = self.wakers[consumer].load(Ordering::Acquire);
        if waker.is_null() {
            self.ring(consumer).signal().notify();
        } else {
            // SAFETY: made by `Arc::into_raw`. Only `drop_waker` gives it up, and that runs while
            // the producer is not delivering anything to this consumer.
            unsafe { (*waker).signal().notify() };
        }
    }

    pub(crate) fn set_waker(&self, consumer: usize, waker: &Waker) {
        let words = Arc::into_raw(Arc::clone(waker.words())).cast_mut();
        self.wakers[consumer].store(words, Ordering::Release);
    }

    pub(crate) fn drop_waker(&self, consumer: usize) {
        let waker = self.wakers[consumer].swap(std::ptr::null_mut(), Ordering::AcqRel);
        if !waker.is_null() {
            // SAFETY: made by `Arc::into_raw`, and the swap has just taken it out.
            drop(unsafe { Arc::from_raw(waker) });
        }
    }
}

impl Drop for ChannelState {
    fn drop(&mut self) {
        (0..self.wakers.len()).for_each(|consumer| self.drop_waker(consumer));
    }
}
