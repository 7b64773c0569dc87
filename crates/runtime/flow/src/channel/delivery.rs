//! Delivers an item from the producer to every consumer, and finishes a delivery that a dead
//! producer left behind.

use super::options::Policy;
use super::ring::{precedes, Head, Ring, CONSUMER, OBSERVER};
use super::state::ChannelState;
use crate::memory::atomics::{fence, Ordering};
use crate::testing::point;

/// Returns the position after the last entry of the ring that the consumer may take. Under
/// `Policy::Swap`, exchanges the buffers of producer and consumer if the exchange is due. Real-time
/// safe.
#[inline]
pub(crate) fn takeable_end(state: &ChannelState, ring: &Ring<'_>) -> u32 {
    let tail = ring.tail().load(Ordering::Acquire);
    let Policy::Swap { length, flush } = state.options.policy else {
        return tail;
    };
    let published = ring.published().load(Ordering::Acquire);
    let empty = ring.consumed().load(Ordering::Acquire) == published;
    let due = flush
        || tail.wrapping_sub(published) >= length as u32
        || precedes(published, ring.urgent().load(Ordering::Relaxed))
        || state.closed().load(Ordering::Acquire) != 0;
    if !empty || !due || tail == published {
        return published;
    }
    // If both sides exchange the buffers at once, one of them succeeds.
    let exchanged =
        ring.published()
            .compare_exchange(published, tail, Ordering::AcqRel, Ordering::Acquire);
    exchanged.map_or_else(|theirs| theirs, |_| tail)
}

#[inline]
pub(crate) fn has_credit(state: &ChannelState, ring: &Ring<'_>) -> bool {
    match state.options.policy {
        Policy::Credit { credits } => ring.in_flight() < credits as u32,
        Policy::Swap { length, .. } => {
            let filled = ring.tail().load(Ordering::Relaxed);
            filled.wrapping_sub(takeable_end(state, ring)) < length as u32
        }
        _ => true,
    }
}

/// Delivers a filled payload to every consumer. Only the producer calls this. Real-time safe: makes
/// a system call only for each consumer that sleeps.
#[inline]
pub(crate) fn deliver(state: &ChannelState, slot: usize, bytes: usize, now_ns: u64) {
    let sequence = state.sent().load(Ordering::Relaxed);
    let item = state.slot(slot);
    item.length().store(bytes as u32, Ordering::Relaxed);
    item.sequence().store(sequence, Ordering::Relaxed);
    item.time_ns().store(now_ns, Ordering::Relaxed);
    point();
    // If the producer dies from here on, its successor finishes the delivery.
    state.delivering().store(slot as u64 + 1, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    deliver_to_all(state, slot, sequence, Attempt::First);
}

pub(crate) fn notify_all(state: &ChannelState, change: impl Fn(&Ring<'_>)) {
    // Consumers see this as a delivery, so that none of them gives up a waker that is about to be
    // used.
    state.delivering().store(u64::MAX, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    for (consumer, ring) in state.rings().enumerate() {
        if matches!(ring.state().load(Ordering::Acquire), CONSUMER | OBSERVER) {
            change(&ring);
            state.notify(consumer);
        }
    }
    state.delivering().store(0, Ordering::Release);
}

#[derive(Clone, Copy, PartialEq)]
enum Attempt {
    First,
    Continued,
}

#[inline]
fn deliver_to_all(state: &ChannelState, slot: usize, sequence: u64, attempt: Attempt) {
    let mut heard = false;
    for (consumer, ring) in state.rings().enumerate() {
        point();
        let kind = ring.state().load(Ordering::Acquire);
        if !matches!(kind, CONSUMER | OBSERVER) {
            continue;
        }
        heard |= kind == CONSUMER;
        let is_there = attempt == Attempt::Continued && ring.has_pushed(slot as u32, sequence);
        if !is_there {
            push_to(state, consumer, &ring, slot, sequence);
        }
        point();
        if kind == OBSERVER {
            let tail = ring.tail().load(Ordering::Relaxed);
            ring.published().store(tail, Ordering::Release);
        }
        if matches!(state.options.policy, Policy::Swap { .. }) {
            // The fence makes sure that the consumer sees the new entry, or that `takeable_end`
            // sees the consumer's empty buffer.
            fence(Ordering::SeqCst);
        }
        if ring.head().number() != takeable_end(state, &ring) {
            state.notify(consumer);
        }
    }
    if !heard {
        state.unheard().fetch_add(1, Ordering::Relaxed);
    }
    point();
    state
        .sent()
        .store(sequence.wrapping_add(1), Ordering::Release);
    point();
    state.delivering().store(0, Ordering::Release);
}

/// Appends the item in `slot` to the ring of one consumer. If an older item must be dropped, notes
/// this in the channel's memory first (`dropped_head` and `dropping`), so that another process can
/// finish the delivery if the producer dies.
#[inline]
fn push_to(state: &ChannelState, consumer: usize, ring: &Ring<'_>, slot: usize, sequence: u64) {
    let depth = state.options.policy.depth() as u32;
    // Consumers have room here, because the producer waited for their credit. Observers may have
    // none.
    let oldest = ring.make_room(depth, |head| {
        state.dropped_head().store(head.word(), Ordering::Relaxed);
        state
            .dropping()
            .store(consumer as u64 + 1, Ordering::Release);
        point();
    });
    point();
    if let Some(oldest) = oldest {
        state.release(oldest, consumer);
        ring.count_dropped();
    }
    point();
    state.dropping().store(0, Ordering::Release);
    state
        .slot(slot)
        .references()
        .fetch_or(1 << consumer, Ordering::AcqRel);
    point();
    ring.push(slot as u32, sequence);
}

/// Finishes the delivery that a dead producer has begun. The caller must have claimed the
/// producer's place (`PRODUCER`) with `Region::claim`.
pub(crate) fn recover(state: &ChannelState) {
    let Some(slot) = state.delivering().load(Ordering::Acquire).checked_sub(1) else {
        return;
    };
    let slot = slot as usize;
    let sequence = state.sent().load(Ordering::Relaxed);
    // Another process may have written any number, or the producer died after its last step.
    let is_open = slot < state.layout.slots
        && state.slot(slot).sequence().load(Ordering::Relaxed) == sequence;
    if !is_open {
        state.delivering().store(0, Ordering::Release);
        return;
    }
    let dropping = state.dropping().load(Ordering::Acquire);
    let consumer = (dropping as usize).wrapping_sub(1);
    if consumer < state.layout.consumers {
        let ring = state.ring(consumer);
        let head = Head::from_word(state.dropped_head().load(Ordering::Relaxed));
        if ring.head().dropped != head.dropped {
            state.release(ring.slot(head.number()), consumer);
            ring.count_dropped();
        }
        state.dropping().store(0, Ordering::Release);
    }
    deliver_to_all(state, slot, sequence, Attempt::Continued);
}
