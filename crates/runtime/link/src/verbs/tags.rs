//! The immediate value of a write: it says which message has arrived completely, and in how many
//! writes.
//!
//! ```text
//! bit 31                    16 15                     0
//!     | chunks of it, less 1  | its count, low bits    |
//! ```
//!
//! The device reports the length of the last write. The writes before it have the agreed length.

/// The number of low bits of a message count that a tag contains. These bits are enough for far
/// more messages than there are credits.
const COUNT_BITS: u32 = 16;
const COUNT: u64 = (1 << COUNT_BITS) - 1;
pub const MOST_CHUNKS: usize = 1 << (32 - COUNT_BITS);

pub fn of_count(count: u64) -> u32 {
    (count & COUNT) as u32
}

/// Returns how far the count in the tag `tag` is ahead of `count`. Returns `None` if the distance
/// is more than `most`.
pub fn ahead(count: u64, tag: u32, most: u64) -> Option<u64> {
    let difference = u64::from(tag.wrapping_sub(of_count(count))) & COUNT;
    (u64::from(tag) <= COUNT && difference <= most).then_some(difference)
}

pub fn of_message(number: u64, chunks: usize) -> u32 {
    let before = chunks.clamp(1, MOST_CHUNKS) - 1;
    (before as u32) << COUNT_BITS | of_count(number)
}

/// Reads the tag of a message's last write, which had `last` bytes. Returns the low bits of the
/// message's number, and the length of the message. Returns `None` if the message came in chunks
/// although no chunk size was agreed.
pub fn message(tag: u32, last: usize, chunk: Option<usize>) -> Option<(u32, usize)> {
    let before = (tag >> COUNT_BITS) as usize;
    let bytes = match (before, chunk) {
        (0, _) => last,
        (_, Some(chunk)) => before.checked_mul(chunk)?.checked_add(last)?,
        (_, None) => return None,
    };
    Some((tag & COUNT as u32, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn message_counts_continue_when_their_tags_wrap_around() {
        let turn = 1 << COUNT_BITS;
        for count in [0, 1, turn - 1, turn, 5 * turn - 2] {
            for more in 0..4 {
                assert_eq!(ahead(count, of_count(count + more), 4), Some(more));
            }
            assert_eq!(ahead(count, of_count(count + 5), 4), None);
            assert_eq!(ahead(count + 1, of_count(count), 4), None);
        }
        assert_eq!(ahead(0, 1 << 31, 4), None, "no tag of a count");
    }

    proptest! {
        #[test]
        fn the_last_write_of_a_message_identifies_the_message(
            number: u64, chunk in 1_usize..1 << 20, chunks in 1..=MOST_CHUNKS, last in 0_usize..1 << 20
        ) {
            let tag = of_message(number, chunks);
            let bytes = (chunks - 1) * chunk + last;
            prop_assert_eq!(message(tag, last, Some(chunk)), Some((of_count(number), bytes)));
            let one = (chunks == 1).then_some((of_count(number), last));
            prop_assert_eq!(message(tag, last, None), one);
        }
    }
}
