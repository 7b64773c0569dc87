//! One consumer's queue of payloads: a ring of slot numbers that the producer fills, and from
//! which both sides can take the oldest.

use crate::layout::Places;
use crate::memory::{Memory, ALIGN};
use crate::signal::Signal;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// No consumer has this ring.
pub(crate) const FREE: u32 = 0;
/// A consumer is about to have it.
pub(crate) const CLAIMED: u32 = 1;
/// A consumer has it, and the producer minds its pace.
pub(crate) const CONSUMER: u32 = 2;
/// Someone has it who never holds the producer up.
pub(crate) const OBSERVER: u32 = 3;
/// Its consumer has left; the producer empties it.
pub(crate) const LEFT: u32 = 4;

/// A ring at its place in the memory. Counters only grow; an entry is found by its number.
#[derive(Clone, Copy)]
pub(crate) struct Ring<'a> {
    memory: &'a Memory,
    at: usize,
    signal: usize,
    mask: u64,
}

impl<'a> Ring<'a> {
    pub(crate) fn new(memory: &'a Memory, places: &Places, consumer: usize) -> Ring<'a> {
        Ring {
            memory,
            at: places.ring(consumer),
            signal: places.signal(consumer),
            mask: places.entries as u64 - 1,
        }
    }

    /// Number of the oldest entry; who moves it on has taken that entry.
    pub(crate) fn head(&self) -> &'a AtomicU64 {
        self.memory.u64(self.at)
    }

    /// Entries of which the consumer is done.
    pub(crate) fn consumed(&self) -> &'a AtomicU64 {
        self.memory.u64(self.at + 8)
    }

    /// Entries ever pushed.
    pub(crate) fn tail(&self) -> &'a AtomicU64 {
        self.memory.u64(self.at + ALIGN)
    }

    /// Entries that the consumer may take, where it may not take all.
    pub(crate) fn published(&self) -> &'a AtomicU64 {
        self.memory.u64(self.at + ALIGN + 8)
    }

    /// Entries that were overwritten before they were taken.
    pub(crate) fn dropped(&self) -> &'a AtomicU64 {
        self.memory.u64(self.at + ALIGN + 16)
    }

    /// Entries below this number need not wait until the producer's buffer is full.
    pub(crate) fn urgent(&self) -> &'a AtomicU64 {
        self.memory.u64(self.at + ALIGN + 24)
    }

    pub(crate) fn signal(&self) -> Signal<'a> {
        Signal::at(self.memory, self.signal)
    }

    /// One of the states above.
    pub(crate) fn state(&self) -> &'a AtomicU32 {
        self.memory.u32(self.signal + 8)
    }

    fn entry(&self, number: u64) -> &'a AtomicU32 {
        let index = (number & self.mask) as usize;
        self.memory.u32(self.at + 3 * ALIGN + index * 4)
    }

    /// Appends a slot; if that makes more than `depth`, the oldest comes back. Only the producer
    /// calls this. Real-time safe: no loop.
    pub(crate) fn push(&self, slot: u32, depth: u64) -> Option<u32> {
        let tail = self.tail().load(Ordering::Relaxed);
        let head = self.head().load(Ordering::Acquire);
        let mut oldest = None;
        if tail.wrapping_sub(head) >= depth {
            let entry = self.entry(head).load(Ordering::Relaxed);
            let next = head.wrapping_add(1);
            let moved =
                self.head()
                    .compare_exchange(head, next, Ordering::AcqRel, Ordering::Relaxed);
            // If not, the consumer has just taken it, and there is room.
            if moved.is_ok() {
                self.dropped().fetch_add(1, Ordering::Relaxed);
                oldest = Some(entry);
            }
        }
        self.entry(tail).store(slot, Ordering::Relaxed);
        self.tail().store(tail.wrapping_add(1), Ordering::Release);
        oldest
    }

    /// Takes the oldest entry below `end`, which was read with Acquire. Tries again only when the
    /// producer has dropped that entry meanwhile, for which it must have sent another item.
    pub(crate) fn pop(&self, end: u64) -> Option<u32> {
        loop {
            let head = self.head().load(Ordering::Acquire);
            // The producer may have dropped entries beyond an `end` that is no longer true.
            if head.wrapping_sub(end) as i64 >= 0 {
                return None;
            }
            // Only of use if nobody moves `head`, and then no entry of that number is written.
            let entry = self.entry(head).load(Ordering::Relaxed);
            let next = head.wrapping_add(1);
            let moved =
                self.head()
                    .compare_exchange(head, next, Ordering::AcqRel, Ordering::Relaxed);
            if moved.is_ok() {
                return Some(entry);
            }
        }
    }

    /// Entries waiting to be taken.
    pub(crate) fn waiting(&self) -> u64 {
        let head = self.head().load(Ordering::Relaxed);
        let tail = self.tail().load(Ordering::Relaxed);
        (tail.wrapping_sub(head) as i64).max(0) as u64
    }

    /// Entries taken or waiting, of which the consumer is not done.
    pub(crate) fn in_flight(&self) -> u64 {
        let consumed = self.consumed().load(Ordering::Acquire);
        let done = consumed.wrapping_add(self.dropped().load(Ordering::Relaxed));
        let tail = self.tail().load(Ordering::Relaxed);
        (tail.wrapping_sub(done) as i64).max(0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_in_order_and_the_oldest_goes_first_when_there_are_too_many() {
        let places = Places::new(1, 4, 1, 0).unwrap();
        let memory = Memory::new(places.size).unwrap();
        let ring = Ring::new(&memory, &places, 0);
        let end = || ring.tail().load(Ordering::Acquire);
        assert_eq!(ring.pop(end()), None);
        // Often enough to go round several times.
        for round in 0..10 {
            let first = round * 10;
            assert_eq!((0..3).find_map(|i| ring.push(first + i, 3)), None);
            assert_eq!(ring.push(first + 3, 3), Some(first));
            assert_eq!(ring.waiting(), 3);
            assert_eq!(ring.pop(end()), Some(first + 1));
            assert_eq!(ring.push(first + 4, 3), None);
            for i in 2..5 {
                assert_eq!(ring.pop(end()), Some(first + i));
            }
            assert_eq!(ring.pop(end()), None);
        }
        assert_eq!(ring.dropped().load(Ordering::Relaxed), 10);
    }
}
