//! The places of a store's files: a trait, with a directory and a bucket as implementations.

mod answer;
mod directory;
mod s3;

pub(crate) use directory::Local;
pub(crate) use s3::Bucket;

use std::any::Any;
use std::io::{self, Read, Write};
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub key: String,
    pub bytes: u64,
    /// The time since the last write of the file, or zero if the file's time is in the future.
    pub age: Duration,
}

/// A place that stores files by key: a directory or a bucket. A file appears complete or not at
/// all, even if the writer is killed. All keys consist of fixed words and digits. An error says
/// what failed, without the key.
pub(crate) trait Backend: Send + Sync {
    fn place(&self) -> &str;

    /// Copies a file to `out` and returns its size, or `None` if the file does not exist. After an
    /// error, `out` may contain a part of the file.
    fn copy(&self, key: &str, out: &mut dyn Write) -> io::Result<Option<u64>>;

    /// Reads `bytes` bytes from `from` and writes them as a file. Replaces an existing file.
    fn write(&self, key: &str, from: &mut dyn Read, bytes: u64) -> io::Result<()>;

    fn list(&self, place: &str) -> io::Result<Vec<Entry>>;

    /// Returns the time since the last write of a file, as in [`Entry`], or `None` if the file does
    /// not exist.
    fn age(&self, key: &str) -> io::Result<Option<Duration>>;

    fn remove(&self, key: &str) -> io::Result<()>;

    /// Creates the place if this kind of place can be created. Succeeds if it exists already.
    fn make(&self) -> io::Result<()>;

    /// Removes half-written files of killed writers that are at least `older` old, and returns
    /// their number.
    fn remove_leftovers(&self, older: Duration) -> io::Result<u64>;

    /// Returns the longest time that a writer may take from its first file to its index rows.
    /// Returns `None` if a lock separates writing from tidying. If a file is older than twice this
    /// time and no row of the index names it, the file does not belong to a running writer.
    fn max_write_time(&self) -> Option<Duration>;

    /// Locks the store until the result is dropped: exclusively to tidy, shared to write. Does
    /// nothing in backends without locks.
    fn lock(&self, exclusive: bool) -> io::Result<Box<dyn Any>>;
}
