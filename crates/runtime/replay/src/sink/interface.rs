//! Sockets of a network interface, by its name: the system calls of the raw sinks.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The number of an interface.
pub(super) fn index(name: &str) -> io::Result<libc::c_int> {
    let text = CString::new(name).map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))?;
    // SAFETY: a terminated string.
    match unsafe { libc::if_nametoindex(text.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index as libc::c_int),
    }
}

/// A raw socket that does not wait.
pub(super) fn socket(family: libc::c_int, protocol: libc::c_int) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: the descriptor is nobody else's.
    unsafe {
        match libc::socket(family, kind, protocol) {
            fd if fd >= 0 => Ok(OwnedFd::from_raw_fd(fd)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Binds to an address of the socket's family.
pub(super) fn bind<A>(fd: BorrowedFd<'_>, address: &A) -> io::Result<()> {
    let at = std::ptr::from_ref(address).cast();
    // SAFETY: the address is of this size; the kernel checks what it says.
    match unsafe { libc::bind(fd.as_raw_fd(), at, size_of::<A>() as libc::socklen_t) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sets an option to 1.
pub(super) fn enable(fd: BorrowedFd<'_>, level: libc::c_int, what: libc::c_int) -> io::Result<()> {
    let one: libc::c_int = 1;
    let (at, size) = (std::ptr::from_ref(&one).cast(), size_of_val(&one));
    // SAFETY: the value is there for the call.
    match unsafe { libc::setsockopt(fd.as_raw_fd(), level, what, at, size as libc::socklen_t) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sends a frame. Real-time safe as far as the driver is.
pub(super) fn send(fd: BorrowedFd<'_>, frame: &[u8]) -> io::Result<()> {
    let flags = libc::MSG_NOSIGNAL;
    // SAFETY: the bytes are there for the call.
    let sent = unsafe { libc::send(fd.as_raw_fd(), frame.as_ptr().cast(), frame.len(), flags) };
    match usize::try_from(sent) {
        Err(_) => Err(io::Error::last_os_error()),
        Ok(sent) if sent == frame.len() => Ok(()),
        Ok(_) => Err(io::Error::other("the device took a part of the frame")),
    }
}
