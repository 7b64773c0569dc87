//! Receives messages of processes that loaded the library but cannot write rings.
//!
//! This happens if the directory is in another mount namespace, outside of a `chroot`, another
//! user's, or full. Such a process sends a message once to an abstract socket. At its end it sends
//! how many hits were not recorded.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::sync::Arc;

const MESSAGE_MAX: usize = 64;

// SAFETY: CMSG_SPACE only computes a number.
const CREDENTIALS_BYTES: usize =
    unsafe { libc::CMSG_SPACE(size_of::<libc::ucred>() as u32) } as usize;

/// A message in which a process reports that it cannot write its records into rings. The kernel
/// provides the sender's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Report {
    pub pid: u32,
    pub error: i32,
    pub calls: u64,
}

/// The socket for messages of processes without rings. Any process in this network namespace can
/// write to the socket. A false message can only add a sentence to the user's report.
#[derive(Debug, Clone)]
pub(super) struct Mailbox(Arc<UnixDatagram>);

impl Mailbox {
    /// Opens a socket with the name of the rings' directory. Fails if this user may not open
    /// sockets.
    pub fn open(rings: &Path) -> io::Result<Mailbox> {
        let name = rings.file_name().unwrap_or_default();
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name.as_bytes())?)?;
        socket.set_nonblocking(true)?;
        let on: libc::c_int = 1;
        // SAFETY: the socket is open, and the option's value lives through the call.
        let done = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PASSCRED,
                (&raw const on).cast(),
                size_of::<libc::c_int>() as u32,
            )
        };
        match done {
            0 => Ok(Mailbox(Arc::new(socket))),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub fn receive(&self) -> Option<Report> {
        let mut text = [0u8; MESSAGE_MAX];
        // The buffer has room only for credentials, so the kernel closes descriptors that are sent
        // along. It has the alignment of a control header.
        let mut control = [0u64; CREDENTIALS_BYTES / size_of::<u64>()];
        let mut part = libc::iovec {
            iov_base: text.as_mut_ptr().cast(),
            iov_len: text.len(),
        };
        // SAFETY: plain data of integers and pointers.
        let mut message: libc::msghdr = unsafe { zeroed() };
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = CREDENTIALS_BYTES as _;
        let flags = libc::MSG_CMSG_CLOEXEC;
        // SAFETY: the message's parts live through the call.
        let length = unsafe { libc::recvmsg(self.0.as_raw_fd(), &raw mut message, flags) };
        let length = usize::try_from(length).ok()?;
        let pid = sender(&message)?;
        Some(parse(pid, &text[..length]).unwrap_or(Report {
            pid,
            error: 0,
            calls: 0,
        }))
    }
}

fn sender(message: &libc::msghdr) -> Option<u32> {
    // SAFETY: the kernel filled the message, and its control part still lives.
    let head = unsafe { libc::CMSG_FIRSTHDR(message).as_ref() }?;
    if head.cmsg_level != libc::SOL_SOCKET || head.cmsg_type != libc::SCM_CREDENTIALS {
        return None;
    }
    // SAFETY: this kind of control data is a `ucred`. The read may be unaligned.
    let who = unsafe { libc::CMSG_DATA(head).cast::<libc::ucred>().read_unaligned() };
    u32::try_from(who.pid).ok()
}

fn parse(pid: u32, text: &[u8]) -> Option<Report> {
    let (error, calls) = std::str::from_utf8(text).ok()?.split_once(' ')?;
    Some(Report {
        pid,
        error: error.parse().ok()?,
        calls: calls.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_provides_the_sender_of_a_message() {
        let mailbox = Mailbox::open(Path::new(&format!(
            "/x/onbeat-mailbox-{}",
            std::process::id()
        )));
        let mailbox = mailbox.expect("a socket");
        assert_eq!(mailbox.receive(), None);
        let mouth = UnixDatagram::unbound().expect("a socket");
        let name = mailbox.0.local_addr().expect("its name");
        for (text, error, calls) in [("13 7", 13, 7), ("nonsense", 0, 0), ("", 0, 0)] {
            mouth.send_to_addr(text.as_bytes(), &name).expect("sent");
            let pid = std::process::id();
            assert_eq!(
                mailbox.receive(),
                Some(Report { pid, error, calls }),
                "{text}"
            );
        }
        assert_eq!(mailbox.receive(), None);
    }

    #[test]
    fn descriptors_that_are_sent_with_a_message_are_closed() {
        let mailbox = Mailbox::open(Path::new(&format!("/x/onbeat-full-{}", std::process::id())));
        let mailbox = mailbox.expect("a socket");
        let name = mailbox.0.local_addr().expect("its name");
        let file = std::fs::File::open("/proc/self/stat").expect("a file");
        let marked = || {
            let fds = std::fs::read_dir("/proc/self/fd")
                .expect("descriptors")
                .flatten();
            let paths = fds.filter_map(|fd| std::fs::read_link(fd.path()).ok());
            paths.filter(|path| path.ends_with("stat")).count()
        };
        let before = marked();
        send_with(&name, b"1 2", file.as_raw_fd());
        let pid = std::process::id();
        let (error, calls) = (1, 2);
        assert_eq!(mailbox.receive(), Some(Report { pid, error, calls }));
        assert_eq!(marked(), before);
    }

    fn send_with(to: &SocketAddr, text: &[u8], fd: i32) {
        let mouth = UnixDatagram::unbound().expect("a socket");
        mouth.connect_addr(to).expect("connected");
        let mut part = libc::iovec {
            iov_base: text.as_ptr().cast_mut().cast(),
            iov_len: text.len(),
        };
        let mut control = [0u64; 4];
        // SAFETY: plain data, filled below. All parts live through the call.
        unsafe {
            let mut message: libc::msghdr = zeroed();
            message.msg_iov = &raw mut part;
            message.msg_iovlen = 1;
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(4) as _;
            let head = &mut *libc::CMSG_FIRSTHDR(&raw const message);
            head.cmsg_level = libc::SOL_SOCKET;
            head.cmsg_type = libc::SCM_RIGHTS;
            head.cmsg_len = libc::CMSG_LEN(4) as _;
            libc::CMSG_DATA(head).cast::<i32>().write_unaligned(fd);
            let sent = libc::sendmsg(mouth.as_raw_fd(), &raw const message, 0);
            assert_eq!(sent, text.len() as isize);
        }
    }
}
