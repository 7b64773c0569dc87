//! One block: a few thousand events as checksummed, compressed columns that decode alone.
//!
//! docs/trace-format.md has the layout, byte for byte.
use crate::event::{Event, EventKind, Name};
use crate::predict::{History, Predictor, Use};
use crate::table::{self, FieldSink, FieldSource};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// Starts every block; a reader that lost its way looks for it.
pub const MAGIC: [u8; 8] = *b"\xF1obtBlk\n";
/// Bytes of a block's header.
pub const HEADER_LEN: usize = 48;
/// More bytes than this after a header are a damaged header.
pub const MAX_BODY: usize = 64 << 20;
/// More events than this in one block are refused.
pub const MAX_EVENTS: usize = 1 << 20;
/// More text than this in one block is refused, and so are more bytes in its columns.
const MAX_RAW: usize = 64 << 20;
/// Names longer than this are cut by the writer.
pub const MAX_NAME: usize = 64 << 10;
/// How many source time stamps back a time stamp may refer to.
const RECENT_STAMPS: usize = 64;
/// Below this a compressor's frame costs more than it saves.
const MIN_COMPRESS: usize = 32;

const META: usize = 0;
const THREADS: usize = 1;
const HANDLES: usize = 2;
const MESSAGES: usize = 3;
const TIDS: usize = 4;
const GIDS: usize = 5;
const NAMES: usize = 6;
const CPU: usize = 7;
const THREAD: usize = 8;
const KIND: usize = 9;
const TIME: usize = 10;
const BITS: usize = 11;
const HANDLE: usize = 12;
const MESSAGE: usize = 13;
const TID: usize = 14;
const GID: usize = 15;
const NAME: usize = 16;
const SMALL: usize = 17;
const INT: usize = 18;
const STAMP: usize = 19;
const STAMP_SIZE: usize = 20;
const COLUMNS: usize = 21;

/// Why a block whose place is known cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub enum BlockError {
    /// The bytes are not the ones that were written.
    #[error("checksum does not match")]
    Checksum,
    /// The compressed data is no such thing.
    #[error("column {column} cannot be decompressed")]
    Decompress {
        /// Which column.
        column: usize,
    },
    /// The checksum matches, but the content contradicts itself.
    #[error("{0}")]
    Content(&'static str),
}

/// What stands before a block's columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockHeader {
    /// Bytes that follow the header.
    pub body_len: u32,
    /// CRC-32 of these bytes.
    pub body_crc: u32,
    /// Number of events.
    pub events: u32,
    /// Counts the blocks of a recording from 0.
    pub sequence: u64,
    /// Time of the first event.
    pub first_ns: u64,
    /// Time of the last event.
    pub last_ns: u64,
}

impl BlockHeader {
    /// The header as it stands in the file.
    pub fn to_bytes(&self) -> [u8; HEADER_LEN] {
        let mut out = [0; HEADER_LEN];
        out[0..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&self.body_len.to_le_bytes());
        out[12..16].copy_from_slice(&self.body_crc.to_le_bytes());
        out[16..20].copy_from_slice(&self.events.to_le_bytes());
        out[20..28].copy_from_slice(&self.sequence.to_le_bytes());
        out[28..36].copy_from_slice(&self.first_ns.to_le_bytes());
        out[36..44].copy_from_slice(&self.last_ns.to_le_bytes());
        let crc = crc32fast::hash(&out[..44]);
        out[44..48].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads a header; `None` where there is none, or a damaged one.
    pub fn from_bytes(bytes: &[u8; HEADER_LEN]) -> Option<BlockHeader> {
        let u32_at = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        if bytes[0..8] != MAGIC || crc32fast::hash(&bytes[..44]) != u32_at(44) {
            return None;
        }
        let header = BlockHeader {
            body_len: u32_at(8),
            body_crc: u32_at(12),
            events: u32_at(16),
            sequence: u64_at(20),
            first_ns: u64_at(28),
            last_ns: u64_at(36),
        };
        (header.body_len as usize <= MAX_BODY && header.events as usize <= MAX_EVENTS)
            .then_some(header)
    }
}

/// A hash for addresses and ids: a block's dictionary is small and short-lived.
#[derive(Default)]
struct QuickHasher(u64);

impl Hasher for QuickHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.write_u64(u64::from(*b));
        }
    }
    fn write_u32(&mut self, v: u32) {
        self.write_u64(u64::from(v));
    }
    fn write_u64(&mut self, v: u64) {
        let h = (self.0 ^ v).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = h ^ h >> 32;
    }
}

