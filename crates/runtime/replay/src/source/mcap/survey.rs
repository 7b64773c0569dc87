//! Walks the top-level records of an MCAP file to find its channels, and the positions and times of
//! its messages.

use super::about::{self, Statistics, RECORD};
use super::block::{self, log_time, Block, MESSAGE_HEADER};
use super::channels::Channels;
use super::{footer, MAGIC};
use crate::item::Extras;
use crate::source::blocks::Loaded;
use crate::source::damage::Damage;
use crate::source::extras;
use mcap::records::op;
use std::io::{BufReader, Read, Result, Seek, SeekFrom};

pub struct Survey {
    pub blocks: Vec<Block>,
    pub channels: Channels,
    pub extras: Extras,
}

/// The size in bytes of the blocks into which consecutive messages outside of chunks are split.
const RUN: u64 = 1 << 20;
const MOST_DECLARED: u64 = 16 << 20;
const UNREADABLE: &str = "unreadable attachments and metadata, not listed";

impl Survey {
    pub fn of<R: Read + Seek>(bytes: &mut BufReader<R>, damage: &mut Damage) -> Result<Survey> {
        let mut walk = Walk::new(bytes)?;
        while walk.record(damage)? {}
        let Walk {
            bytes,
            mut found,
            summary,
            ..
        } = walk;
        if !summary.has_channels {
            let mut scratch = Loaded::default();
            // This damage is reported later, when the blocks are read for their messages.
            let mut unsaid = Damage::default();
            for &block in &found.blocks {
                block::load(&mut scratch, bytes, block, &mut found.channels, &mut unsaid)?;
            }
        }
        Ok(found.sealed())
    }

    /// Walks the records like [`Survey::of`], but never reads messages. Returns `None` if the
    /// summary is missing or damaged, if it does not fit the chunks, or if messages are outside of
    /// chunks.
    pub fn summarised<R: Read + Seek>(
        bytes: &mut BufReader<R>,
    ) -> Result<Option<(Survey, Statistics)>> {
        if !footer::has_sound_summary(bytes)? {
            return Ok(None);
        }
        let mut damage = Damage::default();
        let mut walk = Walk::new(bytes)?;
        while walk.record(&mut damage)? {
            if walk.run.is_some() {
                return Ok(None);
            }
        }
        let Walk { found, summary, .. } = walk;
        let Some(statistics) = summary.statistics.filter(|_| !summary.is_wrong) else {
            return Ok(None);
        };
        let chunks = found.blocks.len() as u64;
        let is_whole = damage.sentences().is_empty()
            && (summary.has_channels || chunks == 0)
            && [u64::from(statistics.chunks), summary.chunk_indexes] == [chunks; 2];
        Ok(is_whole.then(|| (found.sealed(), statistics)))
    }

    fn sealed(mut self) -> Survey {
        self.channels.seal();
        self.blocks.sort_by_key(|block| block.first_ns);
        self
    }
}

/// The part of a file's summary that the records before it must fit.
#[derive(Default)]
struct Summary {
    has_channels: bool,
    statistics: Option<Statistics>,
    /// The number of indexes that fit a chunk of the file.
    chunk_indexes: u64,
    /// True if a record of the summary does not fit the rest of the file.
    is_wrong: bool,
}

struct Walk<'a, R> {
    bytes: &'a mut BufReader<R>,
    end: u64,
    at: u64,
    found: Survey,
    /// The index of the block to which a message outside of chunks belongs. `None` if the latest
    /// record is not such a message.
    run: Option<usize>,
    data_ended: bool,
    summary: Summary,
    body: Vec<u8>,
}

