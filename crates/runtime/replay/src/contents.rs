//! Lists what a recording has: its streams, their counts and rates, gaps and damage.

use crate::database::{Database, FrameId};
use crate::item::{Details, Extras, Kind, Source, SourceError, Stamp, Stream, StreamId};
use crate::requests::{Recorded, Service};
use crate::sink;
use crate::source::can::REMOTE;
use crate::source::{open_index, open_surveyed, Survey, Witness};
use rustc_hash::FxHashMap;
use serde::Serialize;
use std::collections::btree_map::BTreeMap;
use std::path::Path;

const MOST_IDS: usize = 4096;
const MOST_STEPS: usize = 100;
/// The shortest gap between two items that onbeat reports as a step of the recorder's clock: one
/// hour, in ns. A step means that the clock was set to another time.
pub const STEP_NS: u64 = 3_600_000_000_000;

/// The contents of a recording: number and size of items, time span, gaps, streams and damage.
#[allow(missing_docs)]
#[derive(Debug, Clone, Default, Serialize)]
pub struct Contents {
    /// True if onbeat read only the index of the recording, and not its messages.
    pub is_from_index: bool,
    pub items: u64,
    /// The size of all items. `None` if onbeat read only the index.
    pub bytes: Option<u64>,
    /// The recorded time of the first item, in ns since 1970. `None` if the recording has no items.
    pub first_ns: Option<i64>,
    /// The recorded time of the last item, in ns since 1970. `None` if the recording has no items.
    pub last_ns: Option<i64>,
    pub longest_gap: Option<Gap>,
    /// The first 100 gaps of an hour or more. Such a gap arises if the recorder's clock was set to
    /// another time.
    pub steps: Vec<Gap>,
    /// The largest time in ns by which an item is earlier than an item before it in the recording.
    /// 0 if all items are in order, or if the reader of the format cannot tell.
    pub back_ns: u64,
    pub streams: Vec<StreamContents>,
    /// The recorded requests of each service. Empty if the recording has no service events, or if
    /// onbeat read only the index.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<Recorded>,
    #[serde(flatten)]
    pub extras: Extras,
    /// One sentence for each kind of damage. `None` if onbeat read only the index, which does not
    /// show damage of messages.
    pub damage: Option<Vec<String>>,
    /// The error at which onbeat stopped reading before the recording's end.
    pub error: Option<String>,
}

/// A time in which a recording has no items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Gap {
    /// The recorded time of the last item before the gap, in ns since 1970.
    pub at_ns: i64,
    /// The time from the last item before the gap to the first item after it, in ns.
    pub length_ns: u64,
}

/// The contents of one stream: kind, encoding, number and size of items, time span and CAN frames.
#[allow(missing_docs)]
#[derive(Debug, Clone, Serialize)]
pub struct StreamContents {
    pub name: String,
    /// The kind of the items: `ros`, `requests`, `can`, `packets` or `unplayable`.
    pub kind: &'static str,
    /// The message type of a topic, or the link type of packets.
    pub of_type: Option<String>,
    /// The encoding of the recorded items, for example `cdr`, `ros1`, `json`, `can` or `ethernet`.
    /// `None` if the recording does not state it.
    pub encoding: Option<String>,
    pub items: u64,
    /// The size of the stream's items. `None` if onbeat read only the index.
    pub bytes: Option<u64>,
    /// The recorded time of the stream's first item, in ns since 1970. `None` if the stream has no
    /// items.
    pub first_ns: Option<i64>,
    /// The recorded time of the stream's last item, in ns since 1970. `None` if the stream has no
    /// items.
    pub last_ns: Option<i64>,
    /// The mean rate of items. `None` with fewer than two items, or if all items have the same
    /// time.
    pub rate_hz: Option<f64>,
    #[serde(flatten)]
    pub can: CanContents,
    /// The number of CAN frames or packets that the recorder's host sent. Counts only those that
    /// the recording marks as sent.
    #[serde(skip_serializing_if = "is_zero")]
    pub sent: u64,
    /// The destinations that can play the stream, as `--to` names them.
    pub plays_to: &'static [&'static str],
    /// The reason why no destination can play the stream. `None` if one can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unplayable: Option<String>,
}

