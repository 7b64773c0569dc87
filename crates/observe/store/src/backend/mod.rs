//! Where a store's files lie: a trait, and the places that have it.

mod answer;
mod directory;
mod s3;

pub(crate) use directory::Local;
pub(crate) use s3::Bucket;

use std::any::Any;
use std::io::{self, Read, Write};
use std::time::Duration;

/// One file of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Its name in the store, with `/` between the parts.
    pub key: String,
    /// Its size.
    pub bytes: u64,
    /// Since it was written last; zero where that lies in the future.
    pub age: Duration,
}

/// A place for files by name. A file appears whole or not at all, also if the writer is killed. Keys are made
/// by this crate, of fixed words and digits. Errors say what failed, without the key.
pub(crate) trait Backend: Send + Sync {
    /// As the user names it.
    fn place(&self) -> &str;

    /// Copies a file to `out`. None if there is no such file; some of it may be written on an error.
    fn copy(&self, key: &str, out: &mut dyn Write) -> io::Result<Option<u64>>;

    /// Makes a file of the next `bytes` bytes, in place of the one that has this name.
    fn write(&self, key: &str, from: &mut dyn Read, bytes: u64) -> io::Result<()>;

    /// All files whose names begin with `PLACE/`, in any order.
    fn list(&self, place: &str) -> io::Result<Vec<Entry>>;

    /// Since a file was written last, as in [`Entry`]. None if there is no such file.
    fn age(&self, key: &str) -> io::Result<Option<Duration>>;

    /// Removes a file. It is no error if there is none.
    fn remove(&self, key: &str) -> io::Result<()>;

    /// Makes the place, if places can be made. It is no error if it is there.
    fn make(&self) -> io::Result<()>;

    /// What killed writers have left and no name leads to: removes what is older, and counts it.
    fn remove_leftovers(&self, older: Duration) -> io::Result<u64>;

    /// How long a writer may take from a file to the row that names it, where no lock keeps those out who tidy
    /// up: what is twice as old and nothing names is of nobody at work.
    fn longest(&self) -> Option<Duration>;

    /// Keeps those out who tidy up (`alone`), or who write, until the result is dropped; where places have such
    /// locks.
    fn hold(&self, alone: bool) -> io::Result<Box<dyn Any>>;
}
