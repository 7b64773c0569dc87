//! Ledgers as files: created, locked, appended to, recovered.

use super::state::State;
use super::{Entry, Restored};
use crate::sys;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A ledger that its owner, or whoever undoes its changes, has open.
pub(crate) struct Ledger {
    file: File,
    path: PathBuf,
}

impl Ledger {
    /// Creates a ledger in `dir` and locks it.
    pub(crate) fn create(dir: &Path, name: &str) -> io::Result<Ledger> {
        let _all = lock_all(dir)?;
        let path = dir.join(format!("{name}.json"));
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&path)?;
        sys::lock(&file, true)?;
        Ok(Ledger { file, path })
    }

    /// Appends an entry. It survives this process.
    pub(crate) fn note(&self, entry: &Entry) -> io::Result<()> {
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        (&self.file).write_all(&line)
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Undoes all changes, and removes the ledger if all were undone.
    pub(crate) fn restore(&self) -> Restored {
        let mut text = String::new();
        let read = (&self.file)
            .seek(SeekFrom::Start(0))
            .and_then(|_| (&self.file).read_to_string(&mut text));
        let mut report = State::of(&text).restore();
        if let Err(e) = read {
            report.fail(format!("cannot read {}: {e}", self.path.display()));
        }
        if report.failures.is_empty() {
            let _ = fs::remove_file(&self.path);
        }
        report
    }
}

/// Default directory of ledgers: it lives as long as cgroups do, and only this user can write to
/// it.
pub(crate) fn default_dir() -> PathBuf {
    let own = std::env::var_os("XDG_RUNTIME_DIR").filter(|_| sys::euid() != 0);
    own.map_or("/run".into(), PathBuf::from).join("onbeat")
}

/// Creates the directory. Refuses one that another user could have filled.
pub(crate) fn prepare(dir: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    let found = fs::symlink_metadata(dir)?;
    if !found.is_dir() || found.uid() != sys::euid() || found.mode() & 0o022 != 0 {
        return Err(io::Error::other(
            "it belongs to, or can be written by, somebody else",
        ));
    }
    Ok(())
}

/// The lock of a directory of ledgers, taken until the file is dropped: while a ledger is created,
/// searched for a thread, or recovered.
pub(crate) fn lock_all(dir: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(dir.join("lock"))?;
    sys::lock(&file, true)?;
    Ok(file)
}

fn ledgers(dir: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(dir).into_iter().flatten().flatten();
    files
        .map(|f| f.path())
        .filter(|p| p.extension().is_some_and(|e| e == "json"))
        .collect()
}

/// Name of the reservation, other than that of `own`, that has changed the thread. The caller has
/// [`lock_all`].
pub(crate) fn owner(dir: &Path, own: &Ledger, tid: u32, start: u64) -> Option<String> {
    ledgers(dir)
        .into_iter()
        .filter(|path| *path != own.path)
        .find(|path| {
            let text = fs::read_to_string(path).unwrap_or_default();
            let threads = State::of(&text).threads;
            threads.iter().any(|t| (t.tid, t.start) == (tid, start))
        })
        .and_then(|path| Some(path.file_stem()?.to_str()?.to_owned()))
}

/// Undoes the changes of reservations whose owner and guard were both killed.
pub(crate) fn recover(dir: &Path) -> io::Result<Restored> {
    let mut report = Restored::default();
    match fs::symlink_metadata(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(report),
        _ => prepare(dir)?,
    }
    let _all = lock_all(dir)?;
    for path in ledgers(dir) {
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&path);
        let file = match file {
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            other => other?,
        };
        if sys::lock(&file, false)? {
            report.join(Ledger { file, path }.restore());
        }
    }
    Ok(report)
}
