//! Reads the data of a group or channel as one stream of bytes: data blocks, packed or not, and
//! lists of them.

use super::input::{long, place, Input, HEADER};
use crate::source::inflate::inflate;
use crate::source::Bytes;
use std::io::Result;

/// The maximum number of bytes that are read at once of a block that is not packed.
const CHUNK: u64 = 64 << 10;
/// The largest size of a packed block in bytes, before and after unpacking. The format allows 4
/// MiB.
const LONGEST: u64 = 64 << 20;
/// The maximum number of unpacked bytes in memory, summed over all streams of a file.
const MOST_HELD: usize = 256 << 20;
/// The size in bytes of the fields between the header and the data of a packed block.
const PACKED_HEADER: usize = 24;
const LINKS_AT_ONCE: u64 = 512;

const TORN: &str = "data blocks cut off by the end of the file, read up to the cut";
const UNREADABLE: &str = "unreadable data blocks; the data was read up to the block";
const SHARED: &str = "data blocks that share bytes of the file, left out";
const COLUMNS: &str = "groups with data in columns (blocks LD, DV and DI of MDF 4.2), not replayed";

/// The kind of a stream's content. All data blocks of the stream must have this kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    Records,
    Values,
}

impl Content {
    fn kind(self) -> &'static [u8; 2] {
        match self {
            Content::Records => b"DT",
            Content::Values => b"SD",
        }
    }

    /// Returns the number of bytes that stay in memory before the position that is read. These
    /// bytes are needed because values may be stored in another order than the records that use
    /// them.
    fn kept(self) -> usize {
        match self {
            Content::Records => 0,
            Content::Values => 256 << 10,
        }
    }
}

enum Part {
    Plain {
        at: u64,
        length: u64,
    },
    Packed {
        at: u64,
        length: u64,
        plain: u64,
        columns: Option<usize>,
    },
}

struct Chain {
    content: Content,
    /// The links of the list that was followed last: those that were read from the file and not
    /// followed yet, in reverse order.
    links: Vec<u64>,
    /// The position in the file of the next link to read. The link belongs to the list that was
    /// followed last.
    list_at: u64,
    list_left: u64,
    next_list: u64,
}

impl Chain {
    fn stop(&mut self) {
        self.links.clear();
        (self.list_left, self.next_list) = (0, 0);
    }

    /// Returns true if the stream has no further block. The lists of unfinished files end with
    /// links that lead nowhere.
    fn is_at_end(&self) -> bool {
        let has_link = self.links.iter().any(|link| *link != 0);
        !has_link && self.list_left == 0 && self.next_list == 0
    }

    fn next<R: Bytes>(&mut self, input: &mut Input<R>) -> Result<Option<Part>> {
        loop {
            match self.links.pop() {
                Some(0) => {}
                Some(link) => {
                    let part = self.follow(input, link)?;
                    if part.is_some() {
                        return Ok(part);
                    }
                }
                None if self.list_left > 0 => self.more_links(input)?,
                None if self.next_list != 0 => {
                    self.links.push(std::mem::take(&mut self.next_list));
                }
                None => return Ok(None),
            }
        }
    }

    fn fail<R: Bytes>(
        &mut self,
        input: &mut Input<R>,
        what: &'static str,
        at: u64,
    ) -> Result<Option<Part>> {
        input.damage.add(what, || place(at));
        self.stop();
        Ok(None)
    }

    fn more_links<R: Bytes>(&mut self, input: &mut Input<R>) -> Result<()> {
        let count = self.list_left.min(LINKS_AT_ONCE);
        let mut bytes = Vec::new();
        let read = input.append(self.list_at, count * 8, &mut bytes)?;
        self.links
            .extend(bytes.chunks_exact(8).rev().map(|link| long(link, 0)));
        self.list_at += count * 8;
        self.list_left -= count;
        if read as u64 != count * 8 || !input.charge(count * 8) {
            self.fail(input, UNREADABLE, self.list_at)?;
        }
        Ok(())
    }

