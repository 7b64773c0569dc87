//! Reads MCAP files: chunks in the order of their times, a few of them in memory at once.

use super::damage::Damage;
use super::{fault, Bytes};
use crate::item::{Source, SourceError, Stamp, Stream, StreamId};
use block::{Block, Loaded};
use std::io::BufReader;
use survey::Survey;

mod block;
mod channels;
mod plain;
mod survey;

/// The first bytes of every MCAP file.
pub const MAGIC: &[u8] = b"\x89MCAP0\r\n";

/// The limit of message bytes in memory. One more chunk is always allowed.
const MOST_BYTES: usize = 256 << 20;
/// The largest number of chunks in memory that overlap in time.
const MOST_LOADED: usize = 256;

/// Opens an MCAP file. Its index is not needed: the top-level records are read once, and the contents of
/// chunks are skipped. A recorder that was killed leaves a file without a summary. Then all chunks are first
/// read to find the channels.
///
/// # Errors
/// Fails if the file cannot be read.
pub fn read<R: Bytes + 'static>(name: &str, bytes: R) -> Result<Box<dyn Source>, SourceError> {
    let mut bytes = BufReader::with_capacity(64 << 10, bytes);
    let mut damage = Damage::default();
    let survey = Survey::of(&mut bytes, &mut damage).map_err(|error| fault(name, error))?;
    let streams = survey.channels.streams().to_vec();
    Ok(Box::new(Mcap {
        name: name.to_owned(),
        bytes,
        survey,
        streams,
        next_block: 0,
        loaded: Vec::new(),
        spare: Vec::new(),
        given_ns: 0,
        damage,
    }))
}

struct Mcap<R> {
    name: String,
    bytes: BufReader<R>,
    survey: Survey,
    streams: Vec<Stream>,
    next_block: usize,
    loaded: Vec<Loaded>,
    spare: Vec<Loaded>,
    given_ns: u64,
    damage: Damage,
}

impl<R: Bytes> Mcap<R> {
    fn earliest(&self) -> Option<(usize, u64)> {
        let heads = self.loaded.iter().enumerate();
        let heads =
            heads.filter_map(|(at, block)| Some((at, block.head()?.time_ns, block.starts_at)));
        heads
            .min_by_key(|&(_, time_ns, starts_at)| (time_ns, starts_at))
            .map(|(at, time_ns, _)| (at, time_ns))
    }

    fn may_load(&self) -> bool {
        let held: usize = self.loaded.iter().map(Loaded::bytes).sum();
        self.loaded.is_empty() || (held < MOST_BYTES && self.loaded.len() < MOST_LOADED)
    }

    fn load(&mut self) -> std::io::Result<()> {
        let block: Block = self.survey.blocks[self.next_block];
        self.next_block += 1;
        let mut loaded = self.spare.pop().unwrap_or_default();
        loaded.load(
            &mut self.bytes,
            block,
            &mut self.survey.channels,
            &mut self.damage,
        )?;
        if loaded.head().is_some() {
            self.loaded.push(loaded);
        } else {
            self.spare.push(loaded);
        }
        Ok(())
    }

    fn give(&mut self, at: usize, payload: &mut Vec<u8>) -> Option<Stamp> {
        let block = &mut self.loaded[at];
        let message = block.take(payload)?;
        if block.head().is_none() {
            self.spare.push(self.loaded.swap_remove(at));
        }
        if message.time_ns < self.given_ns {
            let late_ns = self.given_ns - message.time_ns;
            self.damage.add(
                "messages too far out of order to be sorted, played late",
                || format!("by {late_ns} ns"),
            );
        }
        self.given_ns = self.given_ns.max(message.time_ns);
        Some(Stamp {
            time_ns: i64::try_from(self.given_ns).unwrap_or(i64::MAX),
            stream: StreamId(message.stream),
        })
    }
}

impl<R: Bytes> Source for Mcap<R> {
    fn streams(&self) -> &[Stream] {
        &self.streams
    }

    fn next(&mut self, payload: &mut Vec<u8>) -> Result<Option<Stamp>, SourceError> {
        payload.clear();
        loop {
            let head = self.earliest();
            let next = self
                .survey
                .blocks
                .get(self.next_block)
                .map(|block| block.first_ns);
            let load = match (head, next) {
                (_, None) => false,
                (None, Some(_)) => true,
                (Some((_, head_ns)), Some(next_ns)) => next_ns <= head_ns && self.may_load(),
            };
            if load {
                self.load().map_err(|error| fault(&self.name, error))?;
                continue;
            }
            return Ok(match head {
                Some((at, _)) => self.give(at, payload),
                None => None,
            });
        }
    }

    fn damage(&self) -> &[String] {
        self.damage.sentences()
    }

    fn definition(&self, type_name: &str) -> Option<String> {
        self.survey.channels.definition(type_name)
    }
}

#[cfg(test)]
mod tests;
