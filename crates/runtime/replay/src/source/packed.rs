//! Opens recordings that are packed as a whole with gzip, xz, zstd or bzip2.
//!
//! Logs and captures are unpacked while they are read. Formats whose readers jump within the file
//! are first unpacked to a temporary file. A torn or damaged packed file is unpacked up to the
//! damage.

use super::order::Survey;
use super::part::{self, Reading};
use super::{fault, Format, HEAD};
use crate::item::{Details, Extras, Source, SourceError, Stamp, Stream, StreamId};
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use tempfile::TempPath;

/// The maximum memory of the xz decoder in KiB. The output of `xz -9` needs 64 MiB. The decoder of
/// zstd has its own limit of 128 MiB.
const XZ_MOST_KIB: u32 = 129 << 10;
/// The maximum number of bytes that one call of the xz decoder returns. If a call meets damage, the
/// bytes that this call has unpacked are lost. The number is therefore small.
const XZ_STEP: usize = 1024;
/// The factor in the limit of an unpacked file's size. The limit is this multiple of the packed
/// size, plus one GiB.
const MOST_TIMES: u64 = 200;

/// The program with which a file is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Packing {
    Gzip,
    Xz,
    Zstd,
    Bzip2,
}

impl Packing {
    /// Recognises the packing of a file by its first bytes. Returns `None` if the file is not
    /// packed.
    pub fn of(head: &[u8]) -> Option<Packing> {
        match head {
            [0x1f, 0x8b, 8, ..] => Some(Packing::Gzip),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Packing::Xz),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Packing::Zstd),
            // The tool pzstd writes a frame without data before each frame.
            [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Packing::Zstd),
            [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, 0x59, 0x26, 0x53, 0x59, ..] => {
                Some(Packing::Bzip2)
            }
            _ => None,
        }
    }

    /// Returns the name of the packing as messages show it.
    pub fn name(self) -> &'static str {
        match self {
            Packing::Gzip => "recording packed with gzip",
            Packing::Xz => "recording packed with xz",
            Packing::Zstd => "recording packed with zstd",
            Packing::Bzip2 => "recording packed with bzip2",
        }
    }

    fn decoder(self, packed: impl BufRead + Send + 'static) -> io::Result<Box<dyn Read + Send>> {
        Ok(match self {
            Packing::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(packed)),
            Packing::Xz => Box::new(lzma_rust2::XzReader::new_mem_limit(
                packed,
                true,
                XZ_MOST_KIB,
            )),
            Packing::Zstd => Box::new(zstd::Decoder::with_buffer(packed)?),
            Packing::Bzip2 => Box::new(bzip2::bufread::MultiBzDecoder::new(packed)),
        })
    }
}

/// A reader that counts the packed bytes that a decoder has used.
struct Counted<R> {
    bytes: R,
    used: Arc<AtomicU64>,
}

impl<R: BufRead> Read for Counted<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let read = self.bytes.read(to)?;
        self.used.fetch_add(read as u64, Relaxed);
        Ok(read)
    }
}

impl<R: BufRead> BufRead for Counted<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.bytes.fill_buf()
    }

    fn consume(&mut self, used: usize) {
        self.used.fetch_add(used as u64, Relaxed);
        self.bytes.consume(used);
    }
}

/// A sentence about the damage of a packed file, with the place up to which it was unpacked. `None`
/// if there was no damage.
type Damaged = Arc<Mutex<Option<String>>>;

/// A reader of the content of a packed file. To seek backwards, it unpacks the file again from its
/// beginning.
pub struct Unpacking {
    packing: Packing,
    file: File,
    decoder: Box<dyn Read + Send>,
    used: Arc<AtomicU64>,
    at: u64,
    is_ended: bool,
    damaged: Damaged,
}

impl Unpacking {
    /// Begins to unpack a file.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn new(file: File, packing: Packing) -> io::Result<Unpacking> {
        let used = Arc::new(AtomicU64::new(0));
        Ok(Unpacking {
            packing,
            decoder: decoder(&file, packing, &used)?,
            file,
            used,
            at: 0,
            is_ended: false,
            damaged: Damaged::default(),
        })
    }

    fn damage(&mut self, error: &io::Error) {
        self.is_ended = true;
        let what = match error.kind() {
            ErrorKind::UnexpectedEof => "the packed file is cut off at its end".to_owned(),
            _ => format!("the packed file is damaged ({error})"),
        };
        let used = self.used.load(Relaxed);
        let sentence = format!("{what}, and was unpacked up to byte {used} of the packed file");
        let mut damaged = self.damaged.lock().unwrap_or_else(|e| e.into_inner());
        damaged.get_or_insert(super::damage::printable(&sentence));
    }
}

