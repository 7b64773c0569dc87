//! Opens recordings. It recognises the kind of a file by its content, not by its name.

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

/// The input of a reader: a file, or bytes in memory.
pub trait Bytes: Read + Seek + Send {}
impl<T: Read + Seek + Send> Bytes for T {}

/// Opens a recording: a bag's directory or one of its files, a `candump -l` log, or a pcap or
/// pcapng file. The files of a bag are MCAP or sqlite3, and may be compressed with zstd.
///
/// The source returns items in the order of time, and its memory is bounded. It skips damaged parts
/// and reports them in [`Source::damage`].
///
/// # Errors
/// Fails if the file does not exist, has no known format, or cannot be read at all.
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
    Err(fault(&name, "onbeat cannot read this file. It plays rosbag2 bags, MCAP files, candump -l logs, pcap and pcapng files"))
}

fn head(file: &mut File) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(HEAD);
    Read::take(&mut *file, HEAD as u64).read_to_end(&mut head)?;
    file.rewind()?;
    Ok(head)
}

const HEAD: usize = 4096;

fn fault(file: &str, what: impl std::fmt::Display) -> SourceError {
    SourceError {
        file: damage::printable(file),
        fault: damage::printable(&what.to_string()),
    }
}

#[cfg(test)]
mod tests;
