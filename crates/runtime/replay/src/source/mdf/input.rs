//! Reads the blocks of an MDF 4 file. Reading ends even if links lead in a circle: a block of a
//! list is read only once, and the data blocks together have at most the size of the file.

use crate::source::damage::Damage;
use crate::source::Bytes;
use flate2::Decompress;
use std::collections::HashSet;
use std::io::{Result, SeekFrom};

/// The size in bytes of the header of each MDF block: identifier, length, number of links.
pub const HEADER: usize = 24;
/// The maximum number of bytes that are read of a block with a description. Only blocks with long
/// texts or many attachments are longer.
const MOST_OF_BLOCK: u64 = 8 << 10;
/// The maximum number of blocks with descriptions that are read.
const MOST_BLOCKS: usize = 1 << 20;
const BAD_LINK: &str = "links to missing or damaged blocks, not followed";

pub struct Input<R> {
    bytes: R,
    pub size: u64,
    /// True if the recorder did not close the file. Counts and the lengths of the last blocks are
    /// then not valid.
    pub is_unfinished: bool,
    /// True if the records of frames do not state the positions of their data bytes in other
    /// groups. The data bytes then have the same order as the frames.
    pub has_no_positions: bool,
    pub damage: Damage,
    /// The number of bytes of data blocks that may still be read. At the beginning it is the size
    /// of the file, because the data blocks of a valid file share no bytes.
    left: u64,
    seen: HashSet<u64>,
    read_blocks: usize,
    /// The number of bytes of unpacked blocks in memory, summed over all streams.
    pub held: usize,
    pub packed: Vec<u8>,
    pub inflater: Decompress,
}

impl<R: Bytes> Input<R> {
    pub fn new(mut bytes: R) -> Result<Input<R>> {
        let size = bytes.seek(SeekFrom::End(0))?;
        Ok(Input {
            bytes,
            size,
            is_unfinished: false,
            has_no_positions: false,
            damage: Damage::default(),
            left: size,
            seen: HashSet::new(),
            read_blocks: 0,
            held: 0,
            packed: Vec::new(),
            inflater: Decompress::new(true),
        })
    }

    pub fn into_bytes(self) -> R {
        self.bytes
    }

    /// Appends up to `length` bytes of the file from the position `at` to `to`. Returns the number
    /// of appended bytes, which is smaller than `length` only at the end of the file.
    pub fn append(&mut self, at: u64, length: u64, to: &mut Vec<u8>) -> Result<usize> {
        let there = length.min(self.size.saturating_sub(at)) as usize;
        let start = to.len();
        to.resize(start + there, 0);
        self.bytes.seek(SeekFrom::Start(at))?;
        self.bytes.read_exact(&mut to[start..])?;
        Ok(there)
    }

    /// Reads the `N` bytes of the file at `at`. Returns `None` if the file ends before.
    pub fn exact<const N: usize>(&mut self, at: u64) -> Result<Option<[u8; N]>> {
        let mut bytes = [0; N];
        if at.checked_add(N as u64).is_none_or(|end| end > self.size) {
            return Ok(None);
        }
        self.bytes.seek(SeekFrom::Start(at))?;
        self.bytes.read_exact(&mut bytes)?;
        Ok(Some(bytes))
    }

    /// Subtracts `bytes` from the number of data bytes that may still be read. Returns false if
    /// fewer bytes may be read.
    pub fn charge(&mut self, bytes: u64) -> bool {
        let left = self.left.checked_sub(bytes);
        self.left = left.unwrap_or(0);
        left.is_some()
    }

    /// Reads the block of kind `kind` at `at`. Returns `None` if `at` is 0. If the file has no such
    /// block there, reports damage and returns `None`.
    pub fn block(&mut self, at: u64, kind: &[u8; 2]) -> Result<Option<Block>> {
        if at == 0 {
            return Ok(None);
        }
        let block = self.try_block(at, kind)?;
        if block.is_none() {
            self.damage.add(BAD_LINK, || place(at));
        }
        Ok(block)
    }

    /// Reads a block of a linked list like [`Input::block`]. Reads each block at most once, so that
    /// a circular list ends.
    pub fn listed(&mut self, at: u64, kind: &[u8; 2]) -> Result<Option<Block>> {
        if at != 0 && !self.seen.insert(at) {
            self.damage
                .add("links in a circle, not followed", || place(at));
            return Ok(None);
        }
        self.block(at, kind)
    }

    fn try_block(&mut self, at: u64, kind: &[u8; 2]) -> Result<Option<Block>> {
        self.read_blocks += 1;
        let Some(header) = self.exact::<HEADER>(at)? else {
            return Ok(None);
        };
        let length = long(&header, 8);
        let is_it = header.starts_with(b"##") && header[2..4] == *kind;
        if !is_it || self.read_blocks > MOST_BLOCKS || length < HEADER as u64 {
            return Ok(None);
        }
        let body = (length - HEADER as u64).min(MOST_OF_BLOCK);
        let mut bytes = Vec::new();
        let read = self.append(at + HEADER as u64, body, &mut bytes)?;
        let links = long(&header, 16).saturating_mul(8);
        let is_whole = read as u64 == body && links <= body;
        Ok(is_whole.then_some(Block {
            at,
            data: links as usize,
            bytes,
        }))
    }

    /// Returns the kind of the MDF block at `at`, or `None` if `at` does not lead to a block.
    pub fn kind(&mut self, at: u64) -> Result<Option<[u8; 2]>> {
        let header = self.exact::<4>(at)?;
        let header = header.filter(|header| header.starts_with(b"##"));
        Ok(header.map(|header| [header[2], header[3]]))
    }

    /// Reads the text in the block at `at`. Returns an empty text if the block is missing.
    pub fn text(&mut self, at: u64) -> Result<String> {
        const LONGEST: usize = 256;
        let block = match at {
            0 => None,
            at => self.try_block(at, b"TX")?,
        };
        let data = block.as_ref().map_or(&[][..], |block| block.data());
        let text = data.split(|&byte| byte == 0).next().unwrap_or_default();
        let text = &text[..text.len().min(LONGEST)];
        Ok(String::from_utf8_lossy(text).into_owned())
    }
}

pub fn place(at: u64) -> String {
    format!("byte {at}")
}

/// An MDF block with a description. It contains links, and then data.
pub struct Block {
    pub at: u64,
    data: usize,
    bytes: Vec<u8>,
}

impl Block {
    /// Returns the block's link with this number. Returns 0 if the link is empty, or if the block
    /// has no such link.
    pub fn link(&self, number: usize) -> u64 {
        let links = &self.bytes[..self.data];
        let link = links.chunks_exact(8).nth(number);
        link.map_or(0, |link| long(link, 0))
    }

    pub fn data(&self) -> &[u8] {
        &self.bytes[self.data..]
    }

    /// Returns the `N` bytes at `at` of the block's data. Bytes that the block does not have are 0.
    fn part<const N: usize>(&self, at: usize) -> [u8; N] {
        let part = self.data().get(at..).and_then(|rest| rest.first_chunk());
        part.copied().unwrap_or([0; N])
    }

    pub fn byte(&self, at: usize) -> u8 {
        self.part::<1>(at)[0]
    }

    pub fn short(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.part(at))
    }

    pub fn number(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.part(at))
    }

    pub fn long(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.part(at))
    }
}

/// Reads the little-endian number of eight bytes at `at`. The caller must make sure that these
/// bytes exist.
pub fn long(bytes: &[u8], at: usize) -> u64 {
    let mut eight = [0; 8];
    eight.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(eight)
}
