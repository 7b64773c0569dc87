//! The thread of a link with acknowledgement: it receives, repeats messages that were not
//! acknowledged, sends signs of life and watches for the peer's.

use super::counts::Count;
use super::head::{Head, Kind, HEAD_BYTES};
use super::path::Arrived;
use super::shared::{Got, Hand, Shared, SLICE_NS};
use super::status::Status;
use super::window::{Came, Due};
use crate::interface::End;
use crate::resume::Violation;
use onbeat_flow::clock::now_ns;

const MOST_WAIT_NS: u64 = 100_000_000;

#[derive(Debug, Clone, Copy)]
pub struct Rhythm {
    pub timeout_ns: Option<u64>,
    /// The longest time between two signs of life of this end, ns: half of the time after which the
    /// peer counts it as silent.
    pub beat_ns: Option<u64>,
    pub silence_ns: Option<u64>,
}

impl Rhythm {
    fn wait_ns(&self) -> u64 {
        let all = [self.timeout_ns, self.beat_ns, self.silence_ns];
        let least = all.into_iter().flatten().min().unwrap_or(u64::MAX);
        (least / 2).clamp(SLICE_NS, MOST_WAIT_NS)
    }
}

pub fn run(shared: &Shared, rhythm: Rhythm) {
    let mut heard_ns = now_ns();
    while lend_receiving_half(shared) {
        let wait = match shared.lock().status_due {
            true => SLICE_NS,
            false => rhythm.wait_ns(),
        };
        let mut violation = None;
        let until = Some(now_ns() + wait);
        let received = shared.incoming.lock().receive(until, &mut |_, bytes| {
            violation = handle_frame(shared, bytes).err();
        });
        let now = now_ns();
        match (received, violation) {
            (_, Some(what)) => return shared.ended(End::Protocol { what }),
            (Err(end), None) => return shared.ended(end),
            (Ok(true), None) => {
                heard_ns = now;
                shared.counters.set_silent(false);
            }
            // Only after reading everything that came is it certain that nothing else did.
            (Ok(false), None) => report_silence(shared, rhythm, now.saturating_sub(heard_ns)),
        }
        while let Some(due) = next_due(shared) {
            send_again(shared, due);
        }
        let state = shared.lock();
        let beat = rhythm
            .beat_ns
            .is_some_and(|b| now_ns() >= state.status_sent_ns + b / 2);
        let is_due = state.status_due || beat;
        drop(state);
        if is_due {
            shared.send_status();
        }
    }
}

fn lend_receiving_half(shared: &Shared) -> bool {
    let mut state = shared.lock();
    while state.hand != Hand::Thread && !state.ends.stopping {
        if state.hand == Hand::Wanted {
            state.hand = Hand::Application;
            shared.bell.ring();
        }
        match shared.bell.wait(state, Some(now_ns() + MOST_WAIT_NS)) {
            Some(next) => state = next,
            None => state = shared.lock(),
        }
    }
    !state.ends.stopping
}

fn report_silence(shared: &Shared, rhythm: Rhythm, for_ns: u64) {
    let is_silent = rhythm.silence_ns.is_some_and(|s| for_ns > s);
    if is_silent && !shared.counters.is_silent() {
        shared.counters.set_silent(true);
        shared.lock().news.silent = true;
        shared.bell.ring();
    }
}

fn next_due(shared: &Shared) -> Option<Due> {
    let mut state = shared.lock();
    let due = state.outbox.due(now_ns())?;
    if let Due::GivenUp(number) = due {
        state.news.unacknowledged.get_or_insert(number);
        // The receiver has to skip this message.
        state.status_due = true;
        shared.counters.one(Count::Unacknowledged);
    }
    Some(due)
}

/// Sends the kept copy of a message again. If the backend has no free slot, the message leaves
/// after its next time-out.
fn send_again(shared: &Shared, due: Due) {
    let Due::Again(number) = due else {
        return shared.bell.ring();
    };
    let place = shared.place(number);
    let mut out = shared.out.lock();
    let state = shared.lock();
    let oldest = state.outbox.oldest();
    let Some(kept) = state.kept[place].filter(|_| oldest <= number) else {
        return;
    };
    drop(state);
    let Some(slot) = shared.kept.get(place) else {
        return;
    };
    let message = slot.lock();
    let until = Some(now_ns() + SLICE_NS);
    let sent = out.send(HEAD_BYTES + kept.bytes, until, &mut |slot| {
        let now = now_ns();
        let mut head = Head::new(Kind::Message, number, now);
        head.remaining_ns = kept.expires_ns.map(|e| e.saturating_sub(now));
        head.content = kept.content;
        head.oldest = oldest;
        slot[..HEAD_BYTES].copy_from_slice(&head.bytes());
        slot[HEAD_BYTES..].copy_from_slice(&message[..kept.bytes]);
    });
    if sent.is_ok() {
        shared.counters.one(Count::Resent);
    }
}

fn violation_text(violation: Violation) -> &'static str {
    match violation {
        Violation::Credits => "more messages than the peer has credits for",
        _ => "a status that confirms messages which were never sent",
    }
}

fn handle_frame(shared: &Shared, bytes: &[u8]) -> Result<(), &'static str> {
    let Some((head, content)) = Head::parse(bytes) else {
        shared.counters.one(Count::Corrupt);
        shared.lock().news.corrupt = true;
        shared.bell.ring();
        return Ok(());
    };
    let mut state = shared.lock();
    let now = now_ns();
    let expires_ns = state
        .transit
        .expires_ns(head.sent_ns, head.remaining_ns, now);
    state.inbox.on_oldest(head.oldest);
    drop(state);
    match head.kind {
        Kind::Message => handle_message(shared, &head, expires_ns, content),
        Kind::Status => handle_status(shared, content),
        _ => Ok(()),
    }
}

fn handle_message(
    shared: &Shared,
    head: &Head,
    expires_ns: Option<u64>,
    content: &[u8],
) -> Result<(), &'static str> {
    let number = head.number;
    let mut state = shared.lock();
    state.status_due = true;
    let came = state.inbox.judge(number).map_err(violation_text)?;
    if came == Came::Again {
        shared.counters.one(Count::Doubled);
        return Ok(());
    }
    if content.len() > shared.sizes.message_bytes {
        return Err("a message that is larger than agreed");
    }
    drop(state);
    let place = shared.place(number);
    shared.got[place].lock()[..content.len()].copy_from_slice(content);
    let mut state = shared.lock();
    state.got[place] = Some(Got {
        bytes: content.len(),
        arrived: Arrived { number, expires_ns },
    });
    state.inbox.came(number);
    shared.counters.one(Count::Received);
    let is_received = !state.ends.ours.1;
    drop(state);
    match is_received {
        true => shared.bell.ring(),
        false => shared.lock().discard(),
    }
    Ok(())
}

fn handle_status(shared: &Shared, content: &[u8]) -> Result<(), &'static str> {
    let status = Status::parse(content).ok_or("a malformed status")?;
    let mut state = shared.lock();
    let taken = state.outbox.on_status(status.consumed, status.arrived);
    taken.map_err(violation_text)?;
    let ends = &mut state.ends;
    ends.last = ends.last.or(status.last);
    ends.peer_receives_no_more |= status.receives_no_more;
    state.status_due |= status.asks;
    drop(state);
    shared.bell.ring();
    Ok(())
}
