//! Opens files that other processes name, without being led astray by them.
//!
//! A path of another process leads to whatever its user has put there by now: a link out of its
//! container, a FIFO that nobody writes to, a device that acts when it is opened. So a path is first
//! resolved without opening what is there, within the root of the process that named it; only a
//! regular file is then opened, without waiting for anybody. A file system that a program serves
//! (FUSE) is left alone: that program may never answer, and who waits for it cannot be ended. What a
//! process has mapped is known to the kernel, so that it is found without asking the file system.

use rustix::fs::{
    fstat, makedev, openat, openat2, statx, AtFlags, FileType, Mode, OFlags, ResolveFlags,
    StatxFlags, CWD,
};
use std::fs::File;
use std::io::{self, Read};
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
        identify_place(&self.resolve()?).map(|(id, _)| id)
    }

    /// Opens the file. Fails if it is not a regular one, or another process's on a file system that
    /// a program serves.
    pub fn open(&self) -> io::Result<Opened> {
        let place = self.resolve()?;
        let (_, mount) = identify_place(&place)?;
        match self {
            Reach::Root(pid, _) | Reach::Program(pid) => Mounts::of(*pid)?.check(mount)?,
            Reach::Here(_) => {}
        }
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
                match below(root.as_fd(), path, ResolveFlags::CACHED) {
                    // Asking would be waiting; or the kernel is older than 5.12.
                    Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INVAL) => {
                        Mounts::of(*pid)?.check_all()?;
                        Ok(below(root.as_fd(), path, ResolveFlags::empty())?)
                    }
                    found => Ok(found?),
                }
            }
            Reach::Program(pid) => place(format!("/proc/{pid}/exe")),
            Reach::Here(path) => place(path),
        }
    }
}

/// What is at a path below a root, without leaving it or following a link.
fn below(root: BorrowedFd<'_>, path: &Path, how: ResolveFlags) -> rustix::io::Result<OwnedFd> {
    let inside = path.strip_prefix("/").unwrap_or(path);
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    for _ in 0..ATTEMPTS {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        match openat2(root, inside, flags, Mode::empty(), resolve | how) {
            Err(rustix::io::Errno::AGAIN) => {}
            found => return found,
        }
    }
    Err(rustix::io::Errno::AGAIN)
}

/// Bytes of a table of mounts that are read: the kernel's default limit of 100000 is more.
const MOUNTS_MAX: u64 = 4 << 20;

/// The mounts of a process: text of the form of `/proc/PID/mountinfo`. The kernel writes it, and asks
/// no file system for it.
struct Mounts(String);

impl Mounts {
    fn of(pid: u32) -> io::Result<Mounts> {
        let mut text = Vec::new();
        let table = File::open(format!("/proc/{pid}/mountinfo"))?;
        table.take(MOUNTS_MAX).read_to_end(&mut text)?;
        Ok(Mounts(String::from_utf8_lossy(&text).into_owned()))
    }

    /// Id and kind of each.
    fn kinds(&self) -> impl Iterator<Item = (u64, &str)> {
        self.0.lines().filter_map(|line| {
            let (head, tail) = line.split_once(" - ")?;
            let id = head.split(' ').next()?.parse().ok()?;
            Some((id, tail.split(' ').next()?))
        })
    }

    /// Fails if a program serves this mount, or it is none of these: it was taken off, and whose it
    /// is cannot be told. `None` where the kernel (before 5.8) does not say which it is.
    fn check(&self, mount: Option<u64>) -> io::Result<()> {
        let Some(mount) = mount else {
            return self.check_all();
        };
        match self.kinds().find(|(id, _)| *id == mount) {
            Some((_, kind)) if is_served(kind) => Err(refused(SERVED)),
            Some(_) => Ok(()),
            None => Err(refused("its file system is not mounted any more")),
        }
    }

    /// Fails if a program serves any.
    fn check_all(&self) -> io::Result<()> {
        match self.kinds().any(|(_, kind)| is_served(kind)) {
            true => Err(refused(SERVED)),
            false => Ok(()),
        }
    }
}

const SERVED: &str = "a program serves its file system (FUSE): copy it to another";

/// Whether a program serves file systems of this kind.
fn is_served(kind: &str) -> bool {
    let kind = kind.split('.').next().unwrap_or(kind);
    matches!(kind, "fuse" | "fuseblk" | "autofs")
}

fn refused(reason: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, reason.into())
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
    regular(stat.st_mode)?;
    Ok(((stat.st_dev, stat.st_ino), stat.st_size.max(0) as u64))
}

/// Identity and mount of a regular file, as far as the kernel knows them without asking.
fn identify_place(place: impl AsFd) -> io::Result<(FileId, Option<u64>)> {
    const MOUNT: StatxFlags = StatxFlags::MNT_ID;
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = statx(place, "", flags, StatxFlags::BASIC_STATS | MOUNT)?;
    regular(stat.stx_mode.into())?;
    let id = (
        makedev(stat.stx_dev_major, stat.stx_dev_minor),
        stat.stx_ino,
    );
    let is_known = stat.stx_mask & MOUNT.bits() != 0;
    Ok((id, is_known.then_some(stat.stx_mnt_id)))
}

fn regular(mode: u32) -> io::Result<()> {
    match FileType::from_raw_mode(mode) {
        FileType::RegularFile => Ok(()),
        other => Err(refused(format!("it is not a regular file: {other:?}"))),
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
        for how in [ResolveFlags::CACHED, ResolveFlags::empty()] {
            let found = below(root, Path::new("/lib/librcl.so"), how);
            assert!(found.is_ok(), "{how:?}");
        }
        for path in [
            "/lib/absolute.so",
            "/lib/relative.so",
            "/etc/secret",
            "/../secret",
        ] {
            assert!(
                below(root, Path::new(path), ResolveFlags::empty()).is_err(),
                "{path}"
            );
        }
        let magic = format!("/magic{}/secret", dir.display());
        assert!(below(root, Path::new(&magic), ResolveFlags::empty()).is_err());
        fs::remove_dir_all(&dir).expect("removed");
    }

    #[test]
    fn what_a_program_serves_is_refused_and_so_is_what_is_not_mounted() {
        let mounts = Mounts(
            "22 1 0:21 / / rw - ext4 /dev/a rw\n31 22 0:28 / /x\\040- rw shared:1 - fuse.sshfs h: rw\n\
             nonsense\n40 - \n"
                .into(),
        );
        assert!(mounts.check(Some(22)).is_ok());
        for (mount, reason) in [
            (Some(31), "FUSE"),
            (Some(99), "not mounted"),
            (None, "FUSE"),
        ] {
            let error = mounts.check(mount).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
        assert!(is_served("fuse") && is_served("fuseblk") && !is_served("fusectl"));
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
