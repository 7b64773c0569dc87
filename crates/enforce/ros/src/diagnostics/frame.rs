//! The protocol between a session and the process that publishes its diagnostics: one frame per
//! packet of a socket. Pure.

use super::cdr::MOST_BYTES;

/// The greatest size of a packet from the session to the process that publishes diagnostics, in
/// bytes.
pub const MOST_FRAME: usize = MOST_BYTES + 8;
/// The greatest size of a reply of the process that publishes diagnostics, in bytes.
pub const MOST_REPLY: usize = 8;

/// A packet that the session sends to the process that publishes diagnostics.
#[derive(Debug, Clone, PartialEq)]
pub enum Frame<'b> {
    /// A message that the diagnostics process publishes. The process replies with the message's
    /// number.
    Publish(u32, &'b [u8]),
    /// A message that the diagnostics process publishes if the session ends without [`Frame::End`].
    Will(&'b [u8]),
    /// A number that the diagnostics process publishes as `std_msgs/msg/Float64` on this topic.
    Value(f64, &'b str),
    /// The session ends as planned, so the diagnostics process publishes no last message.
    End,
}

/// A packet that the process that publishes diagnostics sends to the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// The process that publishes diagnostics has created its publisher.
    Ready,
    /// The application's installation of ROS 2 lacks the package diagnostic_msgs.
    NoPackage,
    /// The application's installation of ROS 2 lacks the package std_msgs, so the process cannot
    /// publish a [`Frame::Value`].
    NoFloat64,
    /// The message with this number was published.
    Published(u32),
}

impl Frame<'_> {
    /// Returns the frame as the bytes of one packet.
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Frame::Publish(number, message) => {
                [b"P", number.to_le_bytes().as_slice(), message].concat()
            }
            Frame::Will(message) => [b"W", *message].concat(),
            Frame::Value(value, topic) => {
                [b"V", value.to_le_bytes().as_slice(), topic.as_bytes()].concat()
            }
            Frame::End => vec![b'E'],
        }
    }

    /// Parses a frame. Returns `None` if the bytes are invalid.
    pub fn of(bytes: &[u8]) -> Option<Frame<'_>> {
        match bytes.split_first()? {
            (b'P', rest) => {
                let (number, message) = rest.split_at_checked(4)?;
                let number = u32::from_le_bytes(number.try_into().ok()?);
                Some(Frame::Publish(number, message))
            }
            (b'W', message) => Some(Frame::Will(message)),
            (b'V', rest) => {
                let (value, topic) = rest.split_at_checked(8)?;
                let value = f64::from_le_bytes(value.try_into().ok()?);
                Some(Frame::Value(value, std::str::from_utf8(topic).ok()?))
            }
            (b'E', []) => Some(Frame::End),
            _ => None,
        }
    }
}

impl Reply {
    /// Returns the reply as the bytes of one packet.
    pub fn bytes(self) -> Vec<u8> {
        match self {
            Reply::Ready => vec![b'R'],
            Reply::NoPackage => vec![b'M'],
            Reply::NoFloat64 => vec![b'F'],
            Reply::Published(number) => [b"A", number.to_le_bytes().as_slice()].concat(),
        }
    }

    /// Parses a reply. Returns `None` if the bytes are invalid. The bytes come from the
    /// application's user and are untrusted.
    pub fn of(bytes: &[u8]) -> Option<Reply> {
        match bytes.split_first()? {
            (b'R', []) => Some(Reply::Ready),
            (b'M', []) => Some(Reply::NoPackage),
            (b'F', []) => Some(Reply::NoFloat64),
            (b'A', number) => Some(Reply::Published(u32::from_le_bytes(
                number.try_into().ok()?,
            ))),
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
        fn parsing_any_bytes_as_a_frame_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Some(frame) = Frame::of(&bytes) {
                prop_assert_eq!(frame.bytes(), bytes.clone());
            }
            if let Some(reply) = Reply::of(&bytes) {
                prop_assert_eq!(reply.bytes(), bytes);
                prop_assert!(reply.bytes().len() <= MOST_REPLY);
            }
        }

        #[test]
        fn frames_and_replies_survive_a_round_trip(
            number: u32,
            value: f64,
            topic in "\\PC{0,40}",
            message in proptest::collection::vec(any::<u8>(), 0..99),
        ) {
            let value = Frame::Value(value, &topic);
            for frame in [Frame::Publish(number, &message), Frame::Will(&message), Frame::End, value] {
                let bytes = frame.bytes();
                prop_assert_eq!(Frame::of(&bytes), Some(frame));
            }
            for reply in [Reply::Ready, Reply::NoPackage, Reply::NoFloat64, Reply::Published(number)] {
                prop_assert_eq!(Reply::of(&reply.bytes()), Some(reply));
            }
        }
    }
}
