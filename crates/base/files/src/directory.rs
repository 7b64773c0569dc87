//! A directory that is held open, and operations on the files in it.

use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use thiserror::Error;

pub(crate) const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);
const FILE: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC);
const ATTEMPTS: u32 = 16;

/// The reason why a directory for new files cannot be made. The message is one line and includes
/// the way out.
#[allow(missing_docs)] // The messages say the rest.
#[derive(Debug, Error)]
pub enum MakeError {
    /// The path is a symbolic link. onbeat does not follow it, because whoever made the link
    /// decides where it leads.
    #[error("{} is a symbolic link. Name the directory itself, or one that does not exist yet.", .0.display())]
    Link(PathBuf),
    /// The directory already contains files. onbeat makes new files only in an empty directory.
    #[error("{} is not empty. Name a directory that does not exist yet.", .0.display())]
    NotEmpty(PathBuf),
    #[error("{} belongs to another user (id {uid}). Name a directory that does not exist yet.", path.display())]
    Foreign { path: PathBuf, uid: u32 },
    #[error("cannot create directory {}: {source}. Name another directory.", path.display())]
    System { path: PathBuf, source: io::Error },
}

impl MakeError {
    pub(crate) fn system(path: &Path, source: io::Error) -> MakeError {
        let path = path.to_path_buf();
        MakeError::System { path, source }
    }

    /// Returns whether the directory could not be made because this process lacks permission. If
    /// so, another user may be able to make it.
    pub fn is_denied(&self) -> bool {
        match self {
            MakeError::Foreign { .. } => true,
            MakeError::System { source, .. } => source.kind() == io::ErrorKind::PermissionDenied,
            MakeError::Link(_) | MakeError::NotEmpty(_) => false,
        }
    }
}

/// The ids of the user and the group that will own new files.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    pub uid: u32,
    pub gid: u32,
}

/// The ids of the owner and the group of an open file or directory, and its permissions.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meta {
    pub uid: u32,
    pub gid: u32,
    /// The permission bits of the file or directory: the lower twelve bits of its mode.
    pub mode: u32,
    pub is_file: bool,
}

impl Meta {
    /// Reads the owner and permissions of an open file or directory. Fails if `fstat` fails.
    pub fn of(open: impl AsFd) -> io::Result<Meta> {
        let stat = fs::fstat(open)?;
        // The mode has 16 bits on some systems.
        #[allow(clippy::useless_conversion)]
        let mode = u32::from(Mode::from_raw_mode(stat.st_mode).bits());
        Ok(Meta {
            uid: stat.st_uid,
            gid: stat.st_gid,
            mode,
            is_file: fs::FileType::from_raw_mode(stat.st_mode).is_file(),
        })
    }

    /// Fails with *permission denied* unless the file belongs to the user of this process and no
    /// other user may write to the file.
    pub fn is_private(&self) -> io::Result<()> {
        if self.uid == rustix::process::geteuid().as_raw() && !self.others_may_write() {
            return Ok(());
        }
        let why = "another user owns the file or directory, or may write to it";
        Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
    }

    /// Returns whether users other than the owner may write to the file or directory.
    pub fn others_may_write(&self) -> bool {
        self.mode & 0o022 != 0
    }
}

/// An open directory. Its methods look up names in this directory, even if its path now leads to
/// another directory.
#[derive(Debug)]
pub struct Directory {
    fd: OwnedFd,
    path: PathBuf,
    owner: Option<Owner>,
}

pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) => Path::new("."),
        None => path,
    }
}

impl Directory {
    pub(crate) fn of(fd: OwnedFd, path: &Path) -> Directory {
        Directory {
            fd,
            path: path.to_path_buf(),
            owner: None,
        }
    }

