//! Reads ASC logs of Vector's tools and of those that imitate them: CAN and CAN FD frames, remote and
//! error frames of several channels.

use super::damage::Damage;
use super::lines::{Lines, Read};
use super::order::Ordered;
use super::{fault, Bytes};
use crate::item::{Kind, Source, SourceError, Stamp, Stream, StreamId};
use header::Header;
use std::io::{BufRead, BufReader, Seek};

mod frame;
mod header;

const MOST_CHANNELS: usize = 256;

/// Returns whether a file that begins with these bytes is an ASC log.
pub fn begins(head: &[u8]) -> bool {
    let mut header = Header::default();
    head.split(|&byte| byte == b'\n')
        .take(16)
        .any(|line| header.take(line.trim_ascii()) && header.is_stated())
}

/// Opens an ASC log. The log is read twice: a first pass finds the channels, and how far items are
/// out of order.
///
/// # Errors
/// Fails if the file cannot be read, or has no frame.
pub fn read<R: Bytes + 'static>(name: &str, bytes: R) -> Result<Box<dyn Source>, SourceError> {
    let bytes = BufReader::with_capacity(256 << 10, bytes);
    let mut survey = Log::new(name, bytes, Vec::new());
    let mut payload = Vec::new();
    let (mut newest, mut back_ns) = (i64::MIN, 0);
    while let Some(stamp) = survey.next(&mut payload)? {
        if stamp.time_ns < newest {
            back_ns = newest.abs_diff(stamp.time_ns).max(back_ns);
        }
        newest = newest.max(stamp.time_ns);
    }
    if survey.streams.is_empty() {
        let damage = survey.damage.sentences().first();
        let damage = damage.map_or(String::new(), |damage| format!(". {damage}"));
        return Err(fault(name, format!("the log has no frame of CAN{damage}")));
    }
    let mut bytes = survey.lines.into_bytes();
    bytes.rewind().map_err(|error| fault(name, error))?;
    let log = Log::new(name, bytes, survey.streams);
    Ok(match back_ns {
        0 => Box::new(log),
        back_ns => Box::new(Ordered::new(log, back_ns)),
    })
}

struct Log<R> {
    name: String,
    lines: Lines<R>,
    header: Header,
    last_ns: i64,
    streams: Vec<Stream>,
    /// The stream for each channel number, or `None` for a channel without frames so far.
    channels: [Option<u8>; MOST_CHANNELS],
    damage: Damage,
    ended: bool,
}

impl<R: BufRead> Log<R> {
    fn new(name: &str, bytes: R, streams: Vec<Stream>) -> Log<R> {
        Log {
            name: name.to_owned(),
            lines: Lines::new(bytes),
            header: Header::default(),
            last_ns: 0,
            streams,
            channels: [None; MOST_CHANNELS],
            damage: Damage::default(),
            ended: false,
        }
    }

    fn stream(&mut self, channel: u8) -> StreamId {
        let at = &mut self.channels[usize::from(channel)];
        let at = *at.get_or_insert_with(|| {
            let name = format!("can{channel}");
            let known = self.streams.iter().position(|stream| stream.name == name);
            let at = known.unwrap_or(self.streams.len());
            if known.is_none() {
                let kind = Kind::Can;
                self.streams.push(Stream { name, kind });
            }
            at as u8
        });
        StreamId(at.into())
    }

    /// Reads one line. Returns the stamp of the line's frame, and puts the frame's bytes into `payload`.
    fn line(&mut self, payload: &mut Vec<u8>) -> Result<Option<Stamp>, &'static str> {
        let line = self.lines.line.trim_ascii();
        if line.is_empty() || self.header.take(line) {
            return Ok(None);
        }
        let Some((since_ns, event)) = frame::event(line) else {
            return match frame::is_remark(line) {
                true => Ok(None),
                false => Err("lines without a time, not replayed"),
            };
        };
        let since_ns = match self.header.is_relative {
            true => self.last_ns.saturating_add(since_ns),
            false => since_ns,
        };
        self.last_ns = since_ns;
        let Some(channel) = frame::encode(event, self.header.base, payload)? else {
            return Ok(None);
        };
        let time_ns = self.header.begin_ns().saturating_add(since_ns);
        let stream = self.stream(channel);
        Ok(Some(Stamp { time_ns, stream }))
    }
}

impl<R: BufRead + Send> Source for Log<R> {
    fn streams(&self) -> &[Stream] {
        &self.streams
    }

    fn next(&mut self, payload: &mut Vec<u8>) -> Result<Option<Stamp>, SourceError> {
        payload.clear();
        while !self.ended {
            let result = match self.lines.next() {
                Ok(Read::Line) => self.line(payload),
                Ok(Read::TooLong) => Err("lines too long for a frame"),
                Ok(Read::End) => break,
                Err(error) => {
                    self.ended = true;
                    return Err(fault(&self.name, error));
                }
            };
            match result {
                Ok(Some(stamp)) => return Ok(Some(stamp)),
                Ok(None) => {}
                Err(what) => {
                    let number = self.lines.number;
                    self.damage.add(what, || format!("line {number}"));
                }
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

#[cfg(test)]
mod tests;
