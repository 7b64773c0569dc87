//! Writes and reads the observations of a pass over a recording, as compact bytes.
//!
//! A record is a list of numbers of variable length. Its first number holds its kind and the time since
//! the record of a thread before it, or since 0. Kinds up to [`OF_THREADS_MAX`] are records of threads.
//! A block is its length in bytes, followed by whole records.

use std::io::{self, Read, Write};

const BLOCK: usize = 1 << 16;

const KIND_BITS: u32 = 4;

/// The last kind of the records of threads. Other records can be written between them later: they do
/// not change the times of records after them.
pub(crate) const OF_THREADS_MAX: u8 = 11;

/// The shortest time in ns that does not fit into one number together with the kind of the record.
/// A second number stores such a time.
const LONG: u64 = u64::MAX >> KIND_BITS;

/// Appends a number, with seven bits per byte and the lowest bits first.
#[inline]
pub(crate) fn put(to: &mut Vec<u8>, mut n: u64) {
    to.reserve(10);
    while n >= 0x80 {
        to.push(n as u8 | 0x80);
        n >>= 7;
    }
    to.push(n as u8);
}

/// Begins a record, `since` ns after the last record of a thread.
#[inline]
pub(crate) fn put_head(to: &mut Vec<u8>, since: u64, kind: u8) {
    put(to, since.min(LONG) << KIND_BITS | u64::from(kind));
    if since >= LONG {
        put(to, since);
    }
}

/// Writes records to `out`. After a write error, the spool drops all further records, and
/// [`Spool::finish`] returns the error.
pub(crate) struct Spool<W> {
    out: W,
    block: Vec<u8>,
    failed: Option<io::Error>,
}

impl<W: Write> Spool<W> {
    pub(crate) fn new(out: W) -> Spool<W> {
        Spool {
            out,
            block: Vec::with_capacity(2 * BLOCK),
            failed: None,
        }
    }

    /// Adds whole records.
    pub(crate) fn append(&mut self, records: &[u8]) {
        self.block.extend_from_slice(records);
        if self.block.len() >= BLOCK {
            self.flush();
        }
    }

    /// Begins a record, `since` ns after the last record of a thread. Returns the bytes to which the
    /// caller must append the record's numbers.
    #[inline]
    pub(crate) fn record(&mut self, since: u64, kind: u8) -> &mut Vec<u8> {
        if self.block.len() >= BLOCK {
            self.flush();
        }
        put_head(&mut self.block, since, kind);
        &mut self.block
    }

    fn flush(&mut self) {
        if self.failed.is_none() {
            let length = (self.block.len() as u32).to_le_bytes();
            let out = &mut self.out;
            let written = out.write_all(&length);
            let written = written.and_then(|()| out.write_all(&self.block));
            self.failed = written.err();
        }
        self.block.clear();
    }

    /// Writes the last block. Returns `out`, whose position is after that block.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.flush();
        match self.failed {
            Some(error) => Err(error),
            None => Ok(self.out),
        }
    }
}

pub(crate) struct Records<R> {
    from: R,
    block: Vec<u8>,
    at: usize,
    time: u64,
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a record is damaged")
}

impl<R: Read> Records<R> {
    pub(crate) fn new(from: R) -> Records<R> {
        Records {
            from,
            block: Vec::new(),
            at: 0,
            time: 0,
        }
    }

    /// Returns the time and the kind of the next record, or `None` at the end.
    pub(crate) fn next(&mut self) -> io::Result<Option<(u64, u8)>> {
        while self.at >= self.block.len() {
            let mut length = [0; 4];
            match self.from.read(&mut length[..1])? {
                0 => return Ok(None),
                _ => self.from.read_exact(&mut length[1..])?,
            }
            self.block.resize(u32::from_le_bytes(length) as usize, 0);
            self.from.read_exact(&mut self.block)?;
            self.at = 0;
        }
        let first = self.number()?;
        let since = match first >> KIND_BITS {
            LONG => self.number()?,
            since => since,
        };
        let kind = first as u8 & ((1 << KIND_BITS) - 1);
        let time = self.time.wrapping_add(since);
        if kind <= OF_THREADS_MAX {
            self.time = time;
        }
        Ok(Some((time, kind)))
    }

    #[inline]
    pub(crate) fn number(&mut self) -> io::Result<u64> {
        let (mut n, mut shift) = (0, 0);
        loop {
            let byte = *self.block.get(self.at).ok_or_else(damaged)?;
            self.at += 1;
            if shift < u64::BITS {
                n |= u64::from(byte & 0x7f) << shift;
            }
            shift += 7;
            if byte < 0x80 {
                return Ok(n);
            }
        }
    }

    #[inline]
    pub(crate) fn short(&mut self) -> io::Result<u32> {
        Ok(self.number()? as u32)
    }

    pub(crate) fn skip(&mut self, bytes: u64) {
        self.at = self.at.saturating_add(bytes as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spooled_records_are_read_as_they_were_written() {
        let numbers = [0, 1, 127, 128, 1 << 40, u64::MAX];
        let mut spool = Spool::new(Vec::new());
        let (mut times, mut of_thread) = (Vec::new(), 0);
        for round in 0..20_000u64 {
            let kind = (round % 16) as u8;
            let time = if round < 10_000 {
                round * 1000
            } else {
                u64::MAX
            };
            let to = spool.record(time - of_thread, kind);
            numbers.iter().for_each(|n| put(to, *n));
            if kind <= OF_THREADS_MAX {
                of_thread = time;
            }
            times.push((time, kind));
        }
        let mut apart = Vec::new();
        put_head(&mut apart, u64::MAX - of_thread, 3);
        numbers.iter().for_each(|n| put(&mut apart, *n));
        spool.append(&apart);
        times.push((u64::MAX, 3));
        let written = spool.finish().unwrap();
        assert!(written.len() > 2 * BLOCK);
        let mut records = Records::new(written.as_slice());
        for wanted in times {
            assert_eq!(records.next().unwrap(), Some(wanted));
            records.skip(2);
            let rest: Vec<u64> = (2..6).map(|_| records.number().unwrap()).collect();
            assert_eq!(rest, numbers[2..]);
        }
        assert_eq!(records.next().unwrap(), None);
        let mut torn = Records::new(&written[..100]);
        assert!(torn.next().is_err());
    }
}
