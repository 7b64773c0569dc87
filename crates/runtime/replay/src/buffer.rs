//! The playback buffer: items in blocks of a lossless channel, in locked memory of a fixed size.
//!
//! The loader writes items into loaned blocks, and the player reads them in place. The faster side
//! waits: without a credit the loader stops, and nothing is dropped (Konheiser et al., concept 3).
//! An item that spans several blocks is gathered into memory that was allocated for it before.

use crate::item::{Stamp, StreamId};
use crate::memory::LockedMemory;
use onbeat_flow::{Channel, CreateError, Options, Policy};

/// The size of a block of the playback buffer, in bytes. The loader sends a block after [`SPAN_NS`]
/// at the latest, so a small recording wastes little memory.
const BLOCK: usize = 16 << 10;
/// The longest recorded time that a block spans, in ns. If the source stalls, the items that it
/// delivered before are delayed by at most this time.
pub(crate) const SPAN_NS: i64 = 10_000_000;
/// The size of the head before an item or a piece of an item, in bytes: time, stream, length of the
/// item, length of the piece.
const HEAD: usize = 24;
const USED: usize = 8;
const FULL_BYTES: u64 = (BLOCK - USED - HEAD - 8) as u64;
const MOST_BLOCKS: usize = 1 << 20;
/// The size of the smallest playback buffer, in bytes.
pub const LEAST_BYTES: usize = 512 << 10;

#[derive(Debug, thiserror::Error)]
pub enum BufferError {
    #[error("a buffer of {asked} bytes is too small. Give at least {LEAST_BYTES} bytes.")]
    TooSmall { asked: usize },
    #[error("no memory for a buffer of {bytes} bytes: {reason}. Choose a smaller buffer")]
    Memory {
        bytes: usize,
        reason: std::io::Error,
    },
    #[error("cannot create the buffer: {0}")]
    Channel(#[from] CreateError),
}

pub(crate) struct Buffer {
    pub(crate) channel: Channel,
    pub(crate) blocks: u64,
    pub(crate) gather: Box<[u8]>,
    pub(crate) unlocked: Option<std::io::Error>,
}

impl Buffer {
    /// Creates a buffer that uses at most `bytes` of memory. `largest` bytes of them are for
    /// joining the pieces of an item that spans several blocks. If `largest` is `None`, a quarter
    /// of `bytes` is for this.
    pub(crate) fn new(bytes: usize, largest: Option<usize>) -> Result<Buffer, BufferError> {
        let room = largest.unwrap_or(bytes / 4);
        if bytes < LEAST_BYTES || room > bytes - LEAST_BYTES / 2 {
            return Err(BufferError::TooSmall { asked: bytes });
        }
        let (mut options, fixed, each) = Buffer::costs()?;
        let credits = ((bytes - room).saturating_sub(fixed) / each).clamp(2, MOST_BLOCKS);
        options.policy = Policy::Credit { credits };
        let size = options.memory_bytes()?;
        let memory = |reason| BufferError::Memory {
            bytes: size,
            reason,
        };
        let (region, channel_lock) = LockedMemory::new(size, 2).map_err(memory)?;
        let channel = Channel::format(Box::new(region), options)?;
        let gather = vec![0; room].into_boxed_slice();
        let gather_lock = crate::memory::lock(gather.as_ptr(), gather.len());
        Ok(Buffer {
            channel,
            blocks: credits as u64,
            gather,
            unlocked: channel_lock.err().or(gather_lock.err()),
        })
    }

