//! One consumer's queue of payloads: a ring of slot numbers that the producer fills, and from
//! which both sides can take the oldest.
//!
//! Numbers of entries are 32 bits wide and wrap. The head tells how many entries the consumer took
//! and how many the producer dropped, so that after the death of either side it can be seen who
//! moved it last.

use crate::faults::point;
use crate::layout::{Places, RING_HEAD};
use crate::memory::Memory;
use crate::region::ALIGN;
use crate::signal::Signal;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// No consumer has this ring, or one is about to have it.
pub(crate) const FREE: u32 = 0;
/// A consumer has it, and the producer minds its pace.
pub(crate) const CONSUMER: u32 = 1;
/// Someone has it who never holds the producer up.
pub(crate) const OBSERVER: u32 = 2;
/// Its consumer has left; what it referred to is to be given back.
pub(crate) const LEFT: u32 = 3;

/// How often an entry is tried to be taken, each time overtaken by the producer with an item more.
const TRIES: usize = 64;

/// Is one number of an entry before another?
pub(crate) fn before(number: u32, other: u32) -> bool {
    (number.wrapping_sub(other) as i32) < 0
}

/// How many entries the consumer took, and how many the producer dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) taken: u32,
    pub(crate) dropped: u32,
}

impl Head {
    #[inline]
    pub(crate) fn from_word(word: u64) -> Head {
        Head {
            taken: word as u32,
            dropped: (word >> 32) as u32,
        }
    }

    #[inline]
    pub(crate) fn word(self) -> u64 {
        u64::from(self.taken) | u64::from(self.dropped) << 32
    }

    /// Number of the oldest entry.
    #[inline]
    pub(crate) fn number(self) -> u32 {
        self.taken.wrapping_add(self.dropped)
    }

    #[inline]
    fn take(self) -> Head {
        Head {
            taken: self.taken.wrapping_add(1),
            ..self
        }
    }

    #[inline]
    pub(crate) fn drop_one(self) -> Head {
        Head {
            dropped: self.dropped.wrapping_add(1),
            ..self
        }
    }
}

/// An entry: a slot, and the sequence number of what is in it.
fn entry_of(slot: u32, sequence: u64) -> u64 {
    // Never 0 for the first item, so that it differs from an entry that was never written.
    u64::from(slot) | u64::from((sequence as u32).wrapping_add(1)) << 32
}

/// A ring at its place in the memory.
#[derive(Clone, Copy)]
pub(crate) struct Ring<'a> {
    memory: &'a Memory,
    at: usize,
    mask: u32,
}

impl<'a> Ring<'a> {
    #[inline]
    pub(crate) fn new(memory: &'a Memory, places: &Places, consumer: usize) -> Ring<'a> {
        Ring {
            memory,
            at: places.ring(consumer),
            mask: places.entries as u32 - 1,
        }
    }

    /// Who moves it on has taken, or dropped, the oldest entry.
    #[inline]
    pub(crate) fn head_word(&self) -> &'a AtomicU64 {
        self.memory.u64(self.at)
    }

    #[inline]
    pub(crate) fn head(&self) -> Head {
        Head::from_word(self.head_word().load(Ordering::Acquire))
    }

