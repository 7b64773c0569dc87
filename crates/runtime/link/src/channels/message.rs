//! The messages between the two relays of a channel. A message is a word of 64 bits for its kind,
//! two for numbers, and for an item its payload.

/// Bytes before an item's payload.
pub(super) const HEAD: usize = 24;

/// An item that passes over a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Passed<'a> {
    pub(super) number: u64,
    /// How many items were replaced by newer ones before they left, up to now.
    pub(super) lost: u64,
    pub(super) payload: &'a [u8],
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Message<'a> {
    /// As many consumers as expected have attached. Items may follow.
    Ready,
    Item(Passed<'a>),
    /// All consumers have consumed all items with smaller numbers.
    Consumed(u64),
    /// The producer has left. Another one may follow.
    Left,
}

impl<'a> Message<'a> {
    fn words(&self) -> [u64; 3] {
        match self {
            Message::Ready => [1, 0, 0],
            Message::Item(item) => [2, item.number, item.lost],
            Message::Consumed(number) => [3, *number, 0],
            Message::Left => [4, 0, 0],
        }
    }

    fn payload(&self) -> &[u8] {
        match self {
            Message::Item(item) => item.payload,
            _ => &[],
        }
    }

    pub(super) fn bytes(&self) -> usize {
        HEAD + self.payload().len()
    }

    pub(super) fn write(&self, slot: &mut [u8]) {
        for (place, word) in slot.chunks_exact_mut(8).zip(self.words()) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        slot[HEAD..].copy_from_slice(self.payload());
    }

    /// Reads bytes from another host. Returns `None` if they are not a message.
    pub(super) fn read(bytes: &'a [u8]) -> Option<Message<'a>> {
        let (head, payload) = bytes.split_at_checked(HEAD)?;
        let word = |at: usize| Some(u64::from_le_bytes(head.get(at..at + 8)?.try_into().ok()?));
        let (kind, number, lost) = (word(0)?, word(8)?, word(16)?);
        match (kind, number, lost, payload) {
            (1, 0, 0, []) => Some(Message::Ready),
            (2, number, lost, payload) => Some(Message::Item(Passed {
                number,
                lost,
                payload,
            })),
            (3, number, 0, []) => Some(Message::Consumed(number)),
            (4, 0, 0, []) => Some(Message::Left),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(number: u64, lost: u64, payload: Vec<u8>, which in 0..4) {
            let payload = &payload[..];
            let message = match which {
                0 => Message::Ready,
                1 => Message::Item(Passed { number, lost, payload }),
                2 => Message::Consumed(number),
                _ => Message::Left,
            };
            let mut slot = vec![0; message.bytes()];
            message.write(&mut slot);
            prop_assert_eq!(Message::read(&slot), Some(message));
        }

        #[test]
        fn any_bytes_are_a_message_that_says_the_same_or_none(bytes: Vec<u8>) {
            if let Some(message) = Message::read(&bytes) {
                let mut slot = vec![0; message.bytes()];
                message.write(&mut slot);
                prop_assert_eq!(slot, bytes);
            }
        }
    }
}
