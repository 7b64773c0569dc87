//! The halves of a link with acknowledgement. A message is copied where it may have to be sent
//! again. It is copied once more where it arrives, since messages behind a lost one have to wait
//! for it.
//!
//! Real-time: no allocation. The locks inherit priority.

use super::counts::Count;
use super::head::{Head, Kind, HEAD_BYTES};
use super::path::{Arrived, Receives, Request, Sends};
use super::pump::{self, Rhythm};
use super::shared::{Hand, Kept, Shared, State, SLICE_NS};
use super::OnBreach;
use crate::helper;
use crate::interface::{Breach, End, SendError};
use onbeat_flow::clock::now_ns;
use onbeat_flow::events::EndEvents;
use std::sync::Arc;
use std::thread::JoinHandle;

/// The longest time for which a closing end waits while the peer receives nothing, in ns.
const LINGER_NS: u64 = 10_000_000_000;
const LOOK_NS: u64 = 100_000_000;

pub struct Thread {
    shared: Arc<Shared>,
    running: Option<JoinHandle<()>>,
}

impl Thread {
    pub fn start(shared: Arc<Shared>, rhythm: Rhythm) -> std::io::Result<Arc<Thread>> {
        let runs = Arc::clone(&shared);
        let running = Some(helper::start("link-qos", move || pump::run(&runs, rhythm))?);
        Ok(Arc::new(Thread { shared, running }))
    }
}

impl Drop for Thread {
    /// Waits until every message is acknowledged or given up, and until this end has sent its last
    /// status. Gives up after 10 s without progress.
    fn drop(&mut self) {
        let shared = &*self.shared;
        let mut state = shared.lock();
        let mut last = state.outbox.oldest();
        let mut deadline = now_ns() + LINGER_NS;
        while !state.is_settled() && now_ns() < deadline {
            let soon = Some(now_ns() + LOOK_NS);
            state = shared
                .bell
                .wait(state, soon)
                .unwrap_or_else(|| shared.lock());
            let now = state.outbox.oldest();
            if now != last {
                (last, deadline) = (now, now_ns() + LINGER_NS);
            }
        }
        state.ends.stopping = true;
        // The peer's answer wakes the thread.
        state.asks = true;
        drop(state);
        shared.bell.ring();
        shared.send_status();
        if let Some(running) = self.running.take() {
            let _ = running.join();
        }
    }
}

pub struct AssuredOutgoing {
    pub shared: Arc<Shared>,
    pub events: EndEvents,
    pub fails_unacknowledged: bool,
    pub fails_silent: bool,
    pub _thread: Arc<Thread>,
}

pub struct AssuredIncoming {
    pub shared: Arc<Shared>,
    pub on_corrupt: OnBreach,
    pub fails_silent: bool,
    pub _thread: Arc<Thread>,
}

impl AssuredOutgoing {
    fn check_not_over(&self, state: &State) -> Result<(), SendError> {
        if let Some(end) = state.end_of_sending() {
            return Err(end.into());
        }
        if self.fails_silent && self.shared.counters.is_silent() {
            return Err(Breach::Silent.into());
        }
        Ok(())
    }

    fn begin(&self, deadline_ns: Option<u64>) -> Result<(u64, u64), SendError> {
        let shared = &*self.shared;
        let mut state = shared.lock();
        loop {
            self.check_not_over(&state)?;
            if let Some(number) = state.news.unacknowledged.take() {
                if self.fails_unacknowledged {
                    return Err(Breach::Unacknowledged { number }.into());
                }
            }
            if let Some(number) = state.outbox.begin() {
                return Ok((number, state.outbox.oldest()));
            }
            let credits = shared.sizes.credits;
            let waited = shared.bell.wait(state, deadline_ns);
            state = waited.ok_or(SendError::NoCredit { credits })?;
        }
    }

