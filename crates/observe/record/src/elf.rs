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
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is not ELF, or damaged.
    #[error("{path} is not a library that can be probed: {reason}")]
    Format {
        /// The file.
        path: PathBuf,
        /// What the parser said.
        reason: String,
    },
    /// Code for a processor that there are no probes for.
    #[error("{path} holds code for {architecture:?}; onbeat probes x86-64 and 64-bit Arm code")]
    Architecture {
        /// The file.
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

/// The functions and variables of one library that somebody asked for.
#[derive(Debug)]
pub struct Symbols {
    /// Processor.
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
        let format = |e: object::Error| ElfReadError::Format {
            path: path.into(),
            reason: e.to_string(),
        };
        let file = ElfFile64::<object::Endianness>::parse(&*data).map_err(format)?;
        let machine = match file.architecture() {
            Architecture::X86_64 => Machine::X86_64,
            Architecture::Aarch64 => Machine::Aarch64,
            architecture => {
                return Err(ElfReadError::Architecture {
                    path: path.into(),
                    architecture,
                })
            }
        };
        let mut functions = HashMap::new();
        let dynamic = file.dynamic_symbols();
        let full = local.then(|| file.symbols()).into_iter().flatten();
        for symbol in dynamic.chain(full) {
            if symbol.is_undefined()
                || !matches!(
                    symbol.kind(),
                    SymbolKind::Text | SymbolKind::Data | SymbolKind::Unknown
                )
            {
                continue;
            }
            let Ok(name) = symbol.name() else { continue };
            if !wanted(name) || functions.contains_key(name) {
                continue;
            }
            let address = symbol.address();
            let size = symbol.size().clamp(1, CODE_MAX);
            for segment in file.segments() {
                let (start, length) = (segment.address(), segment.size());
                if address < start || address - start >= length {
                    continue;
                }
                let (in_file, in_file_length) = segment.file_range();
                let offset = address - start;
                if offset >= in_file_length && symbol.kind() == SymbolKind::Text {
                    continue;
                }
                let file_offset = in_file.saturating_add(offset);
                let end = file_offset.saturating_add(size).min(data.len() as u64);
                let code = data
                    .get(file_offset as usize..end as usize)
                    .unwrap_or_default()
                    .to_vec();
                functions.insert(
                    name.to_owned(),
                    Function {
                        file_offset,
                        address,
                        code,
                    },
                );
                break;
            }
        }
        Ok(Symbols { machine, functions })
    }

    /// The function of that name.
    pub fn get(&self, name: &str) -> Option<&Function> {
        self.functions.get(name)
    }

    /// All that were found.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Function)> {
        self.functions
            .iter()
            .map(|(name, function)| (name.as_str(), function))
    }
}

/// Has a file a section of that name? Reads little of it, so that many files can be asked; what is
/// no ELF file has none.
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
