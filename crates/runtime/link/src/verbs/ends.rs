//! The two halves of an end. Each half has a separate queue pair that no other thread uses.
//! Messages leave by one pair and come by the other, so neither half waits for a lock.

use super::device::{Done, Kind, Queue, Request};
use super::memory::{InMemory, OutMemory};
use super::session::{Half, Session, Shared};
use super::tags;
use super::value::{fetch_newest, Heads, Publisher, Remote};
use crate::interface::{End, Incoming, Outgoing, SendError};
use crate::port::{Go, Seated, Turn};
use crate::verbs_wire::Record;
use onbeat_flow::clock::now_ns;
use std::sync::Arc;

/// The longest time for which a closing end waits while the peer's device acknowledges nothing, in
/// ns.
const LINGER_NS: u64 = 10_000_000_000;
const LOOK_NS: u64 = 50_000_000;

fn is_late(deadline_ns: Option<u64>) -> bool {
    deadline_ns.is_some_and(|d| now_ns() >= d)
}

struct Lane {
    half: Half,
    session: Arc<Session>,
    queue: Option<Queue>,
    is_broken: bool,
}

impl Lane {
    fn shared(&self) -> &Shared {
        &self.session.shared
    }

    fn next_done(&mut self) -> Option<Done> {
        let queue = self.queue.as_mut().filter(|_| !self.is_broken)?;
        match queue.next_done() {
            Ok(done) => done,
            Err(error) => {
                self.is_broken = true;
                self.session.shared.broken(&error);
                None
            }
        }
    }

    /// Posts a request. Returns `false` if the queue has no room. Any other failure breaks the
    /// link, and the call then returns `true`.
    ///
    /// # Safety
    /// The rules of [`Queue::post`] apply.
    unsafe fn post(&mut self, request: Request, kind: Kind) -> bool {
        let Some(queue) = self.queue.as_mut().filter(|_| !self.is_broken) else {
            return true;
        };
        if !queue.has_room() {
            return false;
        }
        // SAFETY: the caller promises it.
        if let Err(error) = unsafe { queue.post(request, kind) } {
            self.is_broken = true;
            self.session.shared.broken(&error);
        }
        true
    }

    fn post_receive(&mut self) {
        if let Some(Err(error)) = self.queue.as_mut().map(Queue::post_receive) {
            self.session.shared.broken(&error);
        }
    }

    /// Waits until the device or the side channel may have something new for this half. `found` is
    /// true if the caller found a completion after it had armed the queue: the call then returns at
    /// once.
    fn wait(&mut self, deadline_ns: Option<u64>, found: bool) {
        if found {
            return;
        }
        if self.shared().polling {
            // Soft-RoCE needs the processor too.
            std::thread::yield_now();
            return;
        }
        if let Some(queue) = &self.queue {
            queue.wait(self.shared().wake_of(self.half), deadline_ns);
        }
        self.shared().woken(self.half);
    }

    fn arm(&self) {
        let queue = self.queue.as_ref().filter(|_| !self.is_broken);
        if let (Some(queue), false) = (queue, self.shared().polling) {
            if let Err(error) = queue.arm() {
                self.shared().broken(&error);
            }
        }
    }
}

pub struct Egress {
    pub seat: Seated,
    pub chunk: usize,
}

pub struct VerbsOutgoing {
    lane: Lane,
    memory: OutMemory,
    values: Publisher,
    egress: Option<Egress>,
    next: u64,
    consumed: u64,
}

impl VerbsOutgoing {
    pub fn new(
        session: Arc<Session>,
        queue: Queue,
        memory: OutMemory,
        egress: Option<Egress>,
    ) -> VerbsOutgoing {
        let lane = Lane {
            half: Half::Out,
            session,
            queue: Some(queue),
            is_broken: false,
        };
        VerbsOutgoing {
            lane,
            memory,
            values: Publisher::default(),
            egress,
            next: 0,
            consumed: 0,
        }
    }

    fn take_up(&mut self) -> bool {
        let mut any = false;
        while let Some(done) = self.lane.next_done() {
            any = true;
            match done {
                Done::Sent(_) => {}
                Done::Told(told) => {
                    let most = self.next - self.consumed;
                    match tags::ahead(self.consumed, told, most) {
                        Some(more) => self.consumed += more,
                        None => self
                            .lane
                            .shared()
                            .violated("an impossible count of consumed messages"),
                    }
                    self.lane.post_receive();
                }
                Done::Written { .. } => self.lane.shared().violated("a message out of order"),
            }
        }
        if let (true, Some(egress), Some(queue)) = (any, &self.egress, &self.lane.queue) {
            egress.seat.acknowledged(queue.acknowledged());
        }
        any
    }

