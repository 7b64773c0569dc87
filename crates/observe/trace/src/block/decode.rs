//! Decodes blocks into events. Their bytes are untrusted: every length and index is checked.
use super::stamps::RecentStamps;
use super::varint::{self, unzigzag};
use super::{
    BlockError, BlockHeader, Column, COLUMNS, MAX_EVENTS, MAX_NAME, MAX_RAW, NO_ENTRY, PLAIN,
    SHORT, TOO_LARGE, ZSTD,
};
use crate::event::{Event, EventKind, Name};
use crate::table::{self, FieldSource};
use std::ops::Range;

/// Decodes blocks of a trace file into events. It allocates only to grow its buffers, and reuses
/// them for every block.
pub struct Decoder {
    columns: Columns,
    dictionaries: Dictionaries,
    stamps: RecentStamps,
    offset_ns: i64,
    time_ns: u64,
    /// The total length in bytes of the names that events of the current block refer to. A name
    /// counts once for each reference.
    name_bytes: usize,
}

impl Default for Decoder {
    fn default() -> Self {
        Decoder::new()
    }
}

impl Decoder {
    /// Creates a decoder for any number of blocks.
    pub fn new() -> Decoder {
        Decoder {
            columns: Columns::new(),
            dictionaries: Dictionaries::default(),
            stamps: RecentStamps::new(),
            offset_ns: 0,
            time_ns: 0,
            name_bytes: 0,
        }
    }

    /// Replaces the content of `out` by the block's events. Fails if the block is damaged, and
    /// leaves `out` empty then.
    pub fn decode(
        &mut self,
        header: &BlockHeader,
        body: &[u8],
        out: &mut Vec<Event>,
    ) -> Result<(), BlockError> {
        out.clear();
        let result = self.events(header, body, out);
        if result.is_err() {
            out.clear();
        }
        result
    }

    fn events(
        &mut self,
        header: &BlockHeader,
        body: &[u8],
        out: &mut Vec<Event>,
    ) -> Result<(), BlockError> {
        if body.len() != header.body_len as usize || crc32fast::hash(body) != header.body_crc {
            return Err(BlockError::Checksum);
        }
        self.columns.unpack(body)?;
        let count = header.events as usize;
        // Each event has at least one byte in this column, so a wrong count cannot cause a large
        // allocation.
        if count > self.columns.rest(Column::Kind).len() || count > MAX_EVENTS {
            return Err(BlockError::Content(
                "the header announces more events than the block has",
            ));
        }
        self.dictionaries.read(&mut self.columns)?;
        self.stamps = RecentStamps::new();
        self.name_bytes = 0;
        self.offset_ns = unzigzag(self.columns.varint(Column::ClockOffset)?);
        self.time_ns = header.first_ns;
        out.reserve_exact(count);
        for _ in 0..count {
            out.push(self.event()?);
        }
        Ok(())
    }

