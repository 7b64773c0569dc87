//! The head before each message and value: its number, its age, and check sums that show whether it
//! is intact.
//!
//! 48 bytes, little endian: kind (1), flags (1), two zeros, CRC32C of the content (4), number (8),
//! time of leaving by the sender's clock (8), ns for which the content stays fresh (8), oldest
//! number that can still come (8), four zeros, CRC32C of these 44 bytes (4).

/// The size in bytes of the head that a link with quality of service puts before the content of a
/// message. It is a multiple of 16, so that the content keeps the alignment of the slot.
pub const HEAD_BYTES: usize = 48;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Message = 1,
    /// A message without content. The content became too old before it could leave.
    Void = 2,
    Terms = 3,
    Value = 4,
    Status = 5,
}

const KINDS: [Kind; 5] = [
    Kind::Message,
    Kind::Void,
    Kind::Terms,
    Kind::Value,
    Kind::Status,
];
const AGES: u8 = 1;
const CHECKED: u8 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    pub kind: Kind,
    pub number: u64,
    /// The time at which the message left, in ns of the sender's clock. Only differences of such
    /// times are meaningful.
    pub sent_ns: u64,
    /// The time for which the content stays fresh after it has left, ns. `None` if it does not age.
    pub remaining_ns: Option<u64>,
    pub oldest: u64,
    /// The CRC32C of the content. `None` if the content is not checked.
    pub content: Option<u32>,
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or([0; 8]))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap_or([0; 4]))
}

impl Head {
    pub fn new(kind: Kind, number: u64, sent_ns: u64) -> Head {
        Head {
            kind,
            number,
            sent_ns,
            remaining_ns: None,
            oldest: 0,
            content: None,
        }
    }

    pub fn checking(mut self, content: &[u8]) -> Head {
        self.content = Some(crc32c::crc32c(content));
        self
    }

    pub fn bytes(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[0] = self.kind as u8;
        if let Some(ns) = self.remaining_ns {
            bytes[1] |= AGES;
            bytes[24..32].copy_from_slice(&ns.to_le_bytes());
        }
        if let Some(sum) = self.content {
            bytes[1] |= CHECKED;
            bytes[4..8].copy_from_slice(&sum.to_le_bytes());
        }
        bytes[8..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.sent_ns.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.oldest.to_le_bytes());
        let sum = crc32c::crc32c(&bytes[..44]);
        bytes[44..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Splits bytes into a head and its content. Returns `None` if the bytes are not a head, or if
    /// a check sum is wrong.
    pub fn parse(bytes: &[u8]) -> Option<(Head, &[u8])> {
        let (head, content) = bytes.split_at_checked(HEAD_BYTES)?;
        let kind = *KINDS.iter().find(|kind| **kind as u8 == head[0])?;
        let (flags, sum, remaining) = (head[1], u32_at(head, 4), u64_at(head, 24));
        let (ages, checked) = (flags & AGES != 0, flags & CHECKED != 0);
        let is_head = flags <= AGES | CHECKED
            && u32_at(head, 44) == crc32c::crc32c(&head[..44])
            && (checked || sum == 0)
            && (ages || remaining == 0)
            && [head[2], head[3]] == [0; 2]
            && u32_at(head, 40) == 0;
        let is_intact = is_head && (!checked || crc32c::crc32c(content) == sum);
        is_intact.then_some(())?;
        let head = Head {
            kind,
            number: u64_at(head, 8),
            sent_ns: u64_at(head, 16),
            remaining_ns: ages.then_some(remaining),
            oldest: u64_at(head, 32),
            content: checked.then_some(sum),
        };
        Some((head, content))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Uses the test vectors of RFC 3720, appendix B.4.
    #[test]
    fn the_check_sum_is_crc32c() {
        assert_eq!(crc32c::crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c::crc32c(&[0xff; 32]), 0x62a8_ab43);
    }

    proptest! {
        #[test]
        fn a_message_head_is_read_as_written_and_one_changed_bit_is_detected(
            number: u64, sent_ns: u64, remaining_ns: Option<u64>, oldest: u64,
            content in proptest::collection::vec(any::<u8>(), 0..200), at: prop::sample::Index,
        ) {
            let head = Head { remaining_ns, oldest, ..Head::new(Kind::Message, number, sent_ns) };
            let head = head.checking(&content);
            let mut bytes = [&head.bytes()[..], &content].concat();
            prop_assert_eq!(Head::parse(&bytes), Some((head, &content[..])));
            let bit = at.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(Head::parse(&bytes), None);
        }

        #[test]
        fn any_parsed_message_head_is_written_again_unchanged(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            if let Some((head, content)) = Head::parse(&bytes) {
                prop_assert_eq!([&head.bytes()[..], content].concat(), bytes);
            }
        }
    }
}
