//! Reads the logs of `candump -l`: `(1436509052.249713) vcan0 044#2A366C2BBA`, one frame per line.

use super::damage::Damage;
use super::order::Ordered;
use super::{fault, Bytes};
use crate::item::{Kind, Source, SourceError, Stamp, Stream, StreamId};
use std::io::{BufRead, BufReader, Seek};

mod frame;

/// The longest line that is read. The longest line of can-utils has 6.3 kB (CAN XL).
const LONGEST: usize = 8192;
/// The limit for damaged files. No real machine has as many interfaces.
const MOST_INTERFACES: usize = 1024;

/// Reports whether the beginning of a file is a candump log.
pub fn begins(head: &[u8]) -> bool {
    head.split(|&byte| byte == b'\n')
        .take(16)
        .any(|line| Line::parse(line).is_some())
}

/// Opens a log. It is read twice. The first pass finds its interfaces, and how far items are out of
/// order.
///
/// # Errors
/// Fails if the file cannot be read, or contains no line of a log.
pub fn read<R: Bytes + 'static>(name: &str, bytes: R) -> Result<Box<dyn Source>, SourceError> {
    let mut bytes = BufReader::with_capacity(256 << 10, bytes);
    let found = Survey::of(&mut bytes).map_err(|error| fault(name, error))?;
    if found.streams.is_empty() {
        return Err(fault(
            name,
            "no line has the form (SECONDS.FRACTION) INTERFACE ID#DATA",
        ));
    }
    bytes.rewind().map_err(|error| fault(name, error))?;
    let log = Log {
        name: name.to_owned(),
        lines: Lines::new(bytes),
        streams: found.streams,
        damage: Damage::default(),
        ended: false,
    };
    Ok(match found.back_ns {
        0 => Box::new(log),
        back_ns => Box::new(Ordered::new(log, back_ns)),
    })
}

struct Line<'a> {
    time_ns: i64,
    interface: &'a str,
    frame: &'a [u8],
}

impl Line<'_> {
    fn parse(line: &[u8]) -> Option<Line<'_>> {
        let line = line.trim_ascii();
        let line = line.strip_prefix(b"(")?;
        let close = memchr::memchr(b')', &line[..line.len().min(32)])?;
        let time_ns = time(&line[..close])?;
        let rest = line[close + 1..].trim_ascii_start();
        let blank = memchr::memchr2(b' ', b'\t', rest)?;
        // can-utils has names of at most 21 characters.
        let interface = std::str::from_utf8(&rest[..blank])
            .ok()
            .filter(|name| name.len() <= 21)?;
        let rest = rest[blank..].trim_ascii_start();
        let end = memchr::memchr2(b' ', b'\t', rest).unwrap_or(rest.len());
        let frame = &rest[..end];
        memchr::memchr(b'#', &frame[..frame.len().min(9)])?;
        Some(Line {
            time_ns,
            interface,
            frame,
        })
    }
}

/// Parses `SECONDS.FRACTION` with one to nine digits of fraction. Returns nanoseconds.
fn time(text: &[u8]) -> Option<i64> {
    let point = memchr::memchr(b'.', text)?;
    let (seconds, fraction) = (&text[..point], &text[point + 1..]);
    if fraction.is_empty() || fraction.len() > 9 {
        return None;
    }
    let mut part = digits(fraction)?;
    for _ in fraction.len()..9 {
        part *= 10;
    }
    digits(seconds)?
        .checked_mul(1_000_000_000)?
        .checked_add(part)
}

fn digits(text: &[u8]) -> Option<i64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0i64, |number, &byte| {
        let digit = byte.wrapping_sub(b'0');
        (digit < 10).then(|| number.checked_mul(10)?.checked_add(i64::from(digit)))?
    })
}

struct Lines<R> {
    bytes: R,
    line: Vec<u8>,
    number: u64,
}

enum Read {
    Line,
    TooLong,
    End,
}

impl<R: BufRead> Lines<R> {
    fn new(bytes: R) -> Lines<R> {
        Lines {
            bytes,
            line: Vec::with_capacity(LONGEST),
            number: 0,
        }
    }

    fn next(&mut self) -> std::io::Result<Read> {
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

struct Survey {
    streams: Vec<Stream>,
    /// The most that an item is behind an item of an earlier line, in ns.
    back_ns: u64,
}

impl Survey {
    fn of(bytes: impl BufRead) -> std::io::Result<Survey> {
        let mut lines = Lines::new(bytes);
        let mut found = Survey {
            streams: Vec::new(),
            back_ns: 0,
        };
        let mut newest = i64::MIN;
        loop {
            match lines.next()? {
                Read::End => return Ok(found),
                Read::TooLong => continue,
                Read::Line => {}
            }
            let Some(line) = Line::parse(&lines.line) else {
                continue;
            };
            if line.time_ns < newest {
                found.back_ns = found.back_ns.max(newest.abs_diff(line.time_ns));
            }
            newest = newest.max(line.time_ns);
            if place(&found.streams, line.interface).is_none()
                && found.streams.len() < MOST_INTERFACES
            {
                found.streams.push(Stream {
                    name: line.interface.to_owned(),
                    kind: Kind::Can,
                });
            }
        }
    }
}

/// There are few interfaces, so a linear search is faster than a table.
fn place(streams: &[Stream], interface: &str) -> Option<u32> {
    let at = streams.iter().position(|stream| stream.name == interface)?;
    u32::try_from(at).ok()
}

struct Log<R> {
    name: String,
    lines: Lines<R>,
    streams: Vec<Stream>,
    damage: Damage,
    ended: bool,
}

impl<R: BufRead + Send> Source for Log<R> {
    fn streams(&self) -> &[Stream] {
        &self.streams
    }

    fn next(&mut self, payload: &mut Vec<u8>) -> Result<Option<Stamp>, SourceError> {
        payload.clear();
        while !self.ended {
            match self.lines.next() {
                Ok(Read::Line) => {}
                Ok(Read::End) => break,
                Ok(Read::TooLong) => {
                    self.skip("lines too long for a frame");
                    continue;
                }
                Err(error) => {
                    self.ended = true;
                    return Err(fault(&self.name, error));
                }
            }
            if self.lines.line.trim_ascii().is_empty() {
                continue;
            }
            let Some(line) = Line::parse(&self.lines.line) else {
                self.skip("lines not of the form (SECONDS.FRACTION) INTERFACE ID#DATA");
                continue;
            };
            let time_ns = line.time_ns;
            let read = place(&self.streams, line.interface)
                .ok_or("lines of interfaces beyond the first 1024, not replayed")
                .and_then(|at| frame::encode(line.frame, payload).map(|()| at));
            match read {
                Ok(at) => {
                    return Ok(Some(Stamp {
                        time_ns,
                        stream: StreamId(at),
                    }))
                }
                Err(what) => self.skip(what),
            }
        }
        self.ended = true;
        payload.clear();
        Ok(None)
    }

    fn damage(&self) -> &[String] {
        self.damage.sentences()
    }
}

impl<R> Log<R> {
    fn skip(&mut self, what: &'static str) {
        let number = self.lines.number;
        self.damage.add(what, || format!("line {number}"));
    }
}

#[cfg(test)]
mod tests;
