//! Writes the file or the directory of a conversion whole or not at all.

use super::{Plan, Target, WriteError};
use crate::item::Source;
use std::fs::{self, File, Permissions};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const BUFFER: usize = 256 << 10;

/// Writes the planned conversion of `source` to a temporary file or directory beside `path`.
/// Renames it to `path` at the end. Replaces an existing file only if `replaces` is true. A file
/// never replaces a directory.
///
/// # Errors
/// Fails like [`Plan::write`], and if `path` exists and may not be replaced. An existing file is
/// then unchanged.
pub fn save(
    plan: &Plan,
    source: &mut dyn Source,
    path: &Path,
    replaces: bool,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<(), WriteError> {
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::other("the path has no file name"))?;
    let parent = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let prefix = format!(".{}.", name.to_string_lossy());
    let mut temporary = tempfile::Builder::new();
    temporary.prefix(&prefix).suffix(".tmp");
    if plan.target != Target::Rosbag2 {
        temporary.permissions(Permissions::from_mode(0o666));
        let file = temporary.tempfile_in(parent)?;
        let mut out = BufWriter::with_capacity(BUFFER, file);
        plan.write(source, &mut out, go_on)?;
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        let renamed = match replaces {
            true => file.persist(path),
            false => file.persist_noclobber(path),
        };
        renamed.map_err(|error| error.error)?;
        return Ok(());
    }
    temporary.permissions(Permissions::from_mode(0o777));
    let directory = temporary.tempdir_in(parent)?;
    let file_name = format!("{}_0.mcap", name.to_string_lossy());
    let file = File::create_new(directory.path().join(&file_name))?;
    let mut out = BufWriter::with_capacity(BUFFER, file);
    plan.write(source, &mut out, go_on)?;
    fs::write(
        directory.path().join("metadata.yaml"),
        plan.bag_metadata(&file_name),
    )?;
    // This fails if the directory exists and has files.
    fs::rename(directory.path(), path)?;
    let _ = directory.keep();
    Ok(())
}

/// Writes the planned conversion of `source` to a pipe, in which one cannot seek.
///
/// # Errors
/// Fails like [`Plan::write`], and if the target format needs a file.
pub fn pipe(
    plan: &Plan,
    source: &mut dyn Source,
    out: impl Write,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<(), WriteError> {
    plan.write(source, &mut Pipe(BufWriter::new(out)), go_on)
}

struct Pipe<W>(W);

impl<W: Write> Write for Pipe<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl<W> Seek for Pipe<W> {
    fn seek(&mut self, _: SeekFrom) -> io::Result<u64> {
        Err(io::ErrorKind::NotSeekable.into())
    }
}
