//! Hears of processes that loaded the library and cannot write rings: the directory is in another
//! mount namespace, behind a `chroot`, another user's, or full. They say so to a socket without a place
//! in the file system, once, and how much they left unrecorded when they end.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::sync::Arc;

/// Longest message that is read.
const MESSAGE_MAX: usize = 64;

/// Bytes of control data that has credentials and nothing else.
// SAFETY: arithmetic.
const CREDENTIALS_BYTES: usize =
    unsafe { libc::CMSG_SPACE(size_of::<libc::ucred>() as u32) } as usize;

/// What a process said. The kernel says who it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Told {
    /// In this process's pid namespace; 0: it has no number there.
    pub pid: u32,
    /// Why it has no rings.
    pub error: i32,
    /// Hits in it that were not recorded, by now.
    pub calls: u64,
}

/// The socket. Anybody in this network namespace can write to it: what is said costs a sentence.
#[derive(Debug, Clone)]
pub(super) struct Ear(Arc<UnixDatagram>);

impl Ear {
    /// A socket with the name of the rings' directory.
    ///
    /// # Errors
    /// This user may have none.
    pub fn open(rings: &Path) -> io::Result<Ear> {
        let name = rings.file_name().unwrap_or_default();
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name.as_bytes())?)?;
        socket.set_nonblocking(true)?;
        let on: libc::c_int = 1;
        // SAFETY: an option of a socket that is open, with a value that lives through the call.
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
            0 => Ok(Ear(Arc::new(socket))),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The next message, if there is one that says something.
    pub fn hear(&self) -> Option<Told> {
        let mut text = [0u8; MESSAGE_MAX];
        // Room for the credentials alone: descriptors that come along are closed by the kernel. Aligned as its head
        // has to be.
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
        Some(parse(pid, &text[..length]).unwrap_or(Told {
            pid,
            error: 0,
            calls: 0,
        }))
    }
}

/// The process that sent a message, as the kernel knows it.
fn sender(message: &libc::msghdr) -> Option<u32> {
    // SAFETY: the message was filled by the kernel, its control part is still there.
    let head = unsafe { libc::CMSG_FIRSTHDR(message).as_ref() }?;
    if head.cmsg_level != libc::SOL_SOCKET || head.cmsg_type != libc::SCM_CREDENTIALS {
        return None;
    }
    // SAFETY: this kind of control data is a `ucred`; it may lie unaligned.
    let who = unsafe { libc::CMSG_DATA(head).cast::<libc::ucred>().read_unaligned() };
    u32::try_from(who.pid).ok()
}

/// `ERROR CALLS`.
fn parse(pid: u32, text: &[u8]) -> Option<Told> {
    let (error, calls) = std::str::from_utf8(text).ok()?.split_once(' ')?;
    Some(Told {
        pid,
        error: error.parse().ok()?,
        calls: calls.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_has_its_sender_from_the_kernel() {
        let ear = Ear::open(Path::new(&format!("/x/onbeat-ear-{}", std::process::id())));
        let ear = ear.expect("a socket");
        assert_eq!(ear.hear(), None);
        let mouth = UnixDatagram::unbound().expect("a socket");
        let name = ear.0.local_addr().expect("its name");
        for (text, error, calls) in [("13 7", 13, 7), ("nonsense", 0, 0), ("", 0, 0)] {
            mouth.send_to_addr(text.as_bytes(), &name).expect("sent");
            let pid = std::process::id();
            assert_eq!(ear.hear(), Some(Told { pid, error, calls }), "{text}");
        }
        assert_eq!(ear.hear(), None);
    }

    /// Who may write here may send descriptors: the recorder must not hold them.
    #[test]
    fn descriptors_that_come_along_are_not_kept() {
        let ear = Ear::open(Path::new(&format!("/x/onbeat-full-{}", std::process::id())));
        let ear = ear.expect("a socket");
        let name = ear.0.local_addr().expect("its name");
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
        assert_eq!(ear.hear(), Some(Told { pid, error, calls }));
        assert_eq!(marked(), before);
    }

    /// Sends a text with a descriptor.
    fn send_with(to: &SocketAddr, text: &[u8], fd: i32) {
        let mouth = UnixDatagram::unbound().expect("a socket");
        mouth.connect_addr(to).expect("connected");
        let mut part = libc::iovec {
            iov_base: text.as_ptr().cast_mut().cast(),
            iov_len: text.len(),
        };
        let mut control = [0u64; 4];
        // SAFETY: plain data, filled below; all parts live through the call.
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
