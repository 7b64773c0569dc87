//! Opens recordings. It recognises the kind of a file by its content, not by its name.

pub mod asc;
mod bag;
pub mod blf;
mod blocks;
pub(crate) mod calendar;
pub(crate) mod can;
pub mod candump;
mod channels;
mod counts;
pub(crate) mod damage;
mod extras;
mod inflate;
mod lines;
pub mod mcap;
pub mod mdf;
mod merge;
mod order;
mod packed;
mod part;
pub mod pcap;
pub mod ros1;
mod shift;
mod sqlite;
mod text;
pub mod trc;

pub use merge::merged;
pub use packed::Packing;
pub use shift::shifted;

use crate::item::{Kind, Source, SourceError};
pub use order::{Survey, Witness};
use part::Reading;
use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;

/// The input of a reader of recordings: a file, or bytes in memory.
pub trait Bytes: Read + Seek + Send {}
impl<T: Read + Seek + Send> Bytes for T {}

/// Opens a recording: a bag's directory or one of its files, a log of `candump`, an ASC, BLF, MDF 4
/// or TRC log, a bag of ROS 1, or a pcap or pcapng file. The files of a bag are MCAP or sqlite3.
/// All files may be packed with gzip, xz, zstd or bzip2.
///
/// The source returns items in the order of time, and its memory is bounded. It skips damaged parts
/// and reports them in [`Source::damage`].
///
/// # Errors
/// Fails if the file does not exist, has no known format, or cannot be read at all.
pub fn open(path: &Path) -> Result<Box<dyn Source>, SourceError> {
    open_with_progress(path, &mut |_, _| {})
}

/// Opens a recording like [`open`]. If the recording is packed, it is unpacked to a temporary file.
/// Meanwhile, the function calls `tell` with the number of packed bytes that are already unpacked
/// and the number of all packed bytes.
///
/// # Errors
/// Fails like [`open`].
pub fn open_with_progress(
    path: &Path,
    tell: &mut dyn FnMut(u64, u64),
) -> Result<Box<dyn Source>, SourceError> {
    open_surveyed(path, tell, &mut Survey::default())
}

/// Opens a recording like [`open_with_progress`]. If its format needs a first pass and it is not
/// packed, `survey` reads it.
pub(crate) fn open_surveyed(
    path: &Path,
    tell: &mut dyn FnMut(u64, u64),
    survey: &mut Survey,
) -> Result<Box<dyn Source>, SourceError> {
    match Format::of(path)? {
        Format::Packed(packing) => packed::open(path, packing, tell),
        format => opened(format, path, &path.display().to_string(), survey),
    }
}

/// Opens a recording of a known format. Error messages call the recording `name`. If the format
/// needs a first pass, `survey` reads it.
fn opened(
    format: Format,
    path: &Path,
    name: &str,
    survey: &mut Survey,
) -> Result<Box<dyn Source>, SourceError> {
    let open = || File::open(path).map_err(|error| fault(name, error));
    match format {
        Format::Bag => bag::open(path, Reading::Whole),
        Format::Mcap | Format::Sqlite => part::open(path, path, Reading::Whole),
        Format::Packed(packing) => packed::open(path, packing, &mut |_, _| {}),
        Format::Capture => pcap::read(name, open()?, survey),
        Format::Candump => candump::read(name, open()?),
        Format::Asc => asc::read(name, open()?, survey),
        Format::Blf => blf::read(name, open()?, survey),
        Format::Mdf => mdf::read(name, open()?, survey),
        Format::Trc => trc::read(name, open()?, survey),
        Format::Ros1 => ros1::read(name, open()?),
    }
}

/// Opens the index of a recording, if it has a usable one: a bag, one of its files, or a bag of
/// ROS 1. The items of the source have times and streams, but no payload. The source fails at its
/// end if the index disagrees with itself.
///
/// # Errors
/// Fails if the recording cannot be read, or has no usable index.
pub(crate) fn open_index(path: &Path) -> Result<Box<dyn Source>, SourceError> {
    match Format::of(path)? {
        Format::Bag => bag::open(path, Reading::Index),
        Format::Mcap | Format::Sqlite => part::open(path, path, Reading::Index),
        Format::Ros1 => {
            let name = path.display().to_string();
            let file = File::open(path).map_err(|error| fault(&name, error))?;
            ros1::read_index(&name, file)
        }
        format => {
            let what = format!("onbeat reads no index of a {}", format.name());
            Err(fault(&path.display().to_string(), what))
        }
    }
}

