//! Reads the logs of `candump -l`: `(1436509052.249713) vcan0 044#2A366C2BBA`, one frame per line, and
//! what `candump` prints: `(1436509052.249713)  vcan0  044   [5]  2A 36 6C 2B BA`.

use super::damage::Damage;
use super::order::Ordered;
use super::{fault, Bytes};
use crate::item::{Kind, Source, SourceError, Stamp, Stream, StreamId};
use std::io::{BufRead, BufReader, Seek};

mod frame;
mod printed;

/// The longest line that is read. The longest line of can-utils has 6.3 kB (CAN XL).
const LONGEST: usize = 8192;
/// The limit for damaged files. No real machine has as many interfaces.
const MOST_INTERFACES: usize = 1024;

/// Reports whether the beginning of a file is a candump log.
pub fn begins(head: &[u8]) -> bool {
    head.split(|&byte| byte == b'\n')
        .take(16)
        .any(|line| Line::parse(line).is_some() || Line::lacks_time(line))
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
            match found.without_time {
                false => "no line has the form (SECONDS.FRACTION) INTERFACE ID#DATA",
                true => {
                    "its lines have no times. Record with candump -l, or print with candump -t a"
                }
            },
        ));
    }
    bytes.rewind().map_err(|error| fault(name, error))?;
    let log = Log {
        name: name.to_owned(),
        lines: Lines::new(bytes),
        streams: found.streams,
        times: found.printed.times(),
        elapsed_ns: 0,
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
    frame: Frame<'a>,
}

#[derive(Clone, Copy)]
enum Frame<'a> {
    /// `044#2A`, as `candump -l` writes it.
    Logged(&'a [u8]),
    /// `044   [1]  2A`, as `candump` prints it.
    Printed(&'a [u8]),
}

impl Frame<'_> {
    fn encode(self, payload: &mut Vec<u8>) -> Result<(), &'static str> {
        match self {
            Frame::Logged(text) => frame::encode(text, payload),
            Frame::Printed(text) => printed::encode(text, payload),
        }
    }
}

/// Splits the name of an interface from the rest of a line. can-utils has names of at most 21
/// characters.
fn interface(rest: &[u8]) -> Option<(&str, &[u8])> {
    let rest = rest.trim_ascii_start();
    let blank = memchr::memchr2(b' ', b'\t', rest)?;
    let name = std::str::from_utf8(&rest[..blank]).ok();
    let name = name.filter(|name| name.len() <= 21)?;
    Some((name, rest[blank..].trim_ascii_start()))
}

impl Line<'_> {
    fn parse(line: &[u8]) -> Option<Line<'_>> {
        let line = line.trim_ascii();
        let line = line.strip_prefix(b"(")?;
        let close = memchr::memchr(b')', &line[..line.len().min(32)])?;
        let time_ns = time(&line[..close])?;
        let (interface, rest) = interface(&line[close + 1..])?;
        if let Some(frame) = printed::find(rest) {
            return Some(Line {
                time_ns,
                interface,
                frame: Frame::Printed(frame),
            });
        }
        let end = memchr::memchr2(b' ', b'\t', rest).unwrap_or(rest.len());
        let frame = &rest[..end];
        memchr::memchr(b'#', &frame[..frame.len().min(9)])?;
        Some(Line {
            time_ns,
            interface,
            frame: Frame::Logged(frame),
        })
    }

    /// Reports whether `candump` printed the line without a time.
    fn lacks_time(line: &[u8]) -> bool {
        let printed = interface(line).and_then(|(_, rest)| printed::find(rest));
        !line.trim_ascii().starts_with(b"(") && printed.is_some()
    }
}

/// Parses `SECONDS.FRACTION`, or a date and a time of day, with one to nine digits of fraction.
/// Returns nanoseconds. A date counts as UTC.
fn time(text: &[u8]) -> Option<i64> {
    let point = memchr::memchr(b'.', text)?;
    let (whole, fraction) = (&text[..point], &text[point + 1..]);
    let seconds = match memchr::memchr(b' ', whole) {
        Some(blank) => date(&whole[..blank])? * 86_400 + time_of_day(&whole[blank + 1..])?,
        None => digits(whole)?,
    };
    if fraction.is_empty() || fraction.len() > 9 {
        return None;
    }
    let mut part = digits(fraction)?;
    for _ in fraction.len()..9 {
        part *= 10;
    }
    seconds.checked_mul(1_000_000_000)?.checked_add(part)
}

/// Parses `2015-07-10`. Returns days since 1970.
fn date(text: &[u8]) -> Option<i64> {
    let mut fields = text.split(|&byte| byte == b'-').map(digits);
    let (year, month, day) = (fields.next()??, fields.next()??, fields.next()??);
    let is_date =
        (1970..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !is_date || fields.next().is_some() {
        return None;
    }
    // Years begin in March, so that the leap day is the last.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let leap_days = year / 4 - year / 100 + year / 400;
    Some(year * 365 + leap_days + (month * 153 + 2) / 5 + day - 1 - 719_468)
}

/// Parses `09:57:32`. Returns seconds.
fn time_of_day(text: &[u8]) -> Option<i64> {
    let mut fields = text.split(|&byte| byte == b':').map(digits);
    let (hour, minute, second) = (fields.next()??, fields.next()??, fields.next()??);
    let is_time = hour < 24 && minute < 60 && second <= 60 && fields.next().is_none();
    is_time.then_some(hour * 3600 + minute * 60 + second)
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
    printed: printed::Survey,
    /// Some lines are frames without a time.
    without_time: bool,
    /// The most that an item is behind an item of an earlier line, in ns.
    back_ns: u64,
}

impl Survey {
    fn of(bytes: impl BufRead) -> std::io::Result<Survey> {
        let mut lines = Lines::new(bytes);
        let mut found = Survey {
            streams: Vec::new(),
            printed: printed::Survey::default(),
            without_time: false,
            back_ns: 0,
        };
        let mut newest = i64::MIN;
        loop {
            match lines.next()? {
                Read::End => {
                    if found.printed.times() == printed::Times::Distances {
                        found.back_ns = 0;
                    }
                    return Ok(found);
                }
                Read::TooLong => continue,
                Read::Line => {}
            }
            let Some(line) = Line::parse(&lines.line) else {
                found.without_time |= Line::lacks_time(&lines.line);
                continue;
            };
            if matches!(line.frame, Frame::Printed(_)) {
                found.printed.add(line.time_ns);
            }
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
    times: printed::Times,
    /// The sum of the distances so far.
    elapsed_ns: i64,
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
                self.skip(match Line::lacks_time(&self.lines.line) {
                    true => "lines without a time, not replayed",
                    false => "lines not of the form (SECONDS.FRACTION) INTERFACE ID#DATA",
                });
                continue;
            };
            let time_ns = match self.times {
                printed::Times::Absolute => line.time_ns,
                printed::Times::Distances => {
                    self.elapsed_ns = self.elapsed_ns.saturating_add(line.time_ns);
                    self.elapsed_ns
                }
            };
            let read = place(&self.streams, line.interface)
                .ok_or("lines of interfaces beyond the first 1024, not replayed")
                .and_then(|at| line.frame.encode(payload).map(|()| at));
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