/// Numbers values in the order of their first use.
struct Dictionary<K> {
    index: HashMap<K, u32, BuildHasherDefault<QuickHasher>>,
}

impl<K: Hash + Eq> Dictionary<K> {
    fn new() -> Self {
        Dictionary {
            index: HashMap::default(),
        }
    }

    /// The number of `key`, and whether it is new.
    #[inline]
    fn number(&mut self, key: K) -> (u32, bool) {
        let next = self.index.len() as u32;
        let number = *self.index.entry(key).or_insert(next);
        (number, number == next)
    }
}

fn zigzag(v: i64) -> u64 {
    ((v << 1) ^ (v >> 63)) as u64
}

fn unzigzag(v: u64) -> i64 {
    (v >> 1) as i64 ^ -((v & 1) as i64)
}

fn put_varint(out: &mut Vec<u8>, mut v: u64) {
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}

fn put_difference(out: &mut Vec<u8>, last: &mut u64, v: u64) {
    put_varint(out, zigzag(v.wrapping_sub(*last) as i64));
    *last = v;
}

/// The source time stamps that were new most recently.
struct RecentStamps {
    ring: [i64; RECENT_STAMPS],
    count: usize,
}

impl RecentStamps {
    fn new() -> Self {
        RecentStamps {
            ring: [0; RECENT_STAMPS],
            count: 0,
        }
    }

    #[inline]
    fn push(&mut self, stamp: i64) {
        self.ring[self.count % RECENT_STAMPS] = stamp;
        self.count += 1;
    }

    /// How many new stamps ago this one was new; 0: it is the newest.
    #[inline]
    fn distance(&self, stamp: i64) -> Option<usize> {
        (0..self.count.min(RECENT_STAMPS))
            .find(|d| self.ring[(self.count - 1 - d) % RECENT_STAMPS] == stamp)
    }

    #[inline]
    fn at(&self, distance: usize) -> Option<i64> {
        (distance < self.count.min(RECENT_STAMPS))
            .then(|| self.ring[(self.count - 1 - distance) % RECENT_STAMPS])
    }
}

/// Encodes blocks.
pub struct Encoder {
    columns: [Vec<u8>; COLUMNS],
    bits: u64,
    bits_filled: u32,
    threads: Dictionary<(u32, u32)>,
    handles: Dictionary<u64>,
    messages: Dictionary<u64>,
    tids: Dictionary<u32>,
    gids: Dictionary<[u8; 16]>,
    names: HashMap<Name, u32>,
    last_pid: u64,
    last_handle: u64,
    last_message: u64,
    last_tid: u64,
    predictor: Predictor,
    history: History,
    stamps: RecentStamps,
    /// Last CLOCK_REALTIME - CLOCK_MONOTONIC; lives on from block to block.
    offset: Option<i64>,
    time_ns: u64,
    body: Vec<u8>,
    compressor: Option<zstd::bulk::Compressor<'static>>,
}

impl Encoder {
    /// An encoder that compresses with this zstd level.
    pub fn new(level: i32) -> Encoder {
        Encoder {
            columns: Default::default(),
            bits: 0,
            bits_filled: 0,
            threads: Dictionary::new(),
            handles: Dictionary::new(),
            messages: Dictionary::new(),
            tids: Dictionary::new(),
            gids: Dictionary::new(),
            names: HashMap::new(),
            last_pid: 0,
            last_handle: 0,
            last_message: 0,
            last_tid: 0,
            predictor: Predictor::new(),
            history: History::new(),
            stamps: RecentStamps::new(),
            offset: None,
            time_ns: 0,
            body: Vec::new(),
            // Without a compressor (out of memory) columns are stored as they are.
            compressor: zstd::bulk::Compressor::new(level).ok(),
        }
    }

