//! Reads the records of a data group one after another, and finds the data bytes of CAN frames that
//! are stored elsewhere.

use super::input::Input;
use super::layout::{Arrival, Field, Frame, Layout, Span, Usual, SEEN};
use super::stream::{Found, Stream};
use crate::source::{can, Bytes};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::Result;

/// The maximum number of a group's frames that wait for their data bytes, and of data bytes that
/// wait for their frame. Recorders write both close together.
const MOST_WAITING: usize = 4096;
const NO_DATA: &str = "frames without their data bytes, which are missing or damaged";
const TORN: &str = "incomplete records at the end of the data of their group";

/// The records of a data group. In an unsorted data group, the records of several channel groups
/// are mixed, and each begins with the number of its group.
pub struct Records {
    stream: Stream,
    at: u64,
    id_size: usize,
    groups: Vec<Group>,
    /// Maps the number of a group in the file to its index in `groups`.
    numbers: HashMap<u64, usize>,
    latest: usize,
    ended: bool,
}

/// A channel group. All its records have the same form.
pub struct Group {
    pub at: u64,
    pub id: u64,
    pub name: String,
    /// The number of records that the file states for the group.
    pub stated: u64,
    pub size: usize,
    pub role: Use,
}

pub enum Use {
    Frames(Box<Frames>),
    /// The records are values of variable length: the data bytes of another group's frames. The
    /// variant contains the index of that group, or `None` if no group refers to these values.
    Values(Option<usize>),
    /// The records are not played. The report of the recording's damage counts them under this
    /// sentence.
    Skipped(&'static str),
}

impl Group {
    pub fn shown(&self) -> String {
        match self.name.is_empty() {
            true => format!("group at byte {}", self.at),
            false => format!("group {}", self.name),
        }
    }
}

/// The place of the data bytes of a group's frames.
pub enum DataBytes {
    None,
    Inside(Span),
    /// The data bytes are in a stream of values. The field `key` contains their position in the
    /// stream.
    Stream {
        stream: Box<Stream>,
        key: Field,
    },
    /// The data bytes are in the records of another group, at the link `at`. The field `key`
    /// contains their position in these records, as if the records were a stream.
    Group {
        at: u64,
        key: Field,
    },
}

/// The frames of a group, and the data bytes that wait for them.
pub struct Frames {
    layout: Layout,
    /// The layout again, if it is a usual one.
    usual: Option<Usual>,
    pub data: DataBytes,
    read: u64,
    /// The data bytes whose frame was not found yet, each with its key. The key is the position of
    /// the bytes, or their number if the file has no positions.
    values: VecDeque<(u64, Value)>,
    waiting: BTreeMap<u64, Frame>,
    /// The key of the data bytes that are read next: their position, or their number if the file
    /// has no positions.
    next_value: u64,
}

#[derive(Clone, Copy)]
struct Value {
    bytes: [u8; can::FD_DATA],
    length: u8,
}

impl Value {
    fn of(bytes: &[u8]) -> Value {
        let length = bytes.len().min(can::FD_DATA);
        let mut value = Value {
            bytes: [0; can::FD_DATA],
            length: length as u8,
        };
        value.bytes[..length].copy_from_slice(&bytes[..length]);
        value
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl Frames {
    pub fn new(layout: Layout, data: DataBytes) -> Frames {
        let usual = match data {
            DataBytes::Inside(span) => Usual::of(&layout, span),
            _ => None,
        };
        Frames {
            layout,
            usual,
            data,
            read: 0,
            values: VecDeque::new(),
            waiting: BTreeMap::new(),
            next_value: 0,
        }
    }

    /// Reads a record of a frame. Writes the frame to `payload` and returns its time and channel,
    /// or returns `None` if the frame waits for its data bytes.
    fn record<R: Bytes>(
        &mut self,
        input: &mut Input<R>,
        record: &[u8],
        payload: &mut Vec<u8>,
    ) -> Result<std::result::Result<Option<Arrival>, &'static str>> {
        let number = self.read;
        self.read += 1;
        let frame = match self.layout.frame(record, number) {
            Ok(frame) => frame,
            Err(what) => return Ok(Err(what)),
        };
        let mut found: &[u8] = &[];
        if frame.needs_data() {
            match &mut self.data {
                DataBytes::None => {}
                DataBytes::Inside(Span { at, size }) => {
                    found = &record[*at..][..(*size).min(can::FD_DATA)];
                }
                DataBytes::Stream { stream, key } => {
                    let value = match key.bits(record) {
                        Some(at) => value_at(stream, input, at)?,
                        None => None,
                    };
                    match value {
                        Some(value) => found = value,
                        None => return Ok(Err(NO_DATA)),
                    }
                }
                DataBytes::Group { key, .. } => {
                    let key = match input.has_no_positions {
                        true => Some(number),
                        false => key.bits(record),
                    };
                    let Some(key) = key else {
                        return Ok(Err(NO_DATA));
                    };
                    match self.values.binary_search_by_key(&key, |(key, _)| *key) {
                        Ok(at) => found = self.values[at].1.bytes(),
                        Err(_) => return Ok(self.wait(key, frame).map(|()| None)),
                    }
                }
            }
        }
        Ok(frame.write(found, payload).map(|()| Some(frame.arrival())))
    }

    fn wait(&mut self, key: u64, frame: Frame) -> std::result::Result<(), &'static str> {
        let replaced = self.waiting.insert(key, frame);
        let dropped = match self.waiting.len() > MOST_WAITING {
            true => self.waiting.pop_first().map(|(_, frame)| frame),
            false => replaced,
        };
        dropped.map_or(Ok(()), |_| Err(NO_DATA))
    }

