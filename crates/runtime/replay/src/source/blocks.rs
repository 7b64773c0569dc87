//! Plays the blocks of a recording (chunks, for example) in the order of their times, a few of them
//! in memory at once.

use super::damage::Damage;
use super::fault;
use crate::item::{Details, Extras, Source, SourceError, Stamp, Stream, StreamId};

/// The maximum number of bytes of messages in memory. The loaded blocks may exceed this number by
/// one block.
const MOST_BYTES: usize = 256 << 20;
/// The maximum number of blocks with overlapping times that are in memory together.
const MOST_LOADED: usize = 256;

#[derive(Clone, Copy, Debug)]
pub struct Message {
    pub time_ns: u64,
    pub stream: u32,
    pub at: usize,
    pub length: usize,
    pub details: Details,
}

#[derive(Default)]
pub struct Loaded {
    pub starts_at: u64,
    pub payloads: Vec<u8>,
    pub messages: Vec<Message>,
    given: usize,
}

impl Loaded {
    pub fn clear(&mut self, at: u64) {
        self.starts_at = at;
        self.given = 0;
        self.payloads.clear();
        self.messages.clear();
    }

    /// Returns the times of the first and the last message of a sorted block, in ns since 1970.
    /// Returns `None` if the block has no messages.
    pub fn ends(&self) -> Option<(u64, u64)> {
        let (first, last) = self.messages.first().zip(self.messages.last())?;
        Some((first.time_ns, last.time_ns))
    }

    /// Returns the number of bytes in memory. A block that is read from an index has messages
    /// without payloads.
    fn held(&self) -> usize {
        let messages = self.messages.len().saturating_mul(size_of::<Message>());
        self.payloads.len().max(messages)
    }

    pub fn sort(&mut self) {
        if !self.messages.is_sorted_by_key(|message| message.time_ns) {
            self.messages.sort_by_key(|message| message.time_ns);
        }
    }

    fn head(&self) -> Option<&Message> {
        self.messages.get(self.given)
    }

    fn take(&mut self, payload: &mut Vec<u8>) -> Option<Message> {
        let message = *self.messages.get(self.given)?;
        self.given += 1;
        payload.clear();
        payload.extend_from_slice(&self.payloads[message.at..message.at + message.length]);
        Some(message)
    }
}

/// The blocks of a file, numbered in the order of their earliest message.
pub trait Blocks: Send {
    fn first_ns(&self, block: usize) -> Option<u64>;

    /// Loads a block into `loaded`, in place of the previous block.
    ///
    /// # Errors
    /// Fails if the file cannot be read. A damaged block is not an error: the messages before the
    /// damage are loaded.
    fn load(
        &mut self,
        block: usize,
        loaded: &mut Loaded,
        damage: &mut Damage,
    ) -> std::io::Result<()>;

    fn definition(&self, _type_name: &str) -> Option<String> {
        None
    }

    fn encoding(&self, _stream: StreamId) -> Option<&str> {
        None
    }

    fn extras(&self) -> Extras {
        Extras::default()
    }
}

pub struct Ordered<B> {
    name: String,
    blocks: B,
    streams: Vec<Stream>,
    next_block: usize,
    loaded: Vec<Loaded>,
    spare: Vec<Loaded>,
    given_ns: u64,
    latest: Details,
    damage: Damage,
}

impl<B: Blocks> Ordered<B> {
    pub fn new(name: &str, blocks: B, streams: Vec<Stream>, damage: Damage) -> Ordered<B> {
        Ordered {
            name: name.to_owned(),
            blocks,
            streams,
            next_block: 0,
            loaded: Vec::new(),
            spare: Vec::new(),
            given_ns: 0,
            latest: Details::default(),
            damage,
        }
    }

    fn earliest(&self) -> Option<(usize, u64)> {
        let heads = self.loaded.iter().enumerate();
        let heads =
            heads.filter_map(|(at, block)| Some((at, block.head()?.time_ns, block.starts_at)));
        heads
            .min_by_key(|&(_, time_ns, starts_at)| (time_ns, starts_at))
            .map(|(at, time_ns, _)| (at, time_ns))
    }

    fn may_load(&self) -> bool {
        let held: usize = self.loaded.iter().map(Loaded::held).sum();
        self.loaded.is_empty() || (held < MOST_BYTES && self.loaded.len() < MOST_LOADED)
    }

    fn load(&mut self) -> std::io::Result<()> {
        let block = self.next_block;
        self.next_block += 1;
        let mut loaded = self.spare.pop().unwrap_or_default();
        self.blocks.load(block, &mut loaded, &mut self.damage)?;
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
        self.latest = message.details;
        Some(Stamp {
            time_ns: i64::try_from(self.given_ns).unwrap_or(i64::MAX),
            stream: StreamId(message.stream),
        })
    }
}

impl<B: Blocks> Source for Ordered<B> {
    fn streams(&self) -> &[Stream] {
        &self.streams
    }

    fn next(&mut self, payload: &mut Vec<u8>) -> Result<Option<Stamp>, SourceError> {
        payload.clear();
        loop {
            let head = self.earliest();
            let next = self.blocks.first_ns(self.next_block);
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

    fn details(&self) -> Details {
        self.latest
    }

    fn damage(&self) -> &[String] {
        self.damage.sentences()
    }

    fn definition(&self, type_name: &str) -> Option<String> {
        self.blocks.definition(type_name)
    }

    fn encoding(&self, stream: StreamId) -> Option<&str> {
        self.blocks.encoding(stream)
    }

    fn extras(&self) -> Extras {
        self.blocks.extras()
    }
}
