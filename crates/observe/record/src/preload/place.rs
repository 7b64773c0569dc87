//! The directories of a recording without rights: the library, and the rings.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;

/// How the rings are made.
#[derive(Debug, Clone)]
pub struct PlaceOptions {
    /// Bytes of each thread's ring: a power of two from 4096 to 2^26.
    pub ring_bytes: u64,
    /// Who the recorded programs run as, where that is not this process's user: (uid, gid).
    pub owner: Option<(u32, u32)>,
}

impl Default for PlaceOptions {
    fn default() -> PlaceOptions {
        PlaceOptions {
            ring_bytes: 256 << 10,
            owner: None,
        }
    }
}

/// The library on disk and the directory of the rings. Both are removed when this is dropped; a
/// program that still writes then keeps its mapping, and harms nobody.
#[derive(Debug)]
pub struct Place {
    library: PathBuf,
    rings: PathBuf,
    ring_bytes: u64,
}

impl Place {
    /// Writes the library to where programs may be loaded from, and makes a directory for rings in
    /// memory, both for this user alone (0700).
    ///
    /// # Errors
    /// No directory is writable; none without `noexec` for the library.
    pub fn create(options: &PlaceOptions) -> io::Result<Place> {
        let _ = options;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The variables to set for the recorded program, and its children inherit. `preloaded`: the
    /// value of `LD_PRELOAD` that it would have.
    pub fn environment(&self, preloaded: Option<&OsStr>) -> Vec<(&'static str, OsString)> {
        let _ = preloaded;
        Vec::new()
    }
}
