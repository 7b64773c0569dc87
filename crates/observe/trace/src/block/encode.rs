//! Encodes events into blocks.
use super::dictionary::{Dictionary, NumberDictionary, ThreadDictionary};
use super::stamps::RecentStamps;
use super::varint::{self, zigzag};
use super::{BlockHeader, Column, COLUMNS, MAX_EVENTS, MAX_NAME, PLAIN, ZSTD};
use crate::event::{Event, EventKind, Name};
use crate::table::{self, FieldSink};
use std::collections::HashMap;

/// Encodes events into blocks of a trace file. It allocates only to grow its buffers, and reuses
/// them for every block.
pub struct Encoder {
    columns: [Vec<u8>; COLUMNS],
    dictionaries: Dictionaries,
    stamps: RecentStamps,
    offset_ns: Option<i64>,
    time_ns: u64,
    raw: Vec<u8>,
    body: Vec<u8>,
    compressor: Option<zstd::bulk::Compressor<'static>>,
}

struct Dictionaries {
    threads: ThreadDictionary,
    handles: NumberDictionary,
    messages: NumberDictionary,
    tids: NumberDictionary,
    gids: Dictionary<[u8; 16]>,
    names: HashMap<Name, u32>,
}

impl Dictionaries {
    fn new() -> Self {
        Dictionaries {
            threads: ThreadDictionary::new(),
            handles: NumberDictionary::new(),
            messages: NumberDictionary::new(),
            tids: NumberDictionary::new(),
            gids: Dictionary::new(),
            names: HashMap::new(),
        }
    }

    fn clear(&mut self) {
        self.threads.clear();
        self.handles.clear();
        self.messages.clear();
        self.tids.clear();
        self.gids.clear();
        self.names.clear();
    }
}

impl Encoder {
    /// Creates an encoder that compresses with zstd at this level.
    pub fn new(level: i32) -> Encoder {
        Encoder {
            columns: Default::default(),
            dictionaries: Dictionaries::new(),
            stamps: RecentStamps::new(),
            offset_ns: None,
            time_ns: 0,
            raw: Vec::new(),
            body: Vec::new(),
            // Without a compressor (out of memory), columns are stored uncompressed.
            compressor: zstd::bulk::Compressor::new(level).ok(),
        }
    }

    /// Appends one block with these events to `out`. The events must be sorted by time, and there
    /// must not be more than [`MAX_EVENTS`].
    pub fn encode(&mut self, events: &[Event], sequence: u64, out: &mut Vec<u8>) {
        debug_assert!(events.len() <= MAX_EVENTS);
        let first_ns = events.first().map_or(0, |e| e.time_ns);
        self.begin(events, first_ns);
        for event in events {
            self.event(event);
        }
        self.pack();
        let header = BlockHeader {
            body_len: self.body.len() as u32,
            body_crc: crc32fast::hash(&self.body),
            events: events.len() as u32,
            sequence,
            first_ns,
            last_ns: events.last().map_or(0, |e| e.time_ns),
        };
        out.extend_from_slice(&header.to_bytes());
        out.extend_from_slice(&self.body);
    }

    fn begin(&mut self, events: &[Event], first_ns: u64) {
        for column in &mut self.columns {
            column.clear();
        }
        self.dictionaries.clear();
        self.stamps = RecentStamps::new();
        let offset_ns = self.offset_ns.or_else(|| first_offset(events)).unwrap_or(0);
        self.offset_ns = Some(offset_ns);
        self.put(Column::ClockOffset, zigzag(offset_ns));
        self.time_ns = first_ns;
    }

    fn pack(&mut self) {
        self.raw.clear();
        for column in &self.columns {
            varint::put(&mut self.raw, column.len() as u64);
        }
        for column in &self.columns {
            self.raw.extend_from_slice(column);
        }
        let packed = self.compressor.as_mut();
        let packed = packed.and_then(|compressor| compressor.compress(&self.raw).ok());
        let (packing, data) = match &packed {
            Some(packed) if packed.len() < self.raw.len() => (ZSTD, packed),
            _ => (PLAIN, &self.raw),
        };
        self.body.clear();
        self.body.push(packing);
        varint::put(&mut self.body, self.raw.len() as u64);
        self.body.extend_from_slice(data);
    }

