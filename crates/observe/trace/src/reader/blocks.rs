//! Finds the blocks of one file, even if parts of the file are damaged.
//!
//! A block begins where the previous one ends. After damage, the reader searches for the next valid
//! header.
use super::log::{Log, Sequence};
use crate::block::{BlockError, BlockHeader, Decoder, HEADER_LEN, MAGIC};
use crate::event::Event;
use crate::segment::{self, Content, FileHeader};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

pub(super) struct Blocks<R> {
    input: R,
    position: u64,
    length: u64,
    body: Vec<u8>,
    /// The numbers of the blocks continue those of the previous file. False for the file init.obt.
    numbered: bool,
}

impl<R: Read + Seek> Blocks<R> {
    pub(super) fn new(mut input: R, log: &mut Log<'_>) -> io::Result<Self> {
        let length = input.seek(SeekFrom::End(0))?;
        let mut blocks = Blocks {
            input,
            position: 0,
            length,
            body: Vec::new(),
            numbered: true,
        };
        let mut start = [0; segment::HEADER_LEN];
        if blocks.read_at(0, &mut start)? {
            match FileHeader::from_bytes(&start) {
                Some(header) => {
                    blocks.numbered = header.content == Content::Segment;
                    blocks.position = segment::HEADER_LEN as u64;
                }
                None => {
                    log.warn(format_args!("the file header is damaged"));
                    // Most likely only the file header is damaged, and the first block follows it
                    // as usual. Otherwise the search for headers finds the blocks.
                    let mut block = [0; 8];
                    if blocks.read_at(segment::HEADER_LEN as u64, &mut block)? && block == MAGIC {
                        blocks.position = segment::HEADER_LEN as u64;
                    }
                }
            }
        } else {
            log.stats.cut_blocks += 1;
            log.stats.skipped_bytes += length;
            log.warn(format_args!("the file ends inside its header"));
            blocks.position = length;
        }
        Ok(blocks)
    }

