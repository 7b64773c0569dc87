//! The state that the two halves of an end share: the side channel, the keys that end with it, and
//! whether the peer still runs.

use super::device::{Pair, Queue};
use super::memory::EndMemory;
use crate::helper;
use crate::interface::{End, Sizes};
use crate::sealed::{self, Counter};
use crate::tcp::door::Keeper;
use crate::verbs_wire::{Endpoint, Record};
use nix::sys::eventfd::EventFd;
use std::io::ErrorKind;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

/// The longest time for which a closing end waits until the peer sees the end of the side channel,
/// a TCP connection beside RDMA.
const FAREWELL: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy)]
pub enum Half {
    Out = 0,
    In = 1,
}

const ENDED: u32 = 1;
const PEER_RECEIVES_NO_MORE: u32 = 2;
/// The value of `sent_by_peer` while the peer may send more. A count of messages never reaches it.
const SENDS: u64 = u64::MAX;

pub struct Side {
    pub stream: TcpStream,
    pub keys: snow::StatelessTransportState,
    pub sent: Mutex<Counter>,
}

impl Side {
    /// Sends a record. If the connection is broken, the thread that reads from the connection
    /// notices the break.
    pub fn tell(&self, record: Record) -> std::io::Result<()> {
        let mut sent = lock(&self.sent);
        sealed::send(&mut &self.stream, &self.keys, &mut sent, &record.bytes())
    }
}

#[derive(Default)]
struct State {
    end: Option<End>,
    reason: Option<String>,
}

pub struct Shared {
    pub sizes: Sizes,
    pub peer: Endpoint,
    pub polling: bool,
    side: Side,
    pairs: [Arc<Pair>; 2],
    memory: Arc<EndMemory>,
    wakes: [EventFd; 2],
    flags: AtomicU32,
    sent_by_peer: AtomicU64,
    state: Mutex<State>,
    ended: Condvar,
    parked: Mutex<Vec<Queue>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

pub struct Parts {
    pub sizes: Sizes,
    pub peer: Endpoint,
    pub polling: bool,
    pub side: Side,
    pub pairs: [Arc<Pair>; 2],
    pub memory: Arc<EndMemory>,
}

impl Shared {
    fn new(parts: Parts) -> std::io::Result<Shared> {
        Ok(Shared {
            sizes: parts.sizes,
            peer: parts.peer,
            polling: parts.polling,
            side: parts.side,
            pairs: parts.pairs,
            memory: parts.memory,
            wakes: [EventFd::new()?, EventFd::new()?],
            flags: AtomicU32::new(0),
            sent_by_peer: AtomicU64::new(SENDS),
            state: Mutex::default(),
            ended: Condvar::new(),
            parked: Mutex::default(),
        })
    }

    fn wake(&self) {
        for wake in &self.wakes {
            let _ = wake.write(1);
        }
    }

    /// Returns a descriptor that becomes readable when something has changed for this half.
    /// [`Shared::woken`] resets it.
    pub fn wake_of(&self, half: Half) -> BorrowedFd<'_> {
        self.wakes[half as usize].as_fd()
    }

    /// Resets the half's wake-up without waiting: reads the descriptor only if something has
    /// changed.
    pub fn woken(&self, half: Half) {
        let wake = self.wakes[half as usize].as_fd();
        let mut descriptors = [nix::poll::PollFd::new(wake, nix::poll::PollFlags::POLLIN)];
        if nix::poll::poll(&mut descriptors, nix::poll::PollTimeout::ZERO) == Ok(1) {
            let _ = self.wakes[half as usize].read();
        }
    }

    /// Returns the reason why this half has ended, or `None` if it has not. Takes no lock while the
    /// link works.
    pub fn over(&self, half: Half) -> Option<End> {
        let flags = self.flags.load(Ordering::Acquire);
        if flags & ENDED != 0 {
            return lock(&self.state).end.clone();
        }
        let closed = matches!(half, Half::Out) && flags & PEER_RECEIVES_NO_MORE != 0;
        closed.then_some(End::Closed)
    }

