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
    /// The path of the file within the store, separated by `/`.
    pub key: String,
    pub bytes: u64,
    /// The time since the last write, or zero if the file's time is in the future.
    pub age: Duration,
}

/// A place that holds files by key. A file appears complete or not at all, even if the writer is
/// killed. This crate makes all keys, of fixed words and digits. Errors say what failed, without
/// the key.
pub(crate) trait Backend: Send + Sync {
    fn place(&self) -> &str;

    /// Copies a file to `out`. Returns `None` if the file does not exist. After an error, `out` may
    /// hold a part of it.
    fn copy(&self, key: &str, out: &mut dyn Write) -> io::Result<Option<u64>>;

    /// Writes the next `bytes` bytes as a file, and replaces an existing one.
    fn write(&self, key: &str, from: &mut dyn Read, bytes: u64) -> io::Result<()>;

    /// Returns all files whose keys begin with `PLACE/`, in any order.
    fn list(&self, place: &str) -> io::Result<Vec<Entry>>;

    /// Returns the time since the last write, as in [`Entry`], or `None` if the file does not
    /// exist.
    fn age(&self, key: &str) -> io::Result<Option<Duration>>;

    /// Removes a file. Succeeds if it does not exist.
    fn remove(&self, key: &str) -> io::Result<()>;

    /// Creates the place if this backend can. Succeeds if it exists.
    fn make(&self) -> io::Result<()>;

    /// Removes half-written files of killed writers that are at least `older` old, and returns
    /// their number.
    fn remove_leftovers(&self, older: Duration) -> io::Result<u64>;

    /// Returns how long a writer may take from the first file to the row that names it, if no lock
    /// keeps tidying out. An unnamed file of twice this age does not belong to a running writer.
    fn max_write_time(&self) -> Option<Duration>;

    /// Locks the store until the result is dropped: alone to tidy, shared to write. Does nothing in
    /// backends without locks.
    fn lock(&self, exclusive: bool) -> io::Result<Box<dyn Any>>;
}