    /// Writes the message into a slot of the backend as soon as one is free. Keeps a copy in case
    /// the message must be sent again.
    fn write(
        &self,
        mut head: Head,
        request: Request,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<Head, SendError> {
        let shared = &*self.shared;
        let (bytes, place) = (HEAD_BYTES + request.bytes, shared.place(head.number));
        loop {
            let slice = now_ns() + SLICE_NS;
            let until = request.deadline_ns.map_or(slice, |d| d.min(slice));
            let sent = shared.out.lock().send(bytes, Some(until), &mut |slot| {
                head = request.write(slot, head, fill);
                if let Some(kept) = shared.kept.get(place) {
                    kept.lock()[..request.bytes].copy_from_slice(&slot[HEAD_BYTES..]);
                }
                if head.kind == Kind::Message {
                    self.events.sent(head.number);
                }
            });
            let is_late = request.deadline_ns.is_some_and(|d| now_ns() >= d);
            match sent {
                Ok(_) => return Ok(head),
                Err(SendError::NoCredit { .. }) if !is_late => {}
                Err(SendError::NoCredit { .. }) => {
                    let credits = shared.sizes.credits;
                    return Err(SendError::NoCredit { credits });
                }
                Err(other) => return Err(other),
            }
            self.check_not_over(&shared.lock())?;
        }
    }
}

impl Sends for AssuredOutgoing {
    fn send(
        &mut self,
        request: Request,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<Head, SendError> {
        let shared = &*self.shared;
        let (number, oldest) = self.begin(request.deadline_ns)?;
        let mut head = Head::new(Kind::Message, number, 0);
        head.oldest = oldest;
        let written = self.write(head, request, fill);
        let mut state = shared.lock();
        match &written {
            Ok(head) if head.kind == Kind::Message => {
                state.kept[shared.place(number)] = Some(Kept {
                    bytes: request.bytes,
                    content: head.content,
                    expires_ns: request.expires_ns,
                });
                state.outbox.sent(number, now_ns());
            }
            _ => state.outbox.undo(number),
        }
        written
    }

    fn publish(
        &mut self,
        request: Request,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<Head, SendError> {
        let shared = &*self.shared;
        if let Some(end) = shared.lock().end_of_sending() {
            return Err(end.into());
        }
        let mut head = Head::new(Kind::Value, 0, 0);
        let bytes = HEAD_BYTES + request.bytes;
        shared.out.lock().publish(bytes, &mut |slot| {
            head = request.write(slot, head, fill);
        })?;
        Ok(head)
    }
}

impl Drop for AssuredOutgoing {
    fn drop(&mut self) {
        self.shared.lock().ends.ours.0 = true;
        self.shared.send_status();
    }
}

impl State {
    pub fn discard(&mut self) {
        while self.inbox.to_consume().1.is_some() {
            self.inbox.consume();
        }
    }
}

impl AssuredIncoming {
    fn next(&self, deadline_ns: Option<u64>) -> Result<Option<(usize, super::shared::Got)>, End> {
        let shared = &*self.shared;
        let mut state = shared.lock();
        loop {
            let (lost, number) = state.inbox.to_consume();
            shared.counters.add(Count::Lost, lost);
            state.status_due |= lost > 0;
            let place = number.map(|n| shared.place(n));
            if let Some(got) = place.and_then(|p| state.got[p].map(|got| (p, got))) {
                return Ok(Some(got));
            }
            if std::mem::take(&mut state.news.corrupt) && self.on_corrupt == OnBreach::Fail {
                return Err(Breach::Corrupt.into());
            }
            if let Some(end) = state.end_of_receiving() {
                return Err(end);
            }
            if std::mem::take(&mut state.news.silent) && self.fails_silent {
                return Err(Breach::Silent.into());
            }
            match shared.bell.wait(state, deadline_ns) {
                Some(next) => state = next,
                None => return Ok(None),
            }
        }
    }

    /// Borrows the backend's receiving half from the link's thread and reads the peer's latest
    /// value once. Waits for the value at most a tenth of a second.
    fn read_once(
        &self,
        deadline_ns: Option<u64>,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<Option<bool>, End> {
        let shared = &*self.shared;
        let mut state = shared.lock();
        if state.ends.last.is_some() {
            return Err(End::Closed);
        }
        state.hand = Hand::Wanted;
        state.asks = true;
        drop(state);
        // The peer's answer wakes the thread, which has the receiving half.
        shared.send_status();
        let mut state = shared.lock();
        while state.hand != Hand::Application {
            let ended = state.ends.end.clone();
            let late = deadline_ns.is_some_and(|d| now_ns() >= d);
            if ended.is_some() || late {
                state.hand = Hand::Thread;
                return ended.map_or(Ok(Some(false)), Err);
            }
            let soon = now_ns() + LOOK_NS;
            let until = Some(deadline_ns.map_or(soon, |d| d.min(soon)));
            state = shared
                .bell
                .wait(state, until)
                .unwrap_or_else(|| shared.lock());
        }
        drop(state);
        let slice = now_ns() + LOOK_NS;
        let until = deadline_ns.map_or(slice, |d| d.min(slice));
        let read = shared.incoming.lock().read(Some(until), take);
        shared.lock().hand = Hand::Thread;
        shared.bell.ring();
        match read? {
            false if now_ns() >= until && deadline_ns.is_none_or(|d| now_ns() < d) => Ok(None),
            any => Ok(Some(any)),
        }
    }
}

impl Receives for AssuredIncoming {
    fn receive(
        &mut self,
        deadline_ns: Option<u64>,
        take: &mut dyn FnMut(Arrived, &[u8]),
    ) -> Result<bool, End> {
        let shared = &*self.shared;
        let Some((place, got)) = self.next(deadline_ns)? else {
            return Ok(false);
        };
        take(got.arrived, &shared.got[place].lock()[..got.bytes]);
        let mut state = shared.lock();
        state.got[place] = None;
        state.inbox.consume();
        drop(state);
        shared.send_status();
        Ok(true)
    }

    fn read(
        &mut self,
        deadline_ns: Option<u64>,
        take: &mut dyn FnMut(Arrived, &[u8]),
    ) -> Result<bool, End> {
        let shared = Arc::clone(&self.shared);
        let mut is_corrupt = false;
        let mut look = |bytes: &[u8]| match Head::parse(bytes) {
            Some((head, content)) if head.kind == Kind::Value => {
                let (sent, left) = (head.sent_ns, head.remaining_ns);
                let expires_ns = shared.lock().transit.expires_ns(sent, left, now_ns());
                let number = head.number;
                take(Arrived { number, expires_ns }, content);
            }
            Some(_) => {}
            None => {
                shared.counters.one(Count::Corrupt);
                is_corrupt = true;
            }
        };
        let any = loop {
            if let Some(any) = self.read_once(deadline_ns, &mut look)? {
                break any;
            }
        };
        match is_corrupt {
            true if self.on_corrupt == OnBreach::Fail => Err(Breach::Corrupt.into()),
            corrupt => Ok(any && !corrupt),
        }
    }
}

impl Drop for AssuredIncoming {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.ends.ours.1 = true;
        state.discard();
        drop(state);
        self.shared.send_status();
    }
}
