//! Blocks: up to a million events as checksummed, compressed columns that decode on their own.
//!
//! This module defines a block's header, its columns and its limits. The document
//! `docs/trace-format.md` describes every byte.
mod decode;
mod dictionary;
mod encode;
mod stamps;
mod varint;

pub use decode::Decoder;
pub use encode::Encoder;

/// The first bytes of every block. A reader searches for these bytes after damage.
pub const MAGIC: [u8; 8] = *b"\xF1obtBlk\n";
/// The length of a block's header, in bytes.
pub const HEADER_LEN: usize = 48;
/// The largest size of a block's body, in bytes. A header that announces more counts as damaged.
pub const MAX_BODY: usize = 64 << 20;
/// The largest number of events in a block. A header that announces more counts as damaged.
pub const MAX_EVENTS: usize = 1 << 20;
/// The maximum total length of a block's columns before compression, in bytes. The same limit
/// applies to the names that the events of a block refer to.
const MAX_RAW: usize = 64 << 20;
/// The largest length of a name, in bytes. The encoder cuts longer names.
pub const MAX_NAME: usize = 64 << 10;

const PLAIN: u8 = 0;
const ZSTD: u8 = 1;

/// A column of a block. The variants have the order of the file: dictionaries, one value per event,
/// one value per field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    /// The offset CLOCK_REALTIME minus CLOCK_MONOTONIC at the beginning of the block.
    ClockOffset,
    Threads,
    Handles,
    Messages,
    Tids,
    Gids,
    Names,
    Cpu,
    Thread,
    Kind,
    Time,
    /// An entry for each source time stamp: whether it is missing, new, or equal to an earlier one.
    /// For an equal stamp, the entry is the number of different stamps that came after the earlier
    /// one.
    Stamp,
    NewStamp,
    Handle,
    Message,
    Tid,
    Gid,
    Name,
    Small,
    Int,
}

const COLUMNS: usize = Column::Int as usize + 1;

/// The reason why a block cannot be decoded although its header is valid.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // The messages say the rest.
pub enum BlockError {
    #[error("the checksum does not match")]
    Checksum,
    #[error("the columns cannot be decompressed")]
    Decompress,
    #[error("{0}")]
    Content(&'static str),
}

const SHORT: BlockError = BlockError::Content("a column ends too early");
const NO_ENTRY: BlockError = BlockError::Content("an index is outside of its dictionary");
const TOO_LARGE: BlockError = BlockError::Content("the block states a length of more than 64 MiB");

/// The header of a block: size, checksum, and which events the block has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockHeader {
    /// The length of the body, in bytes. The body follows the header.
    pub body_len: u32,
    /// The CRC-32 (IEEE) of the body.
    pub body_crc: u32,
    /// The number of events in the block, at most [`MAX_EVENTS`].
    pub events: u32,
    /// The number of the block in its recording. The first block has number 0.
    pub sequence: u64,
    /// The time of the first event in ns, by CLOCK_MONOTONIC.
    pub first_ns: u64,
    /// The time of the last event in ns, by CLOCK_MONOTONIC.
    pub last_ns: u64,
}

impl BlockHeader {
    /// Encodes the header in its stored form, which includes a checksum of the header.
    pub fn to_bytes(&self) -> [u8; HEADER_LEN] {
        let mut out = [0; HEADER_LEN];
        out[0..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&self.body_len.to_le_bytes());
        out[12..16].copy_from_slice(&self.body_crc.to_le_bytes());
        out[16..20].copy_from_slice(&self.events.to_le_bytes());
        out[20..28].copy_from_slice(&self.sequence.to_le_bytes());
        out[28..36].copy_from_slice(&self.first_ns.to_le_bytes());
        out[36..44].copy_from_slice(&self.last_ns.to_le_bytes());
        let crc = crc32fast::hash(&out[..44]);
        out[44..48].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Decodes a header. Returns `None` if the bytes are not a header, or if the header is damaged.
    pub fn from_bytes(bytes: &[u8; HEADER_LEN]) -> Option<BlockHeader> {
        let u32_at = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        if bytes[0..8] != MAGIC || crc32fast::hash(&bytes[..44]) != u32_at(44) {
            return None;
        }
        let header = BlockHeader {
            body_len: u32_at(8),
            body_crc: u32_at(12),
            events: u32_at(16),
            sequence: u64_at(20),
            first_ns: u64_at(28),
            last_ns: u64_at(36),
        };
        (header.body_len as usize <= MAX_BODY && header.events as usize <= MAX_EVENTS)
            .then_some(header)
    }
}
