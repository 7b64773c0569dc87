//! Symbols of a library: file offset and code bytes, read from the file itself.

use crate::placement::Machine;
use object::read::elf::ElfFile64;
use object::read::ReadCache;
use object::{Architecture, Object, ObjectSegment, ObjectSymbol, SymbolKind};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
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
    /// The file is not ELF, or damaged.
    #[error("{path} is not a library that can be probed: {reason}")]
    Format {
        /// The file that could not be read.
        path: PathBuf,
        /// The parser's error.
        reason: String,
    },
    /// Its code is for a processor without probes.
    #[error("{path} contains code for {architecture:?}; onbeat probes x86-64 and 64-bit Arm code")]
    Architecture {
        /// The file that could not be read.
        path: PathBuf,
        /// Its processor.
        architecture: Architecture,
    },
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

impl Symbols {
    /// Reads the symbols of `path` that `wanted` accepts: dynamic ones, and with `local` those of
    /// the full symbol table too.
    pub fn read(
        path: &Path,
        local: bool,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Symbols, ElfReadError> {
        let data = std::fs::read(path).map_err(|source| ElfReadError::Io {
            path: path.into(),
            source,
        })?;
        let file = ElfFile64::<object::Endianness>::parse(&*data).map_err(|error| {
            ElfReadError::Format {
                path: path.into(),
                reason: error.to_string(),
            }
        })?;
        let machine = machine_of(&file).map_err(|architecture| ElfReadError::Architecture {
            path: path.into(),
            architecture,
        })?;
        let mut functions = HashMap::new();
        let dynamic = file.dynamic_symbols();
        let full = local.then(|| file.symbols()).into_iter().flatten();
        for symbol in dynamic.chain(full).filter(is_defined) {
            let Ok(name) = symbol.name() else { continue };
            if !wanted(name) || functions.contains_key(name) {
                continue;
            }
            if let Some(function) = function_of(&file, &data, &symbol) {
                functions.insert(name.to_owned(), function);
            }
        }
        Ok(Symbols { machine, functions })
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

/// An ELF file of either byte order.
type Elf<'data> = ElfFile64<'data, object::Endianness>;

/// The processor whose code a file contains; its architecture if there are no probes for it.
fn machine_of(file: &Elf<'_>) -> Result<Machine, Architecture> {
    match file.architecture() {
        Architecture::X86_64 => Ok(Machine::X86_64),
        Architecture::Aarch64 => Ok(Machine::Aarch64),
        other => Err(other),
    }
}

/// Whether a symbol is a function or variable of this file.
fn is_defined<'data>(symbol: &impl ObjectSymbol<'data>) -> bool {
    use SymbolKind::{Data, Text, Unknown};
    !symbol.is_undefined() && matches!(symbol.kind(), Text | Data | Unknown)
}

/// Where a symbol lies in the file `data`, from the segment that contains its address.
fn function_of<'data>(
    file: &Elf<'data>,
    data: &[u8],
    symbol: &impl ObjectSymbol<'data>,
) -> Option<Function> {
    let address = symbol.address();
    file.segments().find_map(|segment| {
        let offset = address.checked_sub(segment.address())?;
        let (in_file, in_file_length) = segment.file_range();
        // Code lies in the file; of a variable only the place matters.
        let is_missing = offset >= in_file_length && symbol.kind() == SymbolKind::Text;
        if offset >= segment.size() || is_missing {
            return None;
        }
        let file_offset = in_file.saturating_add(offset);
        let size = symbol.size().clamp(1, CODE_MAX);
        let end = file_offset.saturating_add(size).min(data.len() as u64);
        let code = data.get(file_offset as usize..end as usize);
        Some(Function {
            file_offset,
            address,
            code: code.unwrap_or_default().to_vec(),
        })
    })
}

/// Whether a file has a section of that name. Reads little of it, so that many files can be
/// searched. A file that is not ELF has none.
pub fn has_section(path: &Path, name: &str) -> bool {
    let Ok(file) = std::fs::File::open(path) else {
        return false;
    };
    let cache = ReadCache::new(file);
    let file = ElfFile64::<object::Endianness, _>::parse(&cache);
    file.is_ok_and(|file| file.section_by_name(name).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_no_libraries_are_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("librcl.so");
        for content in [
            &b""[..],
            b"\x7fELF",
            b"#!/bin/sh\n",
            &[
                0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff,
            ],
        ] {
            std::fs::write(&path, content).unwrap();
            let error = Symbols::read(&path, true, |_| true)
                .unwrap_err()
                .to_string();
            assert!(
                error.contains("librcl.so") && !error.contains('\n'),
                "{error}"
            );
        }
    }

    #[test]
    fn the_test_binarys_own_functions_are_found() {
        let own = std::env::current_exe().unwrap();
        let symbols = Symbols::read(&own, true, |name| name == "main").unwrap();
        assert!(symbols
            .get("main")
            .is_some_and(|f| !f.code.is_empty() && f.file_offset > 0));
        assert!(has_section(&own, ".text") && !has_section(&own, ".note.onbeat"));
        assert!(!has_section(Path::new("/proc/self/status"), ".text"));
    }
}
