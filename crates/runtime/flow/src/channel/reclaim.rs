//! Gets payloads back from consumers that left or died.

use super::delivery::recover;
use super::ring::{CONSUMER, FREE, LEFT, OBSERVER};
use super::state::ChannelState;
use crate::memory::atomics::{fence, Ordering};
use crate::memory::region::PRODUCER;

/// The period at which a participant that waits for another process checks whether that process is
/// alive.
pub(crate) const LIVENESS_NS: u64 = 100_000_000;

/// The largest number of times that a participant checks whether another participant has finished a
/// delivery or a repair.
pub(crate) const POLLS: usize = if cfg!(loom) { 2 } else { 100 };

pub(crate) fn pause() {
    #[cfg(not(loom))]
    std::thread::sleep(std::time::Duration::from_micros(50));
    #[cfg(loom)]
    loom::thread::yield_now();
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Search {
    Left,
    LeftAndDead,
}

/// Reclaims the payloads of consumers that are gone. The producer calls this between two items.
/// Real-time safe, except that looking for dead consumers costs a system call for each consumer.
pub(crate) fn reap(state: &ChannelState, search: Search) {
    for (consumer, ring) in state.rings().enumerate() {
        let kind = ring.state().load(Ordering::Acquire);
        let gone = match kind {
            LEFT => true,
            CONSUMER | OBSERVER => {
                search == Search::LeftAndDead && !state.region().is_claimed(consumer + 1)
            }
            _ => false,
        };
        // A failed claim means that the consumer itself is cleaning the ring, or that the next one
        // is attaching.
        if !gone || !state.region().claim(consumer + 1) {
            continue;
        }
        let kind = ring.state().load(Ordering::Acquire);
        if kind != FREE {
            let died = u64::from(kind == CONSUMER);
            state.lost().fetch_add(died, Ordering::Relaxed);
            if kind != LEFT {
                ring.signal().reset();
            }
            clean(state, consumer);
        }
        state.region().release(consumer + 1);
    }
}

/// Removes all references of a consumer that is gone. The caller must have claimed the consumer's
/// place with `Region::claim`, and the producer must not be delivering to this consumer.
fn clean(state: &ChannelState, consumer: usize) {
    state.drop_waker(consumer);
    for slot in 0..state.layout.slots {
        // Mostly there is nothing to remove. Reading first leaves the cache line with the CPU that
        // reads it.
        let slot = state.slot(slot);
        if slot.references().load(Ordering::Relaxed) & 1 << consumer != 0 {
            slot.release(consumer);
        }
    }
    state.ring(consumer).state().store(FREE, Ordering::Release);
}

/// Removes the references of a consumer's ring that the caller has claimed, while the producer may
/// be delivering. A consumer calls this when it leaves, or when it attaches to a dead consumer's
/// ring. Returns `false` if the producer did not finish its delivery in time.
pub(crate) fn clean_beside_producer(state: &ChannelState, consumer: usize) -> bool {
    state.ring(consumer).state().store(LEFT, Ordering::SeqCst);
    for _ in 0..POLLS {
        // The fence makes sure that the producer sees that the consumer has left, or that we see
        // its delivery.
        fence(Ordering::SeqCst);
        if state.delivering().load(Ordering::Acquire) == 0 {
            clean(state, consumer);
            return true;
        }
        if state.region().claim(PRODUCER) {
            // The producer died during the delivery.
            recover(state);
            state.region().release(PRODUCER);
        } else {
            pause();
        }
    }
    false
}

pub(crate) fn is_orphaned(state: &ChannelState) -> bool {
    state.memory().is_shared()
        && state.producers().load(Ordering::Acquire) > 0
        && state.closed().load(Ordering::Acquire) == 0
        && !state.region().is_claimed(PRODUCER)
}
