//! The two halves of an end, and the threads that serve them.

use super::state::{Posted, Shared, State, Value};
use super::supervise::{self, Route, Terms};
use super::threads;
use crate::helper;
use crate::interface::{End, Incoming, Outgoing, SendError};
use crate::pi::Guard;
use crate::quiet::Waking;
use crate::steps::Step;
use onbeat_flow::clock::now_ns;
use std::io::PipeReader;
use std::net::Shutdown;
use std::sync::Arc;
use std::thread::JoinHandle;

/// The longest time, in ns, for which a closing end waits for a peer that receives nothing.
const LINGER_NS: u64 = 10_000_000_000;
/// The longest time, in ns, for which a closing end waits until the peer sees the end of the
/// connection.
const FAREWELL_NS: u64 = 1_000_000_000;

/// The threads of an end: a reader, a writer, and one that keeps it connected. They stop when both
/// halves are dropped.
pub struct Threads {
    shared: Arc<Shared>,
    wake: Waking,
    running: Vec<JoinHandle<()>>,
}

impl Threads {
    pub fn start(
        shared: Arc<Shared>,
        route: Route,
        terms: Terms,
        (mut wake, waking): (PipeReader, Waking),
    ) -> std::io::Result<Arc<Threads>> {
        let mut threads = Threads {
            shared,
            wake: waking.try_clone()?,
            running: Vec::new(),
        };
        threads.spawn("link-write", threads::write)?;
        threads.spawn("link-read", move |shared| {
            threads::read(shared, || waking.ring())
        })?;
        threads.spawn("link-connect", move |shared| match route {
            Route::Connect(address) => supervise::keep_connecting(shared, address, &terms),
            Route::Listen(listener) => {
                supervise::keep_listening(shared, &listener, &mut wake, &terms)
            }
        })?;
        Ok(Arc::new(threads))
    }

    fn spawn(
        &mut self,
        name: &str,
        run: impl FnOnce(&Shared) + Send + 'static,
    ) -> std::io::Result<()> {
        let shared = Arc::clone(&self.shared);
        self.running
            .push(helper::start(name, move || run(&shared))?);
        Ok(())
    }

