//! System calls for files, locks, and waiting for descriptors.

use super::check;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Writes once at the start of the file. It is real-time safe if the file's driver is.
pub(crate) fn write_at_start(fd: RawFd, text: &[u8]) -> io::Result<()> {
    // SAFETY: the text lives during the call, and an invalid descriptor gives an error.
    let written = unsafe { libc::pwrite(fd, text.as_ptr().cast(), text.len(), 0) };
    if written == text.len() as isize {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Makes the descriptor number of `old` refer to the file `new`, in one step. A thread that uses
/// the number at this moment gets one of the two files.
pub(crate) fn replace(old: &File, new: &File) -> io::Result<()> {
    // SAFETY: both descriptors are open, and the owner of the number of `old` stays the same.
    let placed = unsafe { libc::dup3(new.as_raw_fd(), old.as_raw_fd(), libc::O_CLOEXEC) };
    check(placed).map(drop)
}

/// Reports whether a byte can be read at the start of the file. It is real-time safe if the file's
/// driver is.
pub(crate) fn can_read(fd: RawFd) -> bool {
    let mut byte = 0u8;
    // SAFETY: the byte lives during the call, and an invalid descriptor gives an error.
    unsafe { libc::pread(fd, std::ptr::from_mut(&mut byte).cast(), 1, 0) >= 0 }
}

/// Takes the file's lock, which lasts while any process has this descriptor or a copy of it. With
/// `wait` it waits for the lock; otherwise it returns false if another process holds it.
pub(crate) fn lock(file: &File, wait: bool) -> io::Result<bool> {
    let how = if wait { 0 } else { libc::LOCK_NB };
    loop {
        // SAFETY: the system call takes no pointers.
        match check(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | how) }) {
            Ok(_) => return Ok(true),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// Gives the space of a file's first bytes back to the file system. These bytes then read as zeros,
/// and the length of the file stays the same.
pub(crate) fn punch(file: &File, bytes: u64) -> io::Result<()> {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let length = libc::off_t::try_from(bytes).map_err(io::Error::other)?;
    if length == 0 {
        return Ok(());
    }
    // SAFETY: the system call takes no pointers.
    check(unsafe { libc::fallocate(file.as_raw_fd(), mode, 0, length) }).map(|_| ())
}

/// Returns the offset of the first data in a file with holes, or 0 if the file system does not
/// report it.
pub(crate) fn first_data(file: &File) -> u64 {
    // SAFETY: the system call takes no pointers.
    let at = unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_DATA) };
    u64::try_from(at).unwrap_or(0)
}

pub(crate) fn is_cgroup(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: zero is a valid value of the struct. Struct and path live during the call, and the
    // path ends with 0.
    let (result, kind) = unsafe {
        let mut found: libc::statfs = std::mem::zeroed();
        (libc::statfs(path.as_ptr(), &mut found), found.f_type)
    };
    result == 0 && [libc::CGROUP_SUPER_MAGIC, libc::CGROUP2_SUPER_MAGIC].contains(&kind)
}

/// Waits until one of the descriptors is readable or closed, at most `timeout_ms` (-1: forever).
/// Returns for each descriptor whether it is readable or closed.
pub(crate) fn wait_for<const N: usize>(descriptors: [RawFd; N], timeout_ms: i32) -> [bool; N] {
    let mut entries = descriptors.map(|fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    });
    // SAFETY: the N entries live during the call.
    let ready = unsafe { libc::poll(entries.as_mut_ptr(), N as libc::nfds_t, timeout_ms) };
    entries.map(|entry| ready > 0 && entry.revents != 0)
}
