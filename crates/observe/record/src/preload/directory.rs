//! Directories with files that the processes of a command open. A directory is locked while its owner lives, so
//! the next owner finds and removes those of killed ones.

use std::ffi::CString;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

const TRIES: u32 = 1000;
/// The age below which a directory without a lock is not removed, because its owner may not have
/// locked it yet.
const YOUNG: Duration = Duration::from_secs(10);

/// The users who can open the files of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Only this process's user can open the files.
    Own,
    /// Only the user with these ids (uid, gid) can open the files. This user becomes the owner of
    /// the directory.
    User(u32, u32),
    /// All users can open the files. Only this process's user can change the directory.
    All,
}

/// A directory that this process has made. Dropping this value removes the directory.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    _lock: File,
}

impl Directory {
    /// Makes a directory below the first of `parents` in which this is possible, and fills it with
    /// `fill`. The directory's name begins with `prefix`. Removes directories with this prefix
    /// whose owners were killed.
    ///
    /// # Errors
    ///
    /// Fails if no directory can be made below any of the parents, or if `parents` is empty.
    pub fn make<'a>(
        prefix: &str,
        parents: impl Iterator<Item = &'a PathBuf>,
        access: Access,
        fill: impl Fn(&Path) -> io::Result<()>,
    ) -> io::Result<Directory> {
        let none =
            "no directory for temporary files allows loading programs. Set TMPDIR to a directory on a \
             file system without noexec. Its path must contain no blanks and no colons";
        let mut failed = io::Error::new(io::ErrorKind::NotFound, none);
        for parent in parents {
            sweep(prefix, parent);
            let made = make_below(prefix, parent).and_then(|path| {
                let done = fill(&path).and_then(|()| {
                    if access != Access::Own {
                        let_others_read(&path)?;
                    }
                    let lock = File::open(&path)?;
                    lock.lock()?;
                    match access {
                        Access::Own => {}
                        Access::User(uid, gid) => {
                            std::os::unix::fs::fchown(&lock, Some(uid), Some(gid))?
                        }
                        Access::All => lock.set_permissions(Permissions::from_mode(0o755))?,
                    }
                    Ok(lock)
                });
                let _lock = done.inspect_err(|_| remove(&path))?;
                Ok(Directory { path, _lock })
            });
            match made {
                Ok(made) => return Ok(made),
                Err(e) => {
                    failed = io::Error::new(e.kind(), format!("{}: {e}", parent.display()));
                }
            }
        }
        Err(failed)
    }

    /// Returns the path of the directory, which exists until this value is dropped.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Lets all users who can enter the directory read its files, whatever the umask says.
fn let_others_read(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        fs::set_permissions(entry?.path(), Permissions::from_mode(0o644))?;
    }
    Ok(())
}

/// Removes a directory and ignores errors. A directory that cannot be removed is visible to the
/// user and does no harm.
fn remove(directory: &Path) {
    let _ = fs::remove_dir_all(directory);
}

fn sweep(prefix: &str, parent: &Path) {
    // SAFETY: geteuid only reads a number of this process.
    let own = unsafe { libc::geteuid() };
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_named = entry.file_name().as_bytes().starts_with(prefix.as_bytes());
        let Ok(meta) = entry.metadata() else { continue };
        let age = meta.modified().ok().and_then(|at| at.elapsed().ok());
        if !is_named || !meta.is_dir() || meta.uid() != own || age.is_none_or(|a| a < YOUNG) {
            continue;
        }
        if File::open(entry.path()).is_ok_and(|directory| directory.try_lock().is_ok()) {
            remove(&entry.path());
        }
    }
}

fn make_below(prefix: &str, parent: &Path) -> io::Result<PathBuf> {
    // A program of an earlier session may still write, so it must never find the same name again.
    let (own, now) = (std::process::id(), onbeat_time::clock::monotonic_ns());
    for number in 0..TRIES {
        let directory = parent.join(format!("{prefix}{own}-{now:x}-{number}"));
        match DirBuilder::new().mode(0o700).create(&directory) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made.map(|()| directory),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Returns whether the dynamic linker can load a library from a directory. The linker splits
/// `LD_PRELOAD` at blanks and colons, and containers mount some directories as noexec.
pub fn may_load_from(directory: &Path) -> bool {
    let bytes = directory.as_os_str().as_bytes();
    let Ok(path) = CString::new(bytes) else {
        return false;
    };
    // SAFETY: plain data of integers.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends with a zero, and `found` lives through the call.
    let known = unsafe { libc::statvfs(path.as_ptr(), &mut found) } == 0;
    known
        && directory.is_absolute()
        && found.f_flag & libc::ST_NOEXEC == 0
        && !bytes.iter().any(|b| b.is_ascii_whitespace() || *b == b':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_killed_owners_are_removed_by_the_next_owner() {
        let parent = tempfile::TempDir::new().expect("a directory");
        let old = std::time::SystemTime::now() - 2 * YOUNG;
        let make = |name: &str, modified| {
            let path = parent.path().join(name);
            fs::create_dir(&path).expect("made");
            fs::write(path.join("1.0"), "").expect("a file");
            let open = File::open(&path).expect("open");
            open.set_modified(modified).expect("its time");
            open
        };
        let held = make("onbeat-preload-1", old);
        held.lock().expect("a lock");
        make("onbeat-preload-2", old);
        make("onbeat-preload-3", std::time::SystemTime::now());
        make("another", old);
        sweep("onbeat-preload-", parent.path());
        let entries = fs::read_dir(parent.path()).expect("a directory");
        let mut left: Vec<_> = entries.map(|e| e.expect("an entry").file_name()).collect();
        left.sort();
        assert_eq!(left, ["another", "onbeat-preload-1", "onbeat-preload-3"]);
    }

    #[test]
    fn files_for_all_users_can_be_read_by_all_and_changed_only_by_the_owner() {
        let parent = tempfile::TempDir::new().expect("a directory");
        let parents = [parent.path().join("missing"), parent.path().to_owned()];
        let fill = |directory: &Path| {
            let file = directory.join("file");
            fs::write(&file, "")?;
            // A strict umask does the same.
            fs::set_permissions(&file, Permissions::from_mode(0o600))
        };
        let made = Directory::make("x-", parents.iter(), Access::All, fill).expect("made");
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!(mode(made.path()), 0o755);
        assert_eq!(mode(&made.path().join("file")), 0o644);
        let path = made.path().to_owned();
        drop(made);
        assert!(!path.exists());
        assert!(Directory::make("x-", parents[..1].iter(), Access::All, |_| Ok(())).is_err());
    }
}
