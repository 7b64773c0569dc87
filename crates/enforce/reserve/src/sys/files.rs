//! Files, locks, and descriptors that are waited for.

use super::check;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// One write at the file's start. As real-time safe as the file is.
pub(crate) fn write_at_start(fd: RawFd, text: &[u8]) -> io::Result<()> {
    // SAFETY: the text lives while the call lasts; a descriptor that is none makes an error.
    let written = unsafe { libc::pwrite(fd, text.as_ptr().cast(), text.len(), 0) };
    if written == text.len() as isize {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Puts the file `new` behind the descriptor of `old`, in one step: who has the number meanwhile
/// uses one of the two.
pub(crate) fn replace(old: &File, new: &File) -> io::Result<()> {
    // SAFETY: both descriptors are open, and whoever owns the number of `old` still does.
    let placed = unsafe { libc::dup3(new.as_raw_fd(), old.as_raw_fd(), libc::O_CLOEXEC) };
    check(placed).map(drop)
}

/// Whether a byte can be read at the file's start. As real-time safe as the file is.
pub(crate) fn can_read(fd: RawFd) -> bool {
    let mut byte = 0u8;
    // SAFETY: the byte lives while the call lasts; a descriptor that is none makes an error.
    unsafe { libc::pread(fd, std::ptr::from_mut(&mut byte).cast(), 1, 0) >= 0 }
}

/// Takes the file's lock. It lasts as long as any process has this descriptor or a copy of it.
/// Waits for it if `wait`; else returns false if another has it.
pub(crate) fn lock(file: &File, wait: bool) -> io::Result<bool> {
    let how = if wait { 0 } else { libc::LOCK_NB };
    loop {
        // SAFETY: plain system call.
        match check(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | how) }) {
            Ok(_) => return Ok(true),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// Gives the space of a file's first bytes back. They read as zeros, and the file is as long as
/// before.
pub(crate) fn punch(file: &File, bytes: u64) -> io::Result<()> {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let length = libc::off_t::try_from(bytes).map_err(io::Error::other)?;
    if length == 0 {
        return Ok(());
    }
    // SAFETY: plain system call.
    check(unsafe { libc::fallocate(file.as_raw_fd(), mode, 0, length) }).map(|_| ())
}

/// Where a file's data begin; 0 where the file system does not say.
pub(crate) fn first_data(file: &File) -> u64 {
    // SAFETY: plain system call.
    let at = unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_DATA) };
    u64::try_from(at).unwrap_or(0)
}

/// Whether a file or directory is in a cgroup hierarchy.
pub(crate) fn is_cgroup(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: zero is a value of it; both live while the call lasts, and the path ends with 0.
    let (result, kind) = unsafe {
        let mut found: libc::statfs = std::mem::zeroed();
        (libc::statfs(path.as_ptr(), &mut found), found.f_type)
    };
    result == 0 && [libc::CGROUP_SUPER_MAGIC, libc::CGROUP2_SUPER_MAGIC].contains(&kind)
}

/// Waits until one of the descriptors is readable or at its end, for `timeout_ms` at most (-1: for
/// ever), and says which are.
pub(crate) fn wait_for<const N: usize>(descriptors: [RawFd; N], timeout_ms: i32) -> [bool; N] {
    let mut entries = descriptors.map(|fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    });
    // SAFETY: the entries live while the call lasts, and are as many as is said.
    let ready = unsafe { libc::poll(entries.as_mut_ptr(), N as libc::nfds_t, timeout_ms) };
    entries.map(|entry| ready > 0 && entry.revents != 0)
}
