//! The interface to transports: they provide a channel's memory and know which participants are
//! alive.
//!
//! A channel is a format in a range of bytes. Within a process the bytes come from the allocator
//! ([`Channel::new`](crate::Channel::new)). A transport implements [`Region`] over memory that
//! other processes see too, and passes it to [`Channel::format`](crate::Channel::format) or
//! [`Channel::open`](crate::Channel::open).

use std::alloc::{alloc_zeroed, dealloc, Layout};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

/// The alignment of the memory and of every payload, in bytes: a cache line.
pub const ALIGN: usize = 64;

/// The place that a channel's producer claims with [`Region::claim`]. The consumer with the number
/// `c` claims the place `c + 1`.
pub const PRODUCER: usize = 0;

/// The memory of a channel. It also manages the places of the channel's participants.
///
/// A place is a right that one participant has until it gives the place up *or dies*. This is how a
/// channel notices the death of a participant that can no longer report it.
///
/// # Safety
/// `base` points to `size` bytes, aligned to [`ALIGN`], which were zero at the beginning and may be
/// read and written until the value is dropped. This process touches them only through the channel.
pub unsafe trait Region: Send + Sync {
    /// Returns the address of the first byte, aligned to [`ALIGN`].
    fn base(&self) -> NonNull<u8>;

    /// Returns the size of the memory in bytes.
    fn size(&self) -> usize;

    /// Reports whether other processes see the memory. If they do, the channel does not trust the
    /// content of the memory.
    fn is_shared(&self) -> bool;

    /// Takes a place for this participant. Returns `false` if a living participant has the place.
    fn claim(&self, place: usize) -> bool;

    /// Gives up a place that this participant has taken.
    fn release(&self, place: usize);

    /// Reports whether a living participant has this place.
    fn is_claimed(&self, place: usize) -> bool;
}

pub(crate) struct Heap {
    base: NonNull<u8>,
    layout: Layout,
    places: Box<[AtomicBool]>,
}

// SAFETY: the memory is owned, and shared under the rules of the region's owner.
unsafe impl Send for Heap {}
// SAFETY: as above.
unsafe impl Sync for Heap {}

impl Heap {
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