    /// Follows the link `at`. If the link leads to a data block, returns the block. If the link
    /// leads to a list, continues with the links of the list and returns `None`.
    fn follow<R: Bytes>(&mut self, input: &mut Input<R>, at: u64) -> Result<Option<Part>> {
        let Some(header) = input.exact::<HEADER>(at)? else {
            let what = if at < input.size { TORN } else { UNREADABLE };
            return self.fail(input, what, at);
        };
        if !input.charge(HEADER as u64) {
            return self.fail(input, SHARED, at);
        }
        let (length, links) = (long(&header, 8), long(&header, 16));
        let kind = [header[2], header[3]];
        let is_block = header.starts_with(b"##");
        match &kind {
            b"DL" | b"HL" if is_block && links > 0 => {
                let Some(next) = input.exact::<8>(at + HEADER as u64)? else {
                    return self.fail(input, TORN, at);
                };
                self.next_list = long(&next, 0);
                if kind == *b"DL" {
                    self.list_at = at + HEADER as u64 + 8;
                    self.list_left = links - 1;
                }
                Ok(None)
            }
            b"DZ" if is_block => self.packed(input, at, length),
            b"LD" | b"DV" | b"DI" if is_block => self.fail(input, COLUMNS, at),
            kind if is_block && kind == self.content.kind() => self.plain(input, at, length),
            _ => self.fail(input, UNREADABLE, at),
        }
    }

    fn plain<R: Bytes>(
        &mut self,
        input: &mut Input<R>,
        at: u64,
        length: u64,
    ) -> Result<Option<Part>> {
        let there = input.size - at - HEADER as u64;
        let mut length = length.checked_sub(HEADER as u64);
        if input.is_unfinished && self.is_at_end() && !is_followed(input, at, length)? {
            length = Some(there);
        }
        let Some(length) = length else {
            return self.fail(input, UNREADABLE, at);
        };
        if !input.charge(length.min(there)) {
            return self.fail(input, SHARED, at);
        }
        let at = at + HEADER as u64;
        Ok(Some(Part::Plain { at, length }))
    }

    fn packed<R: Bytes>(
        &mut self,
        input: &mut Input<R>,
        at: u64,
        length: u64,
    ) -> Result<Option<Part>> {
        const DEFLATED: u8 = 0;
        const TRANSPOSED: u8 = 1;
        let Some(about) = input.exact::<PACKED_HEADER>(at + HEADER as u64)? else {
            return self.fail(input, TORN, at);
        };
        let columns = u32::from_le_bytes([about[4], about[5], about[6], about[7]]) as usize;
        let columns = match about[2] {
            DEFLATED => None,
            TRANSPOSED if columns > 0 => Some(columns),
            _ => {
                return self.fail(
                    input,
                    "data blocks with an unknown packing; the data was read up to the block",
                    at,
                )
            }
        };
        let (plain, packed) = (long(&about, 8), long(&about, 16));
        let room = length.saturating_sub((HEADER + PACKED_HEADER) as u64);
        if about[..2] != *self.content.kind() || plain > LONGEST || packed > LONGEST.min(room) {
            return self.fail(input, UNREADABLE, at);
        }
        let at = at + (HEADER + PACKED_HEADER) as u64;
        if !input.charge(packed.min(input.size - at)) {
            return self.fail(input, SHARED, at);
        }
        Ok(Some(Part::Packed {
            at,
            length: packed,
            plain,
            columns,
        }))
    }
}

/// Returns true if the file has another block after the data block at `at`, which has `length`
/// bytes. Returns false for the last data block of an unfinished file, and if the block's length is
/// not valid yet.
fn is_followed<R: Bytes>(input: &mut Input<R>, at: u64, length: Option<u64>) -> Result<bool> {
    let end = length.and_then(|length| at.checked_add(HEADER as u64)?.checked_add(length));
    let Some(next) = end.and_then(|end| end.checked_next_multiple_of(8)) else {
        return Ok(false);
    };
    let header = input.exact::<HEADER>(next)?;
    Ok(header.is_some_and(|header| {
        header.starts_with(b"##") && header[2].is_ascii_uppercase() && header[4..8] == [0; 4]
    }))
}

/// The result of a search for bytes of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    Here,
    /// The bytes are damaged, or were dropped from memory. The value is the position of the next
    /// bytes that can be read.
    Lost(u64),
    End,
}

