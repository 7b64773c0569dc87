//! The process that publishes a session's diagnostics: without rights, as the application's user, in its
//! ROS 2. It decides nothing: it publishes what the session sends, and a last message if the session
//! ends without a word.

use super::cdr;
use super::frame::{Frame, Reply, MOST_FRAME};
use crate::process;
use crate::rcl::{self, Item, Node, Publisher, Qos, Rcl, RclError};
use onbeat_time::clock::realtime_ns;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::AsRawFd;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use thiserror::Error;

/// Name of its node.
pub const NODE: &str = "onbeat_diagnostics";
/// Its topic: where aggregators and monitors listen.
pub const TOPIC: &str = "/diagnostics";
/// The type of its messages.
pub const TYPE: &str = "diagnostic_msgs/msg/DiagnosticArray";

/// How long the last message may take to reach those who listen.
const SETTLE_NS: i64 = 1_000_000_000;

/// Configuration, as JSON on the standard input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// librcl, as the application has it.
    pub rcl: PathBuf,
    /// Folders in which type support is looked for, after the linker's own and AMENT_PREFIX_PATH.
    pub folders: Vec<PathBuf>,
    /// Descriptor of the socket to the session (packets), inherited.
    pub socket_fd: RawFd,
    /// Descriptor of the session's process (pidfd_open(2)), inherited.
    pub owner_fd: RawFd,
}

/// Why there are no diagnostics.
#[derive(Debug, Error)]
pub enum DiagnosticsError {
    /// ROS 2 refused something.
    #[error(transparent)]
    Rcl(#[from] RclError),
    /// The socket.
    #[error("the session cannot be heard: {0}")]
    Socket(io::Error),
}

/// Publishes until the session ends.
///
/// # Errors
///
/// [`DiagnosticsError`]; that the message's package is missing is told to the session too.
pub fn run(config: &Config) -> Result<(), DiagnosticsError> {
    let session = Session::of(config)?;
    process::continue_without_owner();
    let rcl = Rcl::load(&config.rcl, &config.folders)?;
    let node = Node::new(rcl, NODE)?;
    let qos = Qos {
        history: rcl::KEEP_LAST,
        depth: 10,
        reliability: rcl::RELIABLE,
        durability: rcl::VOLATILE,
        liveliness: 1,
        ..Qos::default()
    };
    let publisher = match node.publisher(TOPIC, TYPE, &qos) {
        Ok(publisher) => publisher,
        Err(error) => {
            if matches!(error, RclError::TypeSupport { .. }) {
                session.reply(Reply::NoPackage);
            }
            return Err(error.into());
        }
    };
    let mut desk = Desk {
        publisher,
        item: node.item(MOST_FRAME)?,
        will: None,
    };
    session.reply(Reply::Ready);
    desk.serve(&session)
}

/// What is published, and how.
struct Desk {
    publisher: Publisher,
    item: Item,
    /// For a session that ends without a word.
    will: Option<Vec<u8>>,
}

impl Desk {
    fn serve(&mut self, session: &Session) -> Result<(), DiagnosticsError> {
        let mut packet = vec![0; MOST_FRAME];
        while let Some(length) = session.hear(&mut packet)? {
            match Frame::of(&packet[..length]) {
                // Of several that wait, the newest has all counts of the others.
                Some(Frame::Publish(..)) if session.has_more() => {}
                Some(Frame::Publish(number, message)) if self.publish(message) => {
                    session.reply(Reply::Published(number));
                }
                // What ROS 2 did not take is told again by the next one.
                Some(Frame::Publish(..)) | None => {}
                Some(Frame::Will(message)) => self.will = Some(message.to_vec()),
                Some(Frame::End) => self.will = None,
            }
        }
        if let Some(will) = self.will.take() {
            self.publish(&will);
        }
        self.publisher.settle(SETTLE_NS);
        Ok(())
    }

    fn publish(&mut self, message: &[u8]) -> bool {
        let mut message = message.to_vec();
        cdr::stamp(&mut message, realtime_ns());
        self.item.fill(&message) && self.publisher.publish(&self.item).is_ok()
    }
}

/// The session at the other end of the socket.
struct Session {
    socket: OwnedFd,
    owner: RawFd,
}

impl Session {
    fn of(config: &Config) -> Result<Session, DiagnosticsError> {
        // SAFETY: zero is a value of it.
        let mut kind: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: asks what a number is the descriptor of.
        let known = unsafe { libc::fstat(config.socket_fd, &mut kind) };
        if known != 0 || kind.st_mode & libc::S_IFMT != libc::S_IFSOCK {
            return Err(DiagnosticsError::Socket(io::ErrorKind::NotConnected.into()));
        }
        // SAFETY: it is open, and inherited for this alone.
        let socket = unsafe { OwnedFd::from_raw_fd(config.socket_fd) };
        Ok(Session {
            socket,
            owner: config.owner_fd,
        })
    }

