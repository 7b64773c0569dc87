//! Reads the index of an MCAP file: the times and channels of all messages, without the messages.

use super::about::RECORD;
use super::block::{Block, MESSAGE_HEADER};
use super::channels::Channels;
use super::survey::Survey;
use crate::item::{Details, Extras, Source, SourceError};
use crate::source::blocks::{Blocks, Loaded, Message, Ordered};
use crate::source::counts::Counts;
use crate::source::damage::Damage;
use crate::source::{fault, Bytes};
use mcap::records::op;
use std::io::{BufReader, Error, Read, Result, Seek, SeekFrom};

/// The buffer is small, because the chunks between the records of the index are skipped.
const BUFFER: usize = 16 << 10;
/// The maximum number of messages in the index of one chunk. A chunk with more messages is not read
/// by its index.
const MOST_MESSAGES: u64 = 1 << 20;
/// The beginning of a chunk's record: two times and the size of its unpacked records.
const CHUNK: usize = RECORD as usize + 8 + 8 + 8;
/// The number of bytes of an index record before its entries: channel, length of the entries.
const HEAD: u64 = 2 + 4;
/// The number of bytes of an entry of the index: time, position in the unpacked chunk.
const ENTRY: usize = 16;
const LEAST_MESSAGE: u64 = RECORD + MESSAGE_HEADER as u64;

/// Opens the index of an MCAP file. The items of the source have no payload. The source fails at
/// its end if the index does not fit the statistics of the file.
///
/// # Errors
/// Fails if the file cannot be read, or if it has no usable index.
pub fn read<R: Bytes + 'static>(
    name: &str,
    bytes: R,
) -> std::result::Result<Box<dyn Source>, SourceError> {
    let mut bytes = BufReader::with_capacity(BUFFER, bytes);
    let found = Survey::summarised(&mut bytes).map_err(|error| fault(name, error))?;
    let Some((survey, statistics)) = found else {
        return Err(fault(name, "the file has no usable summary"));
    };
    // Chunks without any message are unusual. Perhaps the writer has counted nothing.
    if survey.blocks.is_empty() != (statistics.counts.messages() == 0) {
        return Err(fault(name, DISAGREES));
    }
    let streams = survey.channels.streams().to_vec();
    let blocks = Index {
        bytes,
        survey,
        stated: statistics.counts,
        found: Counts::default(),
        body: Vec::new(),
    };
    let damage = Damage::default();
    Ok(Box::new(Ordered::new(name, blocks, streams, damage)))
}

const DISAGREES: &str = "the index does not fit the statistics of the file";

struct Index<R> {
    bytes: BufReader<R>,
    survey: Survey,
    /// The counts in the statistics of the file.
    stated: Counts,
    /// The counts of the chunks that were read.
    found: Counts,
    body: Vec<u8>,
}

impl<R: Bytes> Blocks for Index<R> {
    fn first_ns(&self, block: usize) -> Option<u64> {
        Some(self.survey.blocks.get(block)?.first_ns)
    }

    fn load(&mut self, number: usize, loaded: &mut Loaded, _damage: &mut Damage) -> Result<()> {
        let block = self.survey.blocks[number];
        loaded.clear(block.at);
        let chunk = Chunk::of(&mut self.bytes, block)?;
        self.bytes
            .seek(SeekFrom::Start(block.at.saturating_add(block.length)))?;
        while let Some(channel) = self.record(&chunk)? {
            entries(&self.body, &chunk, channel, &self.survey.channels, loaded)?;
            let messages = (self.body.len() / ENTRY) as u64;
            self.found.add(channel.into(), messages);
        }
        loaded.sort();
        if let Some(ends) = loaded.ends() {
            if ends != (chunk.first_ns, chunk.last_ns) {
                return Err(Error::other("the index of a chunk has other times"));
            }
            self.found.stretch(ends);
        }
        let is_last = number + 1 == self.survey.blocks.len();
        match is_last && self.found != self.stated {
            true => Err(Error::other(DISAGREES)),
            false => Ok(()),
        }
    }

    fn definition(&self, type_name: &str) -> Option<String> {
        self.survey.channels.definition(type_name)
    }

    fn extras(&self) -> Extras {
        self.survey.extras.clone()
    }
}

impl<R: Bytes> Index<R> {
    /// Reads the entries of the next index record behind a chunk into `body`. Returns the record's
    /// channel, or `None` if the next record is not an index record.
    fn record(&mut self, chunk: &Chunk) -> Result<Option<u16>> {
        let mut head = [0; RECORD as usize];
        self.bytes.read_exact(&mut head)?;
        if head[0] != op::MESSAGE_INDEX {
            return Ok(None);
        }
        let length = u64::from_le_bytes(head[1..].try_into().expect("eight bytes"));
        let mut head = [0; HEAD as usize];
        self.bytes.read_exact(&mut head)?;
        let channel = u16::from_le_bytes([head[0], head[1]]);
        let entries = u32::from_le_bytes([head[2], head[3], head[4], head[5]]);
        let most = chunk.most_messages() * ENTRY as u64;
        let is_possible = length == HEAD + u64::from(entries)
            && u64::from(entries).is_multiple_of(ENTRY as u64)
            && u64::from(entries) <= most;
        if !is_possible {
            return Err(Error::other("the index of a chunk is damaged"));
        }
        self.body.resize(entries as usize, 0);
        self.bytes.read_exact(&mut self.body)?;
        Ok(Some(channel))
    }
}

/// The part of a chunk's record that the index must fit.
struct Chunk {
    first_ns: u64,
    last_ns: u64,
    unpacked: u64,
}

impl Chunk {
    fn of<R: Read + Seek>(bytes: &mut R, block: Block) -> Result<Chunk> {
        bytes.seek(SeekFrom::Start(block.at))?;
        let mut head = [0; CHUNK];
        bytes.read_exact(&mut head)?;
        let number = |at: usize| {
            let bytes = head[at..at + 8].try_into().expect("eight bytes");
            u64::from_le_bytes(bytes)
        };
        Ok(Chunk {
            first_ns: number(9),
            last_ns: number(17),
            unpacked: number(25),
        })
    }

    fn most_messages(&self) -> u64 {
        (self.unpacked / LEAST_MESSAGE).min(MOST_MESSAGES)
    }
}

/// Adds the messages of a channel to `loaded`.
fn entries(
    body: &[u8],
    chunk: &Chunk,
    channel: u16,
    channels: &Channels,
    loaded: &mut Loaded,
) -> Result<()> {
    let Some(stream) = channels.stream(channel) else {
        return Err(Error::other("the index names an undeclared channel"));
    };
    for entry in body.chunks_exact(ENTRY) {
        let (time, place) = entry.split_at(ENTRY / 2);
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        let (time_ns, place) = (number(time), number(place));
        let is_inside = place <= chunk.unpacked.saturating_sub(LEAST_MESSAGE);
        if !is_inside || loaded.messages.len() as u64 >= chunk.most_messages() {
            return Err(Error::other("the index of a chunk is damaged"));
        }
        loaded.messages.push(Message {
            time_ns,
            stream,
            at: 0,
            length: 0,
            details: Details::default(),
        });
    }
    Ok(())
}
