//! One consumer's queue: a ring of slot numbers that the producer fills. Both sides can take the
//! oldest entry: the consumer receives it, the producer drops it.
//!
//! Entry numbers are 32 bits wide and wrap. The head counts separately how many entries the
//! consumer took and how many the producer dropped. So after the death of either side the other one
//! can see which of them moved the head last.

use super::layout::{ring, MemoryLayout};
use crate::memory::atomics::{AtomicU32, AtomicU64, Ordering};
use crate::memory::Memory;
use crate::testing::point;
use crate::wait::Signal;

pub(crate) const FREE: u32 = 0;
pub(crate) const CONSUMER: u32 = 1;
pub(crate) const OBSERVER: u32 = 2;
/// The ring's state after its consumer has left, until the consumer's references to payloads are
/// removed.
pub(crate) const LEFT: u32 = 3;

/// The largest number of attempts of a consumer to take an entry. An attempt fails if the producer
/// drops this entry at the same time.
const TRIES: usize = 64;

/// Reports whether entry number `number` comes before `other`. Entry numbers wrap at 32 bits.
pub(crate) fn precedes(number: u32, other: u32) -> bool {
    (number.wrapping_sub(other) as i32) < 0
}

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
    fn drop_one(self) -> Head {
        Head {
            dropped: self.dropped.wrapping_add(1),
            ..self
        }
    }
}

fn entry_of(slot: u32, sequence: u64) -> u64 {
    // The first item's entry is not 0, so it differs from an entry that was never written.
    u64::from(slot) | u64::from((sequence as u32).wrapping_add(1)) << 32
}

#[derive(Clone, Copy)]
pub(crate) struct Ring<'a> {
    memory: &'a Memory,
    offset: usize,
    mask: u32,
}

impl<'a> Ring<'a> {
    #[inline]
    pub(crate) fn new(memory: &'a Memory, layout: &MemoryLayout, consumer: usize) -> Ring<'a> {
        Ring {
            memory,
            offset: layout.ring(consumer),
            mask: layout.entries as u32 - 1,
        }
    }

    /// Returns the word that contains the head, the number of the oldest entry. The consumer
    /// advances the head when it takes the oldest entry, the producer when it drops the oldest
    /// entry.
    #[inline]
    fn head_word(&self) -> &'a AtomicU64 {
        self.memory.u64(self.offset + ring::HEAD)
    }

    #[inline]
    pub(crate) fn head(&self) -> Head {
        Head::from_word(self.head_word().load(Ordering::Acquire))
    }

