//! An end's memory: slots in the application's block, the backend's own words, and the
//! registrations of both. Each part that a peer may write or read is a separate region with
//! separate keys.

use super::device::Transfer;
use super::value::{HeadWords, SLOTS};
use crate::interface::{Memory, SetupError, Sizes};
use crate::verbs_wire::{Endpoint, Window};
use sideway::ibverbs::memory_region::MemoryRegion;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::AccessFlags;
use std::io::{Error, Result};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

pub struct Block {
    base: NonNull<u8>,
    bytes: usize,
    owned: bool,
}

// SAFETY: the memory is owned or `'static`. `OutMemory` and `InMemory` say which thread uses which
// part.
unsafe impl Send for Block {}
// SAFETY: the memory is owned or `'static`. `OutMemory` and `InMemory` say which thread uses which
// part.
unsafe impl Sync for Block {}

impl Block {
    pub fn new(sizes: Sizes, memory: Memory) -> std::result::Result<Block, SetupError> {
        let needed = sizes.memory_bytes()?;
        let (memory, owned) = match memory {
            Memory::Allot => (Box::into_raw(vec![0; needed].into_boxed_slice()), true),
            Memory::Given(memory) => (Box::into_raw(memory), true),
            Memory::Mapped(memory) => (memory as *mut [u8], false),
        };
        let given = memory.len();
        let base = NonNull::new(memory.cast::<u8>()).unwrap_or(NonNull::dangling());
        let block = Block {
            base,
            bytes: given,
            owned,
        };
        if given < needed {
            return Err(SetupError::Memory { needed, given });
        }
        Ok(block)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.owned {
            let slice = std::ptr::slice_from_raw_parts_mut(self.base.as_ptr(), self.bytes);
            // SAFETY: the pointer is from `Box::into_raw` with this length, and its registrations
            // are gone.
            drop(unsafe { Box::from_raw(slice) });
        }
    }
}

#[derive(Default)]
#[repr(C, align(64))]
struct Words {
    heads: HeadWords,
    /// The slot that the peer is reading, plus 1. 0 if it reads none. The peer writes this word.
    pinned: AtomicU64,
    peer_heads: HeadWords,
    pin: AtomicU64,
}

#[derive(Clone, Copy)]
struct Parts {
    sizes: Sizes,
}

impl Parts {
    fn ring_bytes(&self) -> usize {
        self.sizes.credits * self.sizes.message_bytes
    }

    fn out(&self) -> Range<usize> {
        0..self.ring_bytes()
    }

    fn ring(&self) -> Range<usize> {
        self.out().end..self.out().end + self.ring_bytes()
    }

    fn values(&self) -> Range<usize> {
        self.ring().end..self.ring().end + SLOTS * self.sizes.value_bytes
    }