    /// Adds the data bytes that come next in the file. If a frame waits for these bytes, writes the
    /// frame to `payload` and returns its time and channel.
    fn value(
        &mut self,
        value: Value,
        length: u64,
        is_numbered: bool,
        payload: &mut Vec<u8>,
    ) -> std::result::Result<Option<Arrival>, &'static str> {
        let key = self.next_value;
        self.next_value += if is_numbered { 1 } else { 4 + length };
        if let Some(frame) = self.waiting.remove(&key) {
            let written = frame.write(value.bytes(), payload);
            return written.map(|()| Some(frame.arrival()));
        }
        self.values.push_back((key, value));
        if self.values.len() > MOST_WAITING {
            self.values.pop_front();
        }
        Ok(None)
    }
}

/// Reads the value at position `at` of a stream: its length, then its bytes. Returns `None` if the
/// stream does not contain all of them.
fn value_at<'a, R: Bytes>(
    stream: &'a mut Stream,
    input: &mut Input<R>,
    at: u64,
) -> Result<Option<&'a [u8]>> {
    if stream.find(input, at, 4)? != Found::Here {
        return Ok(None);
    }
    let length = number(stream.bytes(at, 4)).min(can::FD_DATA as u64) as usize;
    // `at + 4` cannot overflow, because the four bytes before it are in memory.
    let found = stream.find(input, at + 4, length)?;
    Ok((found == Found::Here).then(|| stream.bytes(at + 4, length)))
}