pub struct Stream {
    chain: Chain,
    /// The bytes of the stream that can be read. The first one has the position `base`.
    plain: Vec<u8>,
    base: u64,
    /// An unpacked block that is stored by columns. Its bytes follow those in `plain`.
    table: Table,
    /// The part that was not read yet of a block that is not packed: its position in the file and
    /// its length.
    rest: (u64, u64),
    /// The number of damaged bytes that follow the bytes in `plain`.
    gap: u64,
    held: usize,
}

impl Stream {
    pub fn new(content: Content, first: u64) -> Stream {
        Stream {
            chain: Chain {
                content,
                links: vec![first],
                list_at: 0,
                list_left: 0,
                next_list: 0,
            },
            plain: Vec::new(),
            base: 0,
            table: Table::default(),
            rest: (0, 0),
            gap: 0,
            held: 0,
        }
    }

    /// Returns `length` bytes of the stream from position `from` on. A call of [`Stream::find`]
    /// must have found them.
    pub fn bytes(&self, from: u64, length: usize) -> &[u8] {
        let at = (from - self.base) as usize;
        &self.plain[at..at + length]
    }

    /// Returns `length` bytes of the stream from position `from` on, or `None` if they are not in
    /// memory.
    #[inline(always)]
    pub fn held(&self, from: u64, length: usize) -> Option<&[u8]> {
        let at = from.checked_sub(self.base)? as usize;
        self.plain.get(at..)?.get(..length)
    }

    /// Returns the position in the stream of the first byte after those in memory.
    pub fn end(&self) -> u64 {
        self.plain_end() + self.table.left() as u64
    }

    fn plain_end(&self) -> u64 {
        self.base + self.plain.len() as u64
    }

    /// Reads the stream until the `length` bytes from position `from` on are in memory.
    #[inline]
    pub fn find<R: Bytes>(
        &mut self,
        input: &mut Input<R>,
        from: u64,
        length: usize,
    ) -> Result<Found> {
        let Some(to) = from.checked_add(length as u64) else {
            return Ok(Found::End);
        };
        match from >= self.base && to <= self.plain_end() {
            true => Ok(Found::Here),
            false => self.search(input, from, to),
        }
    }

    fn search<R: Bytes>(&mut self, input: &mut Input<R>, from: u64, to: u64) -> Result<Found> {
        loop {
            if from < self.base {
                return Ok(Found::Lost(self.base));
            }
            if to <= self.plain_end() {
                return Ok(Found::Here);
            }
            if self.gap > 0 && self.table.left() == 0 {
                self.pass(0);
            } else if !self.load(input, from)? {
                return Ok(Found::End);
            }
        }
    }

    /// Frees the stream's memory. After this call, the stream has no bytes.
    pub fn close<R: Bytes>(&mut self, input: &mut Input<R>) {
        self.chain.stop();
        self.rest = (0, 0);
        self.pass(0);
        (self.plain, self.table) = (Vec::new(), Table::default());
        self.hold(input, 0);
    }

    /// Drops the bytes in memory. Skips the damaged bytes that follow them, and then `more` bytes.
    fn pass(&mut self, more: u64) {
        self.base = (self.end().saturating_add(self.gap)).saturating_add(more);
        self.gap = 0;
        self.plain.clear();
        self.table.clear();
    }

    /// Returns how many of the bytes after those in memory can be skipped if the caller needs the
    /// bytes from `from` on.
    fn ahead(&self, from: u64) -> u64 {
        let kept = self.chain.content.kept() as u64;
        from.saturating_sub(self.end()).saturating_sub(kept)
    }

    fn load<R: Bytes>(&mut self, input: &mut Input<R>, from: u64) -> Result<bool> {
        let passed = (from.min(self.plain_end()) - self.base) as usize;
        let kept = self.chain.content.kept();
        if passed > 2 * kept {
            self.plain.drain(..passed - kept);
            self.base += (passed - kept) as u64;
        }
        if self.table.left() > 0 {
            // Values are read in any order, so that their whole block must stay in memory.
            let most = match self.chain.content {
                Content::Records => Table::ROWS_AT_ONCE,
                Content::Values => usize::MAX,
            };
            self.table.append_rows(&mut self.plain, most);
            return Ok(true);
        }
        if self.rest.1 > 0 {
            self.load_plain(input, from)?;
            return Ok(true);
        }
        match self.chain.next(input)? {
            None => return Ok(false),
            Some(Part::Plain { at, length }) => self.rest = (at, length),
            Some(Part::Packed {
                at,
                length,
                plain,
                columns,
            }) => {
                if self.ahead(from) >= plain.max(1) {
                    self.pass(plain);
                } else {
                    self.unpack(input, at, length, plain as usize, columns)?;
                }
            }
        }
        Ok(true)
    }

