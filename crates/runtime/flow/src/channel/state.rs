//! What the participants of a channel share: its memory, and within a process their wakers.

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

/// The producer announced its end.
pub(crate) const CLOSED: u32 = 1;
/// What connects producer and consumers has broken.
pub(crate) const SEVERED: u32 = 2;

/// A channel as all its participants in this process have it.
pub(crate) struct ChannelState {
    /// Known to this process and never read from the memory again, which is not trusted.
    pub(crate) options: Options,
    pub(crate) layout: MemoryLayout,
    memory: Memory,
    /// What a recorder knows the channel by, if it has a name.
    pub(crate) link: OnceLock<LinkId>,
    /// For each consumer, where its thread sleeps, if not at its ring. Each is an `Arc` that lives
    /// until the ring is cleaned; by then no producer can be about to use it.
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

    /// A consumer no longer refers to a slot. Does nothing if the number is no slot's.
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

    /// Number of items sent, and so the number of the next one.
    #[inline]
    pub(crate) fn sent(&self) -> &AtomicU64 {
        self.memory.u64(head::SENT)
    }

    /// Items that were sent while no consumer was attached.
    pub(crate) fn unheard(&self) -> &AtomicU64 {
        self.memory.u64(head::UNHEARD)
    }

    /// How often the producer had to wait.
    pub(crate) fn stalls(&self) -> &AtomicU64 {
        self.memory.u64(head::STALLS)
    }

    /// How long it waited in total.
    pub(crate) fn stalled_ns(&self) -> &AtomicU64 {
        self.memory.u64(head::STALLED_NS)
    }

    /// Not 0 once all expected consumers have attached.
    #[inline]
    pub(crate) fn started(&self) -> &AtomicU32 {
        self.memory.u32(head::STARTED)
    }

    /// Not 0 once the producer has announced its end, or the channel was severed.
    #[inline]
    pub(crate) fn closed(&self) -> &AtomicU32 {
        self.memory.u32(head::CLOSED)
    }

    /// Number of producers that ever attached.
    pub(crate) fn producers(&self) -> &AtomicU32 {
        self.memory.u32(head::PRODUCERS)
    }

    /// Number of consumers that ever died.
    pub(crate) fn lost(&self) -> &AtomicU64 {
        self.memory.u64(head::LOST)
    }

    /// Journal of the producer: the slot that it is delivering, plus one.
    #[inline]
    pub(crate) fn delivering(&self) -> &AtomicU64 {
        self.memory.u64(head::DELIVERING)
    }

    /// Journal of the producer: the ring whose oldest entry it is dropping, plus one.
    #[inline]
    pub(crate) fn dropping(&self) -> &AtomicU64 {
        self.memory.u64(head::DROPPING)
    }

    /// Journal of the producer: the head that this ring had before.
    #[inline]
    pub(crate) fn dropped_head(&self) -> &AtomicU64 {
        self.memory.u64(head::DROPPED_HEAD)
    }

    /// Wakes a consumer.
    #[inline]
    pub(crate) fn notify(&self, consumer: usize) {
        let waker = self.wakers[consumer].load(Ordering::Acquire);
        if waker.is_null() {
            self.ring(consumer).signal().notify();
        } else {
            // SAFETY: made by `Arc::into_raw`, and given up only by `drop_waker`, which runs while
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
            // SAFETY: made by `Arc::into_raw`, and taken out just now.
            drop(unsafe { Arc::from_raw(waker) });
        }
    }
}

impl Drop for ChannelState {
    fn drop(&mut self) {
        (0..self.wakers.len()).for_each(|consumer| self.drop_waker(consumer));
    }
}