    #[inline]
    pub(crate) fn consumed(&self) -> &'a AtomicU32 {
        self.memory.u32(self.offset + ring::CONSUMED)
    }

    /// Returns the number of entries that were ever pushed.
    #[inline]
    pub(crate) fn tail(&self) -> &'a AtomicU32 {
        self.memory.u32(self.offset + ring::TAIL)
    }

    /// Returns the position after the last entry that the consumer may take under `Policy::Swap`.
    /// For an observer this is the end of the ring. Other policies do not use this position: their
    /// consumers may take all entries.
    #[inline]
    pub(crate) fn published(&self) -> &'a AtomicU32 {
        self.memory.u32(self.offset + ring::PUBLISHED)
    }

    /// Returns the word with the entry number that the latest flush has set. The consumer may take
    /// the entries before this number, although the producer's buffer is not full.
    #[inline]
    pub(crate) fn urgent(&self) -> &'a AtomicU32 {
        self.memory.u32(self.offset + ring::URGENT)
    }

    #[inline]
    fn dropped_word(&self) -> &'a AtomicU64 {
        self.memory.u64(self.offset + ring::DROPPED)
    }

    #[inline]
    pub(crate) fn signal(&self) -> Signal<'a> {
        Signal::at(self.memory, self.signal_offset())
    }

    #[inline]
    pub(crate) fn signal_offset(&self) -> usize {
        self.offset + ring::SIGNAL
    }

    /// Returns the ring's state: [`FREE`], [`CONSUMER`], [`OBSERVER`] or [`LEFT`], or any number if
    /// the memory was overwritten.
    #[inline]
    pub(crate) fn state(&self) -> &'a AtomicU32 {
        self.memory.u32(self.offset + ring::STATE)
    }

    #[inline]
    fn entry(&self, number: u32) -> &'a AtomicU64 {
        let index = (number & self.mask) as usize;
        self.memory.u64(self.offset + ring::ENTRIES + index * 8)
    }

    #[inline]
    pub(crate) fn slot(&self, number: u32) -> u32 {
        self.entry(number).load(Ordering::Relaxed) as u32
    }

    /// Empties the ring for the next consumer. No other thread or process may use the ring during
    /// the call.
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

    /// Drops the oldest entry if the ring has `depth` entries, so that one more fits in. Returns
    /// the dropped entry's slot. Calls `journal` with the old head before the head moves. Only the
    /// producer calls this.
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
        // On failure the consumer has just taken the entry, so there is room.
        moved.ok().map(|_| slot)
    }

    /// Appends a slot to the ring. The caller has made room. Only the producer calls this.
    #[inline]
    pub(crate) fn push(&self, slot: u32, sequence: u64) {
        let tail = self.tail().load(Ordering::Relaxed);
        let entry = entry_of(slot, sequence);
        self.entry(tail).store(entry, Ordering::Relaxed);
        point();
        self.tail().store(tail.wrapping_add(1), Ordering::Release);
    }

    pub(crate) fn has_pushed(&self, slot: u32, sequence: u64) -> bool {
        let last = self.tail().load(Ordering::Acquire).wrapping_sub(1);
        self.entry(last).load(Ordering::Relaxed) == entry_of(slot, sequence)
    }

    /// Takes the oldest entry before `end`, which the caller has read with Acquire. Tries again if
    /// the producer has dropped that entry meanwhile. The number of attempts is limited, so that no
    /// producer can keep a consumer in this loop.
    #[inline]
    pub(crate) fn pop(&self, end: u32) -> Option<u32> {
        for _ in 0..TRIES {
            let head = self.head();
            // The producer may have dropped entries beyond an outdated `end`.
            if !precedes(head.number(), end) {
                return None;
            }
            // The slot is valid only if the exchange below succeeds: then the head has not moved,
            // and the producer has not overwritten the entry.
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

    #[inline]
    pub(crate) fn waiting(&self) -> u32 {
        let (head, tail) = (self.head().number(), self.tail().load(Ordering::Relaxed));
        if precedes(tail, head) {
            return 0;
        }
        tail.wrapping_sub(head)
    }

    /// Returns the number of entries that the consumer has not consumed yet. Entries that it has
    /// taken and still uses count too.
    #[inline]
    pub(crate) fn in_flight(&self) -> u32 {
        let consumed = self.consumed().load(Ordering::Acquire);
        let done = consumed.wrapping_add(self.head().dropped);
        let tail = self.tail().load(Ordering::Relaxed);
        if precedes(tail, done) {
            return 0;
        }
        tail.wrapping_sub(done)
    }

    pub(crate) fn dropped(&self) -> u64 {
        let counted = self.dropped_word().load(Ordering::Relaxed);
        let low = self.head().dropped;
        counted.wrapping_add(u64::from(low.wrapping_sub(counted as u32)))
    }

    /// Copies the number of dropped entries, which the head contains in 32 bits, into a count of 64
    /// bits. Only the producer calls this.
    pub(crate) fn count_dropped(&self) {
        self.dropped_word().store(self.dropped(), Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::memory::region::Heap;

    #[test]
    fn a_full_ring_drops_the_oldest_entry_and_keeps_the_order() {
        let layout = MemoryLayout::new(1, 4, 1, 0).unwrap();
        let memory = Memory::new(Box::new(Heap::new(layout.size, 2).unwrap()));
        let ring = Ring::new(&memory, &layout, 0);
        // The test begins just before the numbers wrap.
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
        // Enough passes to wrap several times.
        for pass in 0..10 {
            let first = pass * 10;
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
