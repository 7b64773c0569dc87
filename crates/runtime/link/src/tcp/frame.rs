//! The frames of a connection after the handshake.
//!
//! | kind | body |
//! |---|---|
//! | `Message` | a chunk of a message |
//! | `Status` | none: counts and ends are in the head |
//! | `Ask` | none: asks for the latest value |
//! | `Value` | a chunk of a value; `total` 0 and `number` 0 if there is none |
//!
//! A head has 24 bytes, little endian: kind (1), flags (1), two zeros, length of the body (4),
//! number (8), offset of the chunk (4), size of the whole (4). A `Status` has 16 bytes more:
//! messages received and consumed.

use crate::resume::Progress;

pub use crate::wire::HEAD_BYTES;
/// The size of a frame that contains a status ([`Status`]), in bytes: its head and 16 bytes of
/// content.
pub const STATUS_BYTES: usize = HEAD_BYTES + 16;

/// The position of a chunk in its message or value.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// The number of the message, or the version of the value.
    pub number: u64,
    /// The position of the chunk in the message or value, in bytes.
    pub offset: usize,
    pub bytes: usize,
    /// The length of the whole message or value in bytes.
    pub total: usize,
}

/// A peer's report on its own state. Each status replaces the previous one.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Status {
    /// The number of messages that the peer has received, and the number that it has consumed.
    pub progress: Progress,
    /// The number of all messages that the peer has sent. `None` while it may send more.
    pub sends_no_more: Option<u64>,
    pub receives_no_more: bool,
}

/// The head of a frame, checked against the agreed sizes. The bytes of a chunk, or 16 bytes of a
/// status ([`Status::of`]), follow the head.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Head {
    Message(Chunk),
    Value(Chunk),
    Status {
        flags: u8,
        /// The number of all messages that the peer has sent, if `flags` say that the peer sends no
        /// more.
        sent: u64,
    },
    /// A request for the peer's latest value.
    Ask,
}

/// The sizes in bytes of the largest chunk, message and value.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub chunk: usize,
    pub message: usize,
    pub value: usize,
}

const MESSAGE: u8 = 1;
const STATUS: u8 = 2;
const ASK: u8 = 3;
const VALUE: u8 = 4;
const SENDS_NO_MORE: u8 = 1;
const RECEIVES_NO_MORE: u8 = 2;

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap_or_default())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default())
}

impl Chunk {
    /// Returns the head of this chunk. Its lengths fit 32 bits, because
    /// [`Sizes`](crate::interface::Sizes) limits them.
    fn head(&self, kind: u8) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        head[0] = kind;
        head[4..8].copy_from_slice(&(self.bytes as u32).to_le_bytes());
        head[8..16].copy_from_slice(&self.number.to_le_bytes());
        head[16..20].copy_from_slice(&(self.offset as u32).to_le_bytes());
        head[20..24].copy_from_slice(&(self.total as u32).to_le_bytes());
        head
    }

    /// Returns the bytes of the head of a frame that carries a chunk of a message.
    pub fn message_head(&self) -> [u8; HEAD_BYTES] {
        self.head(MESSAGE)
    }

    /// Returns the bytes of the head of a frame that carries a chunk of a value.
    pub fn value_head(&self) -> [u8; HEAD_BYTES] {
        self.head(VALUE)
    }

    /// Reports whether this chunk is the last of its message or value.
    pub fn is_last(&self) -> bool {
        self.offset + self.bytes == self.total
    }

    /// Checks that the chunk lies within its message or value, and within the limits. Only an empty
    /// message or value has an empty chunk.
    fn is_possible(&self, chunk: usize, whole: usize) -> bool {
        let rest = self.total.checked_sub(self.offset);
        let fits =
            |rest: usize| self.bytes <= rest.min(chunk) && (self.bytes > 0 || self.total == 0);
        self.total <= whole && rest.is_some_and(fits)
    }
}

/// Returns the head that asks for the latest value.
pub fn ask() -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[0] = ASK;
    head
}

impl Status {
    /// Returns the bytes in which the status is sent.
    pub fn bytes(&self) -> [u8; STATUS_BYTES] {
        let mut bytes = [0; STATUS_BYTES];
        bytes[0] = STATUS;
        if let Some(sent) = self.sends_no_more {
            bytes[1] |= SENDS_NO_MORE;
            bytes[8..16].copy_from_slice(&sent.to_le_bytes());
        }
        if self.receives_no_more {
            bytes[1] |= RECEIVES_NO_MORE;
        }
        bytes[24..32].copy_from_slice(&self.progress.received.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.progress.consumed.to_le_bytes());
        bytes
    }

    /// Makes a status from the fields of a head and the 16 bytes that follow it.
    pub fn of(flags: u8, sent: u64, body: &[u8; 16]) -> Status {
        Status {
            progress: Progress {
                received: u64_at(body, 0),
                consumed: u64_at(body, 8),
            },
            sends_no_more: (flags & SENDS_NO_MORE != 0).then_some(sent),
            receives_no_more: flags & RECEIVES_NO_MORE != 0,
        }
    }
}

impl Head {
    /// Reads a head from the network. Returns `None` if the bytes are not a possible head.
    pub fn parse(head: &[u8; HEAD_BYTES], limits: Limits) -> Option<Head> {
        let (kind, flags, number) = (head[0], head[1], u64_at(head, 8));
        if head[2] != 0 || head[3] != 0 {
            return None;
        }
        let size = |at| usize::try_from(u32_at(head, at)).ok();
        let chunk = Chunk {
            number,
            bytes: size(4)?,
            offset: size(16)?,
            total: size(20)?,
        };
        let is_empty = chunk.bytes == 0 && chunk.offset == 0 && chunk.total == 0;
        match kind {
            MESSAGE if flags == 0 && chunk.is_possible(limits.chunk, limits.message) => {
                Some(Head::Message(chunk))
            }
            VALUE if flags == 0 && chunk.is_possible(limits.chunk, limits.value) => {
                Some(Head::Value(chunk))
            }
            STATUS if is_empty && flags <= SENDS_NO_MORE | RECEIVES_NO_MORE => {
                let known = flags & SENDS_NO_MORE != 0 || number == 0;
                known.then_some(Head::Status {
                    flags,
                    sent: number,
                })
            }
            ASK if is_empty && flags == 0 && number == 0 => Some(Head::Ask),
            _ => None,
        }
    }
}
