//! The memory of a channel, as checked atomics and byte ranges: the only place that touches it.

use std::alloc::{alloc_zeroed, dealloc, Layout};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Alignment of the memory, and so of every payload: a cache line.
pub(crate) const ALIGN: usize = 64;

/// Zeroed memory that lives as long as this value.
#[derive(Debug)]
pub(crate) struct Memory {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: all shared access goes through atomics; ranges of bytes are handed out under the rules
// that `bytes` and `bytes_mut` state.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// `None` where there is no memory of that size.
    pub(crate) fn new(size: usize) -> Option<Memory> {
        let layout = Layout::from_size_align(size.max(ALIGN), ALIGN).ok()?;
        // SAFETY: the layout's size is not zero.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Memory { base, layout })
    }

    fn at(&self, offset: usize, size: usize) -> NonNull<u8> {
        let end = offset.checked_add(size);
        assert!(end.is_some_and(|end| end <= self.layout.size()), "outside");
        // SAFETY: inside the allocation.
        unsafe { self.base.add(offset) }
    }

    /// The 32-bit word at an offset.
    pub(crate) fn u32(&self, offset: usize) -> &AtomicU32 {
        assert!(offset % 4 == 0, "unaligned");
        // SAFETY: inside, aligned, initialised, and touched only as an atomic.
        unsafe { self.at(offset, 4).cast().as_ref() }
    }

    /// The 64-bit word at an offset.
    pub(crate) fn u64(&self, offset: usize) -> &AtomicU64 {
        assert!(offset % 8 == 0, "unaligned");
        // SAFETY: inside, aligned, initialised, and touched only as an atomic.
        unsafe { self.at(offset, 8).cast().as_ref() }
    }

    /// Bytes of a payload.
    ///
    /// # Safety
    /// Nobody writes them while the slice lives.
    pub(crate) unsafe fn bytes(&self, offset: usize, size: usize) -> &[u8] {
        // SAFETY: inside and initialised; the caller rules out writers.
        unsafe { std::slice::from_raw_parts(self.at(offset, size).as_ptr(), size) }
    }

    /// Bytes of a payload, to be written.
    ///
    /// # Safety
    /// Nobody else reads or writes them while the slice lives.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn bytes_mut(&self, offset: usize, size: usize) -> &mut [u8] {
        // SAFETY: inside and initialised; the caller rules out everybody else.
        unsafe { std::slice::from_raw_parts_mut(self.at(offset, size).as_ptr(), size) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout in `new`.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn memory_is_zeroed_aligned_and_bounded() {
        let memory = Memory::new(100).unwrap();
        assert_eq!(memory.u64(96 - 8).load(Relaxed), 0);
        memory.u32(4).store(7, Relaxed);
        assert_eq!(memory.u64(0).load(Relaxed).to_le(), 7 << 32);
        assert_eq!(memory.base.as_ptr() as usize % ALIGN, 0);
        let outside = std::panic::catch_unwind(|| memory.u64(96).load(Relaxed));
        assert!(outside.is_err());
        assert!(Memory::new(usize::MAX).is_none());
    }
}