impl<R: Read + Seek> Walk<'_, R> {
    fn new(bytes: &mut BufReader<R>) -> Result<Walk<'_, R>> {
        let end = bytes.seek(SeekFrom::End(0))?;
        let at = MAGIC.len() as u64;
        bytes.seek(SeekFrom::Start(at))?;
        Ok(Walk {
            bytes,
            end,
            at,
            found: Survey {
                blocks: Vec::new(),
                channels: Channels::default(),
                extras: Extras::default(),
            },
            run: None,
            data_ended: false,
            summary: Summary::default(),
            body: Vec::new(),
        })
    }

    fn record(&mut self, damage: &mut Damage) -> Result<bool> {
        if self.end.saturating_sub(self.at) < RECORD {
            let at = self.at;
            damage.add(
                "files without a footer (the recorder was stopped), read to their end",
                || format!("byte {at}"),
            );
            return Ok(false);
        }
        let mut head = [0; RECORD as usize];
        self.bytes.read_exact(&mut head)?;
        let opcode = head[0];
        let length = u64::from_le_bytes(head[1..].try_into().expect("eight bytes"));
        let there = self.end - self.at - RECORD;
        let whole = length <= there;
        let used = self.content(opcode, length.min(there), whole, damage)?;
        if !whole {
            let at = self.at;
            damage.add(
                "records cut off by the end of the file, read up to the cut",
                || format!("byte {at}"),
            );
            return Ok(false);
        }
        self.at += RECORD + length;
        let rest = length - used;
        match i64::try_from(rest) {
            Ok(rest) => self.bytes.seek_relative(rest)?,
            Err(_) => return Ok(false),
        }
        Ok(opcode != op::FOOTER)
    }

    /// Reads the content of a record, and returns the number of bytes read. `there` is the number
    /// of the content's bytes that are in the file.
    fn content(&mut self, opcode: u8, there: u64, whole: bool, damage: &mut Damage) -> Result<u64> {
        let block = Block {
            at: self.at,
            length: RECORD + there,
            first_ns: 0,
        };
        if opcode != op::MESSAGE {
            self.run = None;
        }
        match opcode {
            op::CHUNK if there >= 8 => {
                let first_ns = self.number()?;
                self.found.blocks.push(Block { first_ns, ..block });
                Ok(8)
            }
            op::MESSAGE if whole && there >= MESSAGE_HEADER as u64 => {
                let mut header = [0; MESSAGE_HEADER];
                self.bytes.read_exact(&mut header)?;
                self.message(Block {
                    first_ns: log_time(&header),
                    ..block
                });
                Ok(MESSAGE_HEADER as u64)
            }
            op::SCHEMA | op::CHANNEL if whole && there <= MOST_DECLARED => {
                self.read(there)?;
                self.found.channels.declare(opcode, &self.body, damage);
                self.summary.has_channels |= opcode == op::CHANNEL && self.data_ended;
                Ok(there)
            }
            op::ATTACHMENT | op::METADATA if whole => self.extra(opcode, there, damage),
            op::STATISTICS | op::CHUNK_INDEX if whole => self.summary(opcode, there),
            op::DATA_END => {
                self.data_ended = true;
                Ok(0)
            }
            _ => Ok(0),
        }
    }

    fn message(&mut self, block: Block) {
        let blocks = &mut self.found.blocks;
        if let Some(run) = self
            .run
            .map(|at| &mut blocks[at])
            .filter(|run| run.length < RUN)
        {
            run.length += block.length;
            run.first_ns = run.first_ns.min(block.first_ns);
        } else {
            self.run = Some(blocks.len());
            blocks.push(block);
        }
    }

    fn extra(&mut self, opcode: u8, there: u64, damage: &mut Damage) -> Result<u64> {
        let most = match opcode {
            op::ATTACHMENT => about::HEAD_OF_ATTACHMENT,
            _ => MOST_DECLARED,
        };
        let used = there.min(most);
        self.read(used)?;
        let (body, found) = (&self.body, &mut self.found.extras);
        let is_read = match opcode {
            op::ATTACHMENT => about::attachment(body)
                .filter(|attachment| attachment.bytes <= Some(there))
                .map(|attachment| extras::attach(found, attachment)),
            _ => about::metadata(body).map(|(name, values)| extras::note(found, name, values)),
        };
        if is_read.is_none() {
            damage.add(UNREADABLE, || format!("byte {}", self.at));
        }
        Ok(used)
    }

    fn summary(&mut self, opcode: u8, there: u64) -> Result<u64> {
        if opcode == op::STATISTICS {
            let used = there.min(MOST_DECLARED);
            self.read(used)?;
            let statistics = about::statistics(&self.body);
            self.summary.is_wrong |= statistics.is_none() || self.summary.statistics.is_some();
            self.summary.statistics = statistics;
            return Ok(used);
        }
        let used = there.min(about::CHUNK_INDEX);
        self.read(used)?;
        let blocks = &self.found.blocks;
        let index = about::chunk_index(&self.body);
        let fits = index.is_some_and(|index| {
            let block = blocks.binary_search_by_key(&index.at, |block| block.at);
            let block = block.ok().and_then(|at| blocks.get(at));
            block.is_some_and(|b| (b.length, b.first_ns) == (index.length, index.first_ns))
        });
        self.summary.is_wrong |= !fits;
        self.summary.chunk_indexes += u64::from(fits);
        Ok(used)
    }

    /// Reads the next bytes of the file into `body`. The caller makes sure that they exist.
    fn read(&mut self, length: u64) -> Result<()> {
        self.body.resize(length as usize, 0);
        self.bytes.read_exact(&mut self.body)
    }

    fn number(&mut self) -> Result<u64> {
        let mut number = [0; 8];
        self.bytes.read_exact(&mut number)?;
        Ok(u64::from_le_bytes(number))
    }
}
