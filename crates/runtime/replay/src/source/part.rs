//! Opens one file of a bag: sqlite3 or MCAP, with or without single messages compressed with zstd.

use super::damage::Damage;
use super::{fault, head, mcap, sqlite};
use crate::item::{Details, Extras, Kind, Source, SourceError, Stamp, Stream};
use std::fs::File;
use std::path::Path;
use zstd::bulk::Decompressor;

/// The first bytes of a zstd frame. A message that is not packed begins with 0 instead.
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
const LONGEST: usize = 512 << 20;

/// How much of a file a source reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// The source reads all messages.
    Whole,
    /// The source reads the times and streams of all messages from the index of the file. Its items
    /// have no payload.
    Index,
}

/// Opens a file of a bag. Error messages show the file as `shown`.
///
/// # Errors
/// Fails if the file cannot be read, does not belong to a bag, or has no usable index if the index
/// is to be read.
pub fn open(path: &Path, shown: &Path, reading: Reading) -> Result<Box<dyn Source>, SourceError> {
    let name = shown.display().to_string();
    let mut file = File::open(path).map_err(|error| fault(&name, error))?;
    let head = head(&mut file).map_err(|error| fault(&name, error))?;
    let is_mcap = head.starts_with(mcap::MAGIC);
    if !is_mcap && !head.starts_with(sqlite::MAGIC) {
        return Err(fault(&name, "neither an MCAP file nor an sqlite3 file"));
    }
    let source = match (reading, is_mcap) {
        (Reading::Whole, true) => mcap::read(&name, file)?,
        (Reading::Whole, false) => sqlite::read(path, &name)?,
        (Reading::Index, true) => return mcap::read_index(&name, file),
        (Reading::Index, false) => return sqlite::read_index(path, &name),
    };
    Ok(Box::new(Unpacked {
        inner: source,
        unpacker: Decompressor::new().map_err(|error| fault(&name, error))?,
        packed: Vec::new(),
        damage: Damage::default(),
        sentences: Vec::new(),
    }))
}

struct Unpacked {
    inner: Box<dyn Source>,
    unpacker: Decompressor<'static>,
    packed: Vec<u8>,
    damage: Damage,
    sentences: Vec<String>,
}

impl Unpacked {
    fn unpack(&mut self, payload: &mut Vec<u8>) -> bool {
        let size = zstd::zstd_safe::get_frame_content_size(&self.packed)
            .ok()
            .flatten();
        let Some(size) = size
            .and_then(|size| usize::try_from(size).ok())
            .filter(|&size| size <= LONGEST)
        else {
            return false;
        };
        payload.clear();
        payload.reserve(size);
        self.unpacker
            .decompress_to_buffer(&self.packed, payload)
            .is_ok()
    }
}

impl Source for Unpacked {
    fn streams(&self) -> &[Stream] {
        self.inner.streams()
    }

    fn next(&mut self, payload: &mut Vec<u8>) -> Result<Option<Stamp>, SourceError> {
        while let Some(stamp) = self.inner.next(payload)? {
            if !payload.starts_with(ZSTD) || !self.is_ros(stamp) {
                return Ok(Some(stamp));
            }
            std::mem::swap(payload, &mut self.packed);
            if self.unpack(payload) {
                return Ok(Some(stamp));
            }
            self.damage
                .add("messages that cannot be unpacked", String::new);
        }
        payload.clear();
        self.sentences = [self.inner.damage(), self.damage.sentences()].concat();
        Ok(None)
    }

    fn details(&self) -> Details {
        self.inner.details()
    }

    fn damage(&self) -> &[String] {
        if self.sentences.is_empty() {
            self.inner.damage()
        } else {
            &self.sentences
        }
    }

    fn back_ns(&self) -> u64 {
        self.inner.back_ns()
    }

    fn definition(&self, type_name: &str) -> Option<String> {
        self.inner.definition(type_name)
    }

    fn extras(&self) -> Extras {
        self.inner.extras()
    }
}

impl Unpacked {
    fn is_ros(&self, stamp: Stamp) -> bool {
        let stream = self.streams().get(stamp.stream.0 as usize);
        stream.is_some_and(|stream| matches!(stream.kind, Kind::Ros { .. }))
    }
}
