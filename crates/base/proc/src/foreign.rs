//! Opens files that other processes name, without being led astray by them.
//!
//! A path of another process leads to whatever its user has put there by now: a link out of its
//! container, a FIFO that nobody writes to, a device that acts when it is opened. So a path is first
//! resolved without opening what is there, within the root of the process that named it; only a
//! regular file is then opened, without waiting for anybody.

use rustix::fs::{fstat, openat, openat2, FileType, Mode, OFlags, ResolveFlags, CWD};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Device and inode, as stat(2) reports them: the identity that uprobes use.
pub type FileId = (u64, u64);

/// Attempts while the directories above a file are being moved about.
const ATTEMPTS: usize = 4;

/// How a file is reached.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reach {
    /// Below the root of a process, where its own path has no links: the kernel names mapped files
    /// so.
    Root(u32, PathBuf),
    /// The program that a process runs, whatever is at its path by now.
    Program(u32),
    /// A path of our own, with its links.
    Here(PathBuf),
}

/// A regular file that is open for reading. What is in it may change at any time, and so may its
/// size: map nothing of it, and take every read for one that may fail.
#[derive(Debug)]
pub struct Opened {
    file: File,
    id: FileId,
    size: u64,
}

impl Opened {
    /// Its identity.
    pub fn id(&self) -> FileId {
        self.id
    }

    /// Its bytes.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Bytes that it had when it was opened.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// A path that leads to this very file, as long as it is open.
    pub fn path(&self) -> PathBuf {
        own_path(&self.file)
    }
}

impl Reach {
    /// Identity of the file. Nothing is opened.
    pub fn id(&self) -> io::Result<FileId> {
        identify(&self.resolve()?).map(|(id, _)| id)
    }

    /// Opens the file. Fails if it is not a regular one.
    pub fn open(&self) -> io::Result<Opened> {
        let place = self.resolve()?;
        identify(&place)?;
        // By the descriptor: nobody can exchange the file in between. O_NONBLOCK: a user's lease on
        // it is not waited for.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let file = File::from(openat(CWD, own_path(&place), flags, Mode::empty())?);
        let (id, size) = identify(&file)?;
        Ok(Opened { file, id, size })
    }

    /// A descriptor of the place alone.
    fn resolve(&self) -> io::Result<OwnedFd> {
        match self {
            Reach::Root(pid, path) => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let root = openat(CWD, format!("/proc/{pid}/root"), flags, Mode::empty())?;
                below(root.as_fd(), path)
            }
            Reach::Program(pid) => place(format!("/proc/{pid}/exe")),
            Reach::Here(path) => place(path),
        }
    }
}

/// What is at a path below a root, without leaving it or following a link.
fn below(root: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    let inside = path.strip_prefix("/").unwrap_or(path);
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    for _ in 0..ATTEMPTS {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        match openat2(root, inside, flags, Mode::empty(), resolve) {
            Err(rustix::io::Errno::AGAIN) => {}
            found => return Ok(found?),
        }
    }
    Err(rustix::io::Errno::AGAIN.into())
}

fn place(path: impl rustix::path::Arg) -> io::Result<OwnedFd> {
    Ok(openat(
        CWD,
        path,
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
    )?)
}

/// Identity and size of a regular file.
fn identify(file: impl AsFd) -> io::Result<(FileId, u64)> {
    let stat = fstat(file)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(((stat.st_dev, stat.st_ino), stat.st_size.max(0) as u64)),
        other => {
            let reason = format!("it is not a regular file: {other:?}");
            Err(io::Error::new(io::ErrorKind::InvalidInput, reason))
        }
    }
}

fn own_path(file: &impl AsRawFd) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn scratch(name: &str) -> PathBuf {
        let dir =
            std::env::temp_dir().join(format!("onbeat-foreign-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).expect("a directory");
        dir
    }

    #[test]
    fn regular_files_are_opened_and_nothing_else() {
        let dir = scratch("kinds");
        let fifo = dir.join("librcl.so");
        rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o666), 0)
            .expect("made");
        for path in [
            &fifo,
            Path::new("/dev/null"),
            Path::new("/proc/self/fd"),
            &dir,
        ] {
            // The FIFO has no writer: opened plainly, this would wait for one.
            let error = Reach::Here(path.to_path_buf()).open().unwrap_err();
            assert_eq!(
                error.kind(),
                io::ErrorKind::InvalidInput,
                "{}",
                path.display()
            );
            assert!(!error.to_string().contains('\n'));
        }
        let file = dir.join("file");
        fs::write(&file, b"12345").expect("written");
        let opened = Reach::Here(file.clone()).open().expect("a file");
        assert_eq!(opened.size(), 5);
        assert_eq!(Reach::Here(file).id().expect("it is there"), opened.id());
        assert_eq!(fs::read(opened.path()).expect("the same"), b"12345");
        fs::remove_dir_all(&dir).expect("removed");
    }

    #[test]
    fn no_link_leads_out_of_a_root() {
        let dir = scratch("root");
        let inside = dir.join("container/lib");
        fs::create_dir_all(&inside).expect("a directory");
        fs::write(dir.join("secret"), b"outside").expect("written");
        fs::write(inside.join("librcl.so"), b"inside").expect("written");
        symlink(dir.join("secret"), inside.join("absolute.so")).expect("a link");
        symlink("../../secret", inside.join("relative.so")).expect("a link");
        symlink(&dir, dir.join("container/etc")).expect("a link");
        symlink("/proc/self/root", dir.join("container/magic")).expect("a link");
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let root = openat(CWD, dir.join("container"), flags, Mode::empty()).expect("a directory");
        let root = root.as_fd();
        assert!(below(root, Path::new("/lib/librcl.so")).is_ok());
        for path in [
            "/lib/absolute.so",
            "/lib/relative.so",
            "/etc/secret",
            "/../secret",
        ] {
            assert!(below(root, Path::new(path)).is_err(), "{path}");
        }
        let magic = format!("/magic{}/secret", dir.display());
        assert!(below(root, Path::new(&magic)).is_err());
        fs::remove_dir_all(&dir).expect("removed");
    }

    #[test]
    fn the_own_program_is_reached_in_every_way() {
        let own = std::process::id();
        let path = fs::read_link("/proc/self/exe").expect("it runs");
        let ids = [
            Reach::Program(own),
            Reach::Root(own, path.clone()),
            Reach::Here(path),
        ]
        .map(|reach| reach.open().expect("it can be read").id());
        assert!(ids[0] == ids[1] && ids[1] == ids[2], "{ids:?}");
        assert!(Reach::Program(u32::MAX - 1).open().is_err());
    }
}
