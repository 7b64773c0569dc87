//! Opens sockets of a network interface by its name. All system calls of the sinks that send raw
//! frames are here.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

pub(crate) fn index(name: &str) -> io::Result<libc::c_int> {
    let text = CString::new(name).map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))?;
    // SAFETY: the string ends with a null byte.
    match unsafe { libc::if_nametoindex(text.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index as libc::c_int),
    }
}

pub(crate) fn socket(family: libc::c_int, protocol: libc::c_int) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: nothing else owns the new descriptor.
    unsafe {
        match libc::socket(family, kind, protocol) {
            fd if fd >= 0 => Ok(OwnedFd::from_raw_fd(fd)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

pub(crate) fn bind<A>(fd: BorrowedFd<'_>, address: &A) -> io::Result<()> {
    let at = std::ptr::from_ref(address).cast();
    // SAFETY: the address has this size, and the kernel checks its content.
    match unsafe { libc::bind(fd.as_raw_fd(), at, size_of::<A>() as libc::socklen_t) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

pub(crate) fn enable(fd: BorrowedFd<'_>, level: libc::c_int, what: libc::c_int) -> io::Result<()> {
    let one: libc::c_int = 1;
    let (at, size) = (std::ptr::from_ref(&one).cast(), size_of_val(&one));
    // SAFETY: the value is valid during the call.
    match unsafe { libc::setsockopt(fd.as_raw_fd(), level, what, at, size as libc::socklen_t) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sends a frame through a socket. Real-time safe if the interface's driver is real-time safe.
pub(crate) fn send(fd: BorrowedFd<'_>, frame: &[u8]) -> io::Result<()> {
    let flags = libc::MSG_NOSIGNAL;
    // SAFETY: the bytes are valid during the call.
    let sent = unsafe { libc::send(fd.as_raw_fd(), frame.as_ptr().cast(), frame.len(), flags) };
    match usize::try_from(sent) {
        Err(_) => Err(io::Error::last_os_error()),
        Ok(sent) if sent == frame.len() => Ok(()),
        Ok(_) => Err(io::Error::other(
            "the device accepted only a part of the frame",
        )),
    }
}

/// Reads the bytes that have arrived at a socket, without waiting. Returns their number.
pub(crate) fn receive(fd: BorrowedFd<'_>, room: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the room is valid during the call.
    let length = unsafe { libc::recv(fd.as_raw_fd(), room.as_mut_ptr().cast(), room.len(), 0) };
    usize::try_from(length).map_err(|_| io::Error::last_os_error())
}