    pub fn sent_by_peer(&self) -> Option<u64> {
        let count = self.sent_by_peer.load(Ordering::Acquire);
        (count != SENDS).then_some(count)
    }

    /// Sends the peer the record that a half was dropped. Keeps the half's queue pair, because the
    /// peer may still use it.
    pub fn close_half(&self, record: Record, queue: Queue) {
        lock(&self.parked).push(queue);
        let _ = self.side.tell(record);
    }

    /// Ends the side channel (a TCP connection), because a queue pair is broken. The thread that
    /// reads the side channel then ends the link.
    pub fn broken(&self, reason: &std::io::Error) {
        let text = || format!("the RDMA connection broke: {reason}");
        lock(&self.state).reason.get_or_insert_with(text);
        let _ = self.side.stream.shutdown(Shutdown::Both);
    }

    pub fn violated(&self, what: &'static str) {
        self.finish(End::Protocol { what });
        let _ = self.side.stream.shutdown(Shutdown::Both);
    }

    fn finish(&self, end: End) {
        lock(&self.state).end.get_or_insert(end);
        self.flags.fetch_or(ENDED, Ordering::AcqRel);
        self.pairs.iter().for_each(|pair| pair.revoke());
        self.memory.revoke();
        self.ended.notify_all();
        self.wake();
    }

    fn watch(&self, mut received: Counter) {
        let end = loop {
            let (stream, keys) = (&self.side.stream, &self.side.keys);
            match sealed::receive(&mut &*stream, keys, &mut received, Record::parse) {
                Ok(Record::SendsNoMore(count)) => self.sent_by_peer.store(count, Ordering::Release),
                Ok(Record::ReceivesNoMore) => {
                    self.flags.fetch_or(PEER_RECEIVES_NO_MORE, Ordering::AcqRel);
                }
                Ok(_) => break wrong("a record out of order"),
                Err(e) if e.kind() == ErrorKind::InvalidData => break wrong("an unknown record"),
                Err(e) => break self.after_the_last(&e),
            }
            self.wake();
        };
        self.finish(end);
        let _ = self.side.stream.shutdown(Shutdown::Both);
    }

    fn after_the_last(&self, error: &std::io::Error) -> End {
        let receives = self.flags.load(Ordering::Acquire) & PEER_RECEIVES_NO_MORE == 0;
        if !receives && self.sent_by_peer().is_some() {
            return End::Closed;
        }
        let reason = lock(&self.state).reason.clone();
        End::Gone {
            reason: reason
                .unwrap_or_else(|| format!("the TCP connection for control ended: {error}")),
        }
    }
}

fn wrong(what: &'static str) -> End {
    End::Protocol { what }
}

pub struct Session {
    pub shared: Arc<Shared>,
    watching: Option<JoinHandle<()>>,
    _keeper: Option<Keeper>,
}

impl Session {
    pub fn start(
        parts: Parts,
        received: Counter,
        keeper: Option<Keeper>,
    ) -> std::io::Result<Session> {
        let shared = Arc::new(Shared::new(parts)?);
        let watched = Arc::clone(&shared);
        let watching = Some(helper::start("link-watch", move || {
            watched.watch(received)
        })?);
        Ok(Session {
            shared,
            watching,
            _keeper: keeper,
        })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let shared = &*self.shared;
        let _ = shared.side.stream.shutdown(Shutdown::Write);
        let state = lock(&shared.state);
        let waited = shared
            .ended
            .wait_timeout_while(state, FAREWELL, |state| state.end.is_none());
        drop(waited);
        let _ = shared.side.stream.shutdown(Shutdown::Both);
        shared.finish(End::Closed);
        if let Some(thread) = self.watching.take() {
            let _ = thread.join();
        }
    }
}