    /// Returns the options of a channel with one block, the memory of this channel in bytes, and
    /// the memory of each further block in bytes.
    fn costs() -> Result<(Options, usize, usize), CreateError> {
        let mut options = Options {
            consumers: 1,
            borrowed: 1,
            ..Options::new(Policy::Credit { credits: 1 }, BLOCK)
        };
        let fixed = options.memory_bytes()?;
        options.policy = Policy::Credit { credits: 2 };
        let each = options.memory_bytes()? - fixed;
        // A ring entry has few bytes, and their number is a power of two.
        Ok((options, fixed, each + 16))
    }
}

pub(crate) fn bytes_for(blocks: u64, largest: u64) -> u64 {
    let least = LEAST_BYTES as u64;
    let bytes = channel_bytes(blocks).saturating_add(largest);
    bytes.max(least).max(largest.saturating_add(least / 2))
}

/// Returns the memory of a buffer with this many blocks, in bytes. A quarter of it is for joining
/// the largest item.
pub(crate) fn bytes_by_hand(blocks: u64, largest: u64) -> u64 {
    let third = channel_bytes(blocks).div_ceil(3);
    let bytes = third.saturating_mul(4).max(largest.saturating_mul(4));
    bytes.max(LEAST_BYTES as u64)
}

fn channel_bytes(blocks: u64) -> u64 {
    let (fixed, each) = Buffer::costs().map_or((0, BLOCK), |(_, fixed, each)| (fixed, each));
    blocks
        .saturating_mul(each as u64)
        .saturating_add(fixed as u64)
}

/// Returns the maximum number of bytes that an item needs in blocks. The number includes the head
/// of the item, and one more head for each block boundary.
pub(crate) fn packed(bytes: u64) -> u64 {
    let crossed = 1 + bytes / FULL_BYTES;
    bytes.saturating_add(crossed * (HEAD as u64 + 8))
}

/// Returns how many blocks are needed for `items` items with `packed_bytes` bytes in total,
/// recorded over `recorded_ns`.
///
/// A block is sent when it is full or spans [`SPAN_NS`]. The loader sends a block earlier if the
/// player has at most one other block left, so there are at most two such blocks. Three more blocks
/// are in use: one is being played, one is being filled, and the loader waits for one. Numbers are
/// rounded up.
pub(crate) fn blocks_for(packed_bytes: u64, recorded_ns: u64, items: u64) -> u64 {
    let full = packed_bytes.div_ceil(FULL_BYTES);
    let sparse = recorded_ns.div_ceil(SPAN_NS as u64).min(items);
    full.saturating_add(sparse).saturating_add(8)
}

/// The stream number of the mark that the loader sends after a seek. The items after the mark come
/// from another recorded time. The mark's payload is the number of the seek request, and the mark's
/// time is the requested time.
pub(crate) const SOUGHT: StreamId = StreamId(u32::MAX);
/// The stream number of the mark that the loader sends behind the last item.
pub(crate) const END: StreamId = StreamId(u32::MAX - 1);

pub(crate) struct Filling<'b> {
    block: &'b mut [u8],
    used: usize,
    since: Option<i64>,
}

impl<'b> Filling<'b> {
    pub(crate) fn new(block: &'b mut [u8]) -> Filling<'b> {
        Filling {
            block,
            used: USED,
            since: None,
        }
    }

    pub(crate) const BYTES: usize = BLOCK;

    pub(crate) fn append(&mut self, stamp: Stamp, item: &[u8], offset: usize) -> Option<usize> {
        let room = self.block.len().checked_sub(self.used + HEAD)?;
        let here = room.min(item.len() - offset);
        if here == 0 && !item.is_empty() {
            return None;
        }
        let head = &mut self.block[self.used..self.used + HEAD];
        head[..8].copy_from_slice(&stamp.time_ns.to_ne_bytes());
        head[8..12].copy_from_slice(&stamp.stream.0.to_ne_bytes());
        head[12..16].copy_from_slice(&(item.len() as u32).to_ne_bytes());
        head[16..20].copy_from_slice(&(here as u32).to_ne_bytes());
        head[20..24].copy_from_slice(&(offset as u32).to_ne_bytes());
        let at = self.used + HEAD;
        self.block[at..at + here].copy_from_slice(&item[offset..offset + here]);
        self.used = (at + here).next_multiple_of(8).min(self.block.len());
        self.since.get_or_insert(stamp.time_ns);
        Some(here)
    }

    pub(crate) fn is_old(&self, time_ns: i64) -> bool {
        self.since
            .is_some_and(|since| time_ns.saturating_sub(since) >= SPAN_NS)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.since.is_none()
    }

    pub(crate) fn finish(self) {
        self.block[..USED].copy_from_slice(&(self.used as u64).to_ne_bytes());
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece<'b> {
    pub(crate) stamp: Stamp,
    pub(crate) total: usize,
    pub(crate) offset: usize,
    pub(crate) bytes: &'b [u8],
}

pub(crate) struct Pieces<'b> {
    block: &'b [u8],
    at: usize,
}

impl<'b> Pieces<'b> {
    pub(crate) fn of(block: &'b [u8]) -> Pieces<'b> {
        let used = number(block, 0, 8).unwrap_or(0) as usize;
        Pieces {
            block: &block[..used.min(block.len())],
            at: USED,
        }
    }
}

fn number(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let mut word = [0; 8];
    let found = bytes.get(at..at + length)?;
    // The same process writes and reads pieces, so only the order of the bytes matters.
    match cfg!(target_endian = "little") {
        true => word[..length].copy_from_slice(found),
        false => word[8 - length..].copy_from_slice(found),
    }
    Some(u64::from_ne_bytes(word))
}

impl<'b> Iterator for Pieces<'b> {
    type Item = Piece<'b>;