/// Reads a little-endian number of at most eight bytes.
fn number(bytes: &[u8]) -> u64 {
    let mut wide = [0; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(wide)
}

enum Step {
    Frame(Arrival),
    Nothing,
    /// A record is faulty. The first value is the index of its group, the second the kind of fault.
    Fault(usize, &'static str),
    End,
}

impl Records {
    pub fn new(stream: Stream, id_size: usize, groups: Vec<Group>) -> Records {
        let numbers = groups.iter().enumerate().rev();
        let numbers = numbers.map(|(at, group)| (group.id, at)).collect();
        Records {
            stream,
            at: 0,
            id_size,
            groups,
            numbers,
            latest: 0,
            ended: false,
        }
    }

    /// Reads records up to the next frame, and writes the frame to `payload`. Returns the frame's
    /// time and channel, or `None` at the end of the data group.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    #[inline(never)]
    pub fn next<R: Bytes>(
        &mut self,
        input: &mut Input<R>,
        payload: &mut Vec<u8>,
    ) -> Result<Option<Arrival>> {
        while !self.ended {
            let step = match self.group(input)? {
                None => Step::End,
                Some(group) => match self.groups[group].role {
                    Use::Values(owner) => self.value(input, owner, payload)?,
                    Use::Frames(_) | Use::Skipped(_) => self.record(input, group, payload)?,
                },
            };
            match step {
                Step::Frame(frame) => return Ok(Some(frame)),
                Step::Nothing => {}
                Step::Fault(group, what) => {
                    let group = &self.groups[group];
                    input.damage.add(what, || group.shown());
                }
                Step::End => self.end(input)?,
            }
        }
        Ok(None)
    }

    /// Reads the next record if it is in memory and is a frame in a usual layout. Writes the frame to
    /// `payload`, and returns its time and channel. Returns `None` if the record must be read in
    /// another way.
    #[inline(always)]
    pub fn usual(&mut self, is_unfinished: bool, payload: &mut Vec<u8>) -> Option<Arrival> {
        let index = match self.id_size {
            0 => 0,
            // The number of a group has one, two, four or eight bytes.
            size => {
                let eight = self.stream.held(self.at, 8)?.first_chunk()?;
                let id = u64::from_le_bytes(*eight) & u64::MAX >> (64 - 8 * size);
                if self.groups.get(self.latest)?.id != id {
                    return None;
                }
                self.latest
            }
        };
        let group = self.groups.get_mut(index)?;
        let Use::Frames(frames) = &mut group.role else {
            return None;
        };
        if self.id_size == 0 && frames.read >= group.stated && !is_unfinished {
            return None;
        }
        let at = self.at + self.id_size as u64;
        let record = self.stream.held(at, SEEN.max(group.size))?.first_chunk()?;
        let arrival = frames.usual.as_ref()?.read(record, payload)?;
        frames.read += 1;
        self.at = at + group.size as u64;
        Some(arrival)
    }

    /// Returns the index of the group to which the next record belongs, or `None` at the end of the
    /// records.
    fn group<R: Bytes>(&mut self, input: &mut Input<R>) -> Result<Option<usize>> {
        if self.id_size == 0 {
            let next = self.groups.first().filter(|group| {
                let is_counted = match group.role {
                    Use::Frames(ref frames) => frames.read < group.stated,
                    Use::Values(_) | Use::Skipped(_) => true,
                };
                group.size > 0 && (is_counted || input.is_unfinished)
            });
            return Ok(next.map(|_| 0));
        }
        match self.stream.find(input, self.at, self.id_size)? {
            Found::Here => {}
            Found::Lost(_) => {
                input.damage.add(
                    "data groups that mix the records of several channel groups, read only up to damaged data",
                    || self.shown(),
                );
                return Ok(None);
            }
            Found::End => return Ok(None),
        }
        let id = number(self.stream.bytes(self.at, self.id_size));
        if self
            .groups
            .get(self.latest)
            .is_none_or(|group| group.id != id)
        {
            let Some(&found) = self.numbers.get(&id) else {
                input.damage.add(
                    "records with an unknown group number; the data was read up to the record",
                    || self.shown(),
                );
                self.at = self.stream.end();
                return Ok(None);
            };
            self.latest = found;
        }
        self.at += self.id_size as u64;
        Ok(Some(self.latest))
    }

    fn shown(&self) -> String {
        self.groups.first().map_or(String::new(), Group::shown)
    }

    fn record<R: Bytes>(
        &mut self,
        input: &mut Input<R>,
        index: usize,
        payload: &mut Vec<u8>,
    ) -> Result<Step> {
        let group = &mut self.groups[index];
        match self.stream.find(input, self.at, group.size)? {
            Found::Here => {}
            Found::Lost(from) if self.id_size == 0 => {
                let lost = (from - self.at).div_ceil(group.size as u64);
                self.at = self.at.saturating_add(lost * group.size as u64);
                if let Use::Frames(frames) = &mut group.role {
                    frames.read += lost;
                }
                input
                    .damage
                    .add_many("records in damaged data, not replayed", lost, || {
                        group.shown()
                    });
                return Ok(Step::Nothing);
            }
            Found::Lost(_) | Found::End => return Ok(Step::End),
        }
        let record = self.stream.bytes(self.at, group.size);
        self.at += group.size as u64;
        match &mut group.role {
            Use::Frames(frames) => frames
                .record(input, record, payload)
                .map(|step| match step {
                    Ok(Some(frame)) => Step::Frame(frame),
                    Ok(None) => Step::Nothing,
                    Err(what) => Step::Fault(index, what),
                }),
            Use::Values(_) => Ok(Step::Nothing),
            Use::Skipped(what) => Ok(Step::Fault(index, what)),
        }
    }

    fn value<R: Bytes>(
        &mut self,
        input: &mut Input<R>,
        owner: Option<usize>,
        payload: &mut Vec<u8>,
    ) -> Result<Step> {
        const LENGTH: usize = 4;
        if self.stream.find(input, self.at, LENGTH)? != Found::Here {
            return Ok(Step::End);
        }
        let length = number(self.stream.bytes(self.at, LENGTH));
        self.at += LENGTH as u64;
        let kept = length.min(can::FD_DATA as u64) as usize;
        if self.stream.find(input, self.at, kept)? != Found::Here {
            return Ok(Step::End);
        }
        let value = Value::of(self.stream.bytes(self.at, kept));
        self.at += length;
        let owner = owner.and_then(|owner| Some((owner, self.groups.get_mut(owner)?)));
        let Some((index, group)) = owner else {
            return Ok(Step::Nothing);
        };
        let Use::Frames(frames) = &mut group.role else {
            return Ok(Step::Nothing);
        };
        Ok(
            match frames.value(value, length, input.has_no_positions, payload) {
                Ok(Some(frame)) => Step::Frame(frame),
                Ok(None) => Step::Nothing,
                Err(what) => Step::Fault(index, what),
            },
        )
    }

    /// Stops reading the records. Counts the missing frames as damage, and frees the memory.
    fn end<R: Bytes>(&mut self, input: &mut Input<R>) -> Result<()> {
        self.ended = true;
        let found = self.stream.find(input, self.at, 1)?;
        let is_sorted = self.id_size == 0;
        let place = self.shown();
        let fault = match (found, is_sorted) {
            (Found::Here, true) if !input.is_unfinished => {
                Some("groups with more records than they state, read up to the stated number")
            }
            (Found::Here | Found::End, _) if self.at != self.stream.end() => Some(TORN),
            _ => None,
        };
        if let Some(fault) = fault {
            input.damage.add(fault, || place.clone());
        }
        self.stream.close(input);
        for group in &mut self.groups {
            let Use::Frames(frames) = &mut group.role else {
                continue;
            };
            let missing = group.stated.saturating_sub(frames.read);
            if missing > 0 && is_sorted && !input.is_unfinished {
                let what = "records that a group states and that are missing in the file";
                input.damage.add_many(what, missing, || place.clone());
            }
            if !frames.waiting.is_empty() {
                let count = frames.waiting.len() as u64;
                input.damage.add_many(NO_DATA, count, || place.clone());
            }
            if let DataBytes::Stream { stream, .. } = &mut frames.data {
                stream.close(input);
            }
        }
        Ok(())
    }
}