/// The CAN frames of a stream by identifier.
#[derive(Debug, Clone, Default, Serialize)]
pub struct CanContents {
    /// The number of frames of each CAN identifier. Identifiers are without the flag bits of
    /// `struct can_frame`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub ids: BTreeMap<u32, u64>,
    /// The stream's CAN messages, with names from a database. Empty before
    /// [`Contents::name_messages`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<MessageContents>,
    #[serde(skip)]
    words: Words,
    /// True if the stream has more than 4096 CAN identifiers. `ids` then counts only the frames of
    /// the first 4096.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub has_more_ids: bool,
}

/// The number of a stream's frames with one CAN identifier, and the name of their message.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MessageContents {
    /// The name of the CAN message in the database. `None` if the database does not contain the
    /// identifier.
    pub name: Option<String>,
    pub id: u32,
    pub is_extended: bool,
    pub frames: u64,
}

/// The number of frames of each word of a CAN identifier and its flags, for at most [`MOST_IDS`]
/// words.
#[derive(Debug, Clone, Default)]
struct Words {
    /// The counts of the words without flags, by word. Empty before the first such frame.
    standard: Vec<u64>,
    others: FxHashMap<u32, u64>,
    known: usize,
}

impl Words {
    const STANDARD: usize = 0x800;

    /// Counts a frame. Returns false if its word is beyond the limit, so that it is not counted.
    #[inline(always)]
    fn count(&mut self, word: u32) -> bool {
        let count = match self.standard.get_mut(word as usize) {
            Some(count) => Some(count),
            None => self.others.get_mut(&word),
        };
        match count {
            Some(count) if *count > 0 => {
                *count += 1;
                true
            }
            _ => self.add(word),
        }
    }

    #[inline(never)]
    fn add(&mut self, word: u32) -> bool {
        if self.known >= MOST_IDS {
            return false;
        }
        self.known += 1;
        if self.standard.is_empty() && (word as usize) < Self::STANDARD {
            self.standard = vec![0; Self::STANDARD];
        }
        match self.standard.get_mut(word as usize) {
            Some(count) => *count = 1,
            None => drop(self.others.insert(word, 1)),
        }
        true
    }

    fn counts(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        let standard = (0..).zip(self.standard.iter().copied());
        let others = self.others.iter().map(|(&word, &count)| (word, count));
        standard.filter(|(_, count)| *count > 0).chain(others)
    }
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Returns a count of requests that starts at zero, or `None` if the stream has no service events.
fn recorded((stream, number): (&Stream, u32)) -> Option<Recorded> {
    let service = match stream.kind {
        Kind::Requests { .. } => stream.name.clone(),
        _ => Service::of(stream)?.name,
    };
    Some(Recorded {
        service,
        stream: StreamId(number),
        ..Recorded::default()
    })
}

/// Returns the encoding of items of a kind, or `None` if it is not known.
fn encoding_of(kind: &Kind) -> Option<String> {
    Some(match kind {
        Kind::Ros { .. } | Kind::Requests { .. } => "cdr".into(),
        Kind::Can => "can".into(),
        Kind::Packets { link_type: 1 } => "ethernet".into(),
        Kind::Packets { link_type } => format!("link type {link_type}"),
        Kind::Unplayable { encoding, .. } => return encoding.clone(),
    })
}

impl StreamContents {
    /// `encoding` is the encoding of the recorded items if it is not the one of `stream`.
    fn new(stream: &Stream, encoding: Option<&str>) -> StreamContents {
        let kind = &stream.kind;
        let unplayable = match kind {
            Kind::Unplayable { reason, .. } => Some(reason.clone()),
            _ => None,
        };
        let (kind, of_type, plays_to): (_, _, &[&str]) = match kind {
            Kind::Ros { type_name, .. } => ("ros", Some(type_name.clone()), &["ros", "udp"]),
            Kind::Requests { type_name } => ("requests", Some(type_name.clone()), &["ros"]),
            Kind::Can => ("can", None, &["can", "udp"]),
            Kind::Packets { link_type: 1 } => ("packets", Some("Ethernet".into()), &["eth", "udp"]),
            Kind::Packets { link_type } => {
                let plays_to: &[&str] = match sink::udp::unpacks(*link_type) {
                    true => &["udp"],
                    false => &[],
                };
                ("packets", Some(format!("link type {link_type}")), plays_to)
            }
            Kind::Unplayable { type_name, .. } => ("unplayable", Some(type_name.clone()), &[]),
        };
        StreamContents {
            name: stream.name.clone(),
            kind,
            of_type,
            encoding: encoding
                .map(String::from)
                .or_else(|| encoding_of(&stream.kind)),
            items: 0,
            bytes: Some(0),
            first_ns: None,
            last_ns: None,
            rate_hz: None,
            can: CanContents::default(),
            sent: 0,
            plays_to,
            unplayable,
        }
    }

