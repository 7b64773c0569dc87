//! The state that the threads of an end share: the progress of both directions, and the connection.

use super::frame::{Chunk, Limits, Status};
use super::slots::Slots;
use crate::interface::{End, Sizes};
use crate::pi::{Bell, Guard, Lock};
use crate::port::{acknowledge_now, Seated};
use crate::resume::{Receiver, Sender, Violation};
use crate::status::{self, Page, Word};
use crate::steps::{Step, StepWords};
use onbeat_flow::clock::now_ns;
use snow::StatelessTransportState;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

pub struct Connection {
    pub stream: TcpStream,
    pub keys: Option<StatelessTransportState>,
    pub generation: u64,
}

pub struct Link {
    pub connection: Option<Arc<Connection>>,
    generation: u64,
    resumed: bool,
    /// The peer has reported its counts at least once, so the peer knows this session too.
    pub is_heard: bool,
    pub broken_since_ns: u64,
    pub reason: String,
}

#[derive(Debug, Clone, Copy)]
pub struct Value {
    pub slot: usize,
    pub bytes: usize,
    pub version: u64,
}

#[derive(Default)]
pub struct Values {
    pub published: Option<Value>,
    pub sending_slot: Option<usize>,
    pub asked: bool,
}

#[derive(Default)]
pub struct Questions {
    pub wanted: u64,
    pub asked: u64,
    pub answered: u64,
    /// The version and length of the value in the peer's latest answer. `None` if the peer had
    /// published no value.
    pub answer: Option<(u64, usize)>,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Posted {
    pub number: u64,
    pub bytes: usize,
    pub since_ns: u64,
}

pub struct Messages {
    pub out: Vec<Posted>,
    pub incoming_bytes: Vec<usize>,
    /// For each slot, the time at which its received message was complete, ns of CLOCK_MONOTONIC.
    pub complete_ns: Vec<u64>,
}

pub struct State {
    pub sender: Sender,
    pub receiver: Receiver,
    pub messages: Messages,
    pub values: Values,
    pub questions: Questions,
    pub sends_no_more: bool,
    pub receives_no_more: bool,
    pub peer: Status,
    pub status_due: bool,
    pub status_under_way: bool,
    pub link: Link,
    pub end: Option<End>,
    pub stopping: bool,
}

/// An end's memory and state, and the bells that wake its threads. A thread that holds a slot's
/// lock may take the state's lock too. No other thread holds two locks.
pub struct Shared {
    pub sizes: Sizes,
    pub chunk: usize,
    pub slots: Slots,
    pub seat: Option<Seated>,
    state: Lock<State>,
    pub application_bell: Bell,
    pub writer_bell: Bell,
    pub connection_bell: Bell,
    /// The number of message chunks that have left. A closing end uses the number to see progress
    /// while a long message leaves.
    chunks: AtomicU64,
    page: Option<Arc<Page>>,
    /// The time since which the writer has been free to post a message, ns of CLOCK_MONOTONIC.
    writer_free_ns: AtomicU64,
    /// The time at which the kernel received the bytes that the reader read last, ns of
    /// CLOCK_MONOTONIC.
    pub arrived_ns: AtomicU64,
}

impl Shared {
    pub fn new(sizes: Sizes, chunk: usize, slots: Slots, seat: Option<Seated>) -> Shared {
        let credits = sizes.credits as u64;
        let link = Link {
            connection: None,
            generation: 0,
            resumed: false,
            is_heard: false,
            broken_since_ns: now_ns(),
            reason: "the peer has not connected yet".into(),
        };
        let state = State {
            sender: Sender::new(credits),
            receiver: Receiver::new(credits),
            messages: Messages {
                out: vec![Posted::default(); sizes.credits],
                incoming_bytes: vec![0; sizes.credits],
                complete_ns: vec![0; sizes.credits],
            },
            values: Values::default(),
            questions: Questions::default(),
            sends_no_more: false,
            receives_no_more: false,
            peer: Status::default(),
            status_due: false,
            status_under_way: false,
            link,
            end: None,
            stopping: false,
        };
        Shared {
            sizes,
            chunk,
            slots,
            seat,
            state: Lock::new(state),
            application_bell: Bell::new(),
            writer_bell: Bell::new(),
            connection_bell: Bell::new(),
            chunks: AtomicU64::new(0),
            page: None,
            writer_free_ns: AtomicU64::new(0),
            arrived_ns: AtomicU64::new(u64::MAX),
        }
    }

