//! Opens files that other processes name, safely even if their paths are hostile.
//!
//! A path of another process leads to whatever its user has put there by now: a link out of its
//! container, a FIFO that nobody writes to, a device that acts when it is opened. A path is
//! therefore first resolved without opening the file, within the root of the process that named it.
//! Only a regular file is then opened, without waiting. Files on a file system that a program
//! serves (FUSE) are refused: that program may never answer, and a process that waits for it cannot
//! be killed. The kernel knows the files that a process has mapped, so that they are found without
//! asking the file system.

use rustix::fs::{
    fstat, makedev, openat, openat2, statx, AtFlags, FileType, Mode, OFlags, ResolveFlags,
    StatxFlags, CWD,
};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The device and inode of a file, as stat(2) reports them. The kernel identifies the file of a
/// uprobe by its device and inode.
pub type FileId = (u64, u64);

const ATTEMPTS: usize = 4;

/// A way to reach a file, in the view of this process or of another process.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reach {
    /// A path relative to the root directory of the process with this id. The path has no symbolic
    /// links, because the kernel names mapped files by their real paths.
    Root(u32, PathBuf),
    /// The program that the process with this id runs, even if another file now has the program's
    /// path.
    Program(u32),
    /// A path in the mount namespace of the calling process. Symbolic links are followed.
    Here(PathBuf),
}

/// A regular file that is open for reading. Other processes may change its content and size at any
/// time: do not map the file, and expect every read to fail.
#[derive(Debug)]
pub struct Opened {
    file: File,
    id: FileId,
    size: u64,
}

impl Opened {
    /// Returns the device and inode of the file.
    pub fn id(&self) -> FileId {
        self.id
    }

    /// Returns the open file. Any read from it can fail.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns the size in bytes that the file had when it was opened.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns a path below `/proc` that leads to this open file, even if the file was renamed.
    pub fn path(&self) -> PathBuf {
        own_path(&self.file)
    }
}

impl Reach {
    /// Returns the device and inode of the file without opening the file.
    pub fn id(&self) -> io::Result<FileId> {
        identify_place(&self.resolve()?).map(|(id, _)| id)
    }

    /// Opens the file. Fails if it is not a regular file, or if it belongs to another process and a
    /// program (FUSE) serves the file's file system.
    pub fn open(&self) -> io::Result<Opened> {
        let place = self.resolve()?;
        let (_, mount) = identify_place(&place)?;
        match self {
            Reach::Root(pid, _) | Reach::Program(pid) => Mounts::of(*pid)?.check(mount)?,
            Reach::Here(_) => {}
        }
        // Opening by the descriptor prevents an exchange of the file in between. O_NONBLOCK avoids
        // waiting for a user's lease on the file.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let file = File::from(openat(CWD, own_path(&place), flags, Mode::empty())?);
        let (id, size) = identify(&file)?;
        Ok(Opened { file, id, size })
    }

    fn resolve(&self) -> io::Result<OwnedFd> {
        match self {
            Reach::Root(pid, path) => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let root = openat(CWD, format!("/proc/{pid}/root"), flags, Mode::empty())?;
                match resolve_below(root.as_fd(), path, ResolveFlags::CACHED) {
                    // The kernel would have to ask the file system and wait, or it is older than
                    // 5.12.
                    Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INVAL) => {
                        Mounts::of(*pid)?.check_all()?;
                        Ok(resolve_below(root.as_fd(), path, ResolveFlags::empty())?)
                    }
                    found => Ok(found?),
                }
            }
            Reach::Program(pid) => place(format!("/proc/{pid}/exe")),
            Reach::Here(path) => place(path),
        }
    }
}

