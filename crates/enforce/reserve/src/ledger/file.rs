//! Ledgers as files: creating, locking, appending and undoing.
//!
//! Root acts on the content of a ledger, so only files that this user wrote are read. The directory
//! is held open, and it and each file must belong to this user alone. Links are not followed.

use super::state::State;
use super::{Entry, Restored};
use crate::sys;
use onbeat_files::{Directory, Meta};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const SUFFIX: &str = ".json";

/// The longest wait for the lock of the ledgers' directory. It is longer than the time that another
/// reservation needs to put its threads back.
const LOCK_LIMIT: Duration = Duration::from_secs(20);
const LOCK_PAUSE: Duration = Duration::from_millis(2);

/// Returns the default directory of ledgers. A restart of the machine removes it, as it removes
/// cgroups. Only this user can write to the directory.
pub(crate) fn default_dir() -> PathBuf {
    let own = std::env::var_os("XDG_RUNTIME_DIR").filter(|_| sys::euid() != 0);
    own.map_or("/run".into(), PathBuf::from).join("onbeat")
}

#[derive(Debug)]
pub(crate) struct Ledgers {
    directory: Directory,
}

impl Ledgers {
    /// Opens the directory, or makes it. Refuses a directory that another user could have filled.
    pub(crate) fn open(dir: &Path) -> io::Result<Ledgers> {
        let directory = Directory::private(dir)?;
        Ok(Ledgers { directory })
    }

    pub(crate) fn create(&self, name: &str) -> io::Result<Ledger> {
        let _all = self.lock_all()?;
        let name = format!("{name}{SUFFIX}");
        drop(self.directory.create_new(&name, 0o600)?);
        let file = self.open_own(&name)?;
        sys::lock(&file, true)?;
        self.ledger(name, file)
    }

    pub(super) fn ledger(&self, name: String, file: File) -> io::Result<Ledger> {
        Ok(Ledger {
            file,
            directory: self.directory.try_clone()?,
            name,
        })
    }

    /// Takes the lock of the directory until the returned file is dropped. Creating or recovering a
    /// ledger, or searching it for a thread, needs this lock. Fails if another process holds the
    /// lock for too long, for example because it is stopped.
    pub(crate) fn lock_all(&self) -> io::Result<File> {
        let file = match self.open_own("lock") {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                match self.directory.create_new("lock", 0o600) {
                    Err(e) if e.kind() == io::ErrorKind::AlreadyExists => self.open_own("lock")?,
                    other => other?,
                }
            }
            other => other?,
        };
        let begin = Instant::now();
        while !sys::lock(&file, false)? {
            if begin.elapsed() > LOCK_LIMIT {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!(
                        "another onbeat process has locked {} for too long. End that process, or let it continue if it is stopped",
                        self.directory.path().display()
                    ),
                ));
            }
            std::thread::sleep(LOCK_PAUSE);
        }
        Ok(file)
    }

    pub(super) fn open_own(&self, name: &str) -> io::Result<File> {
        let file = self.directory.open_file(name)?;
        let meta = Meta::of(file.as_fd())?;
        if !meta.is_file {
            return Err(io::Error::other(
                "the file of the ledger is not a regular file",
            ));
        }
        meta.is_private().map(|()| file)
    }

    pub(super) fn names(&self) -> io::Result<Vec<String>> {
        let names = self.directory.names()?.into_iter();
        let names = names.filter_map(|name| name.into_string().ok());
        Ok(names.filter(|name| name.ends_with(SUFFIX)).collect())
    }

    /// Returns the name of a reservation that has changed the thread. The reservation of the ledger
    /// `own` does not count. The caller must hold [`Ledgers::lock_all`].
    pub(crate) fn owner(&self, own: &Ledger, tid: u32, start: u64) -> Option<String> {
        let others = self.names().unwrap_or_default().into_iter();
        let mut others = others.filter(|name| *name != own.name);
        let found = others.find(|name| {
            let state = self.peek(name).unwrap_or_default();
            state
                .threads
                .iter()
                .any(|t| (t.tid, t.start) == (tid, start))
        });
        Some(found?.strip_suffix(SUFFIX)?.to_owned())
    }

    pub(super) fn peek(&self, name: &str) -> io::Result<State> {
        let mut file = self.open_own(name)?;
        file.seek(SeekFrom::Start(sys::first_data(&file)))?;
        Ok(State::of(&whole(&mut file)?))
    }

    pub(super) fn path_of(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

pub(crate) struct Ledger {
    file: File,
    directory: Directory,
    name: String,
}

impl Ledger {
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    pub(super) fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    pub(super) fn give_back(&self, bytes: u64) -> io::Result<()> {
        sys::punch(&self.file, bytes)
    }

    #[cfg(test)]
    pub(super) fn bytes_in_use(&self) -> io::Result<u64> {
        use std::os::unix::fs::MetadataExt;
        Ok(self.file.metadata()?.blocks() * 512)
    }

    /// Appends an entry to the ledger. The entry survives this process.
    pub(crate) fn note(&self, entry: &Entry) -> io::Result<()> {
        // The first line end completes a torn line, left by a full disk or a killed writer.
        let mut line = vec![b'\n'];
        serde_json::to_writer(&mut line, entry)?;
        line.push(b'\n');
        (&self.file).write_all(&line)
    }

    pub(crate) fn descriptors(&self) -> [RawFd; 2] {
        [self.file.as_raw_fd(), self.directory.as_fd().as_raw_fd()]
    }

    pub(super) fn text(&self) -> io::Result<String> {
        (&self.file)
            .seek(SeekFrom::Start(sys::first_data(&self.file)))
            .and_then(|_| whole(&mut &self.file))
    }

    pub(crate) fn restore(&self) -> Restored {
        let read = self.text();
        let path = self.directory.path().join(&self.name);
        let report = match read {
            Ok(text) => {
                let state = State::of(&text);
                let mut report = state.restore();
                if state.torn > 0 {
                    report.remark(format!(
                        "{}: {} lines are incomplete, so their changes were not undone",
                        path.display(),
                        state.torn
                    ));
                }
                report
            }
            Err(e) => {
                let mut report = Restored::default();
                report.fail(format!("cannot read {}: {e}", path.display()));
                report
            }
        };
        if report.failures.is_empty() {
            let _ = self.directory.remove(&self.name);
        }
        report
    }
}

/// Reads the text of a ledger. Bytes that are not UTF-8 only damage the line that contains them.
fn whole(file: &mut impl Read) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
