//! Reads the index of a ROS 1 bag: the times and connections of all messages, without the messages.

use super::record::{self, Head, Next, CHUNK, INDEX};
use super::survey::{Place, Survey};
use super::Bytes;
use crate::item::{Details, SourceError, StreamId};
use crate::source::blocks::{Blocks, Loaded, Message, Ordered};
use crate::source::counts::Counts;
use crate::source::damage::Damage;
use crate::source::fault;
use std::io::{BufReader, Error, Read, Result, Seek, SeekFrom};

/// The maximum number of messages in the index of one chunk. A chunk with more messages is not read
/// by its index.
const MOST_MESSAGES: usize = 1 << 20;
/// The number of bytes of an entry of the index: time in seconds and ns, position in the unpacked
/// chunk.
const ENTRY: usize = 12;

/// Opens the index of a bag. The items of the source have no payload. The source fails at its end
/// if the indexes of the chunks do not fit the index of the bag.
///
/// # Errors
/// Fails if the file cannot be read, or if it has no usable index.
pub fn open<R: Bytes + 'static>(
    name: &str,
    mut bytes: BufReader<R>,
) -> std::result::Result<Ordered<impl Blocks>, SourceError> {
    let survey = Survey::of_index(&mut bytes).map_err(|error| fault(name, error))?;
    let Some((survey, stated)) = survey.and_then(|mut survey| {
        let stated = survey.stated.take()?;
        Some((survey, stated))
    }) else {
        return Err(fault(name, "the bag has no usable index"));
    };
    let streams = survey.connections.streams().to_vec();
    if streams.is_empty() {
        return Err(fault(name, "the bag has no topic"));
    }
    let index = Index {
        bytes,
        survey,
        stated,
        found: Counts::default(),
    };
    Ok(Ordered::new(name, index, streams, Damage::default()))
}

struct Index<R> {
    bytes: BufReader<R>,
    survey: Survey,
    /// The counts in the index of the bag.
    stated: Counts,
    /// The counts in the indexes of the chunks that were read.
    found: Counts,
}

impl<R: Bytes> Blocks for Index<R> {
    fn first_ns(&self, block: usize) -> Option<u64> {
        Some(self.survey.chunks.get(block)?.first_ns)
    }

    fn load(&mut self, number: usize, loaded: &mut Loaded, _damage: &mut Damage) -> Result<()> {
        let place = self.survey.chunks[number];
        loaded.clear(place.at);
        let mut at = self.chunk(place)?;
        while let Some(head) = self.record(at)? {
            self.entries(&head, loaded)?;
            at = head.end();
        }
        loaded.sort();
        // A chunk without messages is unusual. Perhaps its index is missing.
        let ends = loaded.ends().filter(|ends| ends.0 == place.first_ns);
        let ends = ends.ok_or_else(|| Error::other("the index of a chunk has other times"))?;
        self.found.stretch(ends);
        let is_last = number + 1 == self.survey.chunks.len();
        match is_last && self.found != self.stated {
            true => Err(Error::other("the indexes of the chunks do not fit the bag")),
            false => Ok(()),
        }
    }

    fn encoding(&self, _stream: StreamId) -> Option<&str> {
        Some("ros1")
    }
}

impl<R: Bytes> Index<R> {
    /// Returns the position behind the chunk at a place.
    fn chunk(&mut self, place: Place) -> Result<u64> {
        match record::next(&mut self.bytes, place.at, self.survey.size)? {
            Next::Record(head) if head.is_whole && head.fields().op() == Some(CHUNK) => {
                Ok(head.end())
            }
            _ => Err(Error::other("a chunk is not where the index says")),
        }
    }

    /// Reads the head of the record at `at`, or returns `None` if it does not belong to the index
    /// of a chunk.
    fn record(&mut self, at: u64) -> Result<Option<Head>> {
        Ok(match record::next(&mut self.bytes, at, self.survey.size)? {
            Next::Record(head) if head.is_whole && head.fields().op() == Some(INDEX) => Some(head),
            _ => None,
        })
    }

    /// Adds the messages of one connection in a chunk to `loaded`.
    fn entries(&mut self, head: &Head, loaded: &mut Loaded) -> Result<()> {
        let damaged = || Error::other("the index of a chunk is damaged");
        let fields = head.fields();
        let (connection, count) = fields
            .number("conn")
            .zip(fields.number("count"))
            .ok_or_else(damaged)?;
        let stream = self.survey.connections.stream(connection);
        let stream = stream.ok_or_else(damaged)?;
        let is_right = head.length == u64::from(count) * ENTRY as u64;
        if !is_right || loaded.messages.len() + count as usize > MOST_MESSAGES {
            return Err(damaged());
        }
        self.bytes.seek(SeekFrom::Start(head.data_at()))?;
        let mut entry = [0; ENTRY];
        for _ in 0..count {
            self.bytes.read_exact(&mut entry)?;
            let [a, b, c, d, e, f, g, h, ..] = entry;
            let seconds = u64::from(u32::from_le_bytes([a, b, c, d]));
            let ns = u64::from(u32::from_le_bytes([e, f, g, h]));
            loaded.messages.push(Message {
                time_ns: seconds * 1_000_000_000 + ns,
                stream,
                at: 0,
                length: 0,
                details: Details::default(),
            });
        }
        self.found.add(connection, count.into());
        Ok(())
    }
}
