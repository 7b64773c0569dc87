//! The status that an end sends to the other: its progress, in 32 bytes after a head.
//!
//! Little endian: number of consumed messages (8), a bit for each later message that has arrived
//! (8), number of messages that this end has sent if it sends no more, else 2^64 - 1 (8), flags (1:
//! receives no more, 2: asks for an answer), seven zeros.

use super::meet::TERMS_BYTES;

pub const STATUS_BYTES: usize = TERMS_BYTES;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Status {
    pub consumed: u64,
    /// The messages that have arrived and are not consumed, one per bit. Bit 0 stands for the
    /// message with the number `consumed`.
    pub arrived: u64,
    pub last: Option<u64>,
    pub receives_no_more: bool,
    pub asks: bool,
}

impl Status {
    pub fn bytes(&self) -> [u8; STATUS_BYTES] {
        let mut bytes = [0; STATUS_BYTES];
        bytes[..8].copy_from_slice(&self.consumed.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.arrived.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.last.unwrap_or(u64::MAX).to_le_bytes());
        bytes[24] = u8::from(self.receives_no_more) | u8::from(self.asks) << 1;
        bytes
    }

    pub fn parse(bytes: &[u8]) -> Option<Status> {
        let bytes: &[u8; STATUS_BYTES] = bytes.try_into().ok()?;
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or([0; 8]));
        let is_status = bytes[24] <= 3 && bytes[25..] == [0; 7];
        is_status.then_some(Status {
            consumed: number(0),
            arrived: number(8),
            last: Some(number(16)).filter(|n| *n != u64::MAX),
            receives_no_more: bytes[24] & 1 != 0,
            asks: bytes[24] & 2 != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_link_status_is_read_as_it_was_written(
            consumed: u64, arrived: u64, last in proptest::option::of(0..u64::MAX),
            receives_no_more: bool, asks: bool,
        ) {
            let status = Status { consumed, arrived, last, receives_no_more, asks };
            prop_assert_eq!(Status::parse(&status.bytes()), Some(status));
        }

        #[test]
        fn any_parsed_link_status_is_written_again_unchanged(bytes in proptest::collection::vec(any::<u8>(), 0..50)) {
            if let Some(status) = Status::parse(&bytes) {
                prop_assert_eq!(status.bytes().to_vec(), bytes);
            }
        }
    }
}
