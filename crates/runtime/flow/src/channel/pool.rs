//! The pool of payloads. Each slot holds an item and notes which consumers refer to it.

use super::layout::{slot, MemoryLayout, SLOT_HEAD};
use crate::memory::atomics::{AtomicU32, AtomicU64, Ordering};
use crate::memory::Memory;

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

    /// Returns the bit set of the consumers that refer to the slot.
    #[inline]
    pub(crate) fn references(&self) -> &'a AtomicU64 {
        self.memory.u64(self.offset + slot::REFERENCES)
    }

    /// Removes a consumer's reference. The Release order keeps the consumer's reads before the
    /// removal.
    #[inline]
    pub(crate) fn release(&self, consumer: usize) {
        self.references()
            .fetch_and(!(1 << consumer), Ordering::Release);
    }

    #[inline]
    pub(crate) fn sequence(&self) -> &'a AtomicU64 {
        self.memory.u64(self.offset + slot::SEQUENCE)
    }

    #[inline]
    pub(crate) fn time_ns(&self) -> &'a AtomicU64 {
        self.memory.u64(self.offset + slot::TIME)
    }

    /// Returns the item's length in bytes. The caller limits the length to the size of payloads.
    #[inline]
    pub(crate) fn length(&self) -> &'a AtomicU32 {
        self.memory.u32(self.offset + slot::LENGTH)
    }

    /// Returns the first `bytes` bytes of the payload.
    ///
    /// # Safety
    /// The rules of [`Memory::bytes`] apply.
    #[inline]
    pub(crate) unsafe fn payload(&self, bytes: usize) -> &'a [u8] {
        let bytes = bytes.min(self.payload_bytes);
        // SAFETY: the caller keeps the rules of `Memory::bytes`.
        unsafe { self.memory.bytes(self.offset + SLOT_HEAD, bytes) }
    }

    /// Returns the first `bytes` bytes of the payload for writing.
    ///
    /// # Safety
    /// The rules of [`Memory::bytes_mut`] apply.
    #[inline]
    pub(crate) unsafe fn payload_mut(&self, bytes: usize) -> &'a mut [u8] {
        let bytes = bytes.min(self.payload_bytes);
        // SAFETY: the caller keeps the rules of `Memory::bytes_mut`.
        unsafe { self.memory.bytes_mut(self.offset + SLOT_HEAD, bytes) }
    }
}