    /// Waits until `done` returns true. Gives up once no chunk has left and the peer has received
    /// nothing for `limit_ns`.
    fn linger(&self, limit_ns: u64, done: impl Fn(&State) -> bool) {
        let shared = &*self.shared;
        let moved = |state: &State| (shared.chunks_written(), state.sender.progress());
        let mut state = shared.lock();
        let mut last = moved(&state);
        let mut deadline = now_ns() + limit_ns;
        while !done(&state) {
            let waited = shared.wait(&shared.application_bell, state, Some(deadline));
            let is_late = waited.is_none();
            state = waited.unwrap_or_else(|| shared.lock());
            let now = moved(&state);
            if now != last {
                (last, deadline) = (now, now_ns() + limit_ns);
            } else if is_late {
                return;
            }
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.linger(LINGER_NS, State::peer_has_all);
        let mut state = self.shared.lock();
        // Set before the connection ends, so that the threads do not connect again.
        state.stopping = true;
        if let Some(connection) = &state.link.connection {
            let _ = connection.stream.shutdown(Shutdown::Write);
        }
        drop(state);
        self.linger(FAREWELL_NS, |state| state.link.connection.is_none());
        let mut state = self.shared.lock();
        state.leave();
        drop(state);
        self.shared.notify_all();
        self.wake.ring();
        for thread in self.running.drain(..) {
            let _ = thread.join();
        }
    }
}

pub struct TcpOutgoing {
    pub shared: Arc<Shared>,
    pub _threads: Arc<Threads>,
}

pub struct TcpIncoming {
    pub shared: Arc<Shared>,
    pub _threads: Arc<Threads>,
}

fn fits(asked: usize, most: usize) -> Result<(), SendError> {
    let error = SendError::TooLarge { asked, most };
    (asked <= most).then_some(()).ok_or(error)
}

fn not_ended(state: Guard<'_, State>) -> Result<Guard<'_, State>, End> {
    match &state.end {
        Some(end) => Err(end.clone()),
        None if state.peer.receives_no_more => Err(End::Closed),
        None => Ok(state),
    }
}

impl Outgoing for TcpOutgoing {
    fn send(
        &mut self,
        bytes: usize,
        deadline_ns: Option<u64>,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<u64, SendError> {
        let shared = &*self.shared;
        fits(bytes, shared.sizes.message_bytes)?;
        let mut state = not_ended(shared.lock())?;
        let mut waits_since = None;
        let number = loop {
            if let Some(number) = state.sender.may_post() {
                break number;
            }
            waits_since.get_or_insert_with(now_ns);
            let credits = shared.sizes.credits;
            let waited = shared.wait(&shared.application_bell, state, deadline_ns);
            state = not_ended(waited.ok_or(SendError::NoCredit { credits })?)?;
        };
        drop(state);
        if let (Some(since), Some(seat)) = (waits_since, &shared.seat) {
            seat.waited_for_credit(now_ns().saturating_sub(since));
        }
        let place = shared.slot_of(number);
        fill(&mut shared.slots.out[place].lock()[..bytes]);
        let complete_ns = now_ns();
        let mut state = not_ended(shared.lock())?;
        state.messages.out[place] = Posted {
            number,
            bytes,
            since_ns: now_ns(),
        };
        state.sender.post();
        // An earlier message goes first, and the port already has it.
        if state.sender.to_transmit() == Some(number) {
            shared.report_next_to_port(&state);
        }
        shared.show_in_flight(&state);
        drop(state);
        shared.wake_writer();
        shared.done(Step::Push, complete_ns);
        Ok(number)
    }

    fn publish(&mut self, bytes: usize, fill: &mut dyn FnMut(&mut [u8])) -> Result<(), SendError> {
        let shared = &*self.shared;
        fits(bytes, shared.sizes.value_bytes)?;
        let state = not_ended(shared.lock())?;
        let values = &state.values;
        let (published, sending) = (values.published, values.sending_slot);
        drop(state);
        // The writer takes only the published value, so one of the three slots stays free.
        let is_free =
            |slot: &usize| published.is_none_or(|v| v.slot != *slot) && sending != Some(*slot);
        let slot = (0..shared.slots.values.len()).find(is_free).unwrap_or(0);
        fill(&mut shared.slots.values[slot].lock()[..bytes]);
        let version = published.map_or(1, |v| v.version + 1);
        shared.lock().values.published = Some(Value {
            slot,
            bytes,
            version,
        });
        Ok(())
    }
}

impl Drop for TcpOutgoing {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.sends_no_more = true;
        state.status_due = true;
        drop(state);
        self.shared.wake_writer();
    }
}

impl Incoming for TcpIncoming {
    fn receive(
        &mut self,
        deadline_ns: Option<u64>,
        take: &mut dyn FnMut(u64, &[u8]),
    ) -> Result<bool, End> {
        let shared = &*self.shared;
        let called_ns = now_ns();
        let mut state = shared.lock();
        let number = loop {
            if let Some(number) = state.receiver.to_consume() {
                break number;
            }
            if state.nothing_more_comes() {
                return Err(End::Closed);
            }
            if let Some(end) = &state.end {
                return Err(end.clone());
            }
            match shared.wait(&shared.application_bell, state, deadline_ns) {
                Some(next) => state = next,
                None => return Ok(false),
            }
        };
        let place = shared.slot_of(number);
        let bytes = state.messages.incoming_bytes[place];
        let due_ns = state.messages.complete_ns[place].max(called_ns);
        drop(state);
        shared.done(Step::Take, due_ns);
        take(number, &shared.slots.incoming[place].lock()[..bytes]);
        let mut state = shared.lock();
        state.receiver.consume();
        state.status_due = true;
        drop(state);
        shared.wake_writer();
        Ok(true)
    }

    fn read(&mut self, deadline_ns: Option<u64>, take: &mut dyn FnMut(&[u8])) -> Result<bool, End> {
        self.read_numbered(deadline_ns, &mut |_, value| take(value))
    }

    fn read_numbered(
        &mut self,
        deadline_ns: Option<u64>,
        take: &mut dyn FnMut(Option<u64>, &[u8]),
    ) -> Result<bool, End> {
        let shared = &*self.shared;
        let mut state = shared.lock();
        state.questions.wanted += 1;
        let number = state.questions.wanted;
        shared.wake_writer();
        while state.questions.answered < number {
            if state.peer.sends_no_more.is_some() {
                return Err(End::Closed);
            }
            if let Some(end) = &state.end {
                return Err(end.clone());
            }
            match shared.wait(&shared.application_bell, state, deadline_ns) {
                Some(next) => state = next,
                None => return Ok(false),
            }
        }
        let answer = state.questions.answer;
        drop(state);
        let Some((version, bytes)) = answer else {
            return Ok(false);
        };
        let before = version.checked_sub(1);
        take(before, &shared.slots.value_read.lock()[..bytes]);
        Ok(true)
    }
}

impl Drop for TcpIncoming {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.receives_no_more = true;
        while state.receiver.to_consume().is_some() {
            state.receiver.consume();
        }
        state.status_due = true;
        drop(state);
        self.shared.wake_writer();
    }
}
