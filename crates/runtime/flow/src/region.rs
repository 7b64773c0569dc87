//! Where a channel's memory lies, and who is there: the seam between this crate and transports.
//!
//! A channel is a format in a range of bytes. Within a process the bytes come from the allocator
//! ([`Channel::new`](crate::Channel::new)); a transport brings a [`Region`] that other processes see
//! too, and hands it to [`Channel::format`](crate::Channel::format) or
//! [`Channel::open`](crate::Channel::open).

use std::alloc::{alloc_zeroed, dealloc, Layout};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

/// Alignment of the memory, and so of every payload: a cache line.
pub const ALIGN: usize = 64;

/// The producer's place; consumer `c` has place `c + 1`.
pub const PRODUCER: usize = 0;

/// Memory of a channel, and the places of those who use it.
///
/// A place is a right that one participant has until it gives it up *or dies*: that is how a
/// channel notices that somebody who can no longer say so has gone.
///
/// # Safety
/// `base` points to `size` bytes, aligned to [`ALIGN`], which were zero at the beginning and may be
/// read and written until the value is dropped. This process touches them only through the channel.
pub unsafe trait Region: Send + Sync {
    /// The first byte.
    fn base(&self) -> NonNull<u8>;

    /// How many there are.
    fn size(&self) -> usize;

    /// Do others than this process see the memory? What they write is not trusted.
    fn is_shared(&self) -> bool;

    /// Takes a place; `false` if somebody who lives has it.
    fn claim(&self, place: usize) -> bool;

    /// Gives a place up.
    fn release(&self, place: usize);

    /// Does somebody who lives have that place?
    fn is_claimed(&self, place: usize) -> bool;
}

/// Memory of this process.
pub(crate) struct Heap {
    base: NonNull<u8>,
    layout: Layout,
    places: Box<[AtomicBool]>,
}

// SAFETY: the memory is owned, and shared under the rules of whoever holds the region.
unsafe impl Send for Heap {}
// SAFETY: as above.
unsafe impl Sync for Heap {}

impl Heap {
    /// `None` where there is no memory of that size.
    pub(crate) fn new(size: usize, places: usize) -> Option<Heap> {
        let layout = Layout::from_size_align(size.max(ALIGN), ALIGN).ok()?;
        // SAFETY: the layout's size is not zero.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Heap {
            base,
            layout,
            places: (0..places).map(|_| AtomicBool::new(false)).collect(),
        })
    }
}

// SAFETY: allocated zeroed with this alignment and size, until it is dropped.
unsafe impl Region for Heap {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn size(&self) -> usize {
        self.layout.size()
    }

    fn is_shared(&self) -> bool {
        false
    }

    fn claim(&self, place: usize) -> bool {
        !self.places[place].swap(true, Ordering::AcqRel)
    }

    fn release(&self, place: usize) {
        self.places[place].store(false, Ordering::Release);
    }

    fn is_claimed(&self, place: usize) -> bool {
        self.places[place].load(Ordering::Acquire)
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout in `new`.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}