fn decoder(
    file: &File,
    packing: Packing,
    used: &Arc<AtomicU64>,
) -> io::Result<Box<dyn Read + Send>> {
    let mut file = file.try_clone()?;
    file.rewind()?;
    used.store(0, Relaxed);
    packing.decoder(Counted {
        bytes: BufReader::with_capacity(64 << 10, file),
        used: used.clone(),
    })
}

impl Read for Unpacking {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.is_ended || to.is_empty() {
            return Ok(0);
        }
        let most = match self.packing {
            Packing::Xz => to.len().min(XZ_STEP),
            _ => to.len(),
        };
        match self.decoder.read(&mut to[..most]) {
            Ok(0) => {
                self.is_ended = true;
                Ok(0)
            }
            Ok(read) => {
                self.at += read as u64;
                Ok(read)
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Err(error),
            Err(error) => {
                self.damage(&error);
                Ok(0)
            }
        }
    }
}

impl Seek for Unpacking {
    /// Moves to a position in the unpacked content. A position after the end counts as the end.
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let wanted = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(_) => return Err(ErrorKind::NotSeekable.into()),
        };
        let wanted = wanted.ok_or(ErrorKind::InvalidInput)?;
        if wanted < self.at {
            self.decoder = decoder(&self.file, self.packing, &self.used)?;
            (self.at, self.is_ended) = (0, false);
        }
        let left = wanted - self.at;
        io::copy(&mut self.by_ref().take(left), &mut io::sink())?;
        Ok(self.at)
    }
}

/// Opens a packed recording, which is unpacked to a temporary file. Meanwhile, calls `tell` with
/// the number of packed bytes that are already unpacked and the number of all packed bytes.
///
/// # Errors
/// Fails if the file cannot be read, or if its content has no known format.
pub fn open(
    path: &Path,
    packing: Packing,
    tell: &mut dyn FnMut(u64, u64),
) -> Result<Box<dyn Source>, SourceError> {
    let name = path.display().to_string();
    let io = |error: io::Error| fault(&name, error);
    let file = File::open(path).map_err(io)?;
    let mut content = Unpacking::new(file, packing).map_err(io)?;
    let damaged = content.damaged.clone();
    let said = || damaged.lock().unwrap_or_else(|e| e.into_inner()).clone();
    let mut head = Vec::with_capacity(HEAD);
    let read = content.by_ref().take(HEAD as u64).read_to_end(&mut head);
    read.and_then(|_| content.rewind()).map_err(io)?;
    let format = match (Format::of_head(&head), said()) {
        (Some(format), _) => format,
        (None, Some(damage)) => return Err(fault(&name, damage)),
        (None, None) => return Err(super::unknown(&name)),
    };
    let source = match format {
        Format::Candump => super::candump::read(&name, content)?,
        Format::Asc => super::asc::read(&name, content, &mut Survey::default())?,
        Format::Trc => super::trc::read(&name, content, &mut Survey::default())?,
        Format::Blf => super::blf::read(&name, content, &mut Survey::default())?,
        Format::Capture => super::pcap::read(&name, content, &mut Survey::default())?,
        Format::Packed(_) => {
            let what = "the file is packed twice. Unpack it once";
            return Err(fault(&name, what));
        }
        other => {
            let unpacked = unpack(path, tell)?;
            let unpacked = unpacked.ok_or_else(|| super::unknown(&name))?;
            let source = match other {
                Format::Mcap | Format::Sqlite => part::open(&unpacked.path, path, Reading::Whole)?,
                other => super::opened(other, &unpacked.path, &name, &mut Survey::default())?,
            };
            return Ok(unpacked.keep(source));
        }
    };
    Ok(Box::new(Watched::new(source, damaged, None)))
}

/// A temporary file with the content of a packed file. Dropping this value removes the temporary
/// file.
pub struct Unpacked {
    pub path: TempPath,
    damaged: Damaged,
}

