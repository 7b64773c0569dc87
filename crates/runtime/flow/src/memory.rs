//! The memory of a channel, as checked atomics and byte ranges: the only place that touches it.

use crate::region::Region;
use crate::sync::{AtomicU32, AtomicU64};

#[cfg(not(loom))]
mod plain {
    use super::*;
    use std::ptr::NonNull;

    /// A region's bytes, for as long as this value lives.
    pub(crate) struct Memory {
        base: NonNull<u8>,
        size: usize,
        region: Box<dyn Region>,
    }

    // SAFETY: all shared access goes through atomics; ranges of bytes are handed out under the
    // rules that `bytes` and `bytes_mut` state.
    unsafe impl Send for Memory {}
    // SAFETY: as above.
    unsafe impl Sync for Memory {}

    impl Memory {
        pub(crate) fn new(region: Box<dyn Region>) -> Memory {
            Memory {
                base: region.base(),
                size: region.size(),
                region,
            }
        }

        #[inline]
        pub(crate) fn region(&self) -> &dyn Region {
            &*self.region
        }

        #[inline]
        fn at(&self, offset: usize, size: usize) -> NonNull<u8> {
            let end = offset.checked_add(size);
            assert!(end.is_some_and(|end| end <= self.size), "outside");
            // SAFETY: inside the region.
            unsafe { self.base.add(offset) }
        }

        /// The 32-bit word at an offset.
        #[inline]
        pub(crate) fn u32(&self, offset: usize) -> &AtomicU32 {
            assert!(offset % 4 == 0, "unaligned");
            // SAFETY: inside, aligned, initialised, and touched only as an atomic.
            unsafe { self.at(offset, 4).cast().as_ref() }
        }

        /// The 64-bit word at an offset.
        #[inline]
        pub(crate) fn u64(&self, offset: usize) -> &AtomicU64 {
            assert!(offset % 8 == 0, "unaligned");
            // SAFETY: inside, aligned, initialised, and touched only as an atomic.
            unsafe { self.at(offset, 8).cast().as_ref() }
        }

        /// Bytes of a payload.
        ///
        /// # Safety
        /// Nobody of this process writes them while the slice lives, and nobody at all who keeps to
        /// the rules of the channel.
        #[inline]
        pub(crate) unsafe fn bytes(&self, offset: usize, size: usize) -> &[u8] {
            // SAFETY: inside and initialised; the caller rules out writers.
            unsafe { std::slice::from_raw_parts(self.at(offset, size).as_ptr(), size) }
        }

        /// Bytes of a payload, to be written.
        ///
        /// # Safety
        /// As for `bytes`, and nobody else reads them.
        #[allow(clippy::mut_from_ref)]
        #[inline]
        pub(crate) unsafe fn bytes_mut(&self, offset: usize, size: usize) -> &mut [u8] {
            // SAFETY: inside and initialised; the caller rules out everybody else.
            unsafe { std::slice::from_raw_parts_mut(self.at(offset, size).as_ptr(), size) }
        }
    }
}
#[cfg(not(loom))]
pub(crate) use plain::Memory;

/// For loom: a word for each offset, of either size, since no offset is used in both.
#[cfg(loom)]
mod words {
    use super::*;

    pub(crate) struct Memory {
        u32s: Vec<AtomicU32>,
        u64s: Vec<AtomicU64>,
        region: Box<dyn Region>,
    }

    impl Memory {
        pub(crate) fn new(region: Box<dyn Region>) -> Memory {
            let size = region.size();
            Memory {
                u32s: (0..size / 4).map(|_| AtomicU32::new(0)).collect(),
                u64s: (0..size / 8).map(|_| AtomicU64::new(0)).collect(),
                region,
            }
        }

        #[inline]
        pub(crate) fn region(&self) -> &dyn Region {
            &*self.region
        }

        #[inline]
        pub(crate) fn u32(&self, offset: usize) -> &AtomicU32 {
            &self.u32s[offset / 4]
        }

        #[inline]
        pub(crate) fn u64(&self, offset: usize) -> &AtomicU64 {
            &self.u64s[offset / 8]
        }

        #[inline]
        pub(crate) unsafe fn bytes(&self, _offset: usize, _size: usize) -> &[u8] {
            &[]
        }

        #[allow(clippy::mut_from_ref)]
        #[inline]
        pub(crate) unsafe fn bytes_mut(&self, _offset: usize, _size: usize) -> &mut [u8] {
            &mut []
        }
    }
}
#[cfg(loom)]
pub(crate) use words::Memory;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::region::{Heap, ALIGN};
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn memory_is_zeroed_aligned_and_bounded() {
        let memory = Memory::new(Box::new(Heap::new(100, 1).unwrap()));
        assert_eq!(memory.u64(96 - 8).load(Relaxed), 0);
        memory.u32(4).store(7, Relaxed);
        assert_eq!(memory.u64(0).load(Relaxed).to_le(), 7 << 32);
        assert_eq!(memory.region().base().as_ptr() as usize % ALIGN, 0);
        let outside = std::panic::AssertUnwindSafe(|| memory.u64(96).load(Relaxed));
        assert!(std::panic::catch_unwind(outside).is_err());
        assert!(Heap::new(usize::MAX, 1).is_none());
    }
}
