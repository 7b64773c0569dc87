//! Opens recordings: what kind a file is its content says, not its name.

mod bag;
mod can;
pub mod candump;
mod damage;
pub mod mcap;
mod merge;
mod order;
mod part;
pub mod pcap;
mod sqlite;

pub use merge::merged;

use crate::item::{Source, SourceError};
use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;

/// What readers read: a file, or bytes in memory.
pub trait Bytes: Read + Seek + Send {}
impl<T: Read + Seek + Send> Bytes for T {}

/// Opens a recording: a bag's directory or one of its files (MCAP, sqlite3, either packed with zstd), a `candump -l`
/// log, a pcap or pcapng file.
///
/// Items come in the order of time, with a bounded memory. What is damaged is skipped, and
/// [`Source::damage`] says so.
///
/// # Errors
/// No file, no recording that is known, or nothing of it can be read.
pub fn open(path: &Path) -> Result<Box<dyn Source>, SourceError> {
    let name = path.display().to_string();
    let io = |error: std::io::Error| fault(&name, error);
    let about = std::fs::metadata(path).map_err(io)?;
    if about.is_dir() {
        return bag::open(path);
    }
    if !about.is_file() {
        return Err(fault(&name, "neither a file nor a bag's directory"));
    }
    let mut file = File::open(path).map_err(io)?;
    let head = head(&mut file).map_err(io)?;
    if [mcap::MAGIC, sqlite::MAGIC, part::ZSTD]
        .iter()
        .any(|magic| head.starts_with(magic))
    {
        return part::open_packed(path);
    }
    if pcap::begins(&head) {
        return pcap::read(&name, file);
    }
    if candump::begins(&head) {
        return candump::read(&name, file);
    }
    Err(fault(&name, "no recording that is known: a bag, an MCAP file, a log of candump -l, a pcap or pcapng file"))
}

/// The beginning of a file, which tells what it is.
fn head(file: &mut File) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(HEAD);
    Read::take(&mut *file, HEAD as u64).read_to_end(&mut head)?;
    file.rewind()?;
    Ok(head)
}

/// So many bytes tell what a file is.
const HEAD: usize = 4096;

/// An error of a file, on one line.
fn fault(file: &str, what: impl std::fmt::Display) -> SourceError {
    SourceError {
        file: damage::printable(file),
        fault: damage::printable(&what.to_string()),
    }
}

#[cfg(test)]
mod tests;