    /// Appends one block with these events (sorted by time, at most [`MAX_EVENTS`]) to `out`.
    pub fn encode(&mut self, events: &[Event], sequence: u64, out: &mut Vec<u8>) {
        debug_assert!(events.len() <= MAX_EVENTS);
        self.reset();
        let first_ns = events.first().map_or(0, |e| e.time_ns);
        let offset = self.offset.or_else(|| first_offset(events)).unwrap_or(0);
        put_varint(&mut self.columns[META], zigzag(offset));
        self.offset = Some(offset);
        self.time_ns = first_ns;
        for event in events {
            self.event(event);
        }
        if self.bits_filled > 0 {
            self.columns[BITS].push(self.bits as u8);
        }
        self.body.clear();
        self.body.push(COLUMNS as u8);
        for (number, column) in self.columns.iter().enumerate() {
            put_varint(&mut self.body, column.len() as u64);
            if column.is_empty() {
                continue;
            }
            let packed = (number != BITS && column.len() >= MIN_COMPRESS)
                .then(|| self.compressor.as_mut()?.compress(column).ok())
                .flatten()
                .filter(|packed| packed.len() < column.len());
            match packed {
                Some(packed) => {
                    put_varint(&mut self.body, packed.len() as u64);
                    self.body.extend_from_slice(&packed);
                }
                None => {
                    put_varint(&mut self.body, 0);
                    self.body.extend_from_slice(column);
                }
            }
        }
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

    fn reset(&mut self) {
        for column in &mut self.columns {
            column.clear();
        }
        self.bits = 0;
        self.bits_filled = 0;
        self.threads.index.clear();
        self.handles.index.clear();
        self.messages.index.clear();
        self.tids.index.clear();
        self.gids.index.clear();
        self.names.clear();
        self.last_pid = 0;
        self.last_handle = 0;
        self.last_message = 0;
        self.last_tid = 0;
        self.predictor.reset();
        self.history.reset();
        self.stamps = RecentStamps::new();
    }

    #[inline]
    fn event(&mut self, event: &Event) {
        self.sized(TIME, event.time_ns.wrapping_sub(self.time_ns));
        self.time_ns = event.time_ns;

        let context = self.history.cpu_context();
        self.predicted(CPU, context, u32::from(event.cpu));
        self.history.set_cpu(event.cpu);

        let (thread, new) = self.threads.number((event.pid, event.tid));
        if new {
            let pid = u64::from(event.pid);
            put_difference(&mut self.columns[THREADS], &mut self.last_pid, pid);
            let beside = i64::from(event.tid) - i64::from(event.pid);
            put_varint(&mut self.columns[THREADS], zigzag(beside));
        }
        let context = self.history.thread_context();
        self.predicted(THREAD, context, thread);
        self.history.set_thread(thread);

        let kind = table::code(&event.kind);
        let context = self.history.kind_context();
        self.predicted(KIND, context, u32::from(kind));
        self.history.set_kind(kind);

        table::put(&event.kind, self);
        self.history.end();
        if let EventKind::ClockOffset {
            realtime_minus_monotonic_ns,
        } = event.kind
        {
            self.offset = Some(realtime_minus_monotonic_ns);
        }
    }

    #[inline]
    fn predicted(&mut self, column: usize, context: u32, value: u32) {
        let code = self.predictor.encode(context, value);
        put_varint(&mut self.columns[column], u64::from(code));
    }

    /// Writes the number of significant bits to `column`, and the bits below the highest to BITS.
    #[inline]
    fn sized(&mut self, column: usize, value: u64) {
        let size = 64 - value.leading_zeros();
        self.columns[column].push(size as u8);
        if size > 1 {
            let low = value & !(1 << (size - 1));
            let count = size - 1;
            if count > 32 {
                self.put_bits(low & 0xFFFF_FFFF, 32);
                self.put_bits(low >> 32, count - 32);
            } else {
                self.put_bits(low, count);
            }
        }
    }

    #[inline]
    fn put_bits(&mut self, bits: u64, count: u32) {
        self.bits |= bits << self.bits_filled;
        self.bits_filled += count;
        while self.bits_filled >= 8 {
            self.columns[BITS].push(self.bits as u8);
            self.bits >>= 8;
            self.bits_filled -= 8;
        }
    }

    #[inline]
    fn small_value(&mut self, value: u16) {
        let context = self.history.field_context(Use::Small);
        self.predicted(SMALL, context, u32::from(value));
    }

    #[inline]
    fn integer(&mut self, value: u64) {
        let context = self.history.field_context(Use::Int);
        let last = self.predictor.integer(context);
        put_difference(&mut self.columns[INT], last, value);
    }
}

/// The offset between the clocks, guessed from the first source time stamp.
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
        let (number, new) = self.handles.number(value);
        if new {
            put_difference(&mut self.columns[HANDLES], &mut self.last_handle, value);
        }
        let context = self.history.field_context(Use::Handle);
        self.predicted(HANDLE, context, number);
        self.history.set_handle(number);
    }
    #[inline]
    fn message(&mut self, _: &'static str, value: u64) {
        let (number, new) = self.messages.number(value);
        if new {
            put_difference(&mut self.columns[MESSAGES], &mut self.last_message, value);
        }
        let context = self.history.field_context(Use::Message);
        self.predicted(MESSAGE, context, number);
    }
    #[inline]
    fn tid(&mut self, _: &'static str, value: u32) {
        let (number, new) = self.tids.number(value);
        if new {
            let value = u64::from(value);
            put_difference(&mut self.columns[TIDS], &mut self.last_tid, value);
        }
        let context = self.history.field_context(Use::Tid);
        self.predicted(TID, context, number);
    }
    #[inline]
    fn small(&mut self, _: &'static str, value: u16) {
        self.small_value(value);
    }
    #[inline]
    fn int(&mut self, _: &'static str, value: i64) {
        self.integer(value as u64);
    }
    #[inline]
    fn uint(&mut self, _: &'static str, value: u64) {
        self.integer(value);
    }
    #[inline]
    fn mask(&mut self, _: &'static str, value: u64) {
        self.integer(value);
    }
    #[inline]
    fn gid(&mut self, _: &'static str, value: &[u8; 16]) {
        let (number, new) = self.gids.number(*value);
        if new {
            self.columns[GIDS].extend_from_slice(value);
        }
        let context = self.history.field_context(Use::Gid);
        self.predicted(GID, context, number);
        self.history.set_gid(number);
    }
    #[inline]
    fn stamp(&mut self, _: &'static str, value: Option<i64>) {
        let Some(stamp) = value else {
            return put_varint(&mut self.columns[STAMP], 0);
        };
        if let Some(distance) = self.stamps.distance(stamp) {
            return put_varint(&mut self.columns[STAMP], distance as u64 + 2);
        }
        self.stamps.push(stamp);
        put_varint(&mut self.columns[STAMP], 1);
        let expected = (self.time_ns as i64).wrapping_add(self.offset.unwrap_or(0));
        self.sized(STAMP_SIZE, zigzag(stamp.wrapping_sub(expected)));
    }
    #[inline]
    fn flag(&mut self, _: &'static str, value: bool) {
        self.small_value(u16::from(value));
    }
    fn name(&mut self, _: &'static str, value: &Name) {
        let number = match self.names.get(value) {
            Some(number) => *number,
            None => {
                let number = self.names.len() as u32;
                self.names.insert(value.clone(), number);
                let kept = cut(value);
                put_varint(&mut self.columns[NAMES], kept.len() as u64);
                self.columns[NAMES].extend_from_slice(kept.as_bytes());
                number
            }
        };
        put_varint(&mut self.columns[NAME], u64::from(number));
    }
    #[inline]
    fn choice(&mut self, _: &'static str, _: &'static [&'static str], value: u8) {
        self.small_value(u16::from(value));
    }
}

