//! Reads bags of ROS 1 (version 2.0). Messages whose definition equals that of a type of ROS 2 are
//! converted to its layout.

use super::blocks::{Blocks, Loaded, Ordered};
use super::damage::Damage;
use super::{fault, Bytes};
use crate::item::{Source, SourceError, Stamp, Stream, StreamId};
use layout::Layout;
use record::Next;
use std::io::{BufReader, Read};
use survey::Survey;

mod chunk;
mod connections;
mod convert;
mod definition;
mod index;
mod layout;
mod record;
mod survey;

/// The first bytes of the bags of all versions.
pub const BEGIN: &[u8] = b"#ROSBAG V";
const MAGIC: &[u8] = b"#ROSBAG V2.0\n";

/// Opens a bag of ROS 1. If the bag has no index, for example because the recorder was killed, all
/// chunks are read first to find the topics.
///
/// # Errors
/// Fails if the file cannot be read, is encrypted, or has another version.
pub fn read<R: Bytes + 'static>(name: &str, bytes: R) -> Result<Box<dyn Source>, SourceError> {
    let mut bytes = begun(name, BufReader::with_capacity(64 << 10, bytes))?;
    let mut damage = Damage::default();
    let survey = Survey::of(&mut bytes, &mut damage).map_err(|error| fault(name, error))?;
    if survey.connections.streams().is_empty() {
        return Err(damage.refusal(name, "the bag has no topic"));
    }
    let streams = survey.connections.streams().to_vec();
    let layouts = survey.connections.layouts().to_vec();
    let bag = Bag { bytes, survey };
    Ok(Box::new(Converted {
        inner: Ordered::new(name, bag, streams, damage),
        layouts,
        message: Vec::new(),
        damage: Damage::default(),
        sentences: Vec::new(),
    }))
}

/// Opens the index of a bag of ROS 1. The items of the source have no payload. The source fails at
/// its end if the index disagrees with itself.
///
/// # Errors
/// Fails like [`read`], or if the bag has no usable index.
pub fn read_index<R: Bytes + 'static>(
    name: &str,
    bytes: R,
) -> Result<Box<dyn Source>, SourceError> {
    // The buffer is small, because the chunks between the records of the index are skipped.
    let bytes = begun(name, BufReader::with_capacity(16 << 10, bytes))?;
    Ok(Box::new(index::open(name, bytes)?))
}

/// Checks that a file is a bag of ROS 1 that onbeat can read.
fn begun<R: Bytes>(name: &str, mut bytes: BufReader<R>) -> Result<BufReader<R>, SourceError> {
    let io = |error: std::io::Error| fault(name, error);
    let mut magic = Vec::new();
    bytes
        .by_ref()
        .take(MAGIC.len() as u64)
        .read_to_end(&mut magic)
        .map_err(io)?;
    if magic != MAGIC {
        return Err(fault(
            name,
            "a ROS 1 bag of an old version. Convert it with rosbag fix first",
        ));
    }
    if is_encrypted(&mut bytes).map_err(io)? {
        return Err(fault(
            name,
            "the bag is encrypted. Decrypt it with rosbag decrypt first",
        ));
    }
    Ok(bytes)
}

fn is_encrypted<R: Bytes>(bytes: &mut BufReader<R>) -> std::io::Result<bool> {
    let first = record::next(bytes, MAGIC.len() as u64, u64::MAX)?;
    Ok(match first {
        Next::Record(head) => {
            let encryptor = head.fields().bytes("encryptor");
            encryptor.is_some_and(|encryptor| !encryptor.is_empty())
        }
        Next::End | Next::Torn | Next::Wrong => false,
    })
}

struct Bag<R> {
    bytes: BufReader<R>,
    survey: Survey,
}

impl<R: Bytes> Blocks for Bag<R> {
    fn first_ns(&self, block: usize) -> Option<u64> {
        Some(self.survey.chunks.get(block)?.first_ns)
    }

    fn load(
        &mut self,
        block: usize,
        loaded: &mut Loaded,
        damage: &mut Damage,
    ) -> std::io::Result<()> {
        let at = self.survey.chunks[block].at;
        loaded.clear(at);
        let head = match record::next(&mut self.bytes, at, self.survey.size)? {
            Next::Record(head) if head.fields().op() == Some(record::CHUNK) => head,
            _ => {
                damage.add("chunks that are not where the index says, left out", || {
                    format!("byte {at}")
                });
                return Ok(());
            }
        };
        let connections = &mut self.survey.connections;
        chunk::load(loaded, &mut self.bytes, &head, connections, damage)
    }
}

/// A source that converts messages to ROS 2 if ROS 2 has an equal type. It does not change other
/// messages.
struct Converted<S> {
    inner: S,
    layouts: Vec<Option<Layout>>,
    message: Vec<u8>,
    damage: Damage,
    sentences: Vec<String>,
}

impl<S: Source> Source for Converted<S> {
    fn streams(&self) -> &[Stream] {
        self.inner.streams()
    }

    fn next(&mut self, payload: &mut Vec<u8>) -> Result<Option<Stamp>, SourceError> {
        while let Some(stamp) = self.inner.next(&mut self.message)? {
            let place = stamp.stream.0 as usize;
            let Some(Some(layout)) = self.layouts.get(place) else {
                std::mem::swap(payload, &mut self.message);
                return Ok(Some(stamp));
            };
            if convert::convert(layout, &self.message, payload).is_some() {
                return Ok(Some(stamp));
            }
            let streams = self.inner.streams();
            self.damage.add(
                "messages that do not fit their definition, not replayed",
                || streams[place].name.clone(),
            );
        }
        payload.clear();
        self.sentences = [self.inner.damage(), self.damage.sentences()].concat();
        Ok(None)
    }

    fn back_ns(&self) -> u64 {
        self.inner.back_ns()
    }

    fn definition(&self, type_name: &str) -> Option<String> {
        layout::definition(type_name)
    }

    fn encoding(&self, _stream: StreamId) -> Option<&str> {
        Some("ros1")
    }

    fn damage(&self) -> &[String] {
        match self.sentences.is_empty() {
            true => self.inner.damage(),
            false => &self.sentences,
        }
    }
}

#[cfg(test)]
mod tests;
