//! The process that publishes diagnostics, seen from its owner. Nothing here waits for it, except
//! its end, which has a time limit.

use super::frame::{Frame, Reply, MOST_REPLY};
use super::{serialise, Config, DiagnosticStatus};
use crate::companion::{Companion, CompanionError, Word};
use onbeat_time::clock::realtime_ns;
use rustix::net::{
    recv, send, socketpair, sockopt, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType,
};
use rustix::process::{getpid, pidfd_open, PidfdFlags};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// The size of the socket's buffer in bytes, which is enough for a few messages. If the process
/// that publishes diagnostics does not read the messages in the buffer, later messages are dropped.
const SEND_BUFFER_BYTES: usize = 64 << 10;
const END_TIMEOUT: Duration = Duration::from_millis(2500);
const MAX_REPLIES: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    Ready,
    NoPackage,
    NoFloat64,
    Published(u32),
}

pub(super) struct Publisher {
    companion: Companion,
    pub(super) link: Link,
}

impl Publisher {
    pub(super) fn start(program: &Path, beside: (u32, u64)) -> Result<Publisher, CompanionError> {
        let (own, theirs) = pair().map_err(CompanionError::Start)?;
        let owner = pidfd_open(getpid(), PidfdFlags::empty());
        let owner = owner.map_err(|e| CompanionError::Start(e.into()))?;
        let descriptors = [theirs.as_raw_fd(), owner.as_raw_fd()];
        let [socket_fd, owner_fd] = descriptors;
        let config = |rcl, folders| {
            serde_json::to_vec(&Config {
                rcl,
                folders,
                socket_fd,
                owner_fd,
            })
        };
        let program = (program, Word::Diagnostics);
        let companion = Companion::start(program, beside, descriptors, config)?;
        Ok(Publisher {
            companion,
            link: Link::new(own),
        })
    }

    pub(super) fn ended(&mut self) -> Option<String> {
        let status = match self.companion.ended() {
            Ok(None) => return None,
            Ok(Some(status)) => status.to_string(),
            Err(e) => e.to_string(),
        };
        Some(format!("{status}: {}", self.companion.last_line()))
    }

    pub(super) fn end(mut self) {
        self.link.send(&Frame::End);
        // The publisher ends when its socket is closed.
        drop(self.link);
        self.companion.wait(END_TIMEOUT);
    }
}

pub(super) struct Link {
    socket: OwnedFd,
    is_ready: bool,
}

impl Link {
    fn new(socket: OwnedFd) -> Link {
        Link {
            socket,
            is_ready: false,
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.is_ready
    }

    pub(super) fn read_replies(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        for _ in 0..MAX_REPLIES {
            let mut packet = [0; MOST_REPLY + 1];
            let length = match recv(&self.socket, packet.as_mut_slice(), RecvFlags::DONTWAIT) {
                Ok((length, _)) if length > 0 => length,
                _ => break,
            };
            // Invalid replies are ignored: the publisher runs as the application's user, who may
            // send any bytes.
            match Reply::of(&packet[..length]) {
                Some(Reply::Ready) => {
                    self.is_ready = true;
                    events.push(Event::Ready);
                }
                Some(Reply::NoPackage) => events.push(Event::NoPackage),
                Some(Reply::NoFloat64) => events.push(Event::NoFloat64),
                Some(Reply::Published(number)) => events.push(Event::Published(number)),
                None => {}
            }
        }
        events
    }

    pub(super) fn publish(&self, number: u32, statuses: &[DiagnosticStatus]) -> bool {
        self.send(&Frame::Publish(number, &serialise(realtime_ns(), statuses)))
    }

    pub(super) fn will(&self, statuses: &[DiagnosticStatus]) {
        self.send(&Frame::Will(&serialise(realtime_ns(), statuses)));
    }

    pub(super) fn value(&self, topic: &str, value: f64) {
        self.send(&Frame::Value(value, topic));
    }

    fn send(&self, frame: &Frame) -> bool {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        send(&self.socket, &frame.bytes(), flags).is_ok()
    }
}

fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let kind = SocketType::SEQPACKET;
    let ends = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_send_buffer_size(&ends.0, SEND_BUFFER_BYTES)?;
    Ok(ends)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostics::frame::MOST_FRAME;

    fn link() -> (Link, OwnedFd) {
        let (own, theirs) = pair().expect("a pair of sockets");
        (Link::new(own), theirs)
    }

    fn status(text: &str) -> DiagnosticStatus {
        DiagnosticStatus {
            name: text.into(),
            values: vec![(text.into(), text.into()); 40],
            ..DiagnosticStatus::default()
        }
    }

    #[test]
    fn a_diagnostics_publisher_that_reads_nothing_blocks_nobody() {
        let (link, theirs) = link();
        let statuses = [status(&"x".repeat(200))];
        let sent = (0..1000).take_while(|n| link.publish(*n, &statuses));
        let sent = sent.count();
        assert!((1..100).contains(&sent), "{sent} messages wait");
        let mut packet = vec![0; MOST_FRAME];
        for number in 0..sent {
            let (length, _) = recv(&theirs, packet.as_mut_slice(), RecvFlags::DONTWAIT)
                .expect("a packet that is whole");
            let frame = Frame::of(&packet[..length]);
            let known = matches!(frame, Some(Frame::Publish(n, _)) if n as usize == number);
            assert!(known, "{frame:?}");
        }
        assert!(link.publish(7, &statuses), "there is room again");
        drop(theirs);
        assert!(!link.publish(8, &statuses), "nobody is there");
    }

    #[test]
    fn invalid_publisher_replies_are_ignored() {
        let (mut link, theirs) = link();
        let say = |bytes: &[u8]| send(&theirs, bytes, SendFlags::DONTWAIT).expect("room");
        for nonsense in [&b"x"[..], b"RR", b"A123", &[b'A'; 5000], b"M "] {
            say(nonsense);
        }
        say(&Reply::Ready.bytes());
        assert!(link.read_replies() == [Event::Ready] && link.is_ready());
        for number in 0..100 {
            say(&Reply::Published(number).bytes());
        }
        assert_eq!(link.read_replies().len(), MAX_REPLIES);
        assert_eq!(link.read_replies().len(), 100 - MAX_REPLIES);
        drop(theirs);
        assert!(link.read_replies().is_empty());
    }
}