    fn load_plain<R: Bytes>(&mut self, input: &mut Input<R>, from: u64) -> Result<()> {
        let (at, length) = self.rest;
        let skipped = self.ahead(from).min(length);
        if skipped > 0 {
            self.pass(skipped);
            self.rest = (at.saturating_add(skipped), length - skipped);
            return Ok(());
        }
        let wanted = length.min(CHUNK);
        let read = input.append(at, wanted, &mut self.plain)? as u64;
        self.rest = (at + read, length - read);
        if read < wanted {
            input.damage.add(TORN, || place(at + read));
            self.rest.1 = 0;
            self.chain.stop();
        }
        Ok(())
    }

    fn unpack<R: Bytes>(
        &mut self,
        input: &mut Input<R>,
        at: u64,
        length: u64,
        size: usize,
        columns: Option<usize>,
    ) -> Result<()> {
        let start = self.plain.len();
        // Values that are stored in columns are copied once more, row by row.
        let is_copied = columns.is_some() && matches!(self.chain.content, Content::Values);
        self.hold(input, start + size + if is_copied { size } else { 0 });
        if input.held > MOST_HELD {
            input.damage.add(
                "packed data blocks left out, because the unpacked data of a file may use at most 256 MiB",
                || place(at),
            );
            self.gap = size as u64;
            return Ok(());
        }
        let mut packed = std::mem::take(&mut input.packed);
        packed.clear();
        let read = input.append(at, length, &mut packed)? as u64;
        let (is_complete, mut there) = match columns {
            None => {
                let is_complete =
                    inflate(&mut input.inflater, &packed, &mut self.plain, size, size);
                (is_complete, self.plain.len() - start)
            }
            Some(columns) => {
                let table = self.table.emptied(columns);
                let is_complete = inflate(&mut input.inflater, &packed, table, size, size);
                (is_complete, table.len())
            }
        };
        // A block with a wrong checksum can have any number of wrong bytes.
        let is_torn = read < length;
        if there == size && !is_complete && !is_torn {
            there = 0;
        }
        let kept = match columns {
            None => {
                self.plain.truncate(start + there.min(size));
                self.plain.len() - start
            }
            // Each row needs all columns, so no row of a damaged block is whole.
            Some(_) => self.table.keep(if there < size { 0 } else { size }),
        };
        if there < size {
            let what = match is_torn {
                true => TORN,
                false => "damaged packed data blocks, read up to the damage",
            };
            input.damage.add(what, || place(at));
            self.gap = (size - kept) as u64;
        }
        input.packed = packed;
        Ok(())
    }

    fn hold<R: Bytes>(&mut self, input: &mut Input<R>, bytes: usize) {
        input.held = input.held.saturating_sub(self.held).saturating_add(bytes);
        self.held = bytes;
    }
}

/// A block whose records are stored by columns: first the first byte of each record, then the second
/// byte of each, and so on. It is converted to rows while it is read.
#[derive(Default)]
struct Table {
    bytes: Vec<u8>,
    columns: usize,
    /// The number of bytes that were converted.
    converted: usize,
}

impl Table {
    /// The usual number of rows that are converted at once. With fewer rows, the parts of the
    /// columns are so short that reading them takes longer than converting them.
    const ROWS_AT_ONCE: usize = 512;

    /// Returns the number of bytes that were not converted yet.
    fn left(&self) -> usize {
        self.bytes.len() - self.converted
    }

    fn clear(&mut self) {
        self.keep(0);
    }

    /// Removes the table's bytes, and returns the empty memory for those of a table with `columns`
    /// columns.
    fn emptied(&mut self, columns: usize) -> &mut Vec<u8> {
        self.clear();
        self.columns = columns;
        &mut self.bytes
    }

    /// Keeps the first `bytes` bytes, and returns their number.
    fn keep(&mut self, bytes: usize) -> usize {
        self.bytes.truncate(bytes);
        self.converted = 0;
        self.bytes.len()
    }

