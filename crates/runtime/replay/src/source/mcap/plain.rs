//! Walks records one after another, outside of chunks or in a chunk that is not compressed.

use mcap::records::op;
use std::io::{Read, Result, Seek, SeekFrom};

pub const WRONG: &str = "chunks with a wrong checksum, read nevertheless";
pub const TORN: &str = "chunks that end within a record, read up to that record";

const RECORD: usize = 9;
/// The size in bytes of an uncompressed chunk's header: two times, size, checksum, length of the
/// compression's name, size of the records.
const HEADER: usize = 8 + 8 + 8 + 4 + 4 + 8;

#[derive(Clone, Copy, Debug)]
pub struct Chunk {
    length: u64,
    /// The checksum of the chunk's records, or 0 if the writer computed no checksum.
    checksum: u32,
}

/// Moves to the first record of the chunk at `at`. Returns `None` if the chunk's records are
/// compressed.
///
/// # Errors
/// Fails if the file cannot be read.
pub fn chunk<R: Read + Seek>(bytes: &mut R, at: u64, length: u64) -> Result<Option<Chunk>> {
    bytes.seek(SeekFrom::Start(at))?;
    let mut head = Vec::with_capacity(RECORD + HEADER);
    bytes
        .by_ref()
        .take(length.min((RECORD + HEADER) as u64))
        .read_to_end(&mut head)?;
    if head.first() != Some(&op::CHUNK) {
        bytes.seek(SeekFrom::Start(at))?;
        return Ok(Some(Chunk {
            length,
            checksum: 0,
        }));
    }
    let Some(header) = head.get(RECORD..RECORD + HEADER) else {
        // The header is incomplete.
        return Ok(Some(Chunk {
            length: 0,
            checksum: 0,
        }));
    };
    let number = |at: usize| {
        u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    let size = u64::from(number(32)) | u64::from(number(36)) << 32;
    let there = length - (RECORD + HEADER) as u64;
    let whole = size <= there;
    let checksum = if whole { number(24) } else { 0 };
    Ok((number(28) == 0).then_some(Chunk {
        length: size.min(there),
        checksum,
    }))
}

pub struct Records<'a, R> {
    bytes: &'a mut R,
    left: u64,
    record: u64,
    saved: u32,
    checksum: crc32fast::Hasher,
    torn: bool,
}

impl<'a, R: Read> Records<'a, R> {
    pub fn new(bytes: &'a mut R, chunk: Chunk) -> Records<'a, R> {
        Records {
            bytes,
            left: chunk.length,
            record: 0,
            saved: chunk.checksum,
            checksum: crc32fast::Hasher::new(),
            torn: false,
        }
    }

    /// Returns the opcode and the length of the next record, or `None` at the end of the chunk. The
    /// caller must then read or skip the record's content.
    pub fn next(&mut self) -> Result<Option<(u8, u64)>> {
        if self.left == 0 {
            return Ok(None);
        }
        let mut head = [0; RECORD];
        if self.left >= RECORD as u64 {
            self.bytes.read_exact(&mut head)?;
            self.checksum.update(&head);
            self.left -= RECORD as u64;
            self.record = u64::from_le_bytes([
                head[1], head[2], head[3], head[4], head[5], head[6], head[7], head[8],
            ]);
            if self.record <= self.left {
                return Ok(Some((head[0], self.record)));
            }
        }
        (self.torn, self.left) = (true, 0);
        Ok(None)
    }

    pub fn content(&mut self, to: &mut Vec<u8>) -> Result<()> {
        let from = to.len();
        // The length was checked against the size of the file.
        let read = self.bytes.by_ref().take(self.record).read_to_end(to)?;
        if (read as u64) < self.record {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        if self.saved != 0 {
            self.checksum.update(&to[from..]);
        }
        self.left -= self.record;
        Ok(())
    }

    pub fn skip(&mut self) -> Result<()> {
        let mut buffer = [0; 4096];
        let mut left = self.record;
        while left > 0 {
            let part = left.min(buffer.len() as u64) as usize;
            self.bytes.read_exact(&mut buffer[..part])?;
            self.checksum.update(&buffer[..part]);
            left -= part as u64;
        }
        self.left -= self.record;
        Ok(())
    }

    pub fn fault(self) -> Option<&'static str> {
        if self.torn {
            return Some(TORN);
        }
        let is_wrong = self.saved != 0 && self.saved != self.checksum.finalize();
        is_wrong.then_some(WRONG)
    }
}