    fn add(&mut self, time_ns: i64, payload: &[u8], is_sent: bool) {
        self.items += 1;
        self.bytes = self.bytes.map(|bytes| bytes + payload.len() as u64);
        self.sent += u64::from(is_sent);
        self.first_ns.get_or_insert(time_ns);
        self.last_ns = Some(time_ns);
        let word = match (self.kind, payload.first_chunk()) {
            ("can", Some(word)) => u32::from_ne_bytes(*word) & !REMOTE,
            _ => return,
        };
        self.can.has_more_ids |= !self.can.words.count(word);
    }

    fn close(&mut self) {
        for (word, count) in self.can.words.counts() {
            *self.can.ids.entry(word & 0x1fff_ffff).or_default() += count;
        }
        let length_ns = self
            .first_ns
            .zip(self.last_ns)
            .map(|(f, l)| l.saturating_sub(f));
        self.rate_hz = length_ns
            .filter(|&length_ns| length_ns > 0)
            .map(|length_ns| (self.items - 1) as f64 * 1e9 / length_ns as f64);
    }

    /// Returns the identifiers of data and remote frames, each with its number of frames.
    pub fn frames(&self) -> impl Iterator<Item = (FrameId, u64)> + '_ {
        let frames = self.can.words.counts();
        frames.filter_map(|(word, count)| Some((FrameId::of_word(word)?, count)))
    }

    fn name_messages(&mut self, database: &Database) {
        let named = self.frames().map(|(id, frames)| MessageContents {
            name: database.name(id).map(String::from),
            id: id.id,
            is_extended: id.is_extended,
            frames,
        });
        self.can.messages = named.collect();
        self.can.messages.sort_by_key(|m| (m.is_extended, m.id));
    }
}

/// Lists a recording while its reader reads it for the first time.
struct FirstPass<'a> {
    contents: Contents,
    is_complete: bool,
    tell: &'a mut dyn FnMut(u64),
}

impl Witness for FirstPass<'_> {
    fn new_streams(&mut self, source: &dyn Source) {
        self.contents.add_streams(source);
    }

    fn item(&mut self, stamp: Stamp, details: Details, payload: &[u8]) {
        self.contents.add(stamp, payload, details.is_sent);
        (self.tell)(self.contents.items);
    }

    fn out_of_order(&mut self) {
        self.contents = Contents::default();
    }

    fn end(&mut self, source: &dyn Source) {
        self.contents.add_streams(source);
        self.contents.close(source);
        self.is_complete = true;
    }
}

impl Contents {
    /// Reads a recording to its end, or until an error, and returns what it contains. After each
    /// item, calls `tell` with the number of items so far. While the recording is unpacked, calls
    /// `unpacking` as [`open_with_progress`](crate::source::open_with_progress) does.
    ///
    /// # Errors
    /// Fails if the recording cannot be opened.
    pub fn read(
        path: &Path,
        unpacking: &mut dyn FnMut(u64, u64),
        tell: &mut dyn FnMut(u64),
    ) -> Result<Contents, SourceError> {
        let mut first = FirstPass {
            contents: Contents::default(),
            is_complete: false,
            tell,
        };
        let witness: &mut dyn Witness = &mut first;
        let mut survey = Survey {
            witness: Some(witness),
        };
        let mut source = open_surveyed(path, unpacking, &mut survey)?;
        Ok(match first.is_complete {
            true => first.contents,
            false => Contents::of(&mut *source, first.tell),
        })
    }