    fn read_at(&mut self, position: u64, out: &mut [u8]) -> io::Result<bool> {
        let end = position.saturating_add(out.len() as u64);
        if end > self.length {
            return Ok(false);
        }
        self.input.seek(SeekFrom::Start(position))?;
        match self.input.read_exact(out) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Replaces `out` by the events of the next readable block. Returns false at the end of the
    /// file.
    pub(super) fn next(
        &mut self,
        decoder: &mut Decoder,
        out: &mut Vec<Event>,
        sequence: &mut Sequence,
        log: &mut Log<'_>,
    ) -> bool {
        match self.try_next(decoder, out, sequence, log) {
            Ok(more) => more,
            Err(error) => {
                log.warn(format_args!(
                    "the file cannot be read beyond byte {}: {error}",
                    self.position
                ));
                log.stats.skipped_bytes += self.length.saturating_sub(self.position);
                self.position = self.length;
                false
            }
        }
    }

    fn try_next(
        &mut self,
        decoder: &mut Decoder,
        out: &mut Vec<Event>,
        sequence: &mut Sequence,
        log: &mut Log<'_>,
    ) -> io::Result<bool> {
        while self.position < self.length {
            let at = self.position;
            let Some(header) = self.header_at(at)? else {
                self.skip_damage(at, at + 1, "no block begins here", sequence, log)?;
                continue;
            };
            let end = at + HEADER_LEN as u64 + u64::from(header.body_len);
            let mut body = std::mem::take(&mut self.body);
            // Check the length against the file before allocating memory.
            let error = if end > self.length {
                None
            } else {
                body.resize(header.body_len as usize, 0);
                self.read_at(at + HEADER_LEN as u64, &mut body)?;
                match decoder.decode(&header, &body, out) {
                    Ok(()) => {
                        self.body = body;
                        self.position = end;
                        if self.numbered {
                            sequence.saw(header.sequence, log);
                        }
                        log.stats.blocks += 1;
                        return Ok(true);
                    }
                    Err(error) => Some(error),
                }
            };
            self.body = body;
            match error {
                None => {
                    self.skip_damage(at, at + 8, "the file ends inside a block", sequence, log)?
                }
                Some(error) => self.skip_bad_block(at, end, &error, sequence, log)?,
            }
        }
        Ok(false)
    }

    fn header_at(&mut self, at: u64) -> io::Result<Option<BlockHeader>> {
        let mut bytes = [0; HEADER_LEN];
        Ok(if self.read_at(at, &mut bytes)? {
            BlockHeader::from_bytes(&bytes)
        } else {
            None
        })
    }

    fn skip_bad_block(
        &mut self,
        at: u64,
        end: u64,
        error: &BlockError,
        sequence: &mut Sequence,
        log: &mut Log<'_>,
    ) -> io::Result<()> {
        if end < self.length && self.header_at(end)?.is_none() {
            // Bytes are missing or were inserted: the next block is not where the header says.
            return self.skip_damage(at, at + 8, &error.to_string(), sequence, log);
        }
        log.stats.damaged_blocks += 1;
        log.stats.skipped_bytes += end - at;
        sequence.counted += 1;
        log.warn(format_args!(
            "skipped the damaged block at byte {at}: {error}"
        ));
        self.position = end;
        Ok(())
    }

    fn skip_damage(
        &mut self,
        at: u64,
        search: u64,
        why: &str,
        sequence: &mut Sequence,
        log: &mut Log<'_>,
    ) -> io::Result<()> {
        let found = self.find_header(search)?;
        let end = found.unwrap_or(self.length);
        let skipped = end - at;
        log.stats.skipped_bytes += skipped;
        self.position = end;
        if found.is_none() && self.looks_cut(at)? {
            log.stats.cut_blocks += 1;
            log.warn(format_args!(
                "the file ends inside a block, as after a kill of the recorder; skipped the last {skipped} bytes of the file"
            ));
        } else {
            log.stats.damaged_blocks += 1;
            sequence.counted += 1;
            log.warn(format_args!(
                "skipped {skipped} damaged bytes at byte {at}: {why}"
            ));
        }
        Ok(())
    }

    fn looks_cut(&mut self, at: u64) -> io::Result<bool> {
        if let Some(header) = self.header_at(at)? {
            return Ok(at + HEADER_LEN as u64 + u64::from(header.body_len) > self.length);
        }
        let rest = self.length - at;
        if rest >= HEADER_LEN as u64 {
            return Ok(false);
        }
        let mut start = [0; 8];
        let known = (rest as usize).min(8);
        self.read_at(at, &mut start[..known])?;
        Ok(start[..known] == MAGIC[..known])
    }

    fn find_header(&mut self, from: u64) -> io::Result<Option<u64>> {
        // The buffer is small at first, because the next block is usually near.
        let mut buffer = vec![0; 4 << 10];
        let mut from = from;
        while from + (HEADER_LEN as u64) <= self.length {
            let size = (self.length - from).min(buffer.len() as u64) as usize;
            if !self.read_at(from, &mut buffer[..size])? {
                return Ok(None);
            }
            for (offset, window) in buffer[..size].windows(8).enumerate() {
                let candidate = from + offset as u64;
                if window == MAGIC && self.header_at(candidate)?.is_some() {
                    return Ok(Some(candidate));
                }
            }
            // The magic bytes may lie across two buffers.
            from += (size - 7) as u64;
            buffer.resize(64 << 10, 0);
        }
        Ok(None)
    }
}

pub(super) fn first_block(path: &Path) -> Option<BlockHeader> {
    let mut file = File::open(path).ok()?;
    let length = file.seek(SeekFrom::End(0)).ok()?;
    let mut blocks = Blocks {
        input: file,
        position: 0,
        length,
        body: Vec::new(),
        numbered: true,
    };
    let at = blocks.find_header(0).ok()??;
    blocks.header_at(at).ok()?
}
