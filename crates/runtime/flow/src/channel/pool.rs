//! The pool of payloads: slots, each with the consumers that refer to it and its item.

use super::layout::{slot, MemoryLayout, SLOT_HEAD};
use crate::memory::atomics::{AtomicU32, AtomicU64, Ordering};
use crate::memory::Memory;

/// A slot in the channel's memory.
#[derive(Clone, Copy)]
pub(crate) struct Slot<'a> {
    memory: &'a Memory,
    offset: usize,
    payload_bytes: usize,
}

impl<'a> Slot<'a> {
    #[inline]
    pub(crate) fn new(memory: &'a Memory, layout: &MemoryLayout, slot: usize) -> Slot<'a> {
        Slot {
            memory,
            offset: layout.slot(slot),
            payload_bytes: layout.payload,
        }
    }

    /// The consumers that refer to the slot, one bit each.
    #[inline]
    pub(crate) fn references(&self) -> &'a AtomicU64 {
        self.memory.u64(self.offset + slot::REFERENCES)
    }

    /// Removes a consumer's reference. What the consumer has read before stays before.
    #[inline]
    pub(crate) fn release(&self, consumer: usize) {
        self.references()
            .fetch_and(!(1 << consumer), Ordering::Release);
    }

    /// Number of the item.
    #[inline]
    pub(crate) fn sequence(&self) -> &'a AtomicU64 {
        self.memory.u64(self.offset + slot::SEQUENCE)
    }

    /// When the item was sent, in ns (CLOCK_MONOTONIC).
    #[inline]
    pub(crate) fn time_ns(&self) -> &'a AtomicU64 {
        self.memory.u64(self.offset + slot::TIME)
    }

    /// Bytes of the item. The caller checks it against the size of payloads.
    #[inline]
    pub(crate) fn length(&self) -> &'a AtomicU32 {
        self.memory.u32(self.offset + slot::LENGTH)
    }

    /// The payload's first bytes.
    ///
    /// # Safety
    /// As for [`Memory::bytes`].
    #[inline]
    pub(crate) unsafe fn payload(&self, bytes: usize) -> &'a [u8] {
        let bytes = bytes.min(self.payload_bytes);
        // SAFETY: the caller's.
        unsafe { self.memory.bytes(self.offset + SLOT_HEAD, bytes) }
    }

    /// The payload's first bytes, to be written.
    ///
    /// # Safety
    /// As for [`Memory::bytes_mut`].
    #[inline]
    pub(crate) unsafe fn payload_mut(&self, bytes: usize) -> &'a mut [u8] {
        let bytes = bytes.min(self.payload_bytes);
        // SAFETY: the caller's.
        unsafe { self.memory.bytes_mut(self.offset + SLOT_HEAD, bytes) }
    }
}