    #[inline]
    fn event(&mut self) -> Result<Event, BlockError> {
        let since_last = self.columns.varint(Column::Time)?;
        self.time_ns = self.time_ns.wrapping_add(since_last);
        let cpu = self.columns.varint(Column::Cpu)?;
        let cpu =
            u16::try_from(cpu).map_err(|_| BlockError::Content("a CPU number is too large"))?;
        let (pid, tid) = entry(
            &self.dictionaries.threads,
            &mut self.columns,
            Column::Thread,
        )?;
        let code = self.columns.varint(Column::Kind)?;
        let kind = match u8::try_from(code) {
            Ok(code) => table::get(code, self)?,
            Err(_) => None,
        };
        let kind = kind.ok_or(BlockError::Content("an event has an unknown kind"))?;
        if let EventKind::ClockOffset {
            realtime_minus_monotonic_ns,
        } = kind
        {
            self.offset_ns = realtime_minus_monotonic_ns;
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
    fn small_value(&mut self, max: u16) -> Result<u16, BlockError> {
        match u16::try_from(self.columns.varint(Column::Small)?) {
            Ok(value) if value <= max => Ok(value),
            _ => Err(BlockError::Content("a number is too large for its field")),
        }
    }
}

#[inline]
fn entry<T: Copy>(
    dictionary: &[T],
    columns: &mut Columns,
    column: Column,
) -> Result<T, BlockError> {
    let index = columns.index(column)?;
    dictionary.get(index).copied().ok_or(NO_ENTRY)
}

struct Columns {
    data: Vec<u8>,
    rest: [Range<usize>; COLUMNS],
    decompressor: Option<zstd::bulk::Decompressor<'static>>,
}

impl Columns {
    fn new() -> Self {
        Columns {
            data: Vec::new(),
            rest: std::array::from_fn(|_| 0..0),
            decompressor: zstd::bulk::Decompressor::new().ok(),
        }
    }

    fn unpack(&mut self, body: &[u8]) -> Result<(), BlockError> {
        let (&packing, mut stored) = body.split_first().ok_or(SHORT)?;
        let length = take_length(&mut stored)?;
        self.data.clear();
        match packing {
            PLAIN => self.data.extend_from_slice(stored),
            ZSTD => {
                self.data.reserve_exact(length);
                let decompressor = self.decompressor.as_mut();
                decompressor
                    .and_then(|d| d.decompress_to_buffer(stored, &mut self.data).ok())
                    .ok_or(BlockError::Decompress)?;
            }
            _ => return Err(BlockError::Content("unknown compression")),
        }
        // The buffer may be larger than requested, so a frame may be longer than announced.
        if self.data.len() != length {
            return Err(BlockError::Decompress);
        }
        let mut lengths = self.data.as_slice();
        let mut end = 0;
        for rest in &mut self.rest {
            let start = end;
            end += take_length(&mut lengths)?;
            *rest = start..end;
        }
        let begin = self.data.len() - lengths.len();
        if end != lengths.len() {
            return Err(BlockError::Content(
                "the lengths of the columns do not match the block",
            ));
        }
        for rest in &mut self.rest {
            *rest = rest.start + begin..rest.end + begin;
        }
        Ok(())
    }

    #[inline]
    fn rest(&self, column: Column) -> &[u8] {
        &self.data[self.rest[column as usize].clone()]
    }

    #[inline]
    fn varint(&mut self, column: Column) -> Result<u64, BlockError> {
        let rest = &mut self.rest[column as usize];
        match self.data.get(rest.start) {
            // Most numbers fit into one byte.
            Some(&byte) if byte < 0x80 && rest.start < rest.end => {
                rest.start += 1;
                Ok(u64::from(byte))
            }
            _ => self.long_varint(column),
        }
    }

    /// Reads a number of more than one byte. It is a function of its own so that `varint` stays
    /// small enough to be inlined.
    #[inline(never)]
    fn long_varint(&mut self, column: Column) -> Result<u64, BlockError> {
        let rest = &mut self.rest[column as usize];
        let mut bytes = &self.data[rest.clone()];
        let value = varint::take(&mut bytes)?;
        rest.start = rest.end - bytes.len();
        Ok(value)
    }

    #[inline]
    fn index(&mut self, column: Column) -> Result<usize, BlockError> {
        usize::try_from(self.varint(column)?).map_err(|_| NO_ENTRY)
    }

    fn bytes(&mut self, column: Column, length: usize) -> Result<&[u8], BlockError> {
        let rest = &mut self.rest[column as usize];
        if length > rest.len() {
            return Err(SHORT);
        }
        let start = rest.start;
        rest.start += length;
        Ok(&self.data[start..start + length])
    }
}

fn take_length(bytes: &mut &[u8]) -> Result<usize, BlockError> {
    match usize::try_from(varint::take(bytes)?) {
        Ok(length) if length <= MAX_RAW => Ok(length),
        _ => Err(TOO_LARGE),
    }
}

#[derive(Default)]
struct Dictionaries {
    threads: Vec<(u32, u32)>,
    handles: Vec<u64>,
    messages: Vec<u64>,
    tids: Vec<u64>,
    gids: Vec<[u8; 16]>,
    names: Vec<Name>,
}

impl Dictionaries {
    fn read(&mut self, columns: &mut Columns) -> Result<(), BlockError> {
        self.threads.clear();
        let mut pid = 0u32;
        while !columns.rest(Column::Threads).is_empty() {
            pid = relative_to(pid, columns.varint(Column::Threads)?);
            let tid = relative_to(pid, columns.varint(Column::Threads)?);
            self.threads.push((pid, tid));
        }
        read_numbers(&mut self.handles, columns, Column::Handles)?;
        read_numbers(&mut self.messages, columns, Column::Messages)?;
        read_numbers(&mut self.tids, columns, Column::Tids)?;
        self.gids.clear();
        for gid in columns.rest(Column::Gids).chunks_exact(16) {
            let mut value = [0; 16];
            value.copy_from_slice(gid);
            self.gids.push(value);
        }
        self.names.clear();
        while !columns.rest(Column::Names).is_empty() {
            let length = columns.index(Column::Names)?;
            if length > MAX_NAME {
                return Err(SHORT);
            }
            let name = std::str::from_utf8(columns.bytes(Column::Names, length)?)
                .map_err(|_| BlockError::Content("a name is not UTF-8"))?;
            self.names.push(name.into());
        }
        Ok(())
    }
}

fn relative_to(base: u32, difference: u64) -> u32 {
    i64::from(base).wrapping_add(unzigzag(difference)) as u32
}

fn read_numbers(
    numbers: &mut Vec<u64>,
    columns: &mut Columns,
    column: Column,
) -> Result<(), BlockError> {
    numbers.clear();
    let mut last = 0u64;
    while !columns.rest(column).is_empty() {
        last = last.wrapping_add(unzigzag(columns.varint(column)?) as u64);
        numbers.push(last);
    }
    Ok(())
}

impl FieldSource for Decoder {
    type Error = BlockError;
    #[inline]
    fn handle(&mut self, _: &'static str) -> Result<u64, BlockError> {
        entry(
            &self.dictionaries.handles,
            &mut self.columns,
            Column::Handle,
        )
    }
    #[inline]
    fn message(&mut self, _: &'static str) -> Result<u64, BlockError> {
        entry(
            &self.dictionaries.messages,
            &mut self.columns,
            Column::Message,
        )
    }
    #[inline]
    fn tid(&mut self, _: &'static str) -> Result<u32, BlockError> {
        let tid = entry(&self.dictionaries.tids, &mut self.columns, Column::Tid)?;
        Ok(tid as u32)
    }
    #[inline]
    fn small(&mut self, _: &'static str, max: u16) -> Result<u16, BlockError> {
        self.small_value(max)
    }
    #[inline]
    fn int(&mut self, _: &'static str) -> Result<i64, BlockError> {
        Ok(unzigzag(self.columns.varint(Column::Int)?))
    }
    #[inline]
    fn uint(&mut self, _: &'static str) -> Result<u64, BlockError> {
        self.columns.varint(Column::Int)
    }
    #[inline]
    fn mask(&mut self, _: &'static str) -> Result<u64, BlockError> {
        self.columns.varint(Column::Int)
    }
    #[inline]
    fn gid(&mut self, _: &'static str) -> Result<[u8; 16], BlockError> {
        entry(&self.dictionaries.gids, &mut self.columns, Column::Gid)
    }
    #[inline]
    fn stamp(&mut self, _: &'static str, required: bool) -> Result<Option<i64>, BlockError> {
        match self.columns.index(Column::Stamp)? {
            0 if required => Err(BlockError::Content("a time stamp is missing")),
            0 => Ok(None),
            1 => {
                let difference = unzigzag(self.columns.varint(Column::NewStamp)?);
                let expected = (self.time_ns as i64).wrapping_add(self.offset_ns);
                let stamp = expected.wrapping_add(difference);
                self.stamps.push(stamp);
                Ok(Some(stamp))
            }
            distance => self.stamps.at(distance - 2).map(Some).ok_or(NO_ENTRY),
        }
    }
    #[inline]
    fn flag(&mut self, _: &'static str) -> Result<bool, BlockError> {
        Ok(self.small_value(1)? != 0)
    }
    fn name(&mut self, _: &'static str) -> Result<Name, BlockError> {
        let index = self.columns.index(Column::Name)?;
        let name = self.dictionaries.names.get(index).ok_or(NO_ENTRY)?;
        // Many events may refer to one long name. Together they must not exhaust the memory.
        self.name_bytes += name.len();
        if self.name_bytes > MAX_RAW {
            return Err(BlockError::Content(
                "the names in the block's events have more than 64 MiB in total",
            ));
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

#[cfg(test)]
mod tests {
    use super::super::{Encoder, MAX_BODY};
    use super::*;

    fn one_event() -> [Vec<u8>; COLUMNS] {
        let mut columns: [Vec<u8>; COLUMNS] = Default::default();
        columns[Column::ClockOffset as usize] = vec![0];
        columns[Column::Threads as usize] = vec![2, 2];
        columns[Column::Time as usize] = vec![5];
        columns[Column::Cpu as usize] = vec![3];
        columns[Column::Thread as usize] = vec![0];
        columns[Column::Kind as usize] = vec![table::code(&EventKind::Wait)];
        columns
    }

    fn body(columns: &[Vec<u8>; COLUMNS]) -> Vec<u8> {
        let mut raw: Vec<u8> = columns.iter().map(|c| c.len() as u8).collect();
        raw.extend(columns.concat());
        let mut body = vec![PLAIN];
        varint::put(&mut body, raw.len() as u64);
        body.extend(raw);
        body
    }

    fn decode(events: u32, body: &[u8]) -> Result<Vec<Event>, String> {
        let header = BlockHeader {
            body_len: body.len() as u32,
            body_crc: crc32fast::hash(body),
            events,
            sequence: 0,
            first_ns: 100,
            last_ns: 200,
        };
        let mut out = Vec::new();
        match Decoder::new().decode(&header, body, &mut out) {
            Ok(()) => Ok(out),
            Err(error) => {
                assert!(out.is_empty());
                Err(error.to_string())
            }
        }
    }

    #[test]
    fn a_handwritten_block_is_decoded() {
        let wait = Event {
            time_ns: 105,
            cpu: 3,
            pid: 1,
            tid: 2,
            kind: EventKind::Wait,
        };
        assert_eq!(decode(1, &body(&one_event())), Ok(vec![wait]));
    }

    #[test]
    fn blocks_with_inconsistent_columns_are_refused() {
        let with = |column: Column, bytes: &[u8]| {
            let mut columns = one_event();
            columns[column as usize] = bytes.to_vec();
            decode(1, &body(&columns)).expect_err("refused")
        };
        assert_eq!(with(Column::Time, &[]), "a column ends too early");
        assert_eq!(
            with(Column::Thread, &[1]),
            "an index is outside of its dictionary"
        );
        assert_eq!(
            with(Column::Cpu, &[0xFF, 0xFF, 0x7F]),
            "a CPU number is too large"
        );
        assert_eq!(with(Column::Kind, &[250]), "a column ends too early");
        assert_eq!(with(Column::Kind, &[120]), "an event has an unknown kind");
        assert_eq!(with(Column::Names, &[1, 0xFF]), "a name is not UTF-8");
        assert_eq!(with(Column::Names, &[3, b'a']), "a column ends too early");
        let take = table::by_name("take").expect("a kind").code;
        let mut columns = one_event();
        columns[Column::Kind as usize] = vec![take];
        columns[Column::Handles as usize] = vec![2];
        columns[Column::Handle as usize] = vec![0];
        columns[Column::Messages as usize] = vec![2];
        columns[Column::Message as usize] = vec![0];
        for (stamp, why) in [
            (0, "a time stamp is missing"),
            (2, "an index is outside of its dictionary"),
        ] {
            columns[Column::Stamp as usize] = vec![stamp];
            assert_eq!(decode(1, &body(&columns)).expect_err("refused"), why);
        }
        columns[Column::Stamp as usize] = vec![1];
        columns[Column::NewStamp as usize] = vec![0];
        columns[Column::Small as usize] = vec![2];
        let why = decode(1, &body(&columns)).expect_err("refused");
        assert_eq!(why, "a number is too large for its field");
    }

    #[test]
    fn wrong_lengths_in_a_block_are_refused_before_memory_is_allocated() {
        let good = body(&one_event());
        let announced = decode(u32::MAX, &good).expect_err("refused");
        assert_eq!(
            announced,
            "the header announces more events than the block has"
        );
        assert!(decode(1, &[]).is_err());
        assert!(decode(1, &good[..good.len() - 1]).is_err());
        let mut more = good.clone();
        more.push(0);
        assert!(decode(1, &more).is_err());
        more[1] += 1;
        let why = decode(1, &more).expect_err("refused");
        assert_eq!(why, "the lengths of the columns do not match the block");
        let mut unknown = good;
        unknown[0] = 2;
        assert_eq!(
            decode(1, &unknown).expect_err("refused"),
            "unknown compression"
        );
        let mut huge = vec![ZSTD];
        varint::put(&mut huge, MAX_BODY as u64 + 1);
        assert_eq!(
            decode(1, &huge).expect_err("refused"),
            "the block states a length of more than 64 MiB"
        );
        let mut no_frame = vec![ZSTD];
        varint::put(&mut no_frame, MAX_BODY as u64);
        no_frame.extend([7; 40]);
        assert_eq!(
            decode(1, &no_frame).expect_err("refused"),
            "the columns cannot be decompressed"
        );
    }

    #[test]
    fn the_total_text_of_repeated_names_is_limited() {
        let lost = |number| Event {
            time_ns: number,
            cpu: 0,
            pid: 0,
            tid: 0,
            kind: EventKind::Lost {
                probe: "x".repeat(MAX_NAME).into(),
                count: 1,
            },
        };
        let decode = |count: usize| {
            let events: Vec<Event> = (0..count as u64).map(lost).collect();
            let mut bytes = Vec::new();
            Encoder::new(3).encode(&events, 0, &mut bytes);
            super::tests::decode(count as u32, &bytes[super::super::HEADER_LEN..])
        };
        let most = MAX_RAW / MAX_NAME;
        assert_eq!(decode(most).map(|events| events.len()), Ok(most));
        let why = decode(most + 1).expect_err("refused");
        assert_eq!(
            why,
            "the names in the block's events have more than 64 MiB in total"
        );
    }
}