/// The format of a recording. onbeat recognises it by the file's content.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Bag,
    /// An MCAP file. It may be a single recording or part of a bag.
    Mcap,
    /// An sqlite3 file of a bag.
    Sqlite,
    /// A packed file that contains a recording of another format.
    Packed(Packing),
    Capture,
    Candump,
    /// An ASC log, the text format of Vector's tools.
    Asc,
    /// A BLF log, the binary format of Vector's tools.
    Blf,
    /// An MDF 4 log, the format of ASAM.
    Mdf,
    /// A TRC log, the text format of PEAK's tools.
    Trc,
    Ros1,
}

impl Format {
    /// Returns the format's name as messages show it.
    pub fn name(self) -> &'static str {
        match self {
            Format::Bag => "rosbag2 bag",
            Format::Mcap => "MCAP file",
            Format::Sqlite => "sqlite3 file of a bag",
            Format::Packed(packing) => packing.name(),
            Format::Capture => "packet capture",
            Format::Candump => "candump log",
            Format::Asc => "ASC log",
            Format::Blf => "BLF log",
            Format::Mdf => "MDF 4 log",
            Format::Trc => "TRC log",
            Format::Ros1 => "ROS 1 bag",
        }
    }

    /// Recognises the format of a recording by its contents.
    ///
    /// # Errors
    /// Fails if the file does not exist, cannot be read, or has no known format.
    pub fn of(path: &Path) -> Result<Format, SourceError> {
        let name = path.display().to_string();
        let io = |error: std::io::Error| fault(&name, error);
        let about = std::fs::metadata(path).map_err(io)?;
        if about.is_dir() {
            return Ok(Format::Bag);
        }
        if !about.is_file() {
            return Err(fault(&name, "neither a file nor a bag's directory"));
        }
        let head = File::open(path).and_then(|mut file| head(&mut file));
        let head = head.map_err(io)?;
        Format::of_head(&head).ok_or_else(|| unknown(&name))
    }

    fn of_head(head: &[u8]) -> Option<Format> {
        let magics = [
            (mcap::MAGIC, Format::Mcap),
            (sqlite::MAGIC, Format::Sqlite),
            (blf::MAGIC, Format::Blf),
            (mdf::MAGIC, Format::Mdf),
            (mdf::UNFINISHED, Format::Mdf),
            (ros1::BEGIN, Format::Ros1),
        ];
        if let Some((_, format)) = magics.iter().find(|(magic, _)| head.starts_with(magic)) {
            return Some(*format);
        }
        if let Some(packing) = Packing::of(head) {
            return Some(Format::Packed(packing));
        }
        if pcap::begins(head) {
            return Some(Format::Capture);
        }
        if candump::begins(head) {
            return Some(Format::Candump);
        }
        if asc::begins(head) {
            return Some(Format::Asc);
        }
        trc::begins(head).then_some(Format::Trc)
    }
}

fn unknown(name: &str) -> SourceError {
    fault(name, "onbeat cannot read this file. It plays rosbag2 bags, MCAP files, logs of candump, ASC, BLF, MDF 4 and TRC logs, ROS 1 bags, pcap and pcapng files, also packed with gzip, xz, zstd or bzip2")
}

fn head(file: &mut File) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(HEAD);
    Read::take(&mut *file, HEAD as u64).read_to_end(&mut head)?;
    file.rewind()?;
    Ok(head)
}

const HEAD: usize = 4096;

/// Returns the kind of a topic whose messages have this encoding, as a bag or an MCAP file names it.
fn kind_of(encoding: &str, type_name: String, qos: Option<String>) -> Kind {
    match encoding {
        "cdr" => Kind::Ros { type_name, qos },
        _ => Kind::Unplayable {
            type_name: damage::printable(&type_name),
            encoding: Some(damage::printable(encoding)).filter(|text| !text.is_empty()),
            reason: format!(
                "its messages are encoded as {}, and onbeat plays CDR",
                damage::printable(encoding)
            ),
        },
    }
}

fn fault(file: &str, what: impl std::fmt::Display) -> SourceError {
    SourceError {
        file: damage::printable(file),
        fault: damage::printable(&what.to_string()),
    }
}

#[cfg(test)]
mod tests;
