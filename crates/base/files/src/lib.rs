//! Files below directories that are held open, so that no link or swapped directory leads
//! elsewhere.
//!
//! Between the check of a path and its use, anybody who can write to one of its directories can
//! replace it by a symbolic link or by another directory. A program that runs as root would then
//! change files of others. onbeat therefore walks a path once, to a [`Directory`], and looks up
//! names in that directory alone:
//!
//! - Files are created, never taken over (`O_EXCL`), and links are never followed (`O_NOFOLLOW`).
//! - Contents are replaced through a file with an unguessable name, which is then renamed.
//! - Owners and modes are changed by descriptor, and only of files that were created here.
//!
//! The crate works on any Unix and is tested on Linux. Its functions allocate and wait for disks:
//! they are not for real-time paths.

mod directory;
mod trusted;

pub use directory::{Directory, MakeError, Meta, Owner};

use std::io;
use std::path::Path;

/// Replaces a file completely or not at all: writes a temporary file in the same directory, then
/// renames that file. A link at `path` is replaced, not followed.
///
/// # Errors
///
/// Returns the operating system's error. The old file is then unchanged.
pub fn replace(
    path: &Path,
    write: impl FnOnce(&mut std::fs::File) -> io::Result<()>,
) -> io::Result<()> {
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::other("the path has no file name"))?;
    Directory::open(directory::parent(path))?.replace(name, write)
}