fn resolve_below(
    root: BorrowedFd<'_>,
    path: &Path,
    how: ResolveFlags,
) -> rustix::io::Result<OwnedFd> {
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

/// The largest part of a table of mounts that onbeat reads, in bytes. It is enough for 100,000
/// mounts, the kernel's default limit.
const MOUNTS_MAX: u64 = 4 << 20;

/// The mounts of a process, as the text of `/proc/PID/mountinfo`. The kernel writes this text
/// without asking a file system.
struct Mounts(String);

impl Mounts {
    fn of(pid: u32) -> io::Result<Mounts> {
        let mut text = Vec::new();
        let table = File::open(format!("/proc/{pid}/mountinfo"))?;
        table.take(MOUNTS_MAX).read_to_end(&mut text)?;
        Ok(Mounts(String::from_utf8_lossy(&text).into_owned()))
    }

    fn kinds(&self) -> impl Iterator<Item = (u64, &str)> {
        self.0.lines().filter_map(|line| {
            let (head, tail) = line.split_once(" - ")?;
            let id = head.split(' ').next()?.parse().ok()?;
            Some((id, tail.split(' ').next()?))
        })
    }

    /// Fails if a program (FUSE) serves the mount with the id `mount`, or if the table lacks this
    /// mount: onbeat cannot know whether a program serves a mount that was removed. With `None`,
    /// all mounts are checked, because kernels before 5.8 do not report the mount of a file.
    fn check(&self, mount: Option<u64>) -> io::Result<()> {
        let Some(mount) = mount else {
            return self.check_all();
        };
        match self.kinds().find(|(id, _)| *id == mount) {
            Some((_, kind)) if is_served(kind) => Err(refused(SERVED)),
            Some(_) => Ok(()),
            None => Err(refused("the file's file system is no longer mounted")),
        }
    }

    fn check_all(&self) -> io::Result<()> {
        match self.kinds().any(|(_, kind)| is_served(kind)) {
            true => Err(refused(SERVED)),
            false => Ok(()),
        }
    }
}

const SERVED: &str =
    "a program (FUSE) serves the file system of the file. Copy the file to another file system.";

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

fn identify(file: impl AsFd) -> io::Result<(FileId, u64)> {
    let stat = fstat(file)?;
    regular(stat.st_mode)?;
    Ok(((stat.st_dev, stat.st_ino), stat.st_size.max(0) as u64))
}

/// Returns the device and inode of a regular file, and the id of its mount if the kernel knows it.
/// Does not ask the file system.
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
        other => Err(refused(format!(
            "the file is not a regular file: {other:?}"
        ))),
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
    fn only_regular_files_are_opened() {
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
            // Opening the FIFO plainly would wait for a writer.
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
    fn no_symbolic_link_leads_out_of_a_process_root() {
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
            let found = resolve_below(root, Path::new("/lib/librcl.so"), how);
            assert!(found.is_ok(), "{how:?}");
        }
        for path in [
            "/lib/absolute.so",
            "/lib/relative.so",
            "/etc/secret",
            "/../secret",
        ] {
            assert!(
                resolve_below(root, Path::new(path), ResolveFlags::empty()).is_err(),
                "{path}"
            );
        }
        let magic = format!("/magic{}/secret", dir.display());
        assert!(resolve_below(root, Path::new(&magic), ResolveFlags::empty()).is_err());
        fs::remove_dir_all(&dir).expect("removed");
    }

    #[test]
    fn fuse_mounts_and_removed_mounts_are_refused() {
        let mounts = Mounts(
            "22 1 0:21 / / rw - ext4 /dev/a rw\n31 22 0:28 / /x\\040- rw shared:1 - fuse.sshfs h: rw\n\
             nonsense\n40 - \n"
                .into(),
        );
        assert!(mounts.check(Some(22)).is_ok());
        for (mount, reason) in [
            (Some(31), "FUSE"),
            (Some(99), "no longer mounted"),
            (None, "FUSE"),
        ] {
            let error = mounts.check(mount).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
        assert!(is_served("fuse") && is_served("fuseblk") && !is_served("fusectl"));
    }

    #[test]
    fn the_own_program_can_be_opened_by_each_kind_of_path() {
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
