//! Checks the summary of an MCAP file against the checksum in the file's footer.

use super::about::RECORD;
use super::MAGIC;
use mcap::records::op;
use std::io::{Read, Result, Seek, SeekFrom};

/// The length in bytes of a footer's content: position of the summary, position of the offsets,
/// checksum.
const FOOTER: u64 = 8 + 8 + 4;

/// Returns whether the file ends with a footer that leads to a summary, and whether the summary has
/// the footer's checksum. A checksum of 0 means that the writer computed none.
///
/// # Errors
/// Fails if the file cannot be read.
pub fn has_sound_summary<R: Read + Seek>(bytes: &mut R) -> Result<bool> {
    let end = bytes.seek(SeekFrom::End(0))?;
    let begin = MAGIC.len() as u64;
    let Some(footer_at) = end.checked_sub(RECORD + FOOTER + begin) else {
        return Ok(false);
    };
    bytes.seek(SeekFrom::Start(footer_at))?;
    let mut footer = [0; (RECORD + FOOTER) as usize + MAGIC.len()];
    bytes.read_exact(&mut footer)?;
    let (record, magic) = footer.split_at((RECORD + FOOTER) as usize);
    let is_footer = record[0] == op::FOOTER && record[1..9] == FOOTER.to_le_bytes();
    let summary_at = number(&record[9..17]);
    if magic != MAGIC || !is_footer || summary_at < begin || summary_at >= footer_at {
        return Ok(false);
    }
    let (checked, stated) = record.split_at(record.len() - 4);
    if stated == [0; 4] {
        return Ok(true);
    }
    let mut checksum = crc32fast::Hasher::new();
    bytes.seek(SeekFrom::Start(summary_at))?;
    let mut left = footer_at - summary_at;
    let mut buffer = [0; 4096];
    while left > 0 {
        let part = left.min(buffer.len() as u64) as usize;
        bytes.read_exact(&mut buffer[..part])?;
        checksum.update(&buffer[..part]);
        left -= part as u64;
    }
    checksum.update(checked);
    Ok(checksum.finalize().to_le_bytes() == stated)
}

fn number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}
