//! The offsets of everything in a channel's memory. Every process that attaches relies on them.

use crate::memory::region::ALIGN;

pub(crate) const SLOT_HEAD: usize = ALIGN;

/// The offsets in bytes of the words before the rings in a channel's memory: the producer's signal,
/// counters, and the description of the channel.
pub(crate) mod head {
    use super::ALIGN;

    pub(crate) const SIGNAL: usize = 0;

    // Written by the producer.
    pub(crate) const SENT: usize = ALIGN;
    pub(crate) const UNHEARD: usize = ALIGN + 8;
    pub(crate) const STALLS: usize = ALIGN + 16;
    pub(crate) const STALLED_NS: usize = ALIGN + 24;
    pub(crate) const DELIVERING: usize = ALIGN + 32;
    pub(crate) const DROPPING: usize = ALIGN + 40;
    pub(crate) const DROPPED_HEAD: usize = ALIGN + 48;
    pub(crate) const LOST: usize = ALIGN + 56;

    pub(crate) const STARTED: usize = 2 * ALIGN;
    pub(crate) const CLOSED: usize = 2 * ALIGN + 4;
    pub(crate) const PRODUCERS: usize = 2 * ALIGN + 8;

    /// The offset of the channel's description: `WORDS` words of 64 bits with the options, then the
    /// name of the items' type.
    pub(crate) const DESCRIPTION: usize = 3 * ALIGN;
    pub(crate) const WORDS: usize = 14;
    pub(crate) const NAME: usize = 5 * ALIGN;
    pub(crate) const NAME_BYTES: usize = 2 * ALIGN;

    pub(crate) const SIZE: usize = NAME + NAME_BYTES;
}

pub(crate) mod ring {
    use super::ALIGN;

    // Written by the consumer. The producer also moves the head when it drops an entry.
    pub(crate) const HEAD: usize = 0;
    pub(crate) const CONSUMED: usize = 8;

    // Written by the producer.
    pub(crate) const TAIL: usize = ALIGN;
    pub(crate) const PUBLISHED: usize = ALIGN + 4;
    pub(crate) const URGENT: usize = ALIGN + 8;
    pub(crate) const DROPPED: usize = ALIGN + 16;

    pub(crate) const SIGNAL: usize = 2 * ALIGN;
    pub(crate) const STATE: usize = 2 * ALIGN + 8;

    pub(crate) const ENTRIES: usize = 3 * ALIGN;
}

pub(crate) mod slot {
    pub(crate) const REFERENCES: usize = 0;
    pub(crate) const SEQUENCE: usize = 8;
    pub(crate) const TIME: usize = 16;
    pub(crate) const LENGTH: usize = 24;
}

/// The parts of a channel's memory: their numbers, and their sizes and offsets in bytes. Every
/// process computes the same layout from the same options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoryLayout {
    pub(crate) consumers: usize,
    /// The number of entries of each ring. It is a power of two.
    pub(crate) entries: usize,
    pub(crate) slots: usize,
    pub(crate) payload: usize,
    ring_bytes: usize,
    pool_offset: usize,
    slot_bytes: usize,
    pub(crate) size: usize,
}

fn aligned(size: usize) -> Option<usize> {
    size.checked_next_multiple_of(ALIGN)
}

impl MemoryLayout {
    pub(crate) fn new(
        consumers: usize,
        entries: usize,
        slots: usize,
        payload: usize,
    ) -> Option<MemoryLayout> {
        let ring_bytes = aligned(entries.checked_mul(8)?)?.checked_add(ring::ENTRIES)?;
        let pool_offset = ring_bytes.checked_mul(consumers)?.checked_add(head::SIZE)?;
        let slot_bytes = aligned(payload)?.checked_add(SLOT_HEAD)?;
        let size = slot_bytes.checked_mul(slots)?.checked_add(pool_offset)?;
        Some(MemoryLayout {
            consumers,
            entries,
            slots,
            payload,
            ring_bytes,
            pool_offset,
            slot_bytes,
            size,
        })
    }

    #[inline]
    pub(crate) fn ring(&self, consumer: usize) -> usize {
        assert!(consumer < self.consumers);
        head::SIZE + consumer * self.ring_bytes
    }

    #[inline]
    pub(crate) fn slot(&self, slot: usize) -> usize {
        assert!(slot < self.slots);
        self.pool_offset + slot * self.slot_bytes
    }
}

const _: () = assert!(head::DESCRIPTION + 8 * head::WORDS <= head::NAME);
const _: () = assert!(head::LOST + 8 <= head::STARTED);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_channel_do_not_overlap_and_share_no_cache_line() {
        let l = MemoryLayout::new(3, 8, 5, 100).unwrap();
        let mut parts = vec![(0, head::SIZE)];
        parts.extend((0..3).map(|c| (l.ring(c), l.ring(c) + ring::ENTRIES + 8 * 8)));
        parts.extend((0..5).map(|s| (l.slot(s), l.slot(s) + SLOT_HEAD + 100)));
        for pair in parts.windows(2) {
            assert!(pair[0].1.next_multiple_of(ALIGN) <= pair[1].0, "{pair:?}");
            assert_eq!(pair[1].0 % ALIGN, 0);
        }
        assert!(parts.last().unwrap().1 <= l.size);
        assert_eq!(MemoryLayout::new(1, 1, usize::MAX / 64, 4096), None);
    }
}
