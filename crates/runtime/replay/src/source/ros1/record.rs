//! Reads the records of a ROS 1 bag: a header with fields, and data.

use std::io::{Read, Result, Seek, SeekFrom};

pub const MESSAGE: u8 = 2;
pub const BAG: u8 = 3;
pub const INDEX: u8 = 4;
pub const CHUNK: u8 = 5;
pub const CHUNK_INFO: u8 = 6;
pub const CONNECTION: u8 = 7;

/// The maximum size of a record's header, in bytes. The longest value in it is the name of a topic.
const LONGEST_HEADER: u32 = 1 << 20;

/// The fields of a record's header or of a connection. Each field consists of a length and
/// `name=value`.
#[derive(Clone, Copy)]
pub struct Fields<'b>(pub &'b [u8]);

impl<'b> Fields<'b> {
    pub fn bytes(self, name: &str) -> Option<&'b [u8]> {
        let mut rest = self.0;
        loop {
            let (length, after) = rest.split_first_chunk()?;
            let (field, after) = after.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            let value = field.strip_prefix(name.as_bytes());
            if let Some(value) = value.and_then(|value| value.strip_prefix(b"=")) {
                return Some(value);
            }
            rest = after;
        }
    }

    pub fn text(self, name: &str) -> Option<&'b str> {
        std::str::from_utf8(self.bytes(name)?).ok()
    }

    pub fn op(self) -> Option<u8> {
        self.bytes("op")?.first().copied()
    }

    pub fn number(self, name: &str) -> Option<u32> {
        Some(u32::from_le_bytes(self.bytes(name)?.try_into().ok()?))
    }

    pub fn long(self, name: &str) -> Option<u64> {
        Some(u64::from_le_bytes(self.bytes(name)?.try_into().ok()?))
    }

    pub fn time_ns(self, name: &str) -> Option<u64> {
        let (seconds, ns) = self.bytes(name)?.split_first_chunk::<4>()?;
        let ns = u32::from_le_bytes(ns.try_into().ok()?);
        let seconds = u64::from(u32::from_le_bytes(*seconds));
        Some(seconds * 1_000_000_000 + u64::from(ns))
    }
}

pub fn split(bytes: &[u8]) -> Option<(Fields<'_>, &[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (header, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    let (length, rest) = rest.split_first_chunk()?;
    let (data, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    Some((Fields(header), data, rest))
}

pub struct Head {
    pub at: u64,
    header: Vec<u8>,
    pub length: u64,
    pub is_whole: bool,
}

impl Head {
    pub fn fields(&self) -> Fields<'_> {
        Fields(&self.header)
    }

    pub fn data_at(&self) -> u64 {
        self.at + 8 + self.header.len() as u64
    }

    pub fn end(&self) -> u64 {
        self.data_at() + self.length
    }
}

pub enum Next {
    Record(Head),
    End,
    Torn,
    Wrong,
}

pub fn next<R: Read + Seek>(bytes: &mut R, at: u64, size: u64) -> Result<Next> {
    if at >= size {
        return Ok(Next::End);
    }
    bytes.seek(SeekFrom::Start(at))?;
    let Some(length) = number(bytes)? else {
        return Ok(Next::Torn);
    };
    if length > LONGEST_HEADER {
        return Ok(Next::Wrong);
    }
    let mut header = Vec::new();
    bytes.take(length.into()).read_to_end(&mut header)?;
    let Some(stated) = number(bytes)?.filter(|_| header.len() == length as usize) else {
        return Ok(Next::Torn);
    };
    let mut head = Head {
        at,
        header,
        length: stated.into(),
        is_whole: true,
    };
    if head.fields().op().is_none() {
        return Ok(Next::Wrong);
    }
    let there = size.saturating_sub(head.data_at());
    head.is_whole = head.length <= there;
    head.length = head.length.min(there);
    Ok(Next::Record(head))
}

fn number(bytes: &mut impl Read) -> Result<Option<u32>> {
    let mut number = [0; 4];
    match bytes.read_exact(&mut number) {
        Ok(()) => Ok(Some(u32::from_le_bytes(number))),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}
