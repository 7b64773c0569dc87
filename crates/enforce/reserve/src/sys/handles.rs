//! System calls that send descriptors to another process, and timers that are waited for as
//! descriptors.

use super::{check, check_long};
use std::fs::File;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

pub(crate) fn sockets() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: `ends` has room for two descriptors, and only the returned values own them.
    unsafe {
        check(libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()))?;
        Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}

#[repr(C, align(8))]
struct Control([u8; 64]);

/// Sends a message, and optionally a copy of the descriptor `with`. It never raises SIGPIPE.
pub(crate) fn send(socket: &OwnedFd, text: &[u8], with: Option<RawFd>) -> io::Result<()> {
    let mut control = Control([0; 64]);
    let mut part = libc::iovec {
        iov_base: text.as_ptr().cast_mut().cast(),
        iov_len: text.len(),
    };
    // SAFETY: all parts of the message live during the call, and the control data have room for one
    // descriptor.
    let sent = unsafe {
        let mut message: libc::msghdr = zeroed();
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        if let Some(fd) = with {
            message.msg_control = (&raw mut control).cast();
            message.msg_controllen = libc::CMSG_SPACE(size_of::<RawFd>() as u32) as _;
            let head = libc::CMSG_FIRSTHDR(&message);
            (*head).cmsg_level = libc::SOL_SOCKET;
            (*head).cmsg_type = libc::SCM_RIGHTS;
            (*head).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
            libc::CMSG_DATA(head).cast::<RawFd>().write_unaligned(fd);
        }
        libc::sendmsg(socket.as_raw_fd(), &message, libc::MSG_NOSIGNAL)
    };
    check_long(sent as libc::c_long).map(drop)
}

/// Receives a message of up to `text.len()` bytes without waiting. Returns its length and the
/// descriptor that came with it.
pub(crate) fn receive(socket: &OwnedFd, text: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut control = Control([0; 64]);
    let mut part = libc::iovec {
        iov_base: text.as_mut_ptr().cast(),
        iov_len: text.len(),
    };
    let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
    // SAFETY: all parts of the message live during the call. The kernel reports in the control data
    // which descriptor is new and ours.
    unsafe {
        let mut message: libc::msghdr = zeroed();
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        message.msg_control = (&raw mut control).cast();
        message.msg_controllen = libc::CMSG_SPACE(size_of::<RawFd>() as u32) as _;
        let got = libc::recvmsg(socket.as_raw_fd(), &mut message, flags);
        let got = check_long(got as libc::c_long)?;
        let head = libc::CMSG_FIRSTHDR(&message);
        let is_descriptor = !head.is_null()
            && (*head).cmsg_level == libc::SOL_SOCKET
            && (*head).cmsg_type == libc::SCM_RIGHTS;
        let fd = is_descriptor
            .then(|| OwnedFd::from_raw_fd(libc::CMSG_DATA(head).cast::<RawFd>().read_unaligned()));
        Ok((got as usize, fd))
    }
}

pub(crate) struct Timer(File);

impl Timer {
    pub(crate) fn new() -> io::Result<Timer> {
        let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
        // SAFETY: the descriptor is new, and only the returned value owns it.
        unsafe {
            let fd = check(libc::timerfd_create(libc::CLOCK_MONOTONIC, flags))?;
            Ok(Timer(File::from_raw_fd(fd)))
        }
    }

    /// Makes the timer's descriptor readable from the instant `at_ns` on. This replaces an earlier
    /// instant.
    pub(crate) fn set(&self, at_ns: u64) -> io::Result<()> {
        let none = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let value = libc::itimerspec {
            it_interval: none,
            it_value: libc::timespec {
                tv_sec: (at_ns / 1_000_000_000) as libc::time_t,
                tv_nsec: (at_ns % 1_000_000_000).max(1) as libc::c_long,
            },
        };
        let absolute = libc::TFD_TIMER_ABSTIME;
        // SAFETY: the value lives during the call, and the old value is not requested.
        check(unsafe {
            libc::timerfd_settime(self.0.as_raw_fd(), absolute, &value, std::ptr::null_mut())
        })
        .map(drop)
    }
}

impl AsRawFd for Timer {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek, Write};

    #[test]
    fn a_file_descriptor_arrives_with_the_message_that_carries_it() {
        let (a, b) = sockets().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        send(&a, b"first", Some(file.as_raw_fd())).unwrap();
        send(&a, b"second", None).unwrap();
        let mut text = [0; 16];
        let (length, fd) = receive(&b, &mut text).unwrap();
        assert_eq!(&text[..length], b"first");
        let mut copy = File::from(fd.unwrap());
        copy.write_all(b"through it").unwrap();
        let mut written = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut written).unwrap();
        assert_eq!(written, "through it");
        let (length, fd) = receive(&b, &mut text).unwrap();
        assert_eq!(&text[..length], b"second");
        assert!(fd.is_none());
        let empty = receive(&b, &mut text).unwrap_err();
        assert_eq!(empty.kind(), io::ErrorKind::WouldBlock);
        drop(a);
        assert_eq!(receive(&b, &mut text).unwrap().0, 0);
        assert!(send(&b, b"nobody", None).is_err());
    }
}