    fn wait(&mut self, deadline_ns: Option<u64>) {
        self.lane.arm();
        let found = self.take_up();
        self.lane.wait(deadline_ns, found);
    }

    fn write(&mut self, number: u64, place: usize, bytes: usize) {
        let ring = self.lane.shared().peer.ring;
        let transfer = self.memory.to_peer(place, (0, bytes), ring);
        let request = Request::WriteWithTag(transfer, tags::of_message(number, 1));
        // SAFETY: the slot is not written again before its message was consumed, so it was
        // acknowledged. The memory stays until the session has ended.
        unsafe { self.lane.post(request, Kind::Message) };
    }

    /// Posts a message in chunks, each when the port allows it. Returns only once the peer's device
    /// has the whole message, because only this thread reads the acknowledgements.
    fn write_in_chunks(&mut self, number: u64, place: usize, bytes: usize) -> Result<(), End> {
        let since_ns = now_ns();
        let chunk = self.egress.as_ref().map_or(bytes, |e| e.chunk).max(1);
        let chunks = bytes.div_ceil(chunk).max(1);
        let ring = self.lane.shared().peer.ring;
        if let Some(egress) = &self.egress {
            // From now on the port lets nothing less urgent go.
            egress.seat.publish(Some((chunk.min(bytes), since_ns)));
        }
        for at in 0..chunks {
            let offset = at * chunk;
            let part = chunk.min(bytes - offset);
            let turn = self.admit(part, since_ns)?;
            let transfer = self.memory.to_peer(place, (offset, part), ring);
            let is_last = at + 1 == chunks;
            let request = match is_last {
                true => Request::WriteWithTag(transfer, tags::of_message(number, chunks)),
                false => Request::Write(transfer),
            };
            // SAFETY: the slot is not written again before its message was consumed, so it was
            // acknowledged. The memory stays until the session has ended.
            unsafe { self.lane.post(request, Kind::Message) };
            if let Some(egress) = &self.egress {
                egress.seat.posted_one();
                egress.seat.wrote(part, offset, is_last, &turn);
            }
        }
        self.leave_port();
        while self.lane.queue.as_ref().is_some_and(|q| !q.is_idle()) {
            self.goes_on()?;
            self.wait(None);
        }
        Ok(())
    }

    fn leave_port(&self) {
        if let Some(egress) = &self.egress {
            egress.seat.publish(None);
            egress.seat.pass_on();
        }
    }

    fn goes_on(&self) -> Result<(), End> {
        self.lane.shared().over(Half::Out).map_or(Ok(()), Err)
    }

    /// Waits until the port allows a chunk of `bytes` bytes. Meanwhile handles acknowledgements of
    /// earlier chunks, because other links may wait for the part of the window that these chunks
    /// occupy.
    fn admit(&mut self, bytes: usize, since_ns: u64) -> Result<Turn, End> {
        let mut turn = Turn::default();
        loop {
            self.take_up();
            if let Err(end) = self.goes_on() {
                self.leave_port();
                return Err(end);
            }
            let queue = self.lane.queue.as_ref().filter(|_| !self.lane.is_broken);
            let (has_room, is_idle) = queue.map_or((true, true), |q| (q.has_room(), q.is_idle()));
            let Some(Egress { seat, .. }) = self.egress.as_ref() else {
                return Ok(turn);
            };
            if !has_room {
                self.wait(None);
                continue;
            }
            let bell = seat.bell();
            match seat.ask(bytes, since_ns, &mut turn) {
                Go::Now => return Ok(turn),
                Go::Later(until_ns) if is_idle => {
                    seat.sleep(bell, until_ns.min(now_ns() + LOOK_NS))
                }
                Go::Later(until_ns) | Go::Full(until_ns) => self.wait(Some(until_ns)),
            }
        }
    }

    fn has_credit(&self) -> bool {
        let credits = self.lane.shared().sizes.credits as u64;
        let has_room = self.lane.queue.as_ref().is_some_and(Queue::has_room);
        self.next - self.consumed < credits && has_room
    }
}

fn fits(asked: usize, most: usize) -> Result<(), SendError> {
    let error = SendError::TooLarge { asked, most };
    (asked <= most).then_some(()).ok_or(error)
}

