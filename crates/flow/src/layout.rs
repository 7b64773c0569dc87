//! Where everything lies in a channel's memory.

use crate::memory::ALIGN;
use crate::signal;

/// Head of a payload: references, length, sequence number, time.
pub(crate) const SLOT_HEAD: usize = ALIGN;

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
    rings: usize,
    pool: usize,
    slot: usize,
    /// All of it.
    pub(crate) size: usize,
}

fn aligned(size: usize) -> Option<usize> {
    size.checked_next_multiple_of(ALIGN)
}

impl Places {
    /// `None` if it is more than can be addressed.
    pub(crate) fn new(
        consumers: usize,
        entries: usize,
        slots: usize,
        payload: usize,
    ) -> Option<Places> {
        // The producer's words have the first line, and each ring three: the consumer's words, the
        // producer's, and the signal; then the entries.
        let rings = ALIGN;
        let ring = aligned(entries.checked_mul(4)?)?.checked_add(3 * ALIGN)?;
        let pool = ring.checked_mul(consumers)?.checked_add(rings)?;
        let slot = aligned(payload)?.checked_add(SLOT_HEAD)?;
        let size = slot.checked_mul(slots)?.checked_add(pool)?;
        Some(Places {
            consumers,
            entries,
            slots,
            payload,
            ring,
            rings,
            pool,
            slot,
            size,
        })
    }

    /// The signal that the producer sleeps on.
    pub(crate) const PRODUCER_SIGNAL: usize = 0;

    pub(crate) fn ring(&self, consumer: usize) -> usize {
        assert!(consumer < self.consumers);
        self.rings + consumer * self.ring
    }

    pub(crate) fn signal(&self, consumer: usize) -> usize {
        self.ring(consumer) + 2 * ALIGN
    }

    pub(crate) fn slot(&self, slot: usize) -> usize {
        assert!(slot < self.slots);
        self.pool + slot * self.slot
    }
}

const _: () = assert!(signal::SIZE <= ALIGN);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_do_not_overlap_and_lines_are_not_shared() {
        let p = Places::new(3, 8, 5, 100).unwrap();
        let mut ends = vec![(0, signal::SIZE)];
        ends.extend((0..3).map(|c| (p.ring(c), p.ring(c) + 3 * ALIGN + 8 * 4)));
        ends.extend((0..5).map(|s| (p.slot(s), p.slot(s) + SLOT_HEAD + 100)));
        for pair in ends.windows(2) {
            assert!(pair[0].1.next_multiple_of(ALIGN) <= pair[1].0, "{pair:?}");
            assert_eq!(pair[1].0 % ALIGN, 0);
        }
        assert!(ends.last().unwrap().1 <= p.size);
        assert_eq!(Places::new(1, 1, usize::MAX / 64, 4096), None);
    }
}
