//! Accepts connections and shakes hands with several of them at once, so that a silent stranger
//! delays nobody.
//!
//! Each handshake has a separate thread for two seconds at most. When all places are taken, the
//! oldest handshake is dropped. A peer needs about a millisecond, so it could lose its place only
//! if all others came within that time. Not real-time safe, and never on the path of messages.

use super::dial;
use super::handshake::{Agreed, Failed, Hello};
use super::key::Key;
use crate::helper;
use crate::quiet::Waking;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use onbeat_flow::clock::now_ns;
use std::collections::VecDeque;
use std::io::{PipeReader, Read};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Arc;
use std::thread::JoinHandle;

const MOST_HANDSHAKES: usize = 8;

const PAUSE_AFTER_FAILED_ACCEPT_MS: u8 = 50;

pub type HandshakeResult = std::result::Result<(TcpStream, Agreed), Failed>;

struct Guest {
    number: u64,
    stream: TcpStream,
    thread: JoinHandle<()>,
}

type NumberedResult = (u64, HandshakeResult);

pub struct Door<'l> {
    listener: &'l TcpListener,
    key: Key,
    hello: Hello,
    guests: VecDeque<Guest>,
    next: u64,
    results: (Sender<NumberedResult>, Receiver<NumberedResult>),
    bell: (PipeReader, Waking),
}

impl<'l> Door<'l> {
    pub fn new(listener: &'l TcpListener, key: &Key, hello: Hello) -> std::io::Result<Door<'l>> {
        Ok(Door {
            listener,
            key: key.clone(),
            hello,
            guests: VecDeque::new(),
            next: 0,
            results: channel(),
            bell: Waking::new()?,
        })
    }

    /// Waits until a handshake ends, and returns its result. Returns `None` at the deadline, or
    /// when `wake` can be read.
    pub fn greet(
        &mut self,
        wake: &mut PipeReader,
        deadline_ns: Option<u64>,
    ) -> Option<HandshakeResult> {
        loop {
            let (comes, woken, over) = self.wait(wake, deadline_ns);
            if woken {
                let _ = wake.read(&mut [0; 64]);
                return None;
            }
            if over {
                if let Some(greeted) = self.next_result() {
                    return Some(greeted);
                }
            }
            match comes.then(|| self.listener.accept()) {
                Some(Ok((stream, _))) => self.let_in(stream),
                // For example, no descriptors are left. The connection stays in the queue, so
                // without a pause this loop would spin.
                Some(Err(_)) => drop(poll(
                    &mut [PollFd::new(wake.as_fd(), PollFlags::POLLIN)],
                    PAUSE_AFTER_FAILED_ACCEPT_MS,
                )),
                None => {}
            }
            if deadline_ns.is_some_and(|d| now_ns() >= d) {
                return None;
            }
        }
    }

    fn wait(&self, wake: &PipeReader, deadline_ns: Option<u64>) -> (bool, bool, bool) {
        let timeout = match deadline_ns {
            None => PollTimeout::NONE,
            Some(deadline) => {
                // Rounded up, so that the caller does not spin in the last millisecond.
                let ms = deadline.saturating_sub(now_ns()).div_ceil(1_000_000);
                PollTimeout::try_from(ms).unwrap_or(PollTimeout::MAX)
            }
        };
        let mut descriptors = [
            PollFd::new(self.listener.as_fd(), PollFlags::POLLIN),
            PollFd::new(wake.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.bell.0.as_fd(), PollFlags::POLLIN),
        ];
        let _ = poll(&mut descriptors, timeout);
        let [comes, woken, over] = descriptors.map(|d| d.any() == Some(true));
        (comes, woken, over)
    }

    fn next_result(&mut self) -> Option<HandshakeResult> {
        let _ = self.bell.0.read(&mut [0]);
        let (number, greeted) = self.results.1.try_recv().ok()?;
        let at = self.guests.iter().position(|g| g.number == number)?;
        let guest = self.guests.remove(at)?;
        let _ = guest.thread.join();
        Some(greeted)
    }

    fn let_in(&mut self, stream: TcpStream) {
        if self.guests.len() == MOST_HANDSHAKES {
            if let Some(longest) = self.guests.pop_front() {
                let _ = longest.stream.shutdown(Shutdown::Both);
            }
        }
        let (key, hello, number) = (self.key.clone(), self.hello, self.next);
        let tell = self.results.0.clone();
        let (Ok(kept), Ok(ring)) = (stream.try_clone(), self.bell.1.try_clone()) else {
            return;
        };
        let run = move || {
            let agreed = dial::shake_listening(&stream, &key, hello);
            let _ = tell.send((number, agreed.map(|agreed| (stream, agreed))));
            ring.ring();
        };
        let thread = std::thread::Builder::new().name("link-greet".into());
        if let Ok(thread) = thread.spawn(run) {
            self.next += 1;
            self.guests.push_back(Guest {
                number,
                stream: kept,
                thread,
            });
        }
    }
}

impl Drop for Door<'_> {
    fn drop(&mut self) {
        for guest in self.guests.drain(..) {
            let _ = guest.stream.shutdown(Shutdown::Both);
            let _ = guest.thread.join();
        }
    }
}

/// A thread of an end that has its peer and needs no further connection. The thread refuses all
/// later connections to this end, and stops when the link ends.
pub struct Keeper {
    stop: Arc<AtomicBool>,
    waking: Waking,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    pub fn start(listener: &TcpListener, key: &Key, hello: Hello) -> std::io::Result<Keeper> {
        let (listener, key) = (listener.try_clone()?, key.clone());
        let (wake, waking) = Waking::new()?;
        let stop = Arc::<AtomicBool>::default();
        let stopping = Arc::clone(&stop);
        let run = move || refuse_connections(&listener, &key, hello, wake, &stopping);
        let thread = Some(helper::start("link-door", run)?);
        Ok(Keeper {
            stop,
            waking,
            thread,
        })
    }
}

fn refuse_connections(
    listener: &TcpListener,
    key: &Key,
    hello: Hello,
    mut wake: PipeReader,
    stop: &AtomicBool,
) {
    // Without a pipe the end does not answer strangers. The link works all the same.
    let Ok(mut door) = Door::new(listener, key, hello) else {
        return;
    };
    while !stop.load(Ordering::Acquire) {
        // The end has a peer already, so no connection is taken.
        drop(door.greet(&mut wake, None));
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.waking.ring();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