    pub fn with_page(self, page: Option<Arc<Page>>) -> Shared {
        Shared { page, ..self }
    }

    fn show(&self, state: status::State) {
        if let Some(page) = &self.page {
            page.set_state(state);
        }
    }

    pub fn show_in_flight(&self, state: &State) {
        if let Some(page) = &self.page {
            let consumed = state.sender.progress().consumed;
            let in_flight = state.sender.posted().saturating_sub(consumed);
            page.set(Word::InFlight, in_flight.saturating_add(1));
        }
    }

    pub fn show_port(&self) {
        if let (Some(page), Some(seat)) = (&self.page, &self.seat) {
            let (given, measured) = seat.rates();
            page.set(Word::PortMeasured, measured.unwrap_or(0));
            page.set(Word::PortChunk, self.chunk_now() as u64);
            page.set(Word::PortGiven, given);
        }
    }

    /// Counts a step that was due at `due_ns` and is done now. Returns the present time.
    pub fn done(&self, step: Step, due_ns: u64) -> u64 {
        let now = now_ns();
        if let Some(page) = &self.page {
            page.step(step, due_ns, now);
        }
        now
    }

    pub fn writer_is_free(&self, since_ns: u64) {
        self.writer_free_ns.store(since_ns, Ordering::Relaxed);
    }

    pub fn writer_free_since_ns(&self) -> u64 {
        self.writer_free_ns.load(Ordering::Relaxed)
    }

    pub fn chunk_now(&self) -> usize {
        let seat = self.seat.as_ref();
        seat.map_or(self.chunk, |seat| seat.chunk().clamp(1, self.chunk.max(1)))
    }

    pub fn limits(&self) -> Limits {
        Limits {
            chunk: self.chunk,
            message: self.sizes.message_bytes,
            value: self.sizes.value_bytes,
        }
    }

    pub fn slot_of(&self, number: u64) -> usize {
        (number % self.sizes.credits as u64) as usize
    }

    pub fn lock(&self) -> Guard<'_, State> {
        self.state.lock()
    }

    /// Waits until the bell `at` rings, or until `deadline_ns`. Releases the lock of `guard`
    /// meanwhile. Returns `None` once the deadline has passed.
    pub fn wait<'a>(
        &self,
        at: &Bell,
        guard: Guard<'a, State>,
        deadline_ns: Option<u64>,
    ) -> Option<Guard<'a, State>> {
        at.wait(guard, deadline_ns)
    }

    pub fn chunk_written(&self) {
        self.chunks.fetch_add(1, Ordering::Relaxed);
    }

    pub fn chunks_written(&self) -> u64 {
        self.chunks.load(Ordering::Relaxed)
    }

    /// Publishes at the port which message is next, or that there is none. The caller still holds
    /// the lock under which it changed the messages, so that a new message gets its place in the
    /// port's order at once.
    pub fn report_next_to_port(&self, state: &State) {
        if let Some(seat) = &self.seat {
            let next = state.next_message();
            seat.publish(next.map(|m| (m.bytes.min(self.chunk_now()), m.since_ns)));
        }
    }

    pub fn pass_port_on(&self) {
        if let Some(seat) = &self.seat {
            seat.pass_on();
        }
    }

    pub fn wake_writer(&self) {
        self.writer_bell.ring();
        if let Some(seat) = &self.seat {
            seat.ring();
        }
    }

    /// Makes the kernel acknowledge the part of a message that has arrived, because the peer's
    /// window may wait for this. The last chunk needs no such call, because a status follows.
    pub fn acknowledge_now(&self, generation: u64) {
        let connection = self.lock().link.connection.clone();
        if let Some(connection) = connection.filter(|c| c.generation == generation) {
            acknowledge_now(&connection.stream);
        }
    }

    pub fn notify_all(&self) {
        self.application_bell.ring();
        self.wake_writer();
        self.connection_bell.ring();
    }

    /// Installs a new connection of this session. Leaves the old one first, so that no message can
    /// arrive over the old connection after this end has reported its counts.
    pub fn install(&self, stream: TcpStream, keys: Option<StatelessTransportState>) {
        let mut state = self.lock();
        state.leave();
        state.link.resumed = false;
        let generation = state.link.generation;
        state.link.connection = Some(Arc::new(Connection {
            stream,
            keys,
            generation,
        }));
        state.status_due = true;
        state.status_under_way = false;
        state.values.asked = false;
        state.values.sending_slot = None;
        state.questions.asked = state.questions.answered;
        drop(state);
        self.show(status::State::Connected);
        self.notify_all();
    }

    pub fn on_broken(&self, generation: u64, reason: String) {
        let mut state = self.lock();
        if !state.is_present(generation) {
            return;
        }
        state.leave();
        state.link.reason = reason;
        state.link.broken_since_ns = now_ns();
        if state.peer_is_through() {
            state.end.get_or_insert(End::Closed);
        }
        drop(state);
        self.show(status::State::Broken);
        self.notify_all();
    }

    pub fn ended(&self, end: End) {
        let mut state = self.lock();
        state.leave();
        state.end.get_or_insert(end);
        drop(state);
        self.show(status::State::Ended);
        self.notify_all();
    }
}

