//! The process that publishes a session's diagnostics. It runs without rights, as the application's
//! user and in the application's ROS 2. It decides nothing: it publishes the session's messages,
//! and a last message if the session ends unexpectedly.

use super::cdr;
use super::frame::{Frame, Reply, MOST_FRAME};
use crate::process;
use crate::rcl::{self, Item, Node, Publisher, Qos, Rcl, RclError};
use onbeat_time::clock::realtime_ns;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsRawFd;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;
use thiserror::Error;

/// The name of the node that publishes diagnostics.
pub const NODE: &str = "onbeat_diagnostics";
/// The topic of ROS 2 diagnostics, to which aggregators and monitors subscribe.
pub const TOPIC: &str = "/diagnostics";
/// The ROS 2 type of the messages on [`TOPIC`].
pub const TYPE: &str = "diagnostic_msgs/msg/DiagnosticArray";

const FLOAT64: &str = "std_msgs/msg/Float64";

/// The largest number of topics on which the process publishes numbers.
pub const MAX_VALUE_TOPICS: usize = 64;

const SETTLE_NS: i64 = 1_000_000_000;

/// The configuration of the process that publishes diagnostics, as JSON on its standard input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The path of the application's librcl, which this process loads.
    pub rcl: PathBuf,
    /// The folders that are searched for type support, after those of the linker and of
    /// AMENT_PREFIX_PATH.
    pub folders: Vec<PathBuf>,
    /// The inherited descriptor of the packet socket to the session.
    pub socket_fd: RawFd,
    /// The inherited descriptor of the session's process (pidfd_open(2)).
    pub owner_fd: RawFd,
}

