//! Reads the symbols of a library: their file offsets and code bytes.
//!
//! The file may belong to anybody, be hostile, and change while it is read. So it is read in pieces
//! whose position and length are checked and limited. It is not mapped, because a mapped file that
//! shrinks would end its reader by a signal.

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

#[allow(missing_docs)] // The messages say the rest.
#[derive(Debug, Error)]
pub enum ElfReadError {
    #[error("cannot read {path}: {source}")]
    Io {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{path} is not a library that can be probed: {reason}")]
    Format { path: PathBuf, reason: Malformed },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[allow(missing_docs)] // The messages say the rest.
pub enum Malformed {
    #[error("not a 64-bit ELF file")]
    NoElf,
    #[error("contains code for machine {0}; onbeat probes x86-64 and 64-bit Arm code")]
    Machine(u16),
    #[error("the {0} lie outside of the file")]
    Outside(&'static str),
    #[error("the {0} in the file exceed the number or the size that onbeat accepts")]
    TooLarge(&'static str),
}

/// A source of bytes that a reader reads in pieces, such as an open file or a slice of memory.
pub trait Source {
    /// Returns the current number of bytes. The number may change at any time.
    fn size(&self) -> u64;
    /// Fills `buffer` with the bytes at `offset`. Returns false if they cannot be read.
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

/// A function or variable that a file defines.
#[derive(Debug, Clone)]
pub struct Function {
    /// The offset of the function's first byte in the file. Uprobes are placed by this offset.
    pub file_offset: u64,
    /// The virtual address in the file's symbol table, before relocation.
    pub address: u64,
    /// The bytes of the function, or its first 4 KiB if it is longer.
    pub code: Vec<u8>,
}

/// Those symbols of one library that the caller asked for.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug)]
pub struct Symbols {
    pub machine: Machine,
    functions: HashMap<String, Function>,
}

const CODE_MAX: u64 = 4096;
/// The largest number of requested symbols in one file. A program with many synchronisers has a few
/// hundred.
const WANTED_MAX: usize = 4096;

impl Symbols {
    /// Reads the symbols that `wanted` accepts from the file at `path`: the dynamic symbols and,
    /// with `local`, also the symbols of the full symbol table.
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

    /// Reads symbols like [`Symbols::read`], from bytes instead of a file. `path` is used only in
    /// errors.
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

    /// Returns the function or variable with exactly this symbol name, or `None` if it was not
    /// found or not requested.
    pub fn get(&self, name: &str) -> Option<&Function> {
        self.functions.get(name)
    }

    /// Iterates over the names and symbols that were found, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Function)> {
        self.functions
            .iter()
            .map(|(name, function)| (name.as_str(), function))
    }
}

fn function_of(
    source: &(impl Source + ?Sized),
    segments: &[Segment],
    symbol: &Symbol,
) -> Option<Function> {
    segments.iter().find_map(|segment| {
        let offset = symbol.address.checked_sub(segment.address)?;
        // Code must lie in the file. A variable may also lie in memory only, because only its
        // address matters.
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

/// Returns whether a file has a section named `name`. Returns false if the file is not an ELF file.
/// Reads only a small part of the file, so that many files can be searched.
pub fn has_section(source: &(impl Source + ?Sized), name: &str) -> bool {
    Tables::read(source).is_ok_and(|tables| tables.has_section(source, name))
}

#[cfg(test)]
mod tests;
