//! Files below directories that are held open.
//!
//! Between the check of a path and its use, whoever can write to one of its directories can put a
//! symbolic link, or another directory, into its place. A program that runs as root then changes
//! files of others. So a path is walked once, to a [`Directory`]; from then on names are looked up
//! in that directory alone:
//!
//! - files are created, never taken over (`O_EXCL`), and links are never followed (`O_NOFOLLOW`);
//! - contents are replaced through a name that nobody can guess, then renamed;
//! - owners and modes are changed of files that were created here, by descriptor.
//!
//! Any Unix; tested on Linux. The functions allocate and wait for disks: they are not for real-time paths.

mod directory;
mod trusted;

pub use directory::{Directory, MakeError, Meta, Owner};

use std::io;
use std::path::Path;

/// Writes a file whole or not at all: through a temporary name in its directory, then renamed. A
/// link at `path` is replaced, not followed.
///
/// # Errors
///
/// The system's; the file is as it was before then.
pub fn replace(
    path: &Path,
    write: impl FnOnce(&mut std::fs::File) -> io::Result<()>,
) -> io::Result<()> {
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::other("it names no file"))?;
    Directory::open(directory::parent(path))?.replace(name, write)
}
