//! Reads the file in which one process has its rings (`format.h`). Any byte of it may have any
//! value at any time.
//!
//! System calls read the file: a mapping would end the reader if the owner shortens the file. A
//! number that is being written may be read half old and half new. A number that reads the same
//! twice is whole.

use crate::records::{self, KIND_COUNT};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{fence, Ordering};

const MAGIC: u64 = 0x3167_6e69_7262_6e6f;
const HEAD_BYTES: usize = 4096;
const RING_HEAD_BYTES: usize = 64;
const RINGS_MAX: usize = 1024;
const RINGS_AT: u64 = (HEAD_BYTES + RINGS_MAX * RING_HEAD_BYTES) as u64;
const AT_PID: usize = 8;
const AT_NAMESPACE: usize = 16;
const AT_RING_BYTES: usize = 24;
const AT_RINGS: usize = 32;
const AT_LOST: usize = 40;
const RECORD_MAX: usize = 8192;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    pub pid: u32,
    /// The inode of the PID namespace of the process. 0 means unknown.
    pub namespace: u64,
    pub ring_bytes: u64,
    pub rings: usize,
    pub lost: Vec<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    Short,
    Wrong,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Ring {
    read: u64,
    is_broken: bool,
}

fn number(bytes: &[u8], at: usize) -> u64 {
    let bytes = bytes.get(at..at + 8).unwrap_or(&[0; 8]);
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

fn read_at(file: &File, at: u64, bytes: &mut [u8]) -> Result<(), Fault> {
    file.read_exact_at(bytes, at).map_err(|_| Fault::Short)
}

impl Head {
    /// Reads the head of a process's file. Returns `None` while the process still makes the file.
    pub fn read(file: &File) -> Result<Option<Head>, Fault> {
        let mut bytes = [0; HEAD_BYTES];
        match file.read_at(&mut bytes, 0) {
            Ok(read) if read < HEAD_BYTES => return Ok(None),
            Ok(_) => {}
            Err(_) => return Err(Fault::Short),
        }
        match number(&bytes, 0) {
            0 => return Ok(None),
            MAGIC => {}
            _ => return Err(Fault::Wrong),
        }
        let rings = number(&bytes, AT_RINGS);
        let lost = (0..KIND_COUNT).map(|kind| number(&bytes, AT_LOST + kind * 8));
        Ok(Some(Head {
            pid: number(&bytes, AT_PID) as u32,
            namespace: number(&bytes, AT_NAMESPACE),
            ring_bytes: number(&bytes, AT_RING_BYTES),
            rings: usize::try_from(rings).map_or(RINGS_MAX, |r| r.min(RINGS_MAX)),
            lost: lost.collect(),
        }))
    }
}

/// Returns for each of the first `rings` rings a position up to which the ring is certainly
/// written.
///
/// Each position is read twice, because the writer may be changing it. The first reading counts if
/// both readings are equal. The first reading also counts if it is larger than the position in
/// `known` and the second reading is not smaller than the first. Otherwise the position in `known`
/// counts.
pub fn written(file: &File, rings: usize, known: &[Ring]) -> Result<Vec<u64>, Fault> {
    let mut first = vec![0; rings * RING_HEAD_BYTES];
    let mut second = first.clone();
    read_at(file, HEAD_BYTES as u64, &mut first)?;
    read_at(file, HEAD_BYTES as u64, &mut second)?;
    // The records before a position are read after the position.
    fence(Ordering::Acquire);
    let position = |ring: usize| {
        let at = ring * RING_HEAD_BYTES;
        let (a, b) = (number(&first, at), number(&second, at));
        let before = known.get(ring).map_or(0, |r| r.read);
        if a == b || a > before && b >= a {
            a
        } else {
            before
        }
    };
    Ok((0..rings).map(position).collect())
}

impl Ring {
    /// Passes the records up to `written` to `each`, at most `left` of them, and then writes the
    /// new position for the writer.
    ///
    /// `buffer` is memory that the caller reuses in later calls. Returns whether all records were
    /// passed. After a [`Fault`] the ring is not read any more.
    pub fn read(
        &mut self,
        place: (&File, usize, u64),
        written: u64,
        left: &mut usize,
        buffer: &mut Vec<u8>,
        each: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, Fault> {
        if self.is_broken || written == self.read {
            return Ok(true);
        }
        if *left == 0 {
            return Ok(false);
        }
        let (file, index, _) = place;
        let read = self.fetch(place, written, buffer).and_then(|()| {
            let (bytes, is_right) = pass(buffer, left, each);
            self.read += bytes as u64;
            fence(Ordering::Release);
            // If a process takes away our right to write, it finds its ring full.
            let _ = tell(file, index, self.read);
            if is_right {
                Ok(self.read == written)
            } else {
                Err(Fault::Wrong)
            }
        });
        self.is_broken = read.is_err();
        read
    }

    fn fetch(
        &self,
        (file, index, ring_bytes): (&File, usize, u64),
        written: u64,
        buffer: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        let bytes = written.checked_sub(self.read).filter(|&b| b <= ring_bytes);
        let bytes = bytes.ok_or(Fault::Wrong)? as usize;
        buffer.resize(bytes, 0);
        let start = self.read % ring_bytes;
        let first = bytes.min((ring_bytes - start) as usize);
        let at = RINGS_AT + index as u64 * ring_bytes;
        read_at(file, at + start, &mut buffer[..first])?;
        read_at(file, at, &mut buffer[first..])
    }
}

/// Passes the records in `bytes` to `each`, at most `left` of them. Returns the number of bytes
/// passed, and whether they were valid.
fn pass(bytes: &[u8], left: &mut usize, each: &mut dyn FnMut(&[u8])) -> (usize, bool) {
    let mut at = 0;
    while at < bytes.len() && *left > 0 {
        let length = usize::try_from(number(bytes, at)).unwrap_or(usize::MAX);
        let is_possible = length % 8 == 0 && (8..=RECORD_MAX).contains(&length);
        let record = bytes.get(at + 8..).and_then(|rest| rest.get(..length));
        let Some(record) = record.filter(|_| is_possible) else {
            return (at, false);
        };
        each(record);
        *left -= 1;
        at += 8 + length;
    }
    (at, true)
}

/// Writes the position up to which a ring was read, for the ring's writer. The position is written
/// twice, so that the writer recognises a half-written position.
fn tell(file: &File, index: usize, read: u64) -> io::Result<()> {
    let mut both = [0; 16];
    both[..8].copy_from_slice(&read.to_le_bytes());
    both[8..].copy_from_slice(&read.to_le_bytes());
    file.write_all_at(&both, (HEAD_BYTES + index * RING_HEAD_BYTES + 8) as u64)
}

pub fn named(lost: &[u64]) -> Vec<(&'static str, u64)> {
    let counts = lost.iter().enumerate().filter(|(_, &count)| count > 0);
    counts
        .map(|(kind, &count)| (records::name(kind as u16), count))
        .collect()
}
