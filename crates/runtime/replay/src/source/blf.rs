//! Reads BLF logs, the binary format of Vector's tools: CAN and CAN FD frames, remote and error
//! frames, and Ethernet packets, in compressed containers.

use super::calendar::days;
use super::channels::Channels;
use super::damage::Damage;
use super::order::{self, Survey};
use super::{fault, Bytes};
use crate::item::{Details, Source, SourceError, Stamp, Stream};
use containers::{Containers, PADDING};
use object::{Use, HEADER, SIGNATURE};
use std::io::{BufRead, BufReader, Read, SeekFrom};

mod containers;
mod object;

/// The first bytes of every BLF file.
pub const MAGIC: &[u8] = b"LOGG";

const FILE_HEADER: usize = 56;
const USUAL_HEADER: u32 = 144;
/// The maximum size of an object with a frame, in bytes. An Ethernet packet has at most 64 KiB.
const LONGEST_FRAME: usize = 1 << 20;
/// The maximum size of an object without a frame, in bytes. onbeat skips such an object without
/// storing it in memory.
const LONGEST: u32 = 64 << 20;

/// Opens a BLF log. Reads the log twice: in the first pass, `survey` finds how far items are out of
/// order, and the reader finds the channels.
///
/// # Errors
/// Fails if the file cannot be read, or has no frame.
pub fn read<R: Bytes + 'static>(
    name: &str,
    bytes: R,
    survey: &mut Survey,
) -> Result<Box<dyn Source>, SourceError> {
    let bytes = BufReader::with_capacity(256 << 10, bytes);
    let mut first = open(name, bytes, Channels::default())?;
    let back_ns = survey.read(&mut first)?;
    if first.channels.streams().is_empty() {
        let what = "the log has no CAN or Ethernet frame";
        return Err(first.damage.refusal(name, what));
    }
    let log = open(name, first.containers.into_bytes(), first.channels)?;
    Ok(order::sorted(log, back_ns))
}

fn open<R: Bytes>(
    name: &str,
    mut bytes: BufReader<R>,
    channels: Channels,
) -> Result<Log<BufReader<R>>, SourceError> {
    let header = Header::of(&mut bytes).map_err(|error| fault(name, error))?;
    Ok(Log {
        name: name.to_owned(),
        containers: Containers::new(bytes, header.size),
        begin_ns: header.begin_ns,
        objects: Objects::default(),
        channels,
        is_sent: false,
        damage: Damage::default(),
        ended: false,
    })
}

struct Header {
    size: u64,
    /// The beginning of the log in ns since 1970, or 0 if the log does not state it. The log has no
    /// time zone, so onbeat takes its time as UTC.
    begin_ns: i64,
}

impl Header {
    fn of(bytes: &mut (impl Read + std::io::Seek)) -> std::io::Result<Header> {
        bytes.rewind()?;
        let mut head = Vec::with_capacity(FILE_HEADER);
        bytes
            .by_ref()
            .take(FILE_HEADER as u64)
            .read_to_end(&mut head)?;
        head.resize(FILE_HEADER, 0);
        let size = match object::number(&head, 4) {
            size if (FILE_HEADER as u32..=64 << 10).contains(&size) => size,
            _ => USUAL_HEADER,
        };
        bytes.seek(SeekFrom::Start(size.into()))?;
        Ok(Header {
            size: size.into(),
            begin_ns: begin(&head[40..]).unwrap_or(0),
        })
    }
}

/// Converts a `SYSTEMTIME` of Windows, taken as UTC, to ns since 1970. A `SYSTEMTIME` consists of
/// year, month, day of the week, day, hour, minute, second and millisecond.
fn begin(time: &[u8]) -> Option<i64> {
    let field = |at: usize| i64::from(u16::from_le_bytes([time[2 * at], time[2 * at + 1]]));
    let days = days(field(0), field(1), field(3))?;
    let (hour, minute, second, millisecond) = (field(4), field(5), field(6), field(7));
    if hour >= 24 || minute >= 60 || second > 60 || millisecond >= 1000 {
        return None;
    }
    let seconds = days * 86_400 + hour * 3600 + minute * 60 + second;
    (seconds * 1000 + millisecond).checked_mul(1_000_000)
}

struct Log<R> {
    name: String,
    containers: Containers<R>,
    begin_ns: i64,
    objects: Objects,
    channels: Channels,
    is_sent: bool,
    damage: Damage,
    ended: bool,
}

#[derive(Default)]
struct Objects {
    plain: Vec<u8>,
    start: usize,
    left: u64,
    skipped: u64,
    container: u64,
}

