//! Directories that other users cannot change, and paths that only root can change.

use crate::directory::{Directory, MakeError, DIRECTORY};
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io;
use std::path::{Component, Path, PathBuf};

const STICKY: u32 = 0o1000;

impl Directory {
    /// Makes a directory like [`Directory::make`], but only if no user except root can change the
    /// path. Each directory above must belong to root. Other users must not be able to write there,
    /// or to rename root's files there.
    ///
    /// # Errors
    ///
    /// Returns a [`MakeError`] with the reason.
    pub fn make_trusted(path: &Path) -> Result<Directory, MakeError> {
        let system = |source| MakeError::system(path, source);
        let real = real_path(path).map_err(system)?;
        let mut names = real.components().filter_map(|c| match c {
            Component::Normal(name) => Some(name),
            _ => None,
        });
        let last = names.next_back().unwrap_or(OsStr::new("."));
        let mut at = Directory::open(Path::new("/")).map_err(system)?;
        for name in names {
            at = at.open_or_make(name).map_err(system)?;
        }
        at.check_owned_by_root().map_err(system)?;
        at.make_below(last, path, 0, 0o755)
    }

    fn open_or_make(&self, name: &OsStr) -> io::Result<Directory> {
        self.check_owned_by_root()?;
        match fs::mkdirat(self, name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(e.into()),
        }
        let fd = fs::openat(self, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
        Ok(Directory::of(fd, &self.path().join(name)))
    }

    /// Opens a directory that only this user can write to, or makes it (mode 0700). The directory
    /// above must exist. A link is not followed.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error, or *permission denied* if another user owns the
    /// directory or may write to it.
    pub fn private(path: &Path) -> io::Result<Directory> {
        let above = Directory::open(crate::directory::parent(path))?;
        let name = path.file_name().ok_or_else(|| {
            io::Error::other("the path does not end with the name of a directory")
        })?;
        match fs::mkdirat(&above, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(e.into()),
        }
        let fd = fs::openat(&above, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
        let found = Directory::of(fd, path);
        found.meta()?.is_private().map(|()| found)
    }

    fn check_owned_by_root(&self) -> io::Result<()> {
        let meta = self.meta()?;
        if meta.uid == 0 && (!meta.others_may_write() || meta.mode & STICKY != 0) {
            return Ok(());
        }
        let why = format!("users other than root can change {}", self.path().display());
        Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
    }
}

fn real_path(path: &Path) -> io::Result<PathBuf> {
    let whole = std::path::absolute(path)?;
    // The last name is not resolved: a link there is not followed.
    let Some(last) = whole.file_name() else {
        return whole.canonicalize();
    };
    let mut missing = vec![last.to_owned()];
    let mut above = crate::directory::parent(&whole).to_path_buf();
    loop {
        match above.canonicalize() {
            Ok(mut real) => {
                real.extend(missing.iter().rev());
                return Ok(real);
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let Some(name) = above.file_name() else {
                    return Err(e);
                };
                missing.push(name.to_owned());
                above.pop();
            }
            Err(e) => return Err(e),
        }
    }
}