/// At most [`MAX_NAME`] bytes of a name, whole characters.
fn cut(name: &str) -> &str {
    let mut end = name.len().min(MAX_NAME);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

/// Decodes blocks.
pub struct Decoder {
    columns: [Vec<u8>; COLUMNS],
    at: [usize; COLUMNS],
    bit: usize,
    threads: Vec<(u32, u32)>,
    handles: Vec<u64>,
    messages: Vec<u64>,
    tids: Vec<u32>,
    gids: Vec<[u8; 16]>,
    names: Vec<Name>,
    name_bytes: usize,
    predictor: Predictor,
    history: History,
    stamps: RecentStamps,
    offset: i64,
    time_ns: u64,
    decompressor: Option<zstd::bulk::Decompressor<'static>>,
}

const SHORT: BlockError = BlockError::Content("a column ends too early");
const NO_ENTRY: BlockError = BlockError::Content("a reference points nowhere");

impl Default for Decoder {
    fn default() -> Self {
        Decoder::new()
    }
}

impl Decoder {
    /// A decoder; it can be used for any number of blocks.
    pub fn new() -> Decoder {
        Decoder {
            columns: Default::default(),
            at: [0; COLUMNS],
            bit: 0,
            threads: Vec::new(),
            handles: Vec::new(),
            messages: Vec::new(),
            tids: Vec::new(),
            gids: Vec::new(),
            names: Vec::new(),
            name_bytes: 0,
            predictor: Predictor::new(),
            history: History::new(),
            stamps: RecentStamps::new(),
            offset: 0,
            time_ns: 0,
            decompressor: zstd::bulk::Decompressor::new().ok(),
        }
    }

    /// Replaces the content of `out` by the block's events.
    pub fn decode(
        &mut self,
        header: &BlockHeader,
        body: &[u8],
        out: &mut Vec<Event>,
    ) -> Result<(), BlockError> {
        out.clear();
        if body.len() != header.body_len as usize || crc32fast::hash(body) != header.body_crc {
            return Err(BlockError::Checksum);
        }
        self.unpack(body)?;
        let count = header.events as usize;
        // An event has one byte at least in this column: nothing is allocated for a lie.
        if count > self.columns[KIND].len() || count > MAX_EVENTS {
            return Err(BlockError::Content("more events announced than there are"));
        }
        self.dictionaries()?;
        self.predictor.reset();
        self.history.reset();
        self.stamps = RecentStamps::new();
        self.bit = 0;
        self.name_bytes = 0;
        self.offset = unzigzag(self.varint(META)?);
        self.time_ns = header.first_ns;
        out.reserve_exact(count);
        for _ in 0..count {
            match self.event() {
                Ok(event) => out.push(event),
                Err(error) => {
                    out.clear();
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Decompresses the columns.
    fn unpack(&mut self, body: &[u8]) -> Result<(), BlockError> {
        self.at = [0; COLUMNS];
        let (&count, mut rest) = body.split_first().ok_or(SHORT)?;
        if usize::from(count) != COLUMNS {
            return Err(BlockError::Content(
                "another number of columns than expected",
            ));
        }
        let mut total = 0usize;
        for number in 0..COLUMNS {
            let column = &mut self.columns[number];
            column.clear();
            let raw = take_length(&mut rest)?;
            if raw == 0 {
                continue;
            }
            total += raw;
            if total > MAX_RAW {
                return Err(BlockError::Content("larger than a block may be"));
            }
            let packed = take_length(&mut rest)?;
            let stored = if packed == 0 { raw } else { packed };
            if stored > rest.len() {
                return Err(SHORT);
            }
            let (data, after) = rest.split_at(stored);
            rest = after;
            if packed == 0 {
                column.extend_from_slice(data);
            } else {
                column.reserve_exact(raw);
                let decompressor = self
                    .decompressor
                    .as_mut()
                    .ok_or(BlockError::Decompress { column: number })?;
                let got = decompressor.decompress_to_buffer(data, column);
                // The buffer may be larger than asked for, so the length is checked too.
                if got.ok() != Some(raw) {
                    return Err(BlockError::Decompress { column: number });
                }
            }
        }
        if !rest.is_empty() {
            return Err(BlockError::Content("bytes after the last column"));
        }
        // Room for whole-word reads at the end of the bits.
        self.columns[BITS].extend_from_slice(&[0; 8]);
        Ok(())
    }

    fn dictionaries(&mut self) -> Result<(), BlockError> {
        self.threads.clear();
        let mut last_pid = 0;
        while self.at[THREADS] < self.columns[THREADS].len() {
            let pid = self.difference(THREADS, &mut last_pid)? as u32;
            let beside = unzigzag(self.varint(THREADS)?);
            let tid = i64::from(pid).wrapping_add(beside) as u32;
            self.threads.push((pid, tid));
        }
        let mut last = 0;
        self.handles.clear();
        while self.at[HANDLES] < self.columns[HANDLES].len() {
            let value = self.difference(HANDLES, &mut last)?;
            self.handles.push(value);
        }
        let mut last = 0;
        self.messages.clear();
        while self.at[MESSAGES] < self.columns[MESSAGES].len() {
            let value = self.difference(MESSAGES, &mut last)?;
            self.messages.push(value);
        }
        let mut last = 0;
        self.tids.clear();
        while self.at[TIDS] < self.columns[TIDS].len() {
            let value = self.difference(TIDS, &mut last)?;
            self.tids.push(value as u32);
        }
        self.gids.clear();
        for gid in self.columns[GIDS].chunks_exact(16) {
            let mut value = [0; 16];
            value.copy_from_slice(gid);
            self.gids.push(value);
        }
        self.names.clear();
        let mut rest = self.columns[NAMES].as_slice();
        while !rest.is_empty() {
            let length = take_length(&mut rest)?;
            if length > rest.len() || length > MAX_NAME {
                return Err(SHORT);
            }
            let (name, after) = rest.split_at(length);
            rest = after;
            let name = std::str::from_utf8(name)
                .map_err(|_| BlockError::Content("a name is not UTF-8"))?;
            self.names.push(name.into());
        }
        Ok(())
    }

    fn difference(&mut self, column: usize, last: &mut u64) -> Result<u64, BlockError> {
        *last = last.wrapping_add(unzigzag(self.varint(column)?) as u64);
        Ok(*last)
    }

    #[inline]
    fn event(&mut self) -> Result<Event, BlockError> {
        let delta = self.sized(TIME)?;
        self.time_ns = self.time_ns.wrapping_add(delta);

        let context = self.history.cpu_context();
        let cpu = self.predicted(CPU, context)?;
        let cpu = u16::try_from(cpu).map_err(|_| BlockError::Content("no such CPU"))?;
        self.history.set_cpu(cpu);

        let context = self.history.thread_context();
        let thread = self.predicted(THREAD, context)?;
        let (pid, tid) = *self.threads.get(thread as usize).ok_or(NO_ENTRY)?;
        self.history.set_thread(thread);

        let context = self.history.kind_context();
        let code = self.predicted(KIND, context)?;
        let code = u8::try_from(code).map_err(|_| BlockError::Content("no such kind of event"))?;
        self.history.set_kind(code);
        let kind = table::get(code, self)?.ok_or(BlockError::Content("no such kind of event"))?;
        self.history.end();
        if let EventKind::ClockOffset {
            realtime_minus_monotonic_ns,
        } = kind
        {
            self.offset = realtime_minus_monotonic_ns;
        }
        Ok(Event {
            time_ns: self.time_ns,
            cpu,
            pid,
            tid,
            kind,
        })
    }

    #[inline]
    fn byte(&mut self, column: usize) -> Result<u8, BlockError> {
        let at = &mut self.at[column];
        let byte = *self.columns[column].get(*at).ok_or(SHORT)?;
        *at += 1;
        Ok(byte)
    }

    #[inline]
    fn varint(&mut self, column: usize) -> Result<u64, BlockError> {
        let first = self.byte(column)?;
        if first < 0x80 {
            return Ok(u64::from(first));
        }
        let mut value = u64::from(first & 0x7F);
        for shift in (7..64).step_by(7) {
            let byte = self.byte(column)?;
            value |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(BlockError::Content("a number has too many bytes"))
    }

    #[inline]
    fn predicted(&mut self, column: usize, context: u32) -> Result<u32, BlockError> {
        let code = u32::try_from(self.varint(column)?).map_err(|_| NO_ENTRY)?;
        self.predictor.decode(context, code).ok_or(NO_ENTRY)
    }

    #[inline]
    fn sized(&mut self, column: usize) -> Result<u64, BlockError> {
        let size = u32::from(self.byte(column)?);
        match size {
            0 => Ok(0),
            1 => Ok(1),
            2..=33 => Ok(self.get_bits(size - 1)? | 1 << (size - 1)),
            34..=64 => {
                let low = self.get_bits(32)?;
                Ok(low | self.get_bits(size - 33)? << 32 | 1 << (size - 1))
            }
            _ => Err(BlockError::Content("a number has too many bits")),
        }
    }

    /// The next `count` (at most 32) bits.
    #[inline]
    fn get_bits(&mut self, count: u32) -> Result<u64, BlockError> {
        let column = &self.columns[BITS];
        let start = self.bit >> 3;
        let end = self.bit + count as usize;
        let Some(Ok(word)) = column.get(start..start + 8).map(<[u8; 8]>::try_from) else {
            return Err(SHORT);
        };
        if end > (column.len() - 8) * 8 {
            return Err(SHORT);
        }
        let value = u64::from_le_bytes(word) >> (self.bit & 7) & ((1 << count) - 1);
        self.bit = end;
        Ok(value)
    }

    #[inline]
    fn small_value(&mut self, max: u16) -> Result<u16, BlockError> {
        let context = self.history.field_context(Use::Small);
        let value = self.predicted(SMALL, context)?;
        if value > u32::from(max) {
            return Err(BlockError::Content("a small number is too large"));
        }
        Ok(value as u16)
    }

    #[inline]
    fn integer(&mut self) -> Result<u64, BlockError> {
        let context = self.history.field_context(Use::Int);
        let difference = unzigzag(self.varint(INT)?) as u64;
        let last = self.predictor.integer(context);
        *last = last.wrapping_add(difference);
        Ok(*last)
    }
}

fn take_length(rest: &mut &[u8]) -> Result<usize, BlockError> {
    let mut value = 0;
    for shift in [0, 7, 14, 21, 28] {
        let (&byte, after) = rest.split_first().ok_or(SHORT)?;
        *rest = after;
        value |= usize::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return if value > MAX_RAW {
                Err(BlockError::Content("larger than a block may be"))
            } else {
                Ok(value)
            };
        }
    }
    Err(BlockError::Content("a length has too many bytes"))
}

impl FieldSource for Decoder {
    type Error = BlockError;
    #[inline]
    fn handle(&mut self, _: &'static str) -> Result<u64, BlockError> {
        let context = self.history.field_context(Use::Handle);
        let number = self.predicted(HANDLE, context)?;
        let value = *self.handles.get(number as usize).ok_or(NO_ENTRY)?;
        self.history.set_handle(number);
        Ok(value)
    }
    #[inline]
    fn message(&mut self, _: &'static str) -> Result<u64, BlockError> {
        let context = self.history.field_context(Use::Message);
        let number = self.predicted(MESSAGE, context)?;
        self.messages.get(number as usize).copied().ok_or(NO_ENTRY)
    }
    #[inline]
    fn tid(&mut self, _: &'static str) -> Result<u32, BlockError> {
        let context = self.history.field_context(Use::Tid);
        let number = self.predicted(TID, context)?;
        self.tids.get(number as usize).copied().ok_or(NO_ENTRY)
    }
    #[inline]
    fn small(&mut self, _: &'static str, max: u16) -> Result<u16, BlockError> {
        self.small_value(max)
    }
    #[inline]
    fn int(&mut self, _: &'static str) -> Result<i64, BlockError> {
        Ok(self.integer()? as i64)
    }
    #[inline]
    fn uint(&mut self, _: &'static str) -> Result<u64, BlockError> {
        self.integer()
    }
    #[inline]
    fn mask(&mut self, _: &'static str) -> Result<u64, BlockError> {
        self.integer()
    }
    #[inline]
    fn gid(&mut self, _: &'static str) -> Result<[u8; 16], BlockError> {
        let context = self.history.field_context(Use::Gid);
        let number = self.predicted(GID, context)?;
        let value = *self.gids.get(number as usize).ok_or(NO_ENTRY)?;
        self.history.set_gid(number);
        Ok(value)
    }
    #[inline]
    fn stamp(&mut self, _: &'static str, required: bool) -> Result<Option<i64>, BlockError> {
        match self.varint(STAMP)? {
            0 if required => Err(BlockError::Content("a time stamp is missing")),
            0 => Ok(None),
            1 => {
                let residue = unzigzag(self.sized(STAMP_SIZE)?);
                let expected = (self.time_ns as i64).wrapping_add(self.offset);
                let stamp = expected.wrapping_add(residue);
                self.stamps.push(stamp);
                Ok(Some(stamp))
            }
            distance => {
                let distance = usize::try_from(distance - 2).map_err(|_| NO_ENTRY)?;
                self.stamps.at(distance).map(Some).ok_or(NO_ENTRY)
            }
        }
    }
    #[inline]
    fn flag(&mut self, _: &'static str) -> Result<bool, BlockError> {
        Ok(self.small_value(1)? != 0)
    }
    fn name(&mut self, _: &'static str) -> Result<Name, BlockError> {
        let number = usize::try_from(self.varint(NAME)?).map_err(|_| NO_ENTRY)?;
        let name = self.names.get(number).ok_or(NO_ENTRY)?;
        // One long name that is referred to often must not fill the memory.
        self.name_bytes += name.len();
        if self.name_bytes > MAX_RAW {
            return Err(BlockError::Content("more text than a block may have"));
        }
        Ok(name.clone())
    }
    #[inline]
    fn choice(
        &mut self,
        _: &'static str,
        words: &'static [&'static str],
    ) -> Result<u8, BlockError> {
        Ok(self.small_value(words.len() as u16 - 1)? as u8)
    }
}
