//! The process that publishes diagnostics, seen from its owner. Nothing here waits for it but its end, which
//! has its time.

use crate::shaper::{Companion, ShaperError, Word};
use onbeat_ros::diagnostics::frame::{Frame, Reply, MOST_REPLY};
use onbeat_ros::diagnostics::{serialise, Config, DiagnosticStatus};
use onbeat_time::clock::realtime_ns;
use rustix::net::{
    recv, send, socketpair, sockopt, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType,
};
use rustix::process::{getpid, pidfd_open, PidfdFlags};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// Room of the socket, bytes: a few messages. What a stopped process does not read is not kept for it.
const ROOM: usize = 64 << 10;
/// How long a publisher has for its last message, and its end.
const END_WITHIN: Duration = Duration::from_millis(2500);
/// Replies at once.
const REPLIES: usize = 64;

/// What a publisher says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// It has its endpoint.
    Ready,
    /// ROS 2 there has no diagnostic_msgs.
    NoPackage,
    /// The message of this number was published.
    Published(u32),
}

/// A running publisher.
pub(super) struct Publisher {
    companion: Companion,
    pub(super) link: Link,
}

impl Publisher {
    /// Starts one beside a process that was seen at an instant (CLOCK_MONOTONIC).
    pub(super) fn start(program: &Path, beside: (u32, u64)) -> Result<Publisher, ShaperError> {
        let (own, theirs) = pair().map_err(ShaperError::Start)?;
        let owner = pidfd_open(getpid(), PidfdFlags::empty());
        let owner = owner.map_err(|e| ShaperError::Start(e.into()))?;
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

    /// What it said last, once it has ended.
    pub(super) fn ended(&mut self) -> Option<String> {
        let status = match self.companion.ended() {
            Ok(None) => return None,
            Ok(Some(status)) => status.to_string(),
            Err(e) => e.to_string(),
        };
        Some(format!("{status}: {}", self.companion.last_line()))
    }

    /// Lets it end. One that does not is killed.
    pub(super) fn end(mut self) {
        self.link.send(&Frame::End);
        // The end of the socket ends it.
        drop(self.link);
        self.companion.wait(END_WITHIN);
    }
}

/// The socket to a publisher. What comes from there is untrusted.
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

    /// Whether it can publish.
    pub(super) fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// What it has said since the last time. Does not wait.
    pub(super) fn hear(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        for _ in 0..REPLIES {
            let mut packet = [0; MOST_REPLY + 1];
            let length = match recv(&self.socket, packet.as_mut_slice(), RecvFlags::DONTWAIT) {
                Ok((length, _)) if length > 0 => length,
                _ => break,
            };
            // What is no reply is not heard: it runs as the application's user, who can make it say anything.
            match Reply::of(&packet[..length]) {
                Some(Reply::Ready) => {
                    self.is_ready = true;
                    events.push(Event::Ready);
                }
                Some(Reply::NoPackage) => events.push(Event::NoPackage),
                Some(Reply::Published(number)) => events.push(Event::Published(number)),
                None => {}
            }
        }
        events
    }

    /// Sends a message. False if there is no room for it.
    pub(super) fn publish(&self, number: u32, statuses: &[DiagnosticStatus]) -> bool {
        self.send(&Frame::Publish(number, &serialise(realtime_ns(), statuses)))
    }

    /// Leaves it a message for the case that this process ends without a word.
    pub(super) fn will(&self, statuses: &[DiagnosticStatus]) {
        self.send(&Frame::Will(&serialise(realtime_ns(), statuses)));
    }

    fn send(&self, frame: &Frame) -> bool {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        send(&self.socket, &frame.bytes(), flags).is_ok()
    }
}

/// A socket with packets: our end, and the other's.
fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let kind = SocketType::SEQPACKET;
    let ends = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_send_buffer_size(&ends.0, ROOM)?;
    Ok(ends)
}

#[cfg(test)]
mod tests {
    use super::*;
    use onbeat_ros::diagnostics::frame::MOST_FRAME;

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

    /// As a stopped one: the test would never end if its owner waited for it.
    #[test]
    fn who_reads_nothing_holds_nobody_up() {
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
    fn what_is_no_reply_is_not_heard_and_no_more_than_some_are_at_once() {
        let (mut link, theirs) = link();
        let say = |bytes: &[u8]| send(&theirs, bytes, SendFlags::DONTWAIT).expect("room");
        for nonsense in [&b"x"[..], b"RR", b"A123", &[b'A'; 5000], b"M "] {
            say(nonsense);
        }
        say(&Reply::Ready.bytes());
        assert!(link.hear() == [Event::Ready] && link.is_ready());
        for number in 0..100 {
            say(&Reply::Published(number).bytes());
        }
        assert_eq!(link.hear().len(), REPLIES);
        assert_eq!(link.hear().len(), 100 - REPLIES);
        drop(theirs);
        assert!(link.hear().is_empty());
    }
}
