//! Reads text files line by line, with a limit for the length of a line.

use std::io::BufRead;

/// The longest line that is read, in bytes. The longest line of can-utils has 6.3 kB (CAN XL).
const LONGEST: usize = 8192;

pub struct Lines<R> {
    bytes: R,
    pub line: Vec<u8>,
    pub number: u64,
}

pub enum Read {
    Line,
    TooLong,
    End,
}

impl<R: BufRead> Lines<R> {
    pub fn new(bytes: R) -> Lines<R> {
        Lines {
            bytes,
            line: Vec::with_capacity(LONGEST),
            number: 0,
        }
    }

    pub fn into_bytes(self) -> R {
        self.bytes
    }

    pub fn next(&mut self) -> std::io::Result<Read> {
        self.line.clear();
        let mut any = false;
        let mut fits = true;
        loop {
            let filled = self.bytes.fill_buf()?;
            if filled.is_empty() {
                break;
            }
            any = true;
            let end = memchr::memchr(b'\n', filled);
            let part = &filled[..end.unwrap_or(filled.len())];
            fits &= self.line.len() + part.len() <= LONGEST;
            if fits {
                self.line.extend_from_slice(part);
            }
            let used = part.len() + usize::from(end.is_some());
            self.bytes.consume(used);
            if end.is_some() {
                break;
            }
        }
        self.number += u64::from(any);
        Ok(match (any, fits) {
            (false, _) => Read::End,
            (true, true) => Read::Line,
            (true, false) => Read::TooLong,
        })
    }
}
