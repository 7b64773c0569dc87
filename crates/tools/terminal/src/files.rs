//! Reads models and traces, and writes outputs whole or not at all.

use crate::error::CliError;
use onbeat_document::Model;
use onbeat_trace::Reader;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Whether a path that the user gave is a file or a directory.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Directory,
    File,
}

/// Returns whether a path is a directory or a file.
///
/// # Errors
///
/// Returns [`CliError::Missing`] or [`CliError::Read`] if the path cannot be looked up.
pub fn kind(path: &Path) -> Result<Kind, CliError> {
    let meta = fs::metadata(path).map_err(|source| read_error(path, source))?;
    Ok(if meta.is_dir() {
        Kind::Directory
    } else {
        Kind::File
    })
}

fn read_error(path: &Path, source: io::Error) -> CliError {
    if source.kind() == io::ErrorKind::NotFound {
        let hint = if path == Path::new("model.json") {
            ". Make a model with `onbeat model TRACE`, or name a model file"
        } else {
            ""
        };
        CliError::Missing {
            path: path.into(),
            hint: hint.into(),
        }
    } else {
        CliError::Read {
            path: path.into(),
            source,
        }
    }
}

/// Reads the model file at a path. Error messages name `command`, the command as the user types it.
pub fn load_model(path: &Path, command: &str) -> Result<Model, CliError> {
    if kind(path)? == Kind::Directory {
        return Err(CliError::TraceForModel {
            path: path.into(),
            command: command.into(),
        });
    }
    let bytes = fs::read(path).map_err(|source| read_error(path, source))?;
    onbeat_document::file::read(&bytes).map_err(CliError::in_file(path))
}

const MAX_LIST_BYTES: usize = 256 << 20;

/// Reads a list of paths, one per line, from a file, or from the standard input if `path` is `-`.
/// Skips empty lines.
pub fn read_list(path: &Path) -> Result<Vec<PathBuf>, CliError> {
    let name = if path == Path::new("-") {
        Path::new("/dev/stdin")
    } else {
        path
    };
    let bytes = read_at_most(name, MAX_LIST_BYTES)?;
    if bytes.len() > MAX_LIST_BYTES {
        let source = io::Error::other(
            "the file is longer than 256 MiB. Name a text file with one path per line",
        );
        return Err(read_error(path, source));
    }
    let lines = bytes.split(|b| *b == b'\n').filter(|l| !l.is_empty());
    Ok(lines.map(|l| OsStr::from_bytes(l).into()).collect())
}

/// Reads at most `limit` + 1 bytes of a file. A result that is longer than `limit` shows the caller
/// that the file is too long.
pub fn read_at_most(path: &Path, limit: usize) -> Result<Vec<u8>, CliError> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|f| f.take(limit as u64 + 1).read_to_end(&mut bytes))
        .map_err(|source| read_error(path, source))?;
    Ok(bytes)
}

/// Opens the trace at a path. Error messages name the command `command`. If the file at the path is
/// a model, the error message ends with `hint`.
pub fn open_trace(path: &Path, command: &str, hint: &'static str) -> Result<Reader, CliError> {
    if kind(path)? == Kind::File && begins_like_json(path)? {
        return Err(CliError::ModelForTrace {
            path: path.into(),
            command: command.into(),
            hint,
        });
    }
    Reader::open(path).map_err(CliError::failed)
}

fn begins_like_json(path: &Path) -> Result<bool, CliError> {
    let mut start = [0; 64];
    let read = File::open(path).and_then(|mut f| f.read(&mut start));
    let n = read.map_err(|source| read_error(path, source))?;
    Ok(start[..n].iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'{'))
}

/// Writes a file whole or not at all. The data go into a new file beside `path` with a name that
/// nobody can guess. The new file is then renamed to `path`.
///
/// Readers never see half a file, and after a failure the old file is still there. If `path` is a
/// symbolic link, the link itself is replaced. `-` is the standard output.
pub fn write_whole(
    path: &Path,
    write: impl FnOnce(&mut (dyn Write + Send)) -> io::Result<()>,
) -> Result<(), CliError> {
    if path == Path::new("-") {
        let mut out = BufWriter::new(io::stdout());
        return write(&mut out)
            .and_then(|()| out.flush())
            .map_err(CliError::Stdout);
    }
    let fail = |source| CliError::Write {
        path: path.into(),
        source,
    };
    if path.is_dir() {
        return Err(fail(io::Error::other("it is a directory")));
    }
    let write_to = |file: &mut File| {
        let mut out = BufWriter::new(file);
        write(&mut out).and_then(|()| out.flush())
    };
    if is_written_into(path) {
        let mut file = OpenOptions::new().write(true).open(path).map_err(fail)?;
        return write_to(&mut file).map_err(fail);
    }
    onbeat_files::replace(path, write_to).map_err(fail)
}

/// Returns whether data must be written into the file at this path, because it is a device or a
/// pipe, which cannot be replaced. Follows symbolic links in /dev and /proc, for example
/// /dev/stdout. A symbolic link elsewhere does not count, because the link's owner decides where it
/// leads.
fn is_written_into(path: &Path) -> bool {
    // Everybody can create names in /dev/shm.
    let of_system =
        (path.starts_with("/dev") && !path.starts_with("/dev/shm")) || path.starts_with("/proc");
    let found = match of_system {
        true => fs::metadata(path),
        false => fs::symlink_metadata(path),
    };
    found.is_ok_and(|m| !m.is_file() && !m.is_dir() && !m.is_symlink())
}

/// Writes a model as JSON without white space, for intermediate results that only programs read.
pub fn write_part(path: &Path, model: &Model) -> Result<(), CliError> {
    write_whole(path, |out| {
        serde_json::to_writer(&mut *out, model)?;
        out.write_all(b"\n")
    })
}

/// Writes a model as JSON, with a line for each callback, edge and chain.
pub fn write_model(path: &Path, model: &Model) -> Result<(), CliError> {
    write_whole(path, |out| onbeat_document::file::write(out, model))
}
