//! Walks the top-level records of an MCAP file to find its channels, and the positions and times of
//! its messages.

use super::block::{self, log_time, Block, MESSAGE_HEADER};
use super::channels::Channels;
use super::MAGIC;
use crate::source::blocks::Loaded;
use crate::source::damage::Damage;
use mcap::records::op;
use std::io::{BufReader, Read, Seek, SeekFrom};

pub struct Survey {
    pub blocks: Vec<Block>,
    pub channels: Channels,
}

const RECORD: u64 = 9;
/// The size in bytes of the blocks into which consecutive messages outside of chunks are split.
const RUN: u64 = 1 << 20;
const MOST_DECLARED: u64 = 16 << 20;

impl Survey {
    pub fn of<R: Read + Seek>(
        bytes: &mut BufReader<R>,
        damage: &mut Damage,
    ) -> std::io::Result<Survey> {
        let mut walk = Walk {
            end: bytes.seek(SeekFrom::End(0))?,
            at: MAGIC.len() as u64,
            bytes,
            found: Survey {
                blocks: Vec::new(),
                channels: Channels::default(),
            },
            run: None,
            data_ended: false,
            summarised: false,
            body: Vec::new(),
        };
        walk.bytes.seek(SeekFrom::Start(walk.at))?;
        while walk.record(damage)? {}
        let Walk {
            bytes,
            mut found,
            summarised,
            ..
        } = walk;
        if !summarised {
            let mut scratch = Loaded::default();
            // This damage is reported later, when the blocks are read for their messages.
            let mut unsaid = Damage::default();
            for &block in &found.blocks {
                block::load(&mut scratch, bytes, block, &mut found.channels, &mut unsaid)?;
            }
        }
        found.channels.seal();
        found.blocks.sort_by_key(|block| block.first_ns);
        Ok(found)
    }
}

struct Walk<'a, R> {
    bytes: &'a mut BufReader<R>,
    end: u64,
    at: u64,
    found: Survey,
    run: Option<usize>,
    data_ended: bool,
    summarised: bool,
    body: Vec<u8>,
}

impl<R: Read + Seek> Walk<'_, R> {
    fn record(&mut self, damage: &mut Damage) -> std::io::Result<bool> {
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
    fn content(
        &mut self,
        opcode: u8,
        there: u64,
        whole: bool,
        damage: &mut Damage,
    ) -> std::io::Result<u64> {
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
                self.body.resize(there as usize, 0);
                self.bytes.read_exact(&mut self.body)?;
                self.found.channels.declare(opcode, &self.body, damage);
                self.summarised |= opcode == op::CHANNEL && self.data_ended;
                Ok(there)
            }
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

    fn number(&mut self) -> std::io::Result<u64> {
        let mut number = [0; 8];
        self.bytes.read_exact(&mut number)?;
        Ok(u64::from_le_bytes(number))
    }
}
