//! Symbols of a library: file offset and code bytes, read from the file itself.
//!
//! The file may be anybody's, hostile, and rewritten while it is read. It is read in pieces whose
//! place and length are checked and limited; nothing of it is mapped, because a mapped file that
//! shrinks ends its reader by a signal.

mod starts;
mod tables;

use crate::placement::Machine;
use onbeat_proc::foreign::{Opened, Reach};
pub use starts::{begins_function, code_at};
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use tables::{Segment, Symbol, Table, Tables};
use thiserror::Error;

/// Why a library could not be read.
#[derive(Debug, Error)]
pub enum ElfReadError {
    /// The file could not be opened or read.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The file that could not be read.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file is not ELF, damaged, or larger in some part than any library is.
    #[error("{path} is not a library that can be probed: {reason}")]
    Format {
        /// The file that could not be read.
        path: PathBuf,
        /// What is wrong with it.
        reason: Malformed,
    },
}

/// What is wrong with an ELF file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Malformed {
    /// It does not begin as a 64-bit, little-endian ELF file.
    #[error("no 64-bit ELF file")]
    NoElf,
    /// Its code is for a processor without probes.
    #[error("contains code for machine {0}; onbeat probes x86-64 and 64-bit Arm code")]
    Machine(u16),
    /// A part lies outside of the file, or the file became shorter while it was read.
    #[error("its {0} lie outside of the file")]
    Outside(&'static str),
    /// A part is larger than this reader takes.
    #[error("its {0} are larger than onbeat reads")]
    TooLarge(&'static str),
}

/// Bytes that are read piece by piece.
pub trait Source {
    /// How many there are, or were a moment ago.
    fn size(&self) -> u64;
    /// Fills `buffer` from `offset`; false if that is not possible any more.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> bool;
}

impl Source for Opened {
    fn size(&self) -> u64 {
        Opened::size(self)
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> bool {
        File::read_exact_at(self.file(), buffer, offset).is_ok()
    }
}

impl Source for [u8] {
    fn size(&self) -> u64 {
        self.len() as u64
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> bool {
        let piece = usize::try_from(offset)
            .ok()
            .and_then(|at| self.get(at..)?.get(..buffer.len()));
        if let Some(piece) = piece {
            buffer.copy_from_slice(piece);
        }
        piece.is_some()
    }
}

/// A function in a file.
#[derive(Debug, Clone)]
pub struct Function {
    /// Offset of its first byte in the file, as uprobes want it.
    pub file_offset: u64,
    /// Its address as linked.
    pub address: u64,
    /// Its first bytes (all of it, up to 4 KiB).
    pub code: Vec<u8>,
}

/// The functions and variables that were wanted of one library.
#[derive(Debug)]
pub struct Symbols {
    /// The processor whose code it is.
    pub machine: Machine,
    functions: HashMap<String, Function>,
}

/// Longest piece of a function that placement looks at.
const CODE_MAX: u64 = 4096;
/// Wanted symbols of one file. A program with many synchronisers has some hundred.
const WANTED_MAX: usize = 4096;

impl Symbols {
    /// Reads the symbols of the file at `path` that `wanted` accepts: dynamic ones, and with `local`
    /// those of the full symbol table too.
    pub fn read(
        path: &Path,
        local: bool,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Symbols, ElfReadError> {
        let opened = Reach::Here(path.to_path_buf()).open();
        let opened = opened.map_err(|source| ElfReadError::Io {
            path: path.into(),
            source,
        })?;
        Symbols::of(&opened, local, wanted).map_err(|reason| ElfReadError::Format {
            path: path.into(),
            reason,
        })
    }

    /// The same, of bytes.
    pub fn of(
        source: &(impl Source + ?Sized),
        local: bool,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Symbols, Malformed> {
        let tables = Tables::read(source)?;
        let mut functions = HashMap::new();
        let mut take = |name: &str, symbol: Symbol| {
            if functions.len() == WANTED_MAX {
                return Err(Malformed::TooLarge("symbols"));
            }
            if wanted(name) && !functions.contains_key(name) {
                if let Some(function) = function_of(source, tables.segments(), &symbol) {
                    functions.insert(name.to_owned(), function);
                }
            }
            Ok(())
        };
        tables.symbols(source, Table::Dynamic, &mut take)?;
        if local {
            tables.symbols(source, Table::Full, &mut take)?;
        }
        Ok(Symbols {
            machine: tables.machine(),
            functions,
        })
    }

    /// The function of that name.
    pub fn get(&self, name: &str) -> Option<&Function> {
        self.functions.get(name)
    }

    /// All that were found, in no certain order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Function)> {
        self.functions
            .iter()
            .map(|(name, function)| (name.as_str(), function))
    }
}

/// Where a symbol lies in the file, from the segment that contains its address.
fn function_of(
    source: &(impl Source + ?Sized),
    segments: &[Segment],
    symbol: &Symbol,
) -> Option<Function> {
    segments.iter().find_map(|segment| {
        let offset = symbol.address.checked_sub(segment.address)?;
        // Code lies in the file; of a variable only the place matters.
        let is_missing = offset >= segment.in_file && symbol.is_code;
        if offset >= segment.size || is_missing {
            return None;
        }
        let file_offset = segment.offset.checked_add(offset)?;
        let left = source.size().saturating_sub(file_offset);
        let mut code = vec![0; symbol.size.clamp(1, CODE_MAX).min(left) as usize];
        if !source.read_at(&mut code, file_offset) {
            code.clear();
        }
        Some(Function {
            file_offset,
            address: symbol.address,
            code,
        })
    })
}

/// Whether a file has a section of that name. Reads little of it, so that many files can be
/// searched. A file that is not ELF has none.
pub fn has_section(source: &(impl Source + ?Sized), name: &str) -> bool {
    Tables::read(source).is_ok_and(|tables| tables.has_section(source, name))
}

#[cfg(test)]
mod tests;
