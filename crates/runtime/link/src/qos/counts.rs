//! What was counted of a link with [`Qos`](super::Qos).

use super::pace::Pace;
use crate::interface::Shown;
use onbeat_flow::clock::now_ns;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// Of what an end has sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SentCounts {
    /// Messages that have left.
    pub messages: u64,
    /// Messages and values that were too old before they left.
    pub stale: u64,
    /// Periods in which nothing was sent.
    pub late: u64,
    /// Times that a message was sent once more.
    pub resent: u64,
    /// Messages given up: not acknowledged, however often they were sent.
    pub unacknowledged: u64,
}

/// Of what an end has received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReceivedCounts {
    /// Messages that came intact.
    pub messages: u64,
    /// Messages and values that were too old when they were to be handed over.
    pub stale: u64,
    /// Messages and values that were not what was sent. These are never handed over.
    pub corrupt: u64,
    /// Messages that came again. These are never handed over.
    pub doubled: u64,
    /// Messages that never came intact.
    pub lost: u64,
    /// Periods in which nothing came.
    pub late: u64,
}

/// What was counted of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Of what this end has sent.
    pub sent: SentCounts,
    /// Of what it has received.
    pub received: ReceivedCounts,
    /// Times that the peer fell silent.
    pub silences: u64,
    /// Whether it is silent now.
    pub is_silent: bool,
    /// The shortest round trip when the ends met, ns: ages are wrong by no more than that
    /// ([`super::fresh`]).
    pub round_trip_ns: Option<u64>,
}

/// The numbers of [`Counts`] that are added up.
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

/// Where an end counts. Readable from any thread while it does. No lock.
#[derive(Debug)]
pub struct Counters {
    counts: [AtomicU64; 10],
    is_silent: AtomicU64,
    round_trip_ns: AtomicU64,
    /// Where others see it too.
    page: Option<Arc<dyn Shown>>,
    /// Of sending, and of receiving.
    pub paces: [Pace; 2],
}

impl Counters {
    /// Nothing was counted yet.
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

    /// More of one of them.
    pub fn add(&self, count: Count, more: u64) {
        self.counts[count as usize].fetch_add(more, Ordering::Relaxed);
        if let Some(page) = &self.page {
            page.add(count as usize, more);
        }
    }

    /// One more.
    pub fn one(&self, count: Count) {
        self.add(count, 1);
    }

    fn of(&self, count: Count) -> u64 {
        self.counts[count as usize].load(Ordering::Relaxed)
    }

    /// The peer is silent, or is no longer.
    pub fn set_silent(&self, is_silent: bool) {
        let before = self.is_silent.swap(is_silent.into(), Ordering::Relaxed);
        if is_silent && before == 0 {
            self.one(Count::Silences);
        }
    }

    /// Whether the peer is silent.
    pub fn is_silent(&self) -> bool {
        self.is_silent.load(Ordering::Relaxed) != 0
    }

    /// A round trip when the ends met.
    pub fn round_trip(&self, ns: u64) {
        self.round_trip_ns.fetch_min(ns, Ordering::Relaxed);
    }

    /// What was counted so far.
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