impl Unpacked {
    /// Returns a source that also reports the damage of the packed file. The temporary file exists
    /// until the returned source is dropped.
    pub fn keep(self, source: Box<dyn Source>) -> Box<dyn Source> {
        Box::new(Watched::new(source, self.damaged, Some(self.path)))
    }

    /// Returns a sentence about the damage of the packed file, or `None` if the file is not
    /// damaged.
    pub fn damage(&self) -> Option<String> {
        let damaged = self.damaged.lock().unwrap_or_else(|e| e.into_inner());
        damaged.clone()
    }
}

/// If the whole file is packed, unpacks it to a temporary file in `TMPDIR`, or else in `/var/tmp`,
/// which is on a disk. Meanwhile, calls `tell` with the number of packed bytes that are already
/// unpacked and the number of all packed bytes. Returns `None` if the file is not packed.
///
/// # Errors
/// Fails if the file cannot be read, if its content is too large, or if the disk is full.
pub fn unpack(
    path: &Path,
    tell: &mut dyn FnMut(u64, u64),
) -> Result<Option<Unpacked>, SourceError> {
    let name = path.display().to_string();
    let io = |error: io::Error| fault(&name, error);
    let mut file = File::open(path).map_err(io)?;
    let head = super::head(&mut file).map_err(io)?;
    let Some(packing) = Packing::of(&head) else {
        return Ok(None);
    };
    let room = std::env::var_os("TMPDIR").unwrap_or_else(|| "/var/tmp".into());
    let no_room = |error: io::Error| {
        let room = room.display();
        fault(&name, format!("cannot unpack the file to {room}: {error}"))
    };
    let mut temporary = tempfile::Builder::new();
    let mut unpacked = temporary
        .prefix("onbeat-")
        .tempfile_in(&room)
        .map_err(no_room)?;
    let size = file.metadata().map_err(io)?.len();
    let most = size.saturating_mul(MOST_TIMES).saturating_add(1 << 30);
    let mut content = Unpacking::new(file, packing).map_err(io)?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        let read = content.read(&mut buffer).map_err(io)?;
        if read == 0 {
            break;
        }
        if content.at > most {
            let what = format!(
                "the file unpacks to more than {most} bytes, which is unusual for a recording. If it is a recording, unpack it yourself"
            );
            return Err(fault(&name, what));
        }
        unpacked.write_all(&buffer[..read]).map_err(no_room)?;
        tell(content.used.load(Relaxed), size);
    }
    Ok(Some(Unpacked {
        path: unpacked.into_temp_path(),
        damaged: content.damaged,
    }))
}

/// A source that also reports the damage of the packed file from which it was unpacked.
struct Watched {
    source: Box<dyn Source>,
    damaged: Damaged,
    sentences: Vec<String>,
    _unpacked: Option<TempPath>,
}

impl Watched {
    fn new(source: Box<dyn Source>, damaged: Damaged, unpacked: Option<TempPath>) -> Watched {
        let mut watched = Watched {
            source,
            damaged,
            sentences: Vec::new(),
            _unpacked: unpacked,
        };
        watched.say();
        watched
    }

    fn say(&mut self) {
        let damaged = self.damaged.lock().unwrap_or_else(|e| e.into_inner());
        self.sentences = self.source.damage().to_vec();
        self.sentences.extend(damaged.clone());
    }
}

impl Source for Watched {
    fn streams(&self) -> &[Stream] {
        self.source.streams()
    }

    fn next(&mut self, payload: &mut Vec<u8>) -> Result<Option<Stamp>, SourceError> {
        let next = self.source.next(payload);
        if !matches!(next, Ok(Some(_))) {
            self.say();
        }
        next
    }

    fn details(&self) -> Details {
        self.source.details()
    }

    fn damage(&self) -> &[String] {
        &self.sentences
    }

    fn back_ns(&self) -> u64 {
        self.source.back_ns()
    }

    fn definition(&self, type_name: &str) -> Option<String> {
        self.source.definition(type_name)
    }

    fn encoding(&self, stream: StreamId) -> Option<&str> {
        self.source.encoding(stream)
    }

    fn extras(&self) -> Extras {
        self.source.extras()
    }
}

#[cfg(test)]
mod tests;
