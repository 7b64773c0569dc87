//! A directory that is held open, and the files in it.

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

/// Flags of every descriptor of a directory.
pub(crate) const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);
/// Flags of every descriptor of a file.
const FILE: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC);
/// Temporary names that are tried until one is free.
const ATTEMPTS: u32 = 16;

/// Why a directory for new files cannot be had. One line, with the way out.
#[derive(Debug, Error)]
pub enum MakeError {
    /// A link is not followed: who made it decides where it leads to.
    #[error("{} is a symbolic link: name the directory itself, or one that does not exist yet", .0.display())]
    Link(PathBuf),
    /// What is in it belongs to something else.
    #[error("{} is not empty: name a directory that does not exist yet", .0.display())]
    NotEmpty(PathBuf),
    /// It exists, and somebody else could change what is written to it.
    #[error("{} belongs to another user (id {uid}): name a directory that does not exist yet", path.display())]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// Its owner.
        uid: u32,
    },
    /// The system refuses.
    #[error("cannot create the directory {}: {source}: name another", path.display())]
    System {
        /// The directory.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

impl MakeError {
    pub(crate) fn system(path: &Path, source: io::Error) -> MakeError {
        let path = path.to_path_buf();
        MakeError::System { path, source }
    }

    /// Whether another user might be allowed to.
    pub fn is_denied(&self) -> bool {
        match self {
            MakeError::Foreign { .. } => true,
            MakeError::System { source, .. } => source.kind() == io::ErrorKind::PermissionDenied,
            MakeError::Link(_) | MakeError::NotEmpty(_) => false,
        }
    }
}

/// User and group that files are given to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// Owner and permissions of what is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meta {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Permissions: the lower twelve bits of the mode.
    pub mode: u32,
    /// Whether it is a regular file.
    pub is_file: bool,
}

impl Meta {
    /// Of an open file or directory.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn of(open: impl AsFd) -> io::Result<Meta> {
        let stat = fs::fstat(open)?;
        // It has 16 bits on some systems.
        #[allow(clippy::useless_conversion)]
        let mode = u32::from(Mode::from_raw_mode(stat.st_mode).bits());
        Ok(Meta {
            uid: stat.st_uid,
            gid: stat.st_gid,
            mode,
            is_file: fs::FileType::from_raw_mode(stat.st_mode).is_file(),
        })
    }

    /// Refuses what belongs to, or can be written by, somebody else than this user.
    ///
    /// # Errors
    ///
    /// *Permission denied*, with the reason.
    pub fn is_private(&self) -> io::Result<()> {
        if self.uid == rustix::process::geteuid().as_raw() && !self.others_may_write() {
            return Ok(());
        }
        let why = "it belongs to, or can be written by, somebody else";
        Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
    }

    /// Whether users other than the owner may write.
    pub fn others_may_write(&self) -> bool {
        self.mode & 0o022 != 0
    }
}

/// A directory that is held open.
#[derive(Debug)]
pub struct Directory {
    fd: OwnedFd,
    /// As it was named; for messages only.
    path: PathBuf,
    /// New files are given to it.
    owner: Option<Owner>,
}