pub enum Work {
    Status(Status),
    Ask,
    Value(Option<Value>),
    Message(Posted),
}

impl State {
    pub fn is_present(&self, generation: u64) -> bool {
        self.link.generation == generation
    }

    /// Leaves the present connection, if there is one. The end ignores data that this connection
    /// delivers later.
    pub fn leave(&mut self) {
        self.link.generation += 1;
        if let Some(old) = self.link.connection.take() {
            let _ = old.stream.shutdown(Shutdown::Both);
        }
    }

    fn peer_is_through(&self) -> bool {
        let has_all =
            self.nothing_more_comes() || self.receives_no_more && self.peer.sends_no_more.is_some();
        self.peer.receives_no_more && has_all
    }

    pub fn nothing_more_comes(&self) -> bool {
        self.peer.sends_no_more == Some(self.receiver.progress().received)
    }

    /// Returns `true` if the link has ended, or if nothing is left to send: this end has sent its
    /// latest counts, and the peer has all messages that it still accepts.
    pub fn peer_has_all(&self) -> bool {
        let all = self.sender.progress().received == self.sender.posted();
        self.end.is_some()
            || (!self.status_due && !self.status_under_way && (all || self.peer.receives_no_more))
    }

    fn status(&self) -> Status {
        Status {
            progress: self.receiver.progress(),
            sends_no_more: self.sends_no_more.then_some(self.sender.posted()),
            receives_no_more: self.receives_no_more,
        }
    }

    /// Returns the most urgent thing to write. Counts of received and consumed messages come first,
    /// because they give the peer its credits back.
    pub fn next_work(&mut self) -> Option<Work> {
        if std::mem::take(&mut self.status_due) {
            self.status_under_way = true;
            return Some(Work::Status(self.status()));
        }
        let questions = &mut self.questions;
        if questions.asked == questions.answered && questions.wanted > questions.asked {
            questions.asked = questions.wanted;
            return Some(Work::Ask);
        }
        if std::mem::take(&mut self.values.asked) {
            self.values.sending_slot = self.values.published.map(|v| v.slot);
            return Some(Work::Value(self.values.published));
        }
        self.next_message().map(Work::Message)
    }

    pub fn next_message(&self) -> Option<Posted> {
        let may_go = self.link.connection.is_some() && self.link.resumed;
        let number = self.sender.to_transmit().filter(|_| may_go)?;
        if self.peer.receives_no_more {
            return None;
        }
        let place = number % self.messages.out.len() as u64;
        Some(self.messages.out[place as usize])
    }

    pub fn on_status(&mut self, status: Status) -> Result<(), Violation> {
        let count = self.receiver.progress().received;
        let lasting = self
            .peer
            .sends_no_more
            .is_none_or(|n| Some(n) == status.sends_no_more);
        if !lasting || status.sends_no_more.is_some_and(|n| n < count) {
            return Err(Violation::Progress);
        }
        if self.link.resumed {
            self.sender.on_progress(status.progress)?;
        } else {
            self.sender.on_resumed(status.progress)?;
            (self.link.resumed, self.link.is_heard) = (true, true);
        }
        self.peer = status;
        Ok(())
    }

    pub fn on_message(&mut self, chunk: &Chunk) -> Result<(), Violation> {
        if self.peer.sends_no_more.is_some_and(|n| chunk.number >= n) {
            return Err(Violation::Turn);
        }
        self.receiver.on_message(chunk.number)?;
        let place = chunk.number % self.messages.incoming_bytes.len() as u64;
        self.messages.incoming_bytes[place as usize] = chunk.total;
        self.messages.complete_ns[place as usize] = now_ns();
        if self.receives_no_more {
            self.receiver.consume();
        }
        self.status_due = true;
        Ok(())
    }
}
