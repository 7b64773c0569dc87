//! Where everything lies in a channel's memory.

use crate::region::ALIGN;

/// Head of a payload: who refers to it, sequence number, time, length.
pub(crate) const SLOT_HEAD: usize = ALIGN;

/// Words before the rings: signal of the producer, counters, and what the channel was made from.
pub(crate) mod head {
    use super::ALIGN;

    /// The signal that the producer sleeps on.
    pub(crate) const SIGNAL: usize = 0;

    // Written by the producer.
    pub(crate) const SENT: usize = ALIGN;
    pub(crate) const UNHEARD: usize = ALIGN + 8;
    pub(crate) const STALLS: usize = ALIGN + 16;
    pub(crate) const STALLED_NS: usize = ALIGN + 24;
    /// The slot that is being handed over, plus one.
    pub(crate) const DELIVERING: usize = ALIGN + 32;
    /// The ring whose oldest entry is being dropped, plus one, and the head that it had.
    pub(crate) const DROPPING: usize = ALIGN + 40;
    pub(crate) const DROPPED_HEAD: usize = ALIGN + 48;
    pub(crate) const LOST: usize = ALIGN + 56;

    pub(crate) const STARTED: usize = 2 * ALIGN;
    pub(crate) const CLOSED: usize = 2 * ALIGN + 4;
    pub(crate) const PRODUCERS: usize = 2 * ALIGN + 8;

    /// What the channel was made from: `WORDS` words of 64 bits, then the type's name.
    pub(crate) const DESCRIPTION: usize = 3 * ALIGN;
    pub(crate) const WORDS: usize = 14;
    pub(crate) const NAME: usize = 5 * ALIGN;
    pub(crate) const NAME_BYTES: usize = 2 * ALIGN;

    pub(crate) const SIZE: usize = NAME + NAME_BYTES;
}

/// Sizes and offsets in bytes; computed alike by everyone who knows the options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Places {
    /// Consumers at most.
    pub(crate) consumers: usize,
    /// Entries of each ring; a power of two.
    pub(crate) entries: usize,
    /// Payloads in the pool.
    pub(crate) slots: usize,
    /// Bytes of a payload at most.
    pub(crate) payload: usize,
    ring: usize,
    pool: usize,
    slot: usize,
    /// All of it.
    pub(crate) size: usize,
}

fn aligned(size: usize) -> Option<usize> {
    size.checked_next_multiple_of(ALIGN)
}

/// Lines of a ring before its entries: the consumer's words, the producer's, and the signal.
pub(crate) const RING_HEAD: usize = 3 * ALIGN;

impl Places {
    /// `None` if it is more than can be addressed.
    pub(crate) fn new(
        consumers: usize,
        entries: usize,
        slots: usize,
        payload: usize,
    ) -> Option<Places> {
        let ring = aligned(entries.checked_mul(8)?)?.checked_add(RING_HEAD)?;
        let pool = ring.checked_mul(consumers)?.checked_add(head::SIZE)?;
        let slot = aligned(payload)?.checked_add(SLOT_HEAD)?;
        let size = slot.checked_mul(slots)?.checked_add(pool)?;
        Some(Places {
            consumers,
            entries,
            slots,
            payload,
            ring,
            pool,
            slot,
            size,
        })
    }

    #[inline]
    pub(crate) fn ring(&self, consumer: usize) -> usize {
        assert!(consumer < self.consumers);
        head::SIZE + consumer * self.ring
    }

    #[inline]
    pub(crate) fn slot(&self, slot: usize) -> usize {
        assert!(slot < self.slots);
        self.pool + slot * self.slot
    }
}

const _: () = assert!(head::DESCRIPTION + 8 * head::WORDS <= head::NAME);
const _: () = assert!(head::LOST + 8 <= head::STARTED);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_do_not_overlap_and_lines_are_not_shared() {
        let p = Places::new(3, 8, 5, 100).unwrap();
        let mut ends = vec![(0, head::SIZE)];
        ends.extend((0..3).map(|c| (p.ring(c), p.ring(c) + RING_HEAD + 8 * 8)));
        ends.extend((0..5).map(|s| (p.slot(s), p.slot(s) + SLOT_HEAD + 100)));
        for pair in ends.windows(2) {
            assert!(pair[0].1.next_multiple_of(ALIGN) <= pair[1].0, "{pair:?}");
            assert_eq!(pair[1].0 % ALIGN, 0);
        }
        assert!(ends.last().unwrap().1 <= p.size);
        assert_eq!(Places::new(1, 1, usize::MAX / 64, 4096), None);
    }
}
