//! Reads the logs of `candump -l`: `(1436509052.249713) vcan0 044#2A366C2BBA`, one frame per line,
//! and what `candump` prints: `(1436509052.249713)  vcan0  044   [5]  2A 36 6C 2B BA`.

use super::calendar;
use super::damage::Damage;
use super::lines::{Lines, Read};
use super::{fault, order, Bytes};
use crate::item::{Details, Kind, Source, SourceError, Stamp, Stream, StreamId};
use std::io::{BufRead, BufReader, Seek};

mod frame;
mod printed;

const MOST_INTERFACES: usize = 1024;

/// Returns whether a file that begins with these bytes is a candump log.
pub fn begins(head: &[u8]) -> bool {
    head.split(|&byte| byte == b'\n')
        .take(16)
        .any(|line| Line::parse(line).is_some() || Line::lacks_time(line))
}

/// Opens a candump log. Reads the log twice: the first pass finds the interfaces, and how far items
/// are out of order.
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
                    "the log's lines have no times. Record with candump -l, or print with candump -t a"
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
        is_sent: false,
        damage: Damage::default(),
        ended: false,
    };
    Ok(order::sorted(log, found.back_ns))
}

struct Line<'a> {
    time_ns: i64,
    interface: &'a str,
    frame: Frame<'a>,
    /// True if the line says that the recorder's own host sent the frame (`candump -x`).
    is_sent: bool,
}

#[derive(Clone, Copy)]
enum Frame<'a> {
    /// The text of a frame such as `044#2A`, as `candump -l` writes it.
    Logged(&'a [u8]),
    /// A frame such as `044 [1] 2A`, as `candump` prints it.
    Printed(printed::Found<'a>),
}

impl Frame<'_> {
    fn encode(self, payload: &mut Vec<u8>) -> Result<(), &'static str> {
        match self {
            Frame::Logged(text) => frame::encode(text, payload),
            Frame::Printed(found) => printed::encode(found, payload),
        }
    }
}

/// Splits a line into the name of an interface and the rest. Names in can-utils have at most 21
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
                is_sent: rest.starts_with(b"TX"),
            });
        }
        let end = memchr::memchr2(b' ', b'\t', rest).unwrap_or(rest.len());
        let frame = &rest[..end];
        memchr::memchr(b'#', &frame[..frame.len().min(9)])?;
        Some(Line {
            time_ns,
            interface,
            frame: Frame::Logged(frame),
            is_sent: rest[end..].trim_ascii() == b"T",
        })
    }

    fn lacks_time(line: &[u8]) -> bool {
        let printed = interface(line).and_then(|(_, rest)| printed::find(rest));
        !line.trim_ascii().starts_with(b"(") && printed.is_some()
    }
}

/// Parses `SECONDS.FRACTION`, or a date and a time of day. The fraction has one to nine digits.
/// Returns ns since 1970. A date counts as UTC.
fn time(text: &[u8]) -> Option<i64> {
    let point = memchr::memchr(b'.', text)?;
    let (whole, fraction) = (&text[..point], &text[point + 1..]);
    let seconds = match memchr::memchr(b' ', whole) {
        Some(blank) => {
            let date = calendar::date(&whole[..blank])?;
            date * 86_400 + calendar::time_of_day(&whole[blank + 1..])?
        }
        None => calendar::digits(whole)?,
    };
    seconds
        .checked_mul(1_000_000_000)?
        .checked_add(calendar::fraction(fraction)?)
}

struct Survey {
    streams: Vec<Stream>,
    printed: printed::Survey,
    without_time: bool,
    /// The largest difference in ns by which an item is earlier than an item in a previous line.
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

/// Returns the index of the interface's stream. There are few interfaces, so a linear search is
/// faster than a hash table.
fn place(streams: &[Stream], interface: &str) -> Option<u32> {
    let at = streams.iter().position(|stream| stream.name == interface)?;
    u32::try_from(at).ok()
}

struct Log<R> {
    name: String,
    lines: Lines<R>,
    streams: Vec<Stream>,
    times: printed::Times,
    elapsed_ns: i64,
    is_sent: bool,
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
                    self.is_sent = line.is_sent;
                    return Ok(Some(Stamp {
                        time_ns,
                        stream: StreamId(at),
                    }));
                }
                Err(what) => self.skip(what),
            }
        }
        self.ended = true;
        payload.clear();
        Ok(None)
    }

    fn details(&self) -> Details {
        Details {
            is_sent: self.is_sent,
            ..Details::default()
        }
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