impl Outgoing for VerbsOutgoing {
    fn send(
        &mut self,
        bytes: usize,
        deadline_ns: Option<u64>,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<u64, SendError> {
        fits(bytes, self.lane.shared().sizes.message_bytes)?;
        let credits = self.lane.shared().sizes.credits;
        loop {
            let over = self.lane.shared().over(Half::Out);
            self.take_up();
            if let Some(end) = over {
                return Err(end.into());
            }
            if self.has_credit() {
                break;
            }
            if is_late(deadline_ns) {
                return Err(SendError::NoCredit { credits });
            }
            self.wait(deadline_ns);
        }
        let number = self.next;
        let place = (number % credits as u64) as usize;
        fill(self.memory.message(place, bytes));
        // Must precede the last write: the peer's count of this message may come with its
        // acknowledgement.
        self.next += 1;
        match self.egress {
            None => self.write(number, place, bytes),
            Some(_) => self.write_in_chunks(number, place, bytes)?,
        }
        Ok(number)
    }

    fn publish(&mut self, bytes: usize, fill: &mut dyn FnMut(&mut [u8])) -> Result<(), SendError> {
        fits(bytes, self.lane.shared().sizes.value_bytes)?;
        if let Some(end) = self.lane.shared().over(Half::Out) {
            return Err(end.into());
        }
        let (heads, pinned) = self.memory.heads();
        let slot = self.values.begin(heads, pinned);
        fill(self.memory.value(slot, bytes));
        self.values.finish(self.memory.heads().0, slot, bytes);
        Ok(())
    }
}

impl Drop for VerbsOutgoing {
    fn drop(&mut self) {
        let acknowledged = |queue: &Queue| (queue.is_idle(), queue.acknowledged());
        let mut last = None;
        let mut deadline = 0;
        while self.lane.shared().over(Half::Out).is_none() && !self.lane.is_broken {
            self.take_up();
            let now = self.lane.queue.as_ref().map(acknowledged);
            if now.is_none_or(|(is_idle, _)| is_idle) {
                break;
            }
            if now != last {
                (last, deadline) = (now, now_ns() + LINGER_NS);
            } else if now_ns() >= deadline {
                break;
            }
            self.wait(Some(deadline));
        }
        if let Some(queue) = self.lane.queue.take() {
            let record = Record::SendsNoMore(self.next);
            self.lane.session.shared.close_half(record, queue);
            let is_over = self.lane.shared().over(Half::Out).is_some();
            if let Some(egress) = self.egress.as_ref().filter(|_| is_over) {
                // Nothing more leaves by this queue pair.
                egress.seat.acknowledged(u64::MAX);
            }
        }
    }
}

pub struct VerbsIncoming {
    lane: Lane,
    memory: InMemory,
    received: u64,
    consumed: u64,
    lengths: Box<[usize]>,
    /// The copy of the message that the application reads. The peer cannot change the copy.
    copy: Box<[u8]>,
    chunk: Option<usize>,
    /// The number of posted reads and writes of the peer's memory, and the number of finished ones.
    accesses: (u64, u64),
}

impl VerbsIncoming {
    pub fn new(
        session: Arc<Session>,
        queue: Queue,
        memory: InMemory,
        chunk: Option<usize>,
    ) -> VerbsIncoming {
        let sizes = session.shared.sizes;
        let lane = Lane {
            half: Half::In,
            session,
            queue: Some(queue),
            is_broken: false,
        };
        VerbsIncoming {
            lane,
            memory,
            received: 0,
            consumed: 0,
            lengths: vec![0; sizes.credits].into_boxed_slice(),
            copy: vec![0; sizes.message_bytes].into_boxed_slice(),
            chunk,
            accesses: (0, 0),
        }
    }

    fn place(&self, number: u64) -> usize {
        (number % self.lengths.len() as u64) as usize
    }

    fn arrived(&mut self, told: u32, last: usize) {
        let shared = self.lane.shared();
        let Some((told, bytes)) = tags::message(told, last, self.chunk) else {
            return shared.violated("a message in chunks");
        };
        if tags::ahead(self.received, told, 0).is_none() {
            return shared.violated("a message out of order");
        }
        if self.received - self.consumed >= shared.sizes.credits as u64 {
            return shared.violated("more messages than the peer has credits for");
        }
        if bytes > shared.sizes.message_bytes {
            return shared.violated("a message that is larger than agreed");
        }
        self.lengths[self.place(self.received)] = bytes;
        self.received += 1;
        self.lane.post_receive();
    }

    fn take_up(&mut self) -> bool {
        let mut any = false;
        while let Some(done) = self.lane.next_done() {
            any = true;
            match done {
                Done::Sent(Kind::Message) => {}
                Done::Sent(Kind::Value) => self.accesses.1 += 1,
                Done::Written { tag, bytes } => self.arrived(tag, bytes),
                Done::Told(_) => {
                    let what = "a count of consumed messages where a message was expected";
                    self.lane.shared().violated(what)
                }
            }
        }
        any
    }

    fn wait(&mut self, deadline_ns: Option<u64>) {
        self.lane.arm();
        let found = self.take_up();
        self.lane.wait(deadline_ns, found);
    }

