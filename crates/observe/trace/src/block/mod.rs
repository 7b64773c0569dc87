//! Blocks: some thousand events as checksummed, compressed columns that decode on their own.
//!
//! This file has a block's header, its columns and its limits; `encode` and `decode` are the two
//! directions. docs/trace-format.md describes every byte.
mod decode;
mod dictionary;
mod encode;
mod stamps;
mod varint;

pub use decode::Decoder;
pub use encode::Encoder;

/// The first bytes of every block; after damage, a reader searches for them.
pub const MAGIC: [u8; 8] = *b"\xF1obtBlk\n";
/// Length of a block's header in bytes.
pub const HEADER_LEN: usize = 48;
/// Largest body in bytes; a header that announces more is damaged.
pub const MAX_BODY: usize = 64 << 20;
/// Largest number of events in a block; a header that announces more is damaged.
pub const MAX_EVENTS: usize = 1 << 20;
/// Largest sum of the columns' lengths, and of the names that the events of a block refer to.
const MAX_RAW: usize = 64 << 20;
/// Largest length of a name in bytes; the encoder cuts longer ones.
pub const MAX_NAME: usize = 64 << 10;

/// First byte of a body whose columns are stored as they are.
const PLAIN: u8 = 0;
/// First byte of a body whose columns are one zstd frame.
const ZSTD: u8 = 1;

/// A column of a block, in the order of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    /// CLOCK_REALTIME minus CLOCK_MONOTONIC where the block begins.
    ClockOffset,
    /// Dictionary of threads.
    Threads,
    /// Dictionary of handles.
    Handles,
    /// Dictionary of message addresses.
    Messages,
    /// Dictionary of process and thread ids in fields.
    Tids,
    /// Dictionary of global identifiers.
    Gids,
    /// Dictionary of names.
    Names,
    /// Of each event: the CPU.
    Cpu,
    /// Of each event: an index into `Threads`.
    Thread,
    /// Of each event: the kind's code.
    Kind,
    /// Of each event: the time since the event before it.
    Time,
    /// Of each source time stamp: none, a new one, or how many new ones ago it was new.
    Stamp,
    /// Of each new source time stamp: its difference from the event's own time.
    NewStamp,
    /// Of each field of type handle: an index into `Handles`.
    Handle,
    /// Of each field of type message: an index into `Messages`.
    Message,
    /// Of each field of type tid: an index into `Tids`.
    Tid,
    /// Of each field of type gid: an index into `Gids`.
    Gid,
    /// Of each field of type text: an index into `Names`.
    Name,
    /// Small numbers, flags and choices.
    Small,
    /// 64-bit numbers.
    Int,
}

/// Number of columns.
const COLUMNS: usize = Column::Int as usize + 1;

/// Why a block that was found cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub enum BlockError {
    /// The body is not the one that was written.
    #[error("checksum does not match")]
    Checksum,
    /// The body's zstd frame is damaged, or does not have the announced length.
    #[error("columns cannot be decompressed")]
    Decompress,
    /// The checksum matches, but the content contradicts itself.
    #[error("{0}")]
    Content(&'static str),
}

const SHORT: BlockError = BlockError::Content("a column ends too early");
const NO_ENTRY: BlockError = BlockError::Content("a reference points nowhere");
const TOO_LARGE: BlockError = BlockError::Content("larger than a block may be");

/// The header of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockHeader {
    /// Length of the body in bytes; the body follows the header.
    pub body_len: u32,
    /// CRC-32 (IEEE) of the body.
    pub body_crc: u32,
    /// Number of events.
    pub events: u32,
    /// Number of the block in its recording, from 0.
    pub sequence: u64,
    /// Time of the first event, CLOCK_MONOTONIC.
    pub first_ns: u64,
    /// Time of the last event, CLOCK_MONOTONIC.
    pub last_ns: u64,
}

impl BlockHeader {
    /// The header's bytes in the file.
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

    /// Reads a header; `None` if the bytes are no header or a damaged one.
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