    /// Reads only the index of a recording, and returns what it shows: no sizes, no damage of
    /// messages, no requests. Returns `None` if the recording has no index, or if the index is
    /// damaged, incomplete or disagrees with itself. After each item, calls `tell` with the number
    /// of items so far.
    pub fn of_index(path: &Path, tell: &mut dyn FnMut(u64)) -> Option<Contents> {
        let mut source = open_index(path).ok()?;
        let mut contents = Contents::of(&mut *source, tell);
        let has_damage = contents.damage.iter().any(|damage| !damage.is_empty());
        if contents.error.is_some() || has_damage {
            return None;
        }
        contents.is_from_index = true;
        (contents.bytes, contents.damage) = (None, None);
        contents.requests.clear();
        for stream in &mut contents.streams {
            stream.bytes = None;
        }
        Some(contents)
    }

    /// Reads a source to its end, or until an error, and returns what it contains. After each item,
    /// calls `tell` with the number of items so far.
    pub fn of(source: &mut dyn Source, tell: &mut dyn FnMut(u64)) -> Contents {
        let mut contents = Contents::new(source);
        let mut payload = Vec::new();
        loop {
            match source.next(&mut payload) {
                Ok(Some(stamp)) => contents.add(stamp, &payload, source.details().is_sent),
                Ok(None) => break,
                Err(error) => {
                    contents.error = Some(error.to_string());
                    break;
                }
            }
            tell(contents.items);
        }
        contents.close(source);
        contents
    }

    pub(crate) fn new(source: &dyn Source) -> Contents {
        let mut contents = Contents::default();
        contents.add_streams(source);
        contents
    }

    /// Adds the streams that the source has and the contents do not have yet.
    fn add_streams(&mut self, source: &dyn Source) {
        let (known, streams) = (self.streams.len(), source.streams());
        if known < streams.len() {
            let new = streams.iter().zip(0..).skip(known);
            self.requests.extend(new.clone().filter_map(recorded));
            self.streams.extend(new.map(|(stream, number)| {
                StreamContents::new(stream, source.encoding(StreamId(number)))
            }));
        }
    }

    /// Counts the CAN frames of each stream by message, with the names from a database.
    pub fn name_messages(&mut self, database: &Database) {
        for stream in &mut self.streams {
            stream.name_messages(database);
        }
    }

    pub(crate) fn add(&mut self, stamp: Stamp, payload: &[u8], is_sent: bool) {
        let time_ns = stamp.time_ns;
        self.items += 1;
        *self.bytes.get_or_insert(0) += payload.len() as u64;
        self.first_ns.get_or_insert(time_ns);
        if let Some(at_ns) = self.last_ns.replace(time_ns) {
            let gap = Gap {
                at_ns,
                length_ns: u64::try_from(time_ns.saturating_sub(at_ns)).unwrap_or(0),
            };
            if self
                .longest_gap
                .is_none_or(|longest| gap.length_ns > longest.length_ns)
            {
                self.longest_gap = Some(gap);
            }
            if gap.length_ns >= STEP_NS && self.steps.len() < MOST_STEPS {
                self.steps.push(gap);
            }
        }
        let mut requests = self.requests.iter_mut();
        if let Some(recorded) = requests.find(|r| r.stream == stamp.stream) {
            recorded.add(payload);
        }
        if let Some(stream) = self.streams.get_mut(stamp.stream.0 as usize) {
            stream.add(time_ns, payload, is_sent);
        }
    }