    #[inline]
    fn event(&mut self, event: &Event) {
        self.put(Column::Time, event.time_ns.wrapping_sub(self.time_ns));
        self.time_ns = event.time_ns;
        self.put(Column::Cpu, u64::from(event.cpu));
        let entries = &mut self.columns[Column::Threads as usize];
        let threads = &mut self.dictionaries.threads;
        let thread = threads.number(event.pid, event.tid, entries);
        self.put(Column::Thread, u64::from(thread));
        self.put(Column::Kind, u64::from(table::code(&event.kind)));
        table::put(&event.kind, self);
        if let EventKind::ClockOffset {
            realtime_minus_monotonic_ns,
        } = event.kind
        {
            self.offset_ns = Some(realtime_minus_monotonic_ns);
        }
    }

    #[inline]
    fn put(&mut self, column: Column, value: u64) {
        varint::put(&mut self.columns[column as usize], value);
    }
}

/// Estimates CLOCK_REALTIME minus CLOCK_MONOTONIC from the first clock sample or source time stamp
/// of `events`.
fn first_offset(events: &[Event]) -> Option<i64> {
    events.iter().find_map(|e| match e.kind {
        EventKind::ClockOffset {
            realtime_minus_monotonic_ns: offset,
        } => Some(offset),
        EventKind::Publish {
            source_ns: Some(ns),
            ..
        } => Some(ns.wrapping_sub(e.time_ns as i64)),
        EventKind::Take {
            source_ns: ns,
            taken: true,
            ..
        } => Some(ns.wrapping_sub(e.time_ns as i64)),
        _ => None,
    })
}

impl FieldSink for Encoder {
    #[inline]
    fn handle(&mut self, _: &'static str, value: u64) {
        let entries = &mut self.columns[Column::Handles as usize];
        let number = self.dictionaries.handles.number(value, entries);
        self.put(Column::Handle, u64::from(number));
    }
    #[inline]
    fn message(&mut self, _: &'static str, value: u64) {
        let entries = &mut self.columns[Column::Messages as usize];
        let number = self.dictionaries.messages.number(value, entries);
        self.put(Column::Message, u64::from(number));
    }
    #[inline]
    fn tid(&mut self, _: &'static str, value: u32) {
        let entries = &mut self.columns[Column::Tids as usize];
        let number = self.dictionaries.tids.number(u64::from(value), entries);
        self.put(Column::Tid, u64::from(number));
    }
    #[inline]
    fn small(&mut self, _: &'static str, value: u16) {
        self.put(Column::Small, u64::from(value));
    }
    #[inline]
    fn int(&mut self, _: &'static str, value: i64) {
        self.put(Column::Int, zigzag(value));
    }
    #[inline]
    fn uint(&mut self, _: &'static str, value: u64) {
        self.put(Column::Int, value);
    }
    #[inline]
    fn mask(&mut self, _: &'static str, value: u64) {
        self.put(Column::Int, value);
    }
    #[inline]
    fn gid(&mut self, _: &'static str, value: &[u8; 16]) {
        let (number, new) = self.dictionaries.gids.number(*value);
        if new {
            self.columns[Column::Gids as usize].extend_from_slice(value);
        }
        self.put(Column::Gid, u64::from(number));
    }
    #[inline]
    fn stamp(&mut self, _: &'static str, value: Option<i64>) {
        let Some(stamp) = value else {
            return self.put(Column::Stamp, 0);
        };
        if let Some(distance) = self.stamps.distance(stamp) {
            return self.put(Column::Stamp, distance as u64 + 2);
        }
        self.stamps.push(stamp);
        self.put(Column::Stamp, 1);
        let expected = (self.time_ns as i64).wrapping_add(self.offset_ns.unwrap_or(0));
        self.put(Column::NewStamp, zigzag(stamp.wrapping_sub(expected)));
    }
    #[inline]
    fn flag(&mut self, _: &'static str, value: bool) {
        self.put(Column::Small, u64::from(value));
    }
    fn name(&mut self, _: &'static str, value: &Name) {
        let known = self.dictionaries.names.get(value).copied();
        let number = known.unwrap_or_else(|| {
            let number = self.dictionaries.names.len() as u32;
            self.dictionaries.names.insert(value.clone(), number);
            let text = cut(value);
            self.put(Column::Names, text.len() as u64);
            self.columns[Column::Names as usize].extend_from_slice(text.as_bytes());
            number
        });
        self.put(Column::Name, u64::from(number));
    }
    #[inline]
    fn choice(&mut self, _: &'static str, _: &'static [&'static str], value: u8) {
        self.put(Column::Small, u64::from(value));
    }
}

fn cut(name: &str) -> &str {
    let mut end = name.len().min(MAX_NAME);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}
