//! An end's block of memory, cut into slots that threads of the end lock one by one.

use crate::interface::{Memory, SetupError, Sizes};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard};

struct Block {
    base: NonNull<u8>,
    bytes: usize,
    owned: bool,
}

// SAFETY: the memory is owned or `'static`. Only disjoint parts of it are used, each under a lock.
unsafe impl Send for Block {}
// SAFETY: the memory is owned or `'static`. Only disjoint parts of it are used, each under a lock.
unsafe impl Sync for Block {}

impl Drop for Block {
    fn drop(&mut self) {
        if self.owned {
            let slice = std::ptr::slice_from_raw_parts_mut(self.base.as_ptr(), self.bytes);
            // SAFETY: the pointer is from `Box::into_raw` with this length, and no slot is left.
            drop(unsafe { Box::from_raw(slice) });
        }
    }
}

struct Part {
    block: Arc<Block>,
    range: Range<usize>,
}

pub struct Slot(Mutex<Part>);

pub struct SlotGuard<'a>(MutexGuard<'a, Part>);

impl Slot {
    /// Locks the slot. Waits at most for the time in which another thread handles one chunk of the
    /// slot.
    pub fn lock(&self) -> SlotGuard<'_> {
        SlotGuard(self.0.lock().unwrap_or_else(|e| e.into_inner()))
    }
}

impl std::ops::Deref for SlotGuard<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let part = &*self.0;
        // SAFETY: the range lies within the block, and is locked.
        unsafe {
            let base = part.block.base.as_ptr().add(part.range.start);
            std::slice::from_raw_parts(base, part.range.len())
        }
    }
}

impl std::ops::DerefMut for SlotGuard<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        let part = &*self.0;
        // SAFETY: the range lies within the block, is disjoint from the other slots, and is locked.
        unsafe {
            let base = part.block.base.as_ptr().add(part.range.start);
            std::slice::from_raw_parts_mut(base, part.range.len())
        }
    }
}

pub struct Slots {
    pub out: Vec<Slot>,
    pub incoming: Vec<Slot>,
    /// The slots of values to the peer: one is published, one is being sent, one is being written.
    pub values: Vec<Slot>,
    pub value_read: Slot,
}

impl Slots {
    pub fn new(sizes: Sizes, memory: Memory) -> Result<Slots, SetupError> {
        let needed = sizes.memory_bytes()?;
        let (memory, owned) = match memory {
            Memory::Allot => (Box::into_raw(vec![0; needed].into_boxed_slice()), true),
            Memory::Given(memory) => (Box::into_raw(memory), true),
            Memory::Mapped(memory) => (memory as *mut [u8], false),
        };
        let given = memory.len();
        let base = NonNull::new(memory.cast::<u8>()).unwrap_or(NonNull::dangling());
        let block = Arc::new(Block {
            base,
            bytes: given,
            owned,
        });
        if given < needed {
            return Err(SetupError::Memory { needed, given });
        }
        let mut begin = 0;
        let mut cut = |bytes: usize| {
            let range = begin..begin + bytes;
            begin += bytes;
            let block = Arc::clone(&block);
            Slot(Mutex::new(Part { block, range }))
        };
        let message = sizes.message_bytes;
        Ok(Slots {
            out: (0..sizes.credits).map(|_| cut(message)).collect(),
            incoming: (0..sizes.credits).map(|_| cut(message)).collect(),
            values: (0..3).map(|_| cut(sizes.value_bytes)).collect(),
            value_read: cut(sizes.value_bytes),
        })
    }
}