    /// Entries of which the consumer is done.
    #[inline]
    pub(crate) fn consumed(&self) -> &'a AtomicU32 {
        self.memory.u32(self.at + 8)
    }

    /// Entries ever pushed.
    #[inline]
    pub(crate) fn tail(&self) -> &'a AtomicU32 {
        self.memory.u32(self.at + ALIGN)
    }

    /// Entries that the consumer may take, where it may not take all.
    #[inline]
    pub(crate) fn published(&self) -> &'a AtomicU32 {
        self.memory.u32(self.at + ALIGN + 4)
    }

    /// Entries before this number need not wait until the producer's buffer is full.
    #[inline]
    pub(crate) fn urgent(&self) -> &'a AtomicU32 {
        self.memory.u32(self.at + ALIGN + 8)
    }

    /// Entries that were dropped, as far as the producer has counted them.
    #[inline]
    fn dropped_word(&self) -> &'a AtomicU64 {
        self.memory.u64(self.at + ALIGN + 16)
    }

    #[inline]
    pub(crate) fn signal(&self) -> Signal<'a> {
        Signal::at(self.memory, self.at + 2 * ALIGN)
    }

    /// One of the states above.
    #[inline]
    pub(crate) fn state(&self) -> &'a AtomicU32 {
        self.memory.u32(self.at + 2 * ALIGN + 8)
    }

    #[inline]
    fn entry(&self, number: u32) -> &'a AtomicU64 {
        let index = (number & self.mask) as usize;
        self.memory.u64(self.at + RING_HEAD + index * 8)
    }

    /// The slot of an entry.
    #[inline]
    pub(crate) fn slot(&self, number: u32) -> u32 {
        self.entry(number).load(Ordering::Relaxed) as u32
    }

    /// Makes the ring empty for who comes next; nobody else touches it meanwhile.
    pub(crate) fn reset(&self) {
        let tail = self.tail().load(Ordering::Acquire);
        let head = Head {
            taken: tail,
            dropped: 0,
        };
        self.head_word().store(head.word(), Ordering::Relaxed);
        self.consumed().store(tail, Ordering::Relaxed);
        self.published().store(tail, Ordering::Relaxed);
        self.urgent().store(tail, Ordering::Relaxed);
        self.dropped_word().store(0, Ordering::Relaxed);
    }

    /// Takes the oldest entry out if there are `depth`, so that one more has room. `journal` is
    /// called with the head before it is moved. Only the producer calls this.
    #[inline]
    pub(crate) fn make_room(&self, depth: u32, journal: impl FnOnce(Head)) -> Option<u32> {
        let tail = self.tail().load(Ordering::Relaxed);
        let head = self.head();
        if tail.wrapping_sub(head.number()) < depth {
            return None;
        }
        let slot = self.slot(head.number());
        journal(head);
        let (old, new) = (head.word(), head.drop_one().word());
        let moved =
            self.head_word()
                .compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire);
        // If not, the consumer has just taken it, and there is room.
        moved.ok().map(|_| slot)
    }

    /// Appends a slot; there is room. Only the producer calls this.
    #[inline]
    pub(crate) fn push(&self, slot: u32, sequence: u64) {
        let tail = self.tail().load(Ordering::Relaxed);
        let entry = entry_of(slot, sequence);
        self.entry(tail).store(entry, Ordering::Relaxed);
        point();
        self.tail().store(tail.wrapping_add(1), Ordering::Release);
    }

    /// Was this the last entry that was pushed?
    pub(crate) fn has_pushed(&self, slot: u32, sequence: u64) -> bool {
        let last = self.tail().load(Ordering::Acquire).wrapping_sub(1);
        self.entry(last).load(Ordering::Relaxed) == entry_of(slot, sequence)
    }

    /// Takes the oldest entry before `end`, which was read with Acquire. Tries again when the
    /// producer has dropped that entry meanwhile, for which it must have sent another item; not
    /// for ever, so that no producer can hold a consumer here.
    #[inline]
    pub(crate) fn pop(&self, end: u32) -> Option<u32> {
        for _ in 0..TRIES {
            let head = self.head();
            // The producer may have dropped entries beyond an `end` that is no longer true.
            if !before(head.number(), end) {
                return None;
            }
            // Only of use if nobody moves the head, and then no entry of that number is written.
            let slot = self.slot(head.number());
            let (old, new) = (head.word(), head.take().word());
            let moved =
                self.head_word()
                    .compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed);
            if moved.is_ok() {
                return Some(slot);
            }
        }
        None
    }

    /// Entries waiting to be taken.
    #[inline]
    pub(crate) fn waiting(&self) -> u32 {
        let (head, tail) = (self.head().number(), self.tail().load(Ordering::Relaxed));
        if before(tail, head) {
            return 0;
        }
        tail.wrapping_sub(head)
    }

    /// Entries taken or waiting, of which the consumer is not done.
    #[inline]
    pub(crate) fn in_flight(&self) -> u32 {
        let consumed = self.consumed().load(Ordering::Acquire);
        let done = consumed.wrapping_add(self.head().dropped);
        let tail = self.tail().load(Ordering::Relaxed);
        if before(tail, done) {
            return 0;
        }
        tail.wrapping_sub(done)
    }

    /// Entries that were dropped since the ring was reset.
    pub(crate) fn dropped(&self) -> u64 {
        let counted = self.dropped_word().load(Ordering::Relaxed);
        let low = self.head().dropped;
        counted.wrapping_add(u64::from(low.wrapping_sub(counted as u32)))
    }

    /// Keeps count of drops beyond 32 bits. Only the producer calls this.
    pub(crate) fn count_dropped(&self) {
        self.dropped_word().store(self.dropped(), Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::region::Heap;

    #[test]
    fn entries_come_in_order_and_the_oldest_goes_first_when_there_are_too_many() {
        let places = Places::new(1, 4, 1, 0).unwrap();
        let memory = Memory::new(Box::new(Heap::new(places.size, 2).unwrap()));
        let ring = Ring::new(&memory, &places, 0);
        // Just before the numbers wrap.
        ring.tail().store(u32::MAX - 17, Ordering::Relaxed);
        ring.reset();
        let push = |number: u32| {
            let oldest = ring.make_room(3, |_| ());
            ring.push(number, u64::from(number));
            assert!(ring.has_pushed(number, u64::from(number)));
            oldest
        };
        let end = || ring.tail().load(Ordering::Acquire);
        assert_eq!(ring.pop(end()), None);
        // Often enough to go round several times.
        for round in 0..10 {
            let first = round * 10;
            assert_eq!((0..3).find_map(|i| push(first + i)), None);
            assert_eq!(push(first + 3), Some(first));
            assert_eq!(ring.waiting(), 3);
            assert_eq!(ring.pop(end()), Some(first + 1));
            assert_eq!(push(first + 4), None);
            for i in 2..5 {
                assert_eq!(ring.pop(end()), Some(first + i));
            }
            assert_eq!(ring.pop(end()), None);
            ring.consumed().fetch_add(4, Ordering::Relaxed);
            assert_eq!(ring.in_flight(), 0);
        }
        assert_eq!(ring.dropped(), 10);
        ring.count_dropped();
        assert_eq!(ring.dropped(), 10);
    }
}