    /// Opens a directory. Follows links on the way to the directory.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn open(path: &Path) -> io::Result<Directory> {
        let fd = fs::openat(fs::CWD, path, DIRECTORY, Mode::empty())?;
        Ok(Directory::of(fd, path))
    }

    /// Makes a directory and its missing parents. A directory that already exists must be empty and
    /// belong to the caller.
    ///
    /// # Errors
    ///
    /// Returns a [`MakeError`] with the reason.
    pub fn make(path: &Path) -> Result<Directory, MakeError> {
        Directory::make_as(path, rustix::process::geteuid().as_raw())
    }

    /// Makes a directory like [`Directory::make`], for a thread that accesses files as user `uid`
    /// (`setfsuid`).
    ///
    /// # Errors
    ///
    /// Returns a [`MakeError`] with the reason.
    pub fn make_as(path: &Path, uid: u32) -> Result<Directory, MakeError> {
        let system = |source| MakeError::system(path, source);
        let above = parent(path);
        std::fs::create_dir_all(above).map_err(system)?;
        let above = Directory::open(above).map_err(system)?;
        // The directories `.` and `..` exist already.
        let name = path.file_name().unwrap_or(OsStr::new("."));
        let above = match path.file_name() {
            Some(_) => above,
            None => Directory::open(path).map_err(system)?,
        };
        above.make_below(name, path, uid, 0o777)
    }

    /// Makes the directory `name` in this directory, like [`Directory::make`]. The umask reduces
    /// `mode`. Fails if the directory does not belong to the user `uid`. `path` is the directory's
    /// path in error messages.
    pub(crate) fn make_below(
        &self,
        name: &OsStr,
        path: &Path,
        uid: u32,
        mode: u32,
    ) -> Result<Directory, MakeError> {
        let system = |e: Errno| MakeError::system(path, e.into());
        match fs::mkdirat(&self.fd, name, raw_mode(mode)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(system(e)),
        }
        let flags = DIRECTORY | OFlags::NOFOLLOW;
        let fd = match fs::openat(&self.fd, name, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(e) => {
                // Linux reports a link as "not a directory".
                let found = fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW);
                let kind = found.map(|s| fs::FileType::from_raw_mode(s.st_mode));
                return Err(match kind {
                    Ok(fs::FileType::Symlink) => MakeError::Link(path.to_path_buf()),
                    _ => system(e),
                });
            }
        };
        let made = Directory::of(fd, path);
        // A directory that was just made is checked too: somebody may have put another one in its
        // place.
        let meta = made.meta().map_err(|e| MakeError::system(path, e))?;
        if meta.uid != uid {
            let (path, uid) = (path.to_path_buf(), meta.uid);
            return Err(MakeError::Foreign { path, uid });
        }
        match made.names() {
            Ok(names) if names.is_empty() => Ok(made),
            Ok(_) => Err(MakeError::NotEmpty(path.to_path_buf())),
            Err(e) => Err(MakeError::system(path, e)),
        }
    }

    /// Returns the path by which the directory was opened, for messages. The path may now lead to
    /// another directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns another handle of the same open directory, with the same owner for new files.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn try_clone(&self) -> io::Result<Directory> {
        Ok(Directory {
            fd: self.fd.try_clone()?,
            path: self.path.clone(),
            owner: self.owner,
        })
    }

    /// Sets the user and group that will own every file that this handle creates from now on, and
    /// returns the handle. `None` leaves new files with the user of the process.
    #[must_use]
    pub fn owned_by(self, owner: Option<Owner>) -> Directory {
        Directory { owner, ..self }
    }

    /// Reads the owner and permissions of the directory.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn meta(&self) -> io::Result<Meta> {
        Meta::of(&self.fd)
    }

    /// Changes the user and group of the directory itself. `None` leaves an id unchanged.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn set_owner(&self, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
        Ok(fs::fchown(
            &self.fd,
            uid.map(fs::Uid::from_raw),
            gid.map(fs::Gid::from_raw),
        )?)
    }

    /// Changes the permissions of the directory itself.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        Ok(fs::fchmod(&self.fd, raw_mode(mode))?)
    }

    /// Lists the names in the directory, in no particular order.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in fs::Dir::read_from(&self.fd)? {
            let name = OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Creates a file. Fails if the name exists, even as a link. The umask reduces `mode`.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn create_new(&self, name: impl AsRef<OsStr>, mode: u32) -> io::Result<File> {
        let name = name.as_ref();
        let flags = FILE | OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let file = fs::openat(&self.fd, name, flags, raw_mode(mode))?;
        if let Some(owner) = self.owner {
            let (uid, gid) = (fs::Uid::from_raw(owner.uid), fs::Gid::from_raw(owner.gid));
            if let Err(e) = fs::fchown(&file, Some(uid), Some(gid)) {
                let _ = self.remove(name);
                return Err(e.into());
            }
        }
        Ok(File::from(file))
    }

    /// Opens a file for reading and appending. Does not follow a link, and does not wait for a
    /// pipe's other end.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn open_file(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let flags = FILE | OFlags::RDWR | OFlags::APPEND | OFlags::NONBLOCK;
        let file = fs::openat(&self.fd, name.as_ref(), flags, Mode::empty())?;
        Ok(File::from(file))
    }

    /// Opens a file for reading and for writing at any position. Does not follow a link, and does
    /// not wait for a pipe's other end.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn open_in_place(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let flags = FILE | OFlags::RDWR | OFlags::NONBLOCK;
        let file = fs::openat(&self.fd, name.as_ref(), flags, Mode::empty())?;
        Ok(File::from(file))
    }

    /// Opens a program (`O_PATH`). The caller can only start the program through this descriptor.
    /// Without `follow`, opens a link itself instead of its target; the result is then not a
    /// regular file.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn open_program(&self, name: impl AsRef<OsStr>, follow: bool) -> io::Result<File> {
        let mut flags = OFlags::PATH | OFlags::CLOEXEC;
        flags.set(OFlags::NOFOLLOW, !follow);
        let file = fs::openat(&self.fd, name.as_ref(), flags, Mode::empty())?;
        Ok(File::from(file))
    }

    /// Replaces a file completely or not at all: writes a file with an unguessable name, then
    /// renames that file.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error. The old file is then unchanged.
    pub fn replace(
        &self,
        name: impl AsRef<OsStr>,
        write: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> io::Result<()> {
        let (temporary, mut file) = self.create_temporary(name.as_ref())?;
        let done = write(&mut file).and_then(|()| self.rename(&temporary, name.as_ref()));
        if done.is_err() {
            // The old file is still valid. Half of a new one would only confuse.
            let _ = self.remove(&temporary);
        }
        done
    }

    fn create_temporary(&self, name: &OsStr) -> io::Result<(OsString, File)> {
        let mut attempt = 0;
        loop {
            let mut temporary = OsString::from(".");
            temporary.push(name);
            temporary.push(format!(".{:016x}.tmp", unguessable_number()));
            match self.create_new(&temporary, 0o666) {
                Ok(file) => return Ok((temporary, file)),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists && attempt < ATTEMPTS => {
                    attempt += 1;
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Renames a file of this directory, replacing any file that has the new name.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn rename(&self, from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) -> io::Result<()> {
        Ok(fs::renameat(
            &self.fd,
            from.as_ref(),
            &self.fd,
            to.as_ref(),
        )?)
    }

    /// Removes a file. If the name is a link, removes the link, not its target.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn remove(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        Ok(fs::unlinkat(&self.fd, name.as_ref(), AtFlags::empty())?)
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn raw_mode(mode: u32) -> Mode {
    Mode::from_raw_mode(mode as fs::RawMode & 0o7777)
}

fn unguessable_number() -> u64 {
    // The standard library takes the keys of its hashes from the system's random source.
    let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    hasher.write_u128(now.map_or(0, |d| d.as_nanos()));
    hasher.finish()
}