    pub(crate) fn close(&mut self, source: &dyn Source) {
        self.streams.iter_mut().for_each(StreamContents::close);
        self.bytes.get_or_insert(0);
        self.extras = source.extras();
        self.damage = Some(source.damage().to_vec());
        self.back_ns = source.back_ns();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{by_index, corpus, stream, Listed};

    #[test]
    fn a_recording_is_listed_with_its_gaps_rates_and_identifiers() {
        let mut listed = Listed::new(vec![stream("can0"), stream("can1"), stream("can2")]);
        let frame = |id: u32| [&id.to_ne_bytes()[..], &[0; 12]].concat();
        // The clock was not set before the first item.
        listed.push(0, 0, &frame(0x123));
        let begin = 1_700_000_000_000_000_000;
        for n in 0..5i64 {
            listed.push(
                begin + n * 100_000_000,
                1,
                &frame(0x8000_0000 | (n as u32 % 2)),
            );
        }
        listed.breaks = Some("cut off".into());
        let mut told = 0;
        let found = Contents::of(&mut listed, &mut |items| told = items);
        assert_eq!((found.items, found.bytes, told), (6, Some(96), 6));
        assert_eq!(
            (found.first_ns, found.last_ns),
            (Some(0), Some(begin + 400_000_000))
        );
        let step = Gap {
            at_ns: 0,
            length_ns: begin as u64,
        };
        assert_eq!(
            (found.longest_gap, &found.steps[..]),
            (Some(step), &[step][..])
        );
        let rates: Vec<_> = found.streams.iter().map(|s| s.rate_hz).collect();
        assert_eq!(rates, [None, Some(10.0), None]);
        assert_eq!(found.streams[1].can.ids, BTreeMap::from([(0, 3), (1, 2)]));
        assert!(found.error.is_some_and(|e| e.contains("cut off")));
    }

    #[test]
    fn packets_play_where_their_link_type_is_known() {
        let plays_to = |link_type| {
            let kind = Kind::Packets { link_type };
            let stream = Stream {
                name: "eth0".into(),
                kind,
            };
            StreamContents::new(&stream, None).plays_to
        };
        assert_eq!(plays_to(1), ["eth", "udp"]);
        assert_eq!(plays_to(276), ["udp"]);
        // IEEE 802.11.
        assert!(plays_to(105).is_empty());
    }

    #[test]
    fn the_index_and_all_messages_of_each_test_file_have_the_same_figures() {
        let formats = ["mcap", "recording", "ros1", "blf", "mdf", "pcap", "candump"];
        let files: Vec<_> = formats.iter().flat_map(|format| corpus(format)).collect();
        let indexed = files.iter().filter(|path| by_index(path).is_some());
        let mut names: Vec<_> = indexed
            .filter_map(|path| path.file_name()?.to_str())
            .collect();
        names.sort();
        let wanted = ["lz4.mcap", "small.db3", "zstd.mcap"];
        assert_eq!(names, wanted);
    }

    #[test]
    fn a_listing_in_one_pass_equals_the_listing_of_the_opened_recording() {
        let head = "date Sun Jan 1 00:00:00 2023\nbase hex  timestamps absolute\n";
        let line =
            |ms: u32, channel: u32| format!("0.{ms:03} {channel} 123 Rx d 1 {channel:02x}\n");
        let lines = |all: &[(u32, u32)]| -> String {
            let lines = all.iter().map(|&(ms, channel)| line(ms, channel));
            lines
                .chain(["0.950 1 123 Rx d 99 00\n".to_owned()])
                .collect()
        };
        let ordered = lines(&[(1, 2), (2, 1), (3, 2), (900, 3)]);
        let unordered = lines(&[(5, 2), (2, 1), (900, 2), (30, 3)]);
        for (log, passes) in [(ordered, 1), (unordered, 2)] {
            let file = tempfile::NamedTempFile::new().expect("a file");
            std::fs::write(file.path(), format!("{head}{log}")).expect("written");
            let mut told = Vec::new();
            let found = Contents::read(file.path(), &mut |_, _| {}, &mut |items| told.push(items));
            let found = found.expect("a listing");
            let mut source = crate::source::open(file.path()).expect("a log");
            let wanted = Contents::of(&mut *source, &mut |_| {});
            let [found_json, wanted_json] = [&found, &wanted]
                .map(|contents| serde_json::to_value(contents).expect("in memory"));
            assert_eq!(found_json, wanted_json);
            assert_eq!(
                (
                    found.items,
                    found.streams.len(),
                    found.damage.map(|damage| damage.len())
                ),
                (4, 3, Some(1))
            );
            // An unordered recording is read again from its first item.
            let begins = told.iter().filter(|items| **items == 1).count();
            assert_eq!((begins, told.last()), (passes, Some(&4)));
        }
    }
}