    fn next(&mut self) -> Option<Piece<'b>> {
        let at = self.at;
        let here = number(self.block, at + 16, 4)? as usize;
        let start = at + HEAD;
        let bytes = self.block.get(start..start + here)?;
        self.at = (start + here).next_multiple_of(8);
        Some(Piece {
            stamp: Stamp {
                time_ns: number(self.block, at, 8)? as i64,
                stream: StreamId(number(self.block, at + 8, 4)? as u32),
            },
            total: number(self.block, at + 12, 4)? as usize,
            offset: number(self.block, at + 20, 4)? as usize,
            bytes,
        })
    }
}

/// Joins the pieces of an item that spans several blocks. Real-time safe: it copies into memory
/// that is already allocated.
pub(crate) struct Gather {
    room: Box<[u8]>,
    have: usize,
}

impl Gather {
    pub(crate) fn new(room: Box<[u8]>) -> Gather {
        Gather { room, have: 0 }
    }

    pub(crate) fn add<'g>(&'g mut self, piece: &Piece<'g>) -> Option<&'g [u8]> {
        if piece.bytes.len() == piece.total {
            return Some(piece.bytes);
        }
        if piece.offset == 0 {
            self.have = 0;
        }
        let end = self.have + piece.bytes.len();
        // The writer refuses items that do not fit.
        self.room
            .get_mut(self.have..end)?
            .copy_from_slice(piece.bytes);
        self.have = end;
        (end == piece.total).then(|| &self.room[..end])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn through(items: &[(Stamp, Vec<u8>)], room: usize) -> Vec<(Stamp, Vec<u8>)> {
        let mut blocks: Vec<Vec<u8>> = Vec::new();
        let mut block = vec![0xaa; BLOCK];
        let mut filling = Filling::new(&mut block);
        for (stamp, item) in items {
            let mut offset = 0;
            loop {
                match filling.append(*stamp, item, offset) {
                    Some(here) => offset += here,
                    None => {
                        filling.finish();
                        blocks.push(block.clone());
                        filling = Filling::new(&mut block);
                        continue;
                    }
                }
                if offset == item.len() {
                    break;
                }
            }
        }
        filling.finish();
        blocks.push(block.clone());
        let mut gather = Gather::new(vec![0; room].into_boxed_slice());
        let mut out = Vec::new();
        for block in &blocks {
            for piece in Pieces::of(block) {
                if let Some(whole) = gather.add(&piece) {
                    out.push((piece.stamp, whole.to_vec()));
                }
            }
        }
        out
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn items_of_any_length_pass_the_buffer_unchanged(
            lengths in proptest::collection::vec(
                prop_oneof![0usize..64, BLOCK - 64..BLOCK + 64, 0usize..5 * BLOCK], 0..40)
        ) {
            let items: Vec<_> = lengths.iter().enumerate().map(|(n, &length)| {
                let stamp = Stamp { time_ns: -7 * n as i64, stream: StreamId(n as u32 % 5) };
                (stamp, (0..length).map(|i| (i + n) as u8).collect::<Vec<u8>>())
            }).collect();
            prop_assert_eq!(through(&items, 5 * BLOCK), items);
        }

        #[test]
        fn arbitrary_bytes_in_a_block_cause_no_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut gather = Gather::new(vec![0; 64].into_boxed_slice());
            for piece in Pieces::of(&bytes) {
                gather.add(&piece);
            }
        }
    }

    #[test]
    fn a_playback_buffer_takes_no_more_memory_than_requested() {
        for bytes in [LEAST_BYTES, 1 << 20, 5_000_000, 64 << 20] {
            let buffer = Buffer::new(bytes, None).unwrap();
            let taken = buffer.channel.options().memory_bytes().unwrap() + buffer.gather.len();
            assert!(
                taken <= bytes && taken > bytes * 9 / 10,
                "{taken} of {bytes}"
            );
        }
        assert!(Buffer::new(LEAST_BYTES - 1, None).is_err());
        for (blocks, largest) in [(1000, 5), (20, 3 << 20), (1, 100)] {
            let bytes = bytes_for(blocks, largest) as usize;
            let buffer = Buffer::new(bytes, Some(largest as usize)).unwrap();
            let taken = buffer.channel.options().memory_bytes().unwrap() + buffer.gather.len();
            assert!(buffer.blocks >= blocks, "{} of {blocks}", buffer.blocks);
            assert!(buffer.gather.len() as u64 >= largest && taken <= bytes);
        }
    }
}
