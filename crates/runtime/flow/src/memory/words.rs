//! Checked access to a region's words and bytes. No other module touches channel memory.

use super::atomics::{AtomicU32, AtomicU64};
use super::region::Region;
use std::sync::Arc;

#[cfg(not(loom))]
mod plain {
    use super::*;
    use std::ptr::NonNull;

    /// The memory of a channel. All clones share it. It is freed when the last clone is dropped.
    #[derive(Clone)]
    pub(crate) struct Memory {
        base: NonNull<u8>,
        size: usize,
        is_shared: bool,
        region: Arc<dyn Region>,
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
                is_shared: region.is_shared(),
                region: region.into(),
            }
        }

        #[inline]
        pub(crate) fn region(&self) -> &dyn Region {
            &*self.region
        }

        #[inline]
        pub(crate) fn is_shared(&self) -> bool {
            self.is_shared
        }

        pub(crate) fn is_same_as(&self, other: &Memory) -> bool {
            self.base == other.base
        }

        #[inline]
        fn at(&self, offset: usize, size: usize) -> NonNull<u8> {
            let end = offset.checked_add(size);
            assert!(
                end.is_some_and(|end| end <= self.size),
                "offset outside of the region"
            );
            // SAFETY: inside the region.
            unsafe { self.base.add(offset) }
        }

        #[inline]
        pub(crate) fn u32(&self, offset: usize) -> &AtomicU32 {
            assert!(
                offset.is_multiple_of(4),
                "the offset in the memory is not a multiple of 4 bytes"
            );
            // SAFETY: inside, aligned, initialised, and touched only as an atomic.
            unsafe { self.at(offset, 4).cast().as_ref() }
        }

        #[inline]
        pub(crate) fn u64(&self, offset: usize) -> &AtomicU64 {
            assert!(
                offset.is_multiple_of(8),
                "the offset in the memory is not a multiple of 8 bytes"
            );
            // SAFETY: inside, aligned, initialised, and touched only as an atomic.
            unsafe { self.at(offset, 8).cast().as_ref() }
        }

        /// Returns `size` bytes of a payload.
        ///
        /// # Safety
        /// While the slice exists, no thread of this process writes these bytes. A process that
        /// follows the rules of the channel does not write them either.
        #[inline]
        pub(crate) unsafe fn bytes(&self, offset: usize, size: usize) -> &[u8] {
            // SAFETY: inside and initialised; the caller rules out writers.
            unsafe { std::slice::from_raw_parts(self.at(offset, size).as_ptr(), size) }
        }

        /// Returns bytes of a payload for writing.
        ///
        /// # Safety
        /// The rules of `bytes` apply, and nothing else reads these bytes.
        #[allow(clippy::mut_from_ref)]
        #[inline]
        pub(crate) unsafe fn bytes_mut(&self, offset: usize, size: usize) -> &mut [u8] {
            // SAFETY: inside and initialised; the caller rules out all other access.
            unsafe { std::slice::from_raw_parts_mut(self.at(offset, size).as_ptr(), size) }
        }
    }
}
#[cfg(not(loom))]
pub(crate) use plain::Memory;

/// Replaces the memory in tests with loom. Here, words of different sizes at the same offset are
/// different words. The code therefore uses each offset with one size only.
#[cfg(loom)]
mod modelled {
    use super::*;

    #[derive(Clone)]
    pub(crate) struct Memory(Arc<Words>);

    struct Words {
        u32s: Vec<AtomicU32>,
        u64s: Vec<AtomicU64>,
        region: Box<dyn Region>,
    }

    impl Memory {
        pub(crate) fn new(region: Box<dyn Region>) -> Memory {
            let size = region.size();
            Memory(Arc::new(Words {
                u32s: (0..size / 4).map(|_| AtomicU32::new(0)).collect(),
                u64s: (0..size / 8).map(|_| AtomicU64::new(0)).collect(),
                region,
            }))
        }

        #[inline]
        pub(crate) fn region(&self) -> &dyn Region {
            &*self.0.region
        }

        #[inline]
        pub(crate) fn is_shared(&self) -> bool {
            self.0.region.is_shared()
        }

        pub(crate) fn is_same_as(&self, other: &Memory) -> bool {
            Arc::ptr_eq(&self.0, &other.0)
        }

        #[inline]
        pub(crate) fn u32(&self, offset: usize) -> &AtomicU32 {
            &self.0.u32s[offset / 4]
        }

        #[inline]
        pub(crate) fn u64(&self, offset: usize) -> &AtomicU64 {
            &self.0.u64s[offset / 8]
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
pub(crate) use modelled::Memory;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::memory::region::{Heap, ALIGN};
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn channel_memory_is_zeroed_aligned_and_bounded() {
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
