//! Reads the records of an MCAP file that are not messages: attachments, metadata, and the summary
//! with its statistics.

use crate::item::Attachment;
use crate::source::counts::Counts;

/// The size in bytes of a record's head: its kind and its length.
pub const RECORD: u64 = 9;
/// The number of bytes at the beginning of an attachment that are read. They contain its times,
/// name and media type, but seldom the attached file.
pub const HEAD_OF_ATTACHMENT: u64 = 4096;

/// Reads the numbers and texts of a record, one after the other.
struct Fields<'b>(&'b [u8]);

impl<'b> Fields<'b> {
    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }

    fn short(&mut self) -> Option<u16> {
        self.bytes().map(u16::from_le_bytes)
    }

    fn number(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_le_bytes)
    }

    fn long(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_le_bytes)
    }

    /// Returns the next bytes, which have their length in front of them.
    fn part(&mut self) -> Option<&'b [u8]> {
        let length = self.number()?;
        let (part, rest) = self.0.split_at_checked(length as usize)?;
        self.0 = rest;
        Some(part)
    }

    fn text(&mut self) -> Option<&'b str> {
        std::str::from_utf8(self.part()?).ok()
    }
}

/// Reads the head of an attachment's record. Returns `None` if the head is damaged, or if its texts
/// are longer than [`HEAD_OF_ATTACHMENT`].
pub fn attachment(head: &[u8]) -> Option<Attachment> {
    let mut fields = Fields(head);
    let time_ns = fields.long()?;
    let _creation_ns = fields.long()?;
    Some(Attachment {
        name: fields.text()?.to_owned(),
        media_type: Some(fields.text()?.to_owned()),
        bytes: Some(fields.long()?),
        time_ns: i64::try_from(time_ns).ok(),
    })
}

/// A record of metadata: its name, and its keys with their values.
pub type Metadata<'b> = (&'b str, Vec<(&'b str, &'b str)>);

pub fn metadata(body: &[u8]) -> Option<Metadata<'_>> {
    let mut fields = Fields(body);
    let name = fields.text()?;
    let mut map = Fields(fields.part()?);
    let mut values = Vec::new();
    while !map.0.is_empty() {
        values.push((map.text()?, map.text()?));
    }
    Some((name, values))
}

/// The statistics in the summary of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statistics {
    pub chunks: u32,
    pub counts: Counts,
}

/// Reads the statistics. Returns `None` if they are damaged or disagree with themselves.
pub fn statistics(body: &[u8]) -> Option<Statistics> {
    let mut fields = Fields(body);
    let messages = fields.long()?;
    let (_schemas, _channels) = (fields.short()?, fields.number()?);
    let (_attachments, _metadata) = (fields.number()?, fields.number()?);
    let chunks = fields.number()?;
    let ends = (fields.long()?, fields.long()?);
    let mut counts = Counts::default();
    if messages > 0 {
        counts.stretch(ends);
    }
    let mut map = Fields(fields.part()?);
    while !map.0.is_empty() {
        counts.add(map.short()?.into(), map.long()?);
    }
    (counts.messages() == messages).then_some(Statistics { chunks, counts })
}

/// The index of a chunk in the summary of a file, as far as onbeat needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkIndex {
    pub first_ns: u64,
    pub at: u64,
    pub length: u64,
}

/// The number of bytes at the beginning of a chunk's index that [`chunk_index`] needs.
pub const CHUNK_INDEX: u64 = 32;

pub fn chunk_index(body: &[u8]) -> Option<ChunkIndex> {
    let mut fields = Fields(body);
    let (first_ns, _last_ns) = (fields.long()?, fields.long()?);
    Some(ChunkIndex {
        first_ns,
        at: fields.long()?,
        length: fields.long()?,
    })
}
