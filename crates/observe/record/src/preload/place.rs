//! Makes the two directories of a recording without privileges: one for the library, one for the
//! rings.

use super::directory::{may_load_from, Access, Directory};
use super::mailbox::Mailbox;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub(super) const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libonbeat_preload.so"));
const PRELOAD: &str = "LD_PRELOAD";
const SANITIZER: &str = "ASAN_OPTIONS";
const PREFIX: &str = "onbeat-preload-";

/// The options for the rings. The preloaded library stores the records of each thread in a ring.
#[derive(Debug, Clone)]
pub struct PlaceOptions {
    /// The size of each thread's ring in bytes: a power of two, from a page to 2^26. A thread that
    /// makes 10,000 records per second fills 256 KiB in half a second.
    pub ring_bytes: u64,
    /// The user and group (uid, gid) that the recorded programs run as, if they differ from this
    /// process's.
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

/// The library on disk and the directory of the rings.
///
/// Dropping this value removes both. A program that is still running keeps its mappings and can
/// write to them without harm.
#[derive(Debug)]
pub struct Place {
    library: Directory,
    rings: Directory,
    ring_bytes: u64,
    /// The socket on which processes report that they cannot write rings, or `None` if this user
    /// may not open a socket.
    mailbox: Option<Mailbox>,
}

impl Place {
    /// Writes the library to a directory from which programs can be loaded, and makes a directory
    /// for rings in memory. Only the user that the recorded programs run as can reach the two
    /// directories (mode 0700).
    ///
    /// # Errors
    ///
    /// Fails if the rings' size is not allowed, if no directory can be written to, or if no
    /// writable directory allows programs to load libraries from it.
    pub fn create(options: &PlaceOptions) -> io::Result<Place> {
        let bytes = options.ring_bytes;
        if !bytes.is_power_of_two() || !(4096..=1 << 26).contains(&bytes) {
            let reason = format!("a ring cannot have {bytes} bytes: the size must be a power of two from 4096 to 2^26");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        // A session's directory is closed to other users.
        let session = std::env::var_os("XDG_RUNTIME_DIR").filter(|_| options.owner.is_none());
        let session = session.map(PathBuf::from);
        let scratch = [std::env::temp_dir(), "/var/tmp".into()];
        let library = session.iter().chain(&scratch).filter(|d| may_load_from(d));
        let access = match options.owner {
            Some((uid, gid)) => Access::User(uid, gid),
            None => Access::Own,
        };
        let library = Directory::make(PREFIX, library, access, |directory| {
            fs::write(directory.join("libonbeat_preload.so"), LIBRARY)
        })?;
        let memory = PathBuf::from("/dev/shm");
        let rings = std::iter::once(&memory).chain(&session).chain(&scratch);
        let rings = Directory::make(PREFIX, rings, access, |_| Ok(()))?;
        Ok(Place {
            mailbox: Mailbox::open(rings.path()).ok(),
            rings,
            library,
            ring_bytes: bytes,
        })
    }

    /// Returns the environment variables to set for the recorded program. The program's children
    /// inherit them. `before` returns the value that a variable would have otherwise.
    pub fn environment(
        &self,
        before: impl Fn(&str) -> Option<OsString>,
    ) -> Vec<(&'static str, OsString)> {
        let mut setting = OsString::from(format!("{}:", self.ring_bytes));
        setting.push(self.rings.path());
        let mut variables = preloading(&self.library(), before).to_vec();
        variables.extend([
            ("ONBEAT_PRELOAD", setting),
            // A process with more filters than the recorder may be forbidden to read clocks.
            ("ONBEAT_PRELOAD_FILTERS", own_filters().to_string().into()),
        ]);
        // The library must know this network namespace, because the socket cannot be reached from
        // another one.
        let network = fs::metadata("/proc/self/ns/net").map(|net| net.ino());
        if let (Some(_), Ok(network)) = (&self.mailbox, network) {
            variables.push(("ONBEAT_PRELOAD_NET", network.to_string().into()));
        }
        variables
    }

    pub(super) fn mailbox(&self) -> Option<Mailbox> {
        self.mailbox.clone()
    }

    /// Returns the path of the library, which programs load through `LD_PRELOAD`.
    pub fn library(&self) -> PathBuf {
        self.library.path().join("libonbeat_preload.so")
    }

    /// Returns the directory in which each process makes the file with its rings.
    pub fn rings(&self) -> &Path {
        self.rings.path()
    }

    /// Returns the size of each thread's ring, in bytes: a power of two.
    pub fn ring_bytes(&self) -> u64 {
        self.ring_bytes
    }
}

pub(crate) fn preloading(
    library: &Path,
    before: impl Fn(&str) -> Option<OsString>,
) -> [(&'static str, OsString); 2] {
    // The library comes last, because a sanitizer's runtime has to come first.
    let libraries = joined(before(PRELOAD), library.into());
    // GCC's sanitizer would end the program if its runtime is not the first library. Our library has
    // none of its functions, so their order does not matter.
    let sanitizer = joined(before(SANITIZER), "verify_asan_link_order=0".into());
    [(PRELOAD, libraries), (SANITIZER, sanitizer)]
}

fn own_filters() -> u64 {
    let Ok(status) = onbeat_proc::Status::of(std::process::id()) else {
        return 0;
    };
    match status.number("Seccomp") {
        Some(0) | None => 0,
        Some(_) => status.number("Seccomp_filters").unwrap_or(1),
    }
}

fn joined(before: Option<OsString>, more: OsString) -> OsString {
    let mut list = before.unwrap_or_default();
    if !list.is_empty() {
        list.push(":");
    }
    list.push(more);
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_preload_directories_are_private_and_removed_on_drop() {
        let place = Place::create(&PlaceOptions::default()).expect("a place");
        let (library, rings) = (place.library(), place.rings().to_owned());
        assert!(fs::read(&library)
            .expect("a library")
            .starts_with(b"\x7fELF"));
        for directory in [library.parent().expect("a directory"), &rings] {
            let mode = fs::metadata(directory).expect("made").permissions().mode();
            assert_eq!(mode & 0o777, 0o700);
        }
        drop(place);
        assert!(!library.exists() && !rings.exists());
    }

    #[test]
    fn the_recorders_library_comes_after_other_preloaded_libraries() {
        let place = Place::create(&PlaceOptions::default()).expect("a place");
        let of = |others: Option<&str>| {
            let variables = place.environment(|_| others.map(OsString::from));
            variables[0].1.clone().into_string().expect("text")
        };
        let own = place.library().display().to_string();
        assert_eq!(of(None), own);
        assert_eq!(of(Some("")), own);
        assert_eq!(of(Some("a.so b.so")), format!("a.so b.so:{own}"));
    }

    #[test]
    fn an_impossible_ring_size_is_refused() {
        for ring_bytes in [0, 2048, 5000, 1 << 27] {
            let options = PlaceOptions {
                ring_bytes,
                ..PlaceOptions::default()
            };
            let refused = Place::create(&options).expect_err("no size");
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{ring_bytes}");
        }
    }
}