/// The error that ends the process that publishes diagnostics.
#[derive(Debug, Error)]
#[allow(missing_docs)] // The messages say the rest.
pub enum DiagnosticsError {
    #[error(transparent)]
    Rcl(#[from] RclError),
    #[error("cannot read from the socket to the session: {0}")]
    Socket(io::Error),
}

/// Publishes the session's diagnostics until the session ends.
///
/// # Errors
///
/// Returns a [`DiagnosticsError`] if ROS 2 or the socket fails. If ROS 2 lacks the package of the
/// message type, the session also gets [`Reply::NoPackage`].
pub fn run(config: &Config) -> Result<(), DiagnosticsError> {
    let session = Session::of(config)?;
    process::continue_without_owner();
    let rcl = Rcl::load(&config.rcl, &config.folders)?;
    let node = Node::new(rcl, NODE)?;
    let publisher = match node.publisher(TOPIC, TYPE, &qos()) {
        Ok(publisher) => publisher,
        Err(error) => {
            if matches!(error, RclError::TypeSupport { .. }) {
                session.reply(Reply::NoPackage);
            }
            return Err(error.into());
        }
    };
    let mut outlet = Outlet {
        publisher,
        item: node.item(MOST_FRAME)?,
        will: None,
        node,
        values: BTreeMap::new(),
    };
    session.reply(Reply::Ready);
    outlet.serve(&session)
}

fn qos() -> Qos {
    Qos {
        history: rcl::KEEP_LAST,
        depth: 10,
        reliability: rcl::RELIABLE,
        durability: rcl::VOLATILE,
        liveliness: 1,
        ..Qos::default()
    }
}

struct Outlet {
    publisher: Publisher,
    item: Item,
    /// The message to publish if the session ends without [`Frame::End`].
    will: Option<Vec<u8>>,
    /// The publishers of numbers, by topic. A topic has `None` if ROS 2 refused its publisher.
    values: BTreeMap<String, Option<Publisher>>,
    node: Arc<Node>,
}

impl Outlet {
    fn serve(&mut self, session: &Session) -> Result<(), DiagnosticsError> {
        let mut packet = vec![0; MOST_FRAME];
        while let Some(length) = session.read_packet(&mut packet)? {
            match Frame::of(&packet[..length]) {
                // If several messages wait, the latest has all counts of the others.
                Some(Frame::Publish(..)) if session.has_another_message() => {}
                Some(Frame::Publish(number, message)) if self.publish(message) => {
                    session.reply(Reply::Published(number));
                }
                // If ROS 2 refused a message, the next one reports its counts again.
                Some(Frame::Publish(..)) | None => {}
                Some(Frame::Value(value, topic)) => self.publish_value(session, value, topic),
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

    fn publish_value(&mut self, session: &Session, value: f64, topic: &str) {
        if !self.values.contains_key(topic) {
            if self.values.len() >= MAX_VALUE_TOPICS {
                return;
            }
            let publisher = self.node.publisher(topic, FLOAT64, &qos());
            if matches!(publisher, Err(RclError::TypeSupport { .. })) {
                session.reply(Reply::NoFloat64);
            }
            self.values.insert(topic.into(), publisher.ok());
        }
        if let Some(Some(publisher)) = self.values.get(topic) {
            if self.item.fill(&cdr::float64(value)) {
                // If ROS 2 refuses a number, a later one follows within about a second.
                let _ = publisher.publish(&self.item);
            }
        }
    }

    fn publish(&mut self, message: &[u8]) -> bool {
        let mut message = message.to_vec();
        cdr::stamp(&mut message, realtime_ns());
        self.item.fill(&message) && self.publisher.publish(&self.item).is_ok()
    }
}

struct Session {
    socket: OwnedFd,
    owner: RawFd,
}

impl Session {
    fn of(config: &Config) -> Result<Session, DiagnosticsError> {
        // SAFETY: all-zero bytes are a valid `stat`.
        let mut kind: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer to `kind` is valid during the call.
        let known = unsafe { libc::fstat(config.socket_fd, &mut kind) };
        if known != 0 || kind.st_mode & libc::S_IFMT != libc::S_IFSOCK {
            return Err(DiagnosticsError::Socket(io::ErrorKind::NotConnected.into()));
        }
        // SAFETY: the descriptor is open and inherited only for this purpose.
        let socket = unsafe { OwnedFd::from_raw_fd(config.socket_fd) };
        Ok(Session {
            socket,
            owner: config.owner_fd,
        })
    }

    /// Waits for the next packet. Returns `None` when the session has ended. Another process, such
    /// as the session's guard, may have a copy of the session's end of the socket. Therefore this
    /// call also watches the session's process.
    fn read_packet(&self, packet: &mut [u8]) -> Result<Option<usize>, DiagnosticsError> {
        loop {
            self.wait();
            match self.receive(packet) {
                Ok(0) => return Ok(None),
                Ok(length) => return Ok(Some(length)),
                // The session has closed its end and left replies unread. Its packets can still be
                // read.
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

    fn has_another_message(&self) -> bool {
        let mut byte = [0];
        let flags = libc::MSG_DONTWAIT | libc::MSG_PEEK;
        // SAFETY: the buffer has room for one byte.
        let length =
            unsafe { libc::recv(self.socket.as_raw_fd(), byte.as_mut_ptr().cast(), 1, flags) };
        length > 0 && byte == [b'P']
    }

    fn receive(&self, packet: &mut [u8]) -> io::Result<usize> {
        let fd = self.socket.as_raw_fd();
        // SAFETY: the buffer has room for `packet.len()` bytes.
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

    fn wait(&self) {
        let ask = |fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        let mut asks = [ask(self.socket.as_raw_fd()), ask(self.owner)];
        // SAFETY: the two entries are valid during the call.
        unsafe { libc::poll(asks.as_mut_ptr(), 2, -1) };
    }

    /// Sends a reply without waiting. The reply is lost if the session has ended or the socket's
    /// buffer is full.
    fn reply(&self, reply: Reply) {
        let bytes = reply.bytes();
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the bytes are valid during the call.
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

    fn pair() -> [OwnedFd; 2] {
        let mut ends = [0; 2];
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        // SAFETY: the array has room for two descriptors.
        let made = unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) };
        assert_eq!(made, 0, "{}", io::Error::last_os_error());
        // SAFETY: the descriptors are open, and no other code owns them.
        ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
    }

    #[test]
    fn the_last_diagnostics_packets_arrive_although_replies_are_unread() {
        let [own, theirs] = pair();
        let config = Config {
            rcl: PathBuf::new(),
            folders: Vec::new(),
            socket_fd: theirs.into_raw_fd(),
            // The descriptor of a living process.
            owner_fd: of_this_process(),
        };
        let session = Session::of(&config).expect("a socket");
        session.reply(Reply::Published(1));
        let frames = [Frame::Publish(2, b"last").bytes(), Frame::End.bytes()];
        for frame in &frames {
            let fd = own.as_raw_fd();
            // SAFETY: the bytes are valid during the call.
            let sent = unsafe { libc::send(fd, frame.as_ptr().cast(), frame.len(), 0) };
            assert_eq!(usize::try_from(sent), Ok(frame.len()));
        }
        drop(own);
        let mut packet = [0; 64];
        for frame in &frames {
            let length = session
                .read_packet(&mut packet)
                .expect("no error")
                .expect("not the end yet");
            assert_eq!(&packet[..length], frame.as_slice());
        }
        assert_eq!(session.read_packet(&mut packet).expect("no error"), None);
    }

    fn of_this_process() -> RawFd {
        // SAFETY: the call takes no pointers.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) };
        RawFd::try_from(fd).expect("a descriptor")
    }
}