    /// Appends the next rows to `plain`, at most `most` rows. The bytes after the last complete row
    /// follow this row as they are.
    fn append_rows(&mut self, plain: &mut Vec<u8>, most: usize) {
        let (columns, rows) = (self.columns, self.bytes.len() / self.columns);
        let first = self.converted / columns;
        let count = most.min(rows - first);
        let start = plain.len();
        plain.resize(start + count * columns, 0);
        if count > 0 {
            self.turn_rows(first, &mut plain[start..]);
        }
        self.converted += count * columns;
        if first + count == rows {
            plain.extend_from_slice(&self.bytes[rows * columns..]);
            self.converted = self.bytes.len();
        }
    }

    /// Writes rows to `to`, from the row number `first` on. All bytes of `to` must be 0.
    fn turn_rows(&self, first: usize, to: &mut [u8]) {
        let (columns, rows) = (self.columns, self.bytes.len() / self.columns);
        let count = to.len() / columns;
        for column in (0..columns).step_by(SQUARE) {
            let width = SQUARE.min(columns - column);
            let values: [&[u8]; SQUARE] = std::array::from_fn(|at| {
                let column = column + at.min(width - 1);
                &self.bytes[column * rows + first..][..count]
            });
            // Most records have room for more data bytes than their frame has. The rest is 0.
            let is_zero = |bytes: &[u8]| bytes.iter().fold(0, |all, byte| all | byte) == 0;
            if values.into_iter().all(is_zero) {
                continue;
            }
            for row in (0..count).step_by(SQUARE) {
                let height = SQUARE.min(count - row);
                let mut square = [0; SQUARE];
                for (line, values) in square.iter_mut().zip(values) {
                    *line = line_of(&values[row..row + height]);
                }
                turn(&mut square);
                for (at, line) in square[..height].iter().enumerate() {
                    let to = &mut to[(row + at) * columns + column..][..width];
                    match to.first_chunk_mut() {
                        Some(to) => *to = line.to_le_bytes(),
                        None => to.copy_from_slice(&line.to_le_bytes()[..width]),
                    }
                }
            }
        }
    }
}

/// The number of rows and columns of the squares that [`Table`] turns.
const SQUARE: usize = 8;

/// Returns up to eight bytes as a little-endian number.
fn line_of(bytes: &[u8]) -> u64 {
    match bytes.first_chunk() {
        Some(bytes) => u64::from_le_bytes(*bytes),
        None => bytes
            .iter()
            .rev()
            .fold(0, |line, byte| line << 8 | u64::from(*byte)),
    }
}

/// Exchanges the rows and the columns of a square of bytes. A row is a little-endian number.
fn turn(square: &mut [u64; SQUARE]) {
    let mut swap = |upper: usize, lower: usize, bits: u32, mask: u64| {
        let both = (square[upper] >> bits ^ square[lower]) & mask;
        square[lower] ^= both;
        square[upper] ^= both << bits;
    };
    for at in 0..4 {
        swap(at, at + 4, 32, 0xffff_ffff);
    }
    for at in [0, 1, 4, 5] {
        swap(at, at + 2, 16, 0xffff_0000_ffff);
    }
    for at in [0, 2, 4, 6] {
        swap(at, at + 1, 8, 0x00ff_00ff_00ff_00ff);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_by_columns_becomes_a_table_by_rows() {
        for (columns, count) in [1, 2, 7, 8, 9, 16, 17, 89]
            .into_iter()
            .flat_map(|columns| [0, 1, 7, 8, 63, 64, 65, 200].map(|count| (columns, count)))
        {
            let rest = columns - 1;
            let table: Vec<u8> = (0..columns * count + rest)
                .map(|at| (at * 31 + at / 251) as u8)
                .collect();
            let mut wanted = table.clone();
            for row in 0..count {
                for column in 0..columns {
                    wanted[row * columns + column] = table[column * count + row];
                }
            }
            for most in [3, 64, usize::MAX] {
                let mut found = vec![0xee];
                let mut by_columns = Table::default();
                by_columns.emptied(columns).extend_from_slice(&table);
                while by_columns.left() > 0 {
                    by_columns.append_rows(&mut found, most);
                }
                assert_eq!(
                    found[1..],
                    wanted,
                    "{columns} columns, {count} rows, {most}"
                );
            }
        }
    }
}
