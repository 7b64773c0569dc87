//! Files, locks and pipes.

use super::check;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};

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

/// A pipe: its read end and its write end.
pub(crate) fn pipe() -> io::Result<(File, File)> {
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for two descriptors; both are owned by the files made from them.
    unsafe {
        check(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC))?;
        Ok((File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])))
    }
}

/// Waits until one of two descriptors is readable or at its end. True if the first is.
pub(crate) fn wait_for_either(first: RawFd, second: RawFd) -> bool {
    let entry = |fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    let mut fds = [entry(first), entry(second)];
    loop {
        // SAFETY: the entries live while the call lasts, and are as many as is said.
        let ready = unsafe { libc::poll(fds.as_mut_ptr(), 2, -1) };
        if ready > 0 {
            return fds[0].revents != 0;
        }
        if ready < 0 && io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return false;
        }
    }
}
