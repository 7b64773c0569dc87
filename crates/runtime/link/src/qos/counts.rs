//! The counts of a link with quality of service ([`Qos`](super::Qos)): messages, and broken
//! promises.

use super::pace::Pace;
use crate::interface::Shown;
use onbeat_flow::clock::now_ns;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// The counts of the messages that an end has sent.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SentCounts {
    /// The number of messages that this end has sent, each counted once.
    pub messages: u64,
    /// The number of messages and values that were not sent because they were older than promised
    /// ([`Qos::fresh_for`](super::Qos::fresh_for)).
    pub stale: u64,
    /// The number of periods in which this end should have sent a message and sent none.
    pub late: u64,
    pub resent: u64,
    /// The number of messages that were given up, because the peer acknowledged none of their
    /// copies.
    pub unacknowledged: u64,
}

/// The counts of the messages that an end has received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReceivedCounts {
    /// The number of messages that arrived intact.
    pub messages: u64,
    /// The number of messages and values that were older than promised when the application
    /// received them ([`Qos::fresh_for`](super::Qos::fresh_for)).
    pub stale: u64,
    /// The number of messages and values that arrived with changed bytes. The application never
    /// gets them.
    pub corrupt: u64,
    /// The number of messages that arrived again. The application never gets the repetition.
    pub doubled: u64,
    /// The number of messages that never arrived intact.
    pub lost: u64,
    /// The number of periods in which a message should have arrived and none did.
    pub late: u64,
}

/// The counts of one end of a link with quality of service ([`Qos`](super::Qos)).
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    pub sent: SentCounts,
    pub received: ReceivedCounts,
    pub silences: u64,
    /// The peer is silent at present: it has given no sign of life within the agreed time.
    pub is_silent: bool,
    /// The shortest round trip while the ends exchanged their terms, ns. Measured ages of data are
    /// too low by at most the sum of this time and the drift of the clocks ([`super::fresh`]).
    pub round_trip_ns: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
pub enum Count {
    Sent,
    SentStale,
    Resent,
    Unacknowledged,
    Received,
    ReceivedStale,
    Corrupt,
    Doubled,
    Lost,
    Silences,
}

/// The counters of an end. Any thread may read them while the end counts. Uses no lock.
#[derive(Debug)]
pub struct Counters {
    counts: [AtomicU64; 10],
    is_silent: AtomicU64,
    round_trip_ns: AtomicU64,
    page: Option<Arc<dyn Shown>>,
    pub paces: [Pace; 2],
}

impl Counters {
    pub fn new(periods_ns: [Option<u64>; 2], page: Option<Arc<dyn Shown>>) -> Counters {
        if let Some(page) = &page {
            page.has_promises();
        }
        Counters {
            counts: Default::default(),
            is_silent: AtomicU64::new(0),
            round_trip_ns: AtomicU64::new(u64::MAX),
            page,
            paces: periods_ns.map(|period| Pace::new(period, now_ns())),
        }
    }

    pub fn add(&self, count: Count, more: u64) {
        self.counts[count as usize].fetch_add(more, Ordering::Relaxed);
        if let Some(page) = &self.page {
            page.add(count as usize, more);
        }
    }

    pub fn one(&self, count: Count) {
        self.add(count, 1);
    }

    fn of(&self, count: Count) -> u64 {
        self.counts[count as usize].load(Ordering::Relaxed)
    }

    pub fn set_silent(&self, is_silent: bool) {
        let before = self.is_silent.swap(is_silent.into(), Ordering::Relaxed);
        if is_silent && before == 0 {
            self.one(Count::Silences);
        }
    }

    pub fn is_silent(&self) -> bool {
        self.is_silent.load(Ordering::Relaxed) != 0
    }

    pub fn round_trip(&self, ns: u64) {
        self.round_trip_ns.fetch_min(ns, Ordering::Relaxed);
    }

    pub fn read(&self) -> Counts {
        let now = now_ns();
        let round_trip_ns = self.round_trip_ns.load(Ordering::Relaxed);
        Counts {
            sent: SentCounts {
                messages: self.of(Count::Sent),
                stale: self.of(Count::SentStale),
                late: self.paces[0].missed(now),
                resent: self.of(Count::Resent),
                unacknowledged: self.of(Count::Unacknowledged),
            },
            received: ReceivedCounts {
                messages: self.of(Count::Received),
                stale: self.of(Count::ReceivedStale),
                corrupt: self.of(Count::Corrupt),
                doubled: self.of(Count::Doubled),
                lost: self.of(Count::Lost),
                late: self.paces[1].missed(now),
            },
            silences: self.of(Count::Silences),
            is_silent: self.is_silent(),
            round_trip_ns: (round_trip_ns != u64::MAX).then_some(round_trip_ns),
        }
    }
}