    /// Waits for the next packet; `None` when the session has ended. Another process, as the session's
    /// guard, may have a copy of its end: so the session's process is watched too.
    fn hear(&self, packet: &mut [u8]) -> Result<Option<usize>, DiagnosticsError> {
        loop {
            self.wait();
            match self.receive(packet) {
                Ok(0) => return Ok(None),
                Ok(length) => return Ok(Some(length)),
                // The session has closed its end and left replies unread: what it said before is still there.
                Err(e) if e.kind() == io::ErrorKind::ConnectionReset => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    if process::has_ended(self.owner) {
                        return Ok(None);
                    }
                }
                Err(e) => return Err(DiagnosticsError::Socket(e)),
            }
        }
    }

    /// Whether another packet is there.
    fn has_more(&self) -> bool {
        let mut byte = [0];
        let flags = libc::MSG_DONTWAIT | libc::MSG_PEEK;
        // SAFETY: there is room for a byte.
        let length =
            unsafe { libc::recv(self.socket.as_raw_fd(), byte.as_mut_ptr().cast(), 1, flags) };
        length > 0 && byte == [b'P']
    }

    fn receive(&self, packet: &mut [u8]) -> io::Result<usize> {
        let fd = self.socket.as_raw_fd();
        // SAFETY: there is room for so many bytes.
        let length = unsafe {
            libc::recv(
                fd,
                packet.as_mut_ptr().cast(),
                packet.len(),
                libc::MSG_DONTWAIT,
            )
        };
        usize::try_from(length).map_err(|_| io::Error::last_os_error())
    }

    /// Waits until there is a packet, or the session has ended, or for a signal.
    fn wait(&self) {
        let ask = |fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        let mut asks = [ask(self.socket.as_raw_fd()), ask(self.owner)];
        // SAFETY: two entries, which live while the call lasts.
        unsafe { libc::poll(asks.as_mut_ptr(), 2, -1) };
    }

    /// Says something. A session that does not hear it is gone, or has enough to hear.
    fn reply(&self, reply: Reply) {
        let bytes = reply.bytes();
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the bytes live while the call lasts.
        unsafe {
            libc::send(
                self.socket.as_raw_fd(),
                bytes.as_ptr().cast(),
                bytes.len(),
                flags,
            )
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::io::IntoRawFd;

    /// The two ends of a socket with packets, as the session makes it.
    fn pair() -> [OwnedFd; 2] {
        let mut ends = [0; 2];
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        // SAFETY: there is room for two descriptors.
        let made = unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) };
        assert_eq!(made, 0, "{}", io::Error::last_os_error());
        // SAFETY: they are open, and nobody else's.
        ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// The kernel tells of unread replies before it hands out what was sent: the last message, and that this is
    /// the end, would be lost, and the message for an end without a word be published.
    #[test]
    fn what_a_session_says_last_is_heard_although_it_has_not_read_the_replies() {
        let [own, theirs] = pair();
        let config = Config {
            rcl: PathBuf::new(),
            folders: Vec::new(),
            socket_fd: theirs.into_raw_fd(),
            // Of a process that lives.
            owner_fd: of_this_process(),
        };
        let session = Session::of(&config).expect("a socket");
        session.reply(Reply::Published(1));
        let frames = [Frame::Publish(2, b"last").bytes(), Frame::End.bytes()];
        for frame in &frames {
            let fd = own.as_raw_fd();
            // SAFETY: the bytes live while the call lasts.
            let sent = unsafe { libc::send(fd, frame.as_ptr().cast(), frame.len(), 0) };
            assert_eq!(usize::try_from(sent), Ok(frame.len()));
        }
        drop(own);
        let mut packet = [0; 64];
        for frame in &frames {
            let length = session
                .hear(&mut packet)
                .expect("no error")
                .expect("not the end yet");
            assert_eq!(&packet[..length], frame.as_slice());
        }
        assert_eq!(session.hear(&mut packet).expect("no error"), None);
    }

    /// A descriptor of this process.
    fn of_this_process() -> RawFd {
        // SAFETY: no pointers.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) };
        RawFd::try_from(fd).expect("a descriptor")
    }
}