    /// Posts a request, once the queue has room.
    ///
    /// # Safety
    /// The rules of [`Queue::post`] apply.
    unsafe fn post(&mut self, request: Request, kind: Kind) {
        // SAFETY: the caller promises it.
        while !unsafe { self.lane.post(request, kind) } {
            if self.lane.shared().over(Half::In).is_some() {
                return;
            }
            self.wait(None);
        }
    }

    fn consumed_one(&mut self) {
        self.consumed += 1;
        // SAFETY: a tag has no memory.
        unsafe { self.post(Request::Tag(tags::of_count(self.consumed)), Kind::Message) };
    }
}

impl Incoming for VerbsIncoming {
    fn receive(
        &mut self,
        deadline_ns: Option<u64>,
        take: &mut dyn FnMut(u64, &[u8]),
    ) -> Result<bool, End> {
        loop {
            let over = self.lane.shared().over(Half::In);
            let sent = self.lane.shared().sent_by_peer();
            self.take_up();
            if self.consumed < self.received {
                break;
            }
            if sent.is_some_and(|count| self.received >= count) {
                return Err(End::Closed);
            }
            if let Some(end) = over {
                return Err(end);
            }
            if is_late(deadline_ns) {
                return Ok(false);
            }
            self.wait(deadline_ns);
        }
        let number = self.consumed;
        let place = self.place(number);
        let message = &mut self.copy[..self.lengths[place]];
        self.memory.copy_message(place, message);
        take(number, message);
        self.consumed_one();
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
        let most = self.lane.shared().sizes.value_bytes;
        if most == 0 {
            return Ok(false);
        }
        let mut peer = Peer {
            half: self,
            deadline_ns,
        };
        match fetch_newest(&mut peer, most) {
            Ok(Some((version, bytes))) => {
                take(version.checked_sub(1), self.memory.value(bytes));
                Ok(true)
            }
            Ok(None) | Err(Unread::Late) => Ok(false),
            Err(Unread::Over(end)) => Err(end),
        }
    }
}

impl Drop for VerbsIncoming {
    fn drop(&mut self) {
        if let Some(queue) = self.lane.queue.take() {
            let shared = &self.lane.session.shared;
            shared.close_half(Record::ReceivesNoMore, queue);
        }
    }
}

enum Unread {
    Late,
    Over(End),
}

struct Peer<'h> {
    half: &'h mut VerbsIncoming,
    deadline_ns: Option<u64>,
}

impl Peer<'_> {
    fn access(&mut self, request: Request) -> Result<(), Unread> {
        // An earlier access may be unfinished after its deadline.
        self.until_done()?;
        // SAFETY: the receiving half owns the memory, which stays until the session has ended. It
        // is only read when no access is under way.
        unsafe { self.half.post(request, Kind::Value) };
        self.half.accesses.0 += 1;
        self.until_done()
    }

    fn until_done(&mut self) -> Result<(), Unread> {
        loop {
            let shared = self.half.lane.shared();
            let (over, closed) = (shared.over(Half::In), shared.sent_by_peer().is_some());
            self.half.take_up();
            if closed {
                return Err(Unread::Over(End::Closed));
            }
            if self.half.accesses.1 >= self.half.accesses.0 {
                return Ok(());
            }
            if let Some(end) = over {
                return Err(Unread::Over(end));
            }
            if is_late(self.deadline_ns) {
                return Err(Unread::Late);
            }
            self.half.wait(self.deadline_ns);
        }
    }
}

impl Remote for Peer<'_> {
    type Error = Unread;

    fn heads(&mut self) -> Result<Heads, Unread> {
        let window = self.half.lane.shared().peer.heads;
        self.access(Request::Read(self.half.memory.heads_here(window)))?;
        Ok(Heads::of(self.half.memory.peer_heads()))
    }

    fn fetch(&mut self, slot: usize, bytes: usize) -> Result<(), Unread> {
        if bytes == 0 {
            return Ok(());
        }
        let window = self.half.lane.shared().peer.values;
        self.access(Request::Read(
            self.half.memory.value_here(slot, bytes, window),
        ))
    }

    fn pin(&mut self, slot: Option<usize>) -> Result<(), Unread> {
        let window = self.half.lane.shared().peer.reading;
        let pin = slot.map_or(0, |s| s as u64 + 1);
        self.access(Request::Write(self.half.memory.pin_to_peer(pin, window)))
    }

    fn impossible(&self) -> Unread {
        let what = "a value whose header has an impossible slot or length";
        self.half.lane.shared().violated(what);
        Unread::Over(End::Protocol { what })
    }
}