enum Next {
    /// An object with a frame. The value is the index in `plain` (the unpacked bytes) at which the
    /// object ends.
    Frame(usize),
    More,
}

impl Objects {
    fn place(&self) -> String {
        format!("in the container at byte {}", self.container)
    }

    fn next(&mut self, damage: &mut Damage) -> Next {
        loop {
            let there = &self.plain[self.start..];
            let passed = self.left.min(there.len() as u64);
            if passed > 0 {
                self.start += passed as usize;
                self.left -= passed;
                continue;
            }
            if !self.signature(damage) {
                return Next::More;
            }
            let there = &self.plain[self.start..];
            if there.len() < HEADER {
                return Next::More;
            }
            let (size, kind) = (object::number(there, 8), object::number(there, 12));
            let longest = match object::use_of(kind) {
                Use::Frame => LONGEST_FRAME as u32,
                Use::Counted(_) | Use::Ignored => LONGEST,
            };
            if size < HEADER as u32 || size > longest {
                damage.add("objects with an impossible size, skipped", || self.place());
                self.start += SIGNATURE.len();
                continue;
            }
            match object::use_of(kind) {
                Use::Frame if there.len() < size as usize => return Next::More,
                Use::Frame => return Next::Frame(self.start + size as usize),
                Use::Counted(what) => damage.add(what, || format!("kind {kind} {}", self.place())),
                Use::Ignored => {}
            }
            self.left = size.into();
        }
    }

    fn signature(&mut self, damage: &mut Damage) -> bool {
        let there = &self.plain[self.start..];
        let near = there.windows(SIGNATURE.len()).take(PADDING as usize + 1);
        let found = near
            .enumerate()
            .find(|(_, window)| window == SIGNATURE)
            .map(|(at, _)| at);
        let found = found.or_else(|| memchr::memmem::find(there, SIGNATURE));
        let passed = found.unwrap_or(there.len().saturating_sub(SIGNATURE.len() - 1));
        self.start += passed;
        self.skipped += passed as u64;
        if found.is_some() {
            self.count_skipped(damage);
        }
        found.is_some()
    }

    fn count_skipped(&mut self, damage: &mut Damage) {
        if self.skipped > PADDING {
            damage.add("bytes between objects, skipped", || self.place());
        }
        self.skipped = 0;
    }

    fn drop_rest(&mut self, damage: &mut Damage) {
        let is_torn = self.plain.len() - self.start >= SIGNATURE.len() || self.left > 0;
        if is_torn {
            damage.add("objects that are cut off by missing bytes", || self.place());
        }
        self.count_skipped(damage);
        self.start = self.plain.len();
        self.left = 0;
    }
}

impl<R: BufRead> Log<R> {
    fn fill(&mut self) -> std::io::Result<bool> {
        let found = self.containers.find(&mut self.damage)?;
        let objects = &mut self.objects;
        let Some(found) = found else {
            objects.drop_rest(&mut self.damage);
            return Ok(false);
        };
        if found.follows_gap {
            objects.drop_rest(&mut self.damage);
        }
        objects.plain.drain(..objects.start);
        objects.start = 0;
        objects.container = found.at;
        let plain = &mut objects.plain;
        self.containers.unpack(&found, plain, &mut self.damage)?;
        Ok(true)
    }

    fn frame(&mut self, end: usize, payload: &mut Vec<u8>) -> Result<Stamp, &'static str> {
        let object = &self.objects.plain[self.objects.start..end];
        self.objects.start = end;
        let frame = object::encode(object, payload)?;
        let stream = self.channels.stream(frame.bus, frame.channel)?;
        self.is_sent = frame.is_sent;
        Ok(Stamp {
            time_ns: self.begin_ns.saturating_add(frame.since_ns),
            stream,
        })
    }
}

impl<R: BufRead + Send> Source for Log<R> {
    fn streams(&self) -> &[Stream] {
        self.channels.streams()
    }

    fn next(&mut self, payload: &mut Vec<u8>) -> Result<Option<Stamp>, SourceError> {
        payload.clear();
        while !self.ended {
            match self.objects.next(&mut self.damage) {
                Next::Frame(end) => match self.frame(end, payload) {
                    Ok(stamp) => return Ok(Some(stamp)),
                    Err(what) => self.damage.add(what, || self.objects.place()),
                },
                Next::More => match self.fill() {
                    Ok(true) => {}
                    Ok(false) => self.ended = true,
                    Err(error) => {
                        self.ended = true;
                        return Err(fault(&self.name, error));
                    }
                },
            }
        }
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

#[cfg(test)]
mod tests;
