//! The messages between the two relays of a channel. A message is a word of 64 bits for its kind,
//! two for numbers, and for an item its payload.

pub(super) const HEAD_BYTES: usize = 24;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PassedItem<'a> {
    pub(super) number: u64,
    pub(super) lost: u64,
    pub(super) payload: &'a [u8],
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Message<'a> {
    /// All expected consumers of the receiving host have attached, so items may follow.
    Ready,
    Item(PassedItem<'a>),
    /// All consumers of the receiving host have consumed the items with smaller numbers than this.
    Consumed(u64),
    ProducerLeft,
}

impl<'a> Message<'a> {
    fn words(&self) -> [u64; 3] {
        match self {
            Message::Ready => [1, 0, 0],
            Message::Item(item) => [2, item.number, item.lost],
            Message::Consumed(number) => [3, *number, 0],
            Message::ProducerLeft => [4, 0, 0],
        }
    }

    fn payload(&self) -> &[u8] {
        match self {
            Message::Item(item) => item.payload,
            _ => &[],
        }
    }

    pub(super) fn bytes(&self) -> usize {
        HEAD_BYTES + self.payload().len()
    }

    pub(super) fn write(&self, slot: &mut [u8]) {
        for (place, word) in slot.chunks_exact_mut(8).zip(self.words()) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        slot[HEAD_BYTES..].copy_from_slice(self.payload());
    }

    pub(super) fn parse(bytes: &'a [u8]) -> Option<Message<'a>> {
        let (head, payload) = bytes.split_at_checked(HEAD_BYTES)?;
        let word = |at: usize| Some(u64::from_le_bytes(head.get(at..at + 8)?.try_into().ok()?));
        let (kind, number, lost) = (word(0)?, word(8)?, word(16)?);
        match (kind, number, lost, payload) {
            (1, 0, 0, []) => Some(Message::Ready),
            (2, number, lost, payload) => Some(Message::Item(PassedItem {
                number,
                lost,
                payload,
            })),
            (3, number, 0, []) => Some(Message::Consumed(number)),
            (4, 0, 0, []) => Some(Message::ProducerLeft),
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
        fn a_message_between_two_relays_is_read_as_it_was_written(number: u64, lost: u64, payload: Vec<u8>, which in 0..4) {
            let payload = &payload[..];
            let message = match which {
                0 => Message::Ready,
                1 => Message::Item(PassedItem { number, lost, payload }),
                2 => Message::Consumed(number),
                _ => Message::ProducerLeft,
            };
            let mut slot = vec![0; message.bytes()];
            message.write(&mut slot);
            prop_assert_eq!(Message::parse(&slot), Some(message));
        }

        #[test]
        fn any_bytes_are_refused_or_parsed_to_a_message_with_the_same_bytes(bytes: Vec<u8>) {
            if let Some(message) = Message::parse(&bytes) {
                let mut slot = vec![0; message.bytes()];
                message.write(&mut slot);
                prop_assert_eq!(slot, bytes);
            }
        }
    }
}
