//! Reads MCAP files: chunks in the order of their times, a few of them in memory at once.

use super::blocks::{Blocks, Loaded, Ordered};
use super::damage::Damage;
use super::{fault, Bytes};
use crate::item::{Extras, Source, SourceError};
use std::io::BufReader;
use survey::Survey;

mod about;
mod block;
mod channels;
mod footer;
mod index;
mod plain;
mod survey;

pub use index::read as read_index;

/// The first bytes of every MCAP file.
pub const MAGIC: &[u8] = b"\x89MCAP0\r\n";

/// Opens an MCAP file. Does not need its index: reads the top-level records once, and skips the
/// contents of chunks. If the recorder was killed, the file has no summary. All chunks are then
/// read first to find the channels.
///
/// # Errors
/// Fails if the file cannot be read.
pub fn read<R: Bytes + 'static>(name: &str, bytes: R) -> Result<Box<dyn Source>, SourceError> {
    let mut bytes = BufReader::with_capacity(64 << 10, bytes);
    let mut damage = Damage::default();
    let survey = Survey::of(&mut bytes, &mut damage).map_err(|error| fault(name, error))?;
    let streams = survey.channels.streams().to_vec();
    let blocks = Mcap { bytes, survey };
    Ok(Box::new(Ordered::new(name, blocks, streams, damage)))
}

struct Mcap<R> {
    bytes: BufReader<R>,
    survey: Survey,
}

impl<R: Bytes> Blocks for Mcap<R> {
    fn first_ns(&self, block: usize) -> Option<u64> {
        Some(self.survey.blocks.get(block)?.first_ns)
    }

    fn load(
        &mut self,
        block: usize,
        loaded: &mut Loaded,
        damage: &mut Damage,
    ) -> std::io::Result<()> {
        let block = self.survey.blocks[block];
        let channels = &mut self.survey.channels;
        block::load(loaded, &mut self.bytes, block, channels, damage)
    }

    fn definition(&self, type_name: &str) -> Option<String> {
        self.survey.channels.definition(type_name)
    }

    fn extras(&self) -> Extras {
        self.survey.extras.clone()
    }
}

#[cfg(test)]
mod tests;