/// The directory part of a path: `.` where it has none.
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

    /// Opens a directory. Links on the way to it are followed.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn open(path: &Path) -> io::Result<Directory> {
        let fd = fs::openat(fs::CWD, path, DIRECTORY, Mode::empty())?;
        Ok(Directory::of(fd, path))
    }

    /// Makes a directory, and those above it that are missing. One that exists must be empty and
    /// the caller's own.
    ///
    /// # Errors
    ///
    /// [`MakeError`].
    pub fn make(path: &Path) -> Result<Directory, MakeError> {
        Directory::make_as(path, rustix::process::geteuid().as_raw())
    }

    /// The same for a thread that acts as another user where files are concerned (`setfsuid`).
    ///
    /// # Errors
    ///
    /// [`MakeError`].
    pub fn make_as(path: &Path, uid: u32) -> Result<Directory, MakeError> {
        let system = |source| MakeError::system(path, source);
        let above = parent(path);
        std::fs::create_dir_all(above).map_err(system)?;
        let above = Directory::open(above).map_err(system)?;
        // `.` and `..` are there already.
        let name = path.file_name().unwrap_or(OsStr::new("."));
        let above = match path.file_name() {
            Some(_) => above,
            None => Directory::open(path).map_err(system)?,
        };
        above.make_below(name, path, uid, 0o777)
    }

    /// Makes the directory `name` in this one, as [`Directory::make`] does. `path` is for messages,
    /// `uid` must own it, `mode` is reduced by the umask.
    pub(crate) fn make_below(
        &self,
        name: &OsStr,
        path: &Path,
        uid: u32,
        mode: u32,
    ) -> Result<Directory, MakeError> {
        let system = |e: Errno| MakeError::system(path, e.into());
        match fs::mkdirat(&self.fd, name, raw(mode)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(system(e)),
        }
        let flags = DIRECTORY | OFlags::NOFOLLOW;
        let fd = match fs::openat(&self.fd, name, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(e) => {
                // Linux says of a link that it is no directory.
                let found = fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW);
                let kind = found.map(|s| fs::FileType::from_raw_mode(s.st_mode));
                return Err(match kind {
                    Ok(fs::FileType::Symlink) => MakeError::Link(path.to_path_buf()),
                    _ => system(e),
                });
            }
        };
        let made = Directory::of(fd, path);
        // Also one that was just made: its name may have been given to another meanwhile.
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

    /// The path by which it was opened: for messages. It may lead elsewhere by now.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A second descriptor of the same directory.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn try_clone(&self) -> io::Result<Directory> {
        Ok(Directory {
            fd: self.fd.try_clone()?,
            path: self.path.clone(),
            owner: self.owner,
        })
    }

    /// Gives every file that is created from now on to a user and group.
    #[must_use]
    pub fn owned_by(self, owner: Option<Owner>) -> Directory {
        Directory { owner, ..self }
    }

    /// Owner and permissions.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn meta(&self) -> io::Result<Meta> {
        Meta::of(&self.fd)
    }

    /// Changes the directory's own user and group; `None` stays.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn set_owner(&self, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
        Ok(fs::fchown(
            &self.fd,
            uid.map(fs::Uid::from_raw),
            gid.map(fs::Gid::from_raw),
        )?)
    }

    /// Changes the directory's own permissions.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        Ok(fs::fchmod(&self.fd, raw(mode))?)
    }

    /// The names in it, in no order.
    ///
    /// # Errors
    ///
    /// The system's.
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

    /// Creates a file, which must not exist: also not as a link. `mode` is reduced by the umask.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn create_new(&self, name: impl AsRef<OsStr>, mode: u32) -> io::Result<File> {
        let name = name.as_ref();
        let flags = FILE | OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let file = fs::openat(&self.fd, name, flags, raw(mode))?;
        if let Some(owner) = self.owner {
            let (uid, gid) = (fs::Uid::from_raw(owner.uid), fs::Gid::from_raw(owner.gid));
            if let Err(e) = fs::fchown(&file, Some(uid), Some(gid)) {
                let _ = self.remove(name);
                return Err(e.into());
            }
        }
        Ok(File::from(file))
    }

    /// Opens a file for reading and appending. A link is not followed, and nothing is waited for.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn open_file(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let flags = FILE | OFlags::RDWR | OFlags::APPEND | OFlags::NONBLOCK;
        let file = fs::openat(&self.fd, name.as_ref(), flags, Mode::empty())?;
        Ok(File::from(file))
    }

    /// Opens a file for reading and for writing in its midst. A link is not followed, and nothing is
    /// waited for.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn open_in_place(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let flags = FILE | OFlags::RDWR | OFlags::NONBLOCK;
        let file = fs::openat(&self.fd, name.as_ref(), flags, Mode::empty())?;
        Ok(File::from(file))
    }

    /// Opens a program that is to be started through this descriptor, and for nothing else (`O_PATH`). With
    /// `follow`, a link is followed; without, the link itself is opened, which is not a regular file.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn open_program(&self, name: impl AsRef<OsStr>, follow: bool) -> io::Result<File> {
        let mut flags = OFlags::PATH | OFlags::CLOEXEC;
        flags.set(OFlags::NOFOLLOW, !follow);
        let file = fs::openat(&self.fd, name.as_ref(), flags, Mode::empty())?;
        Ok(File::from(file))
    }

    /// Writes a file whole or not at all: through a name that nobody can guess, then renamed.
    ///
    /// # Errors
    ///
    /// The system's; the file is as it was before then.
    pub fn replace(
        &self,
        name: impl AsRef<OsStr>,
        write: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> io::Result<()> {
        let (temporary, mut file) = self.create_temporary(name.as_ref())?;
        let done = write(&mut file).and_then(|()| self.rename(&temporary, name.as_ref()));
        if done.is_err() {
            // The old file is still good; half a new one would only confuse.
            let _ = self.remove(&temporary);
        }
        done
    }

    /// Creates a file with a random name beside `name`.
    fn create_temporary(&self, name: &OsStr) -> io::Result<(OsString, File)> {
        let mut attempt = 0;
        loop {
            let mut temporary = OsString::from(".");
            temporary.push(name);
            temporary.push(format!(".{:016x}.tmp", random()));
            match self.create_new(&temporary, 0o666) {
                Ok(file) => return Ok((temporary, file)),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists && attempt < ATTEMPTS => {
                    attempt += 1;
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Gives a file of this directory another name in it, in place of what has that name.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn rename(&self, from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) -> io::Result<()> {
        Ok(fs::renameat(
            &self.fd,
            from.as_ref(),
            &self.fd,
            to.as_ref(),
        )?)
    }

    /// Removes a file, or a link itself.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn remove(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        Ok(fs::unlinkat(&self.fd, name.as_ref(), AtFlags::empty())?)
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Permissions as the system's type has them: 16 or 32 bits.
fn raw(mode: u32) -> Mode {
    Mode::from_raw_mode(mode as fs::RawMode & 0o7777)
}

/// A number that others cannot guess.
fn random() -> u64 {
    // The standard library keys its hashes from the system's random source.
    let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    hasher.write_u128(now.map_or(0, |d| d.as_nanos()));
    hasher.finish()
}
