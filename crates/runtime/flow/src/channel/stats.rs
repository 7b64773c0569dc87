//! The counters of a channel.

use super::ring::{Ring, CONSUMER, OBSERVER};
use super::state::ChannelState;
use crate::memory::atomics::Ordering;

/// The counters of a channel's producers.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProducerStats {
    /// The number of items that were sent or skipped. It is also the number of the next item.
    pub sent: u64,
    /// The number of items that were sent while no consumer was attached.
    pub unheard: u64,
    /// The number of times that the producer had to wait for a consumer.
    pub stalls: u64,
    pub stalled_ns: u64,
    /// The number of consumers that died. The channel has reclaimed their payloads.
    pub lost_consumers: u64,
}

/// The counters of one consumer or observer of a channel.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ConsumerStats {
    pub waiting: u64,
    /// The number of items that the consumer has not consumed yet: items that wait, and items that
    /// it borrows.
    pub in_flight: u64,
    /// The number of items that newer items replaced before the consumer received them.
    pub dropped: u64,
    /// The consumer is an observer: the producer never waits for it.
    pub observer: bool,
}

pub(crate) fn of_producer(state: &ChannelState) -> ProducerStats {
    ProducerStats {
        sent: state.sent().load(Ordering::Relaxed),
        unheard: state.unheard().load(Ordering::Relaxed),
        stalls: state.stalls().load(Ordering::Relaxed),
        stalled_ns: state.stalled_ns().load(Ordering::Relaxed),
        lost_consumers: state.lost().load(Ordering::Relaxed),
    }
}

pub(crate) fn of_consumer(ring: &Ring<'_>) -> ConsumerStats {
    ConsumerStats {
        waiting: u64::from(ring.waiting()),
        in_flight: u64::from(ring.in_flight()),
        dropped: ring.dropped(),
        observer: ring.state().load(Ordering::Relaxed) == OBSERVER,
    }
}

/// Returns the number of items that the slowest consumer has not consumed yet. Observers do not
/// count.
pub(crate) fn most_in_flight(state: &ChannelState) -> u64 {
    let consumers = |r: &Ring<'_>| r.state().load(Ordering::Acquire) == CONSUMER;
    let most = state.rings().filter(consumers).map(|r| r.in_flight()).max();
    u64::from(most.unwrap_or(0))
}

pub(crate) fn attached(state: &ChannelState) -> usize {
    state
        .rings()
        .filter(|r| r.state().load(Ordering::Acquire) == CONSUMER)
        .count()
}