    fn read(&self) -> Range<usize> {
        self.values().end..self.values().end + self.sizes.value_bytes
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Keys {
    address: u64,
    local: u32,
    remote: u32,
}

impl Keys {
    fn window(&self) -> Window {
        let (address, key) = (self.address, self.remote);
        Window { address, key }
    }

    fn to(&self, offset: usize, bytes: usize, peer: Window, at: usize) -> Transfer {
        Transfer {
            local: self.address + offset as u64,
            local_key: self.local,
            bytes,
            // The peer may choose any address, because its device checks it.
            remote: peer.address.wrapping_add(at as u64),
            remote_key: peer.key,
        }
    }
}

pub struct EndMemory {
    /// The registrations of the fields `words` and `block` with the device. Drop the registrations
    /// before these fields.
    regions: Mutex<Vec<Arc<MemoryRegion>>>,
    keys: AllKeys,
    words: Box<Words>,
    block: Block,
    parts: Parts,
}

#[derive(Clone, Copy, Default)]
struct AllKeys {
    out: Keys,
    ring: Keys,
    values: Keys,
    read: Keys,
    heads: Keys,
    pinned: Keys,
    peer_heads: Keys,
    pin: Keys,
}

impl EndMemory {
    /// Registers a block of at least [`Sizes::memory_bytes`] once, in a protection domain for this
    /// end only.
    ///
    /// # Errors
    /// The kernel refuses, for example because of RLIMIT_MEMLOCK.
    pub fn register(
        block: Block,
        sizes: Sizes,
        domain: &Arc<ProtectionDomain>,
    ) -> Result<EndMemory> {
        let (parts, words) = (Parts { sizes }, Box::<Words>::default());
        let mut regions = Vec::new();
        let mut register = |address: *const u8, bytes: usize, access: AccessFlags| {
            if bytes == 0 {
                return Ok(Keys::default());
            }
            // SAFETY: the regions are dropped before this memory.
            let region = unsafe { domain.reg_mr(address as usize, bytes, access) };
            let region = region.map_err(|e| Error::other(e.to_string()))?;
            let keys = Keys {
                address: address as u64,
                local: region.lkey(),
                remote: region.rkey(),
            };
            regions.push(region);
            Ok::<_, Error>(keys)
        };
        let none = AccessFlags::none();
        let (local, read) = (AccessFlags::LocalWrite, AccessFlags::RemoteRead);
        let write = AccessFlags::LocalWrite | AccessFlags::RemoteWrite;
        let mut part = |range: Range<usize>, access| {
            // SAFETY: the range lies within the block, whose length was checked.
            let address = unsafe { block.base.as_ptr().add(range.start) };
            register(address, range.len(), access)
        };
        let mut keys = AllKeys {
            out: part(parts.out(), none)?,
            ring: part(parts.ring(), write)?,
            values: part(parts.values(), read)?,
            read: part(parts.read(), local)?,
            ..AllKeys::default()
        };
        let mut words_of = |word: &[AtomicU64], access| {
            register(word.as_ptr().cast(), std::mem::size_of_val(word), access)
        };
        keys.heads = words_of(&words.heads, read)?;
        keys.pinned = words_of(std::slice::from_ref(&words.pinned), write)?;
        keys.peer_heads = words_of(&words.peer_heads, local)?;
        keys.pin = words_of(std::slice::from_ref(&words.pin), none)?;
        Ok(EndMemory {
            regions: Mutex::new(regions),
            keys,
            words,
            block,
            parts,
        })
    }

    pub fn windows(&self, endpoint: Endpoint) -> Endpoint {
        Endpoint {
            ring: self.keys.ring.window(),
            values: self.keys.values.window(),
            heads: self.keys.heads.window(),
            reading: self.keys.pinned.window(),
            ..endpoint
        }
    }

    #[cfg(test)]
    pub fn to_any(&self, bytes: usize) -> Transfer {
        self.keys.out.to(0, bytes, Window::default(), 0)
    }

    pub fn revoke(&self) {
        self.regions
            .lock()
            .unwrap_or_else(|e| e.into_inner())
            .clear();
    }

    /// Divides the memory of this end between its two halves. Call it once.
    pub fn halves(self) -> (OutMemory, InMemory, Arc<EndMemory>) {
        let memory = Arc::new(self);
        let (out, incoming) = (Arc::clone(&memory), Arc::clone(&memory));
        (OutMemory(out), InMemory(incoming), memory)
    }

    /// Returns `bytes` bytes of a part of the block, from `offset` on within the part.
    ///
    /// # Safety
    /// No other code in this process uses that part meanwhile.
    #[allow(clippy::mut_from_ref)]
    unsafe fn part(&self, part: Range<usize>, offset: usize, bytes: usize) -> &mut [u8] {
        let begin = part.start + offset;
        assert!(begin + bytes <= part.end, "within its part");
        // SAFETY: the range lies within the block, which is large enough. The caller promises that
        // it is not shared.
        unsafe { std::slice::from_raw_parts_mut(self.block.base.as_ptr().add(begin), bytes) }
    }
}

/// The memory that only the sending half uses: slots of messages and values to the peer.
pub struct OutMemory(Arc<EndMemory>);

impl OutMemory {
    pub fn message(&mut self, place: usize, bytes: usize) -> &mut [u8] {
        let parts = self.0.parts;
        // SAFETY: only the sending half uses this part, and borrows it only once.
        unsafe {
            self.0
                .part(parts.out(), place * parts.sizes.message_bytes, bytes)
        }
    }

    /// Returns a transfer that copies a part (offset, bytes) of the message in the slot `place`
    /// into the peer's slot with the same number.
    pub fn to_peer(&self, place: usize, (offset, bytes): (usize, usize), ring: Window) -> Transfer {
        let at = place * self.0.parts.sizes.message_bytes + offset;
        self.0.keys.out.to(at, bytes, ring, at)
    }

    /// Returns the memory of `slot`, into which the caller writes a value. The device may read this
    /// memory for the peer at the same time. The peer then notices the change by the value's
    /// version.
    pub fn value(&mut self, slot: usize, bytes: usize) -> &mut [u8] {
        let parts = self.0.parts;
        // SAFETY: only the sending half uses this part, and borrows it only once.
        unsafe {
            self.0
                .part(parts.values(), slot * parts.sizes.value_bytes, bytes)
        }
    }

    pub fn heads(&self) -> (&HeadWords, &AtomicU64) {
        (&self.0.words.heads, &self.0.words.pinned)
    }
}

/// The memory that only the receiving half uses: slots of messages and the value from the peer.
pub struct InMemory(Arc<EndMemory>);

impl InMemory {
    /// Copies a message out of its slot. The peer can write into the slot at any time, but cannot
    /// change the copy.
    pub fn copy_message(&self, place: usize, into: &mut [u8]) {
        let parts = self.0.parts;
        let begin = parts.ring().start + place * parts.sizes.message_bytes;
        assert!(begin + into.len() <= parts.ring().end, "within the ring");
        // SAFETY: the range lies within the block. No reference to the ring exists, so the device's
        // writes break no promise of the compiler. Any bytes are valid.
        unsafe {
            let from = self.0.block.base.as_ptr().add(begin);
            std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len());
        }
    }

    /// Returns the value that was fetched last. Only this end's requests write to its memory.
    pub fn value(&mut self, bytes: usize) -> &[u8] {
        let parts = self.0.parts;
        // SAFETY: only the receiving half uses this part, and no request is under way.
        unsafe { self.0.part(parts.read(), 0, bytes) }
    }

    pub fn heads_here(&self, heads: Window) -> Transfer {
        let bytes = std::mem::size_of::<HeadWords>();
        self.0.keys.peer_heads.to(0, bytes, heads, 0)
    }

    pub fn peer_heads(&self) -> &HeadWords {
        &self.0.words.peer_heads
    }

    pub fn value_here(&self, slot: usize, bytes: usize, values: Window) -> Transfer {
        let at = slot * self.0.parts.sizes.value_bytes;
        self.0.keys.read.to(0, bytes, values, at)
    }

    /// Returns a transfer that informs the peer which slot this end reads: the slot plus 1, or 0
    /// for none.
    pub fn pin_to_peer(&self, pin: u64, reading: Window) -> Transfer {
        let word = &self.0.words.pin;
        word.store(pin, std::sync::atomic::Ordering::SeqCst);
        self.0.keys.pin.to(0, size_of::<u64>(), reading, 0)
    }
}
