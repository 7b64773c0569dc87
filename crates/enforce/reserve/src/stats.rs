//! The counters of the dispatcher. One thread writes them and any thread reads them, without locks.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};

/// The number of buckets of a [`Histogram`]: eight per power of two.
const BUCKETS: usize = 8 * 40;

/// Counts durations in buckets. The width of a bucket is at most an eighth of the durations in it.
#[derive(Debug)]
pub(crate) struct Recorder {
    buckets: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
    max_ns: AtomicU64,
}

impl Recorder {
    pub(crate) const fn new() -> Recorder {
        Recorder {
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
            sum_ns: AtomicU64::new(0),
            max_ns: AtomicU64::new(0),
        }
    }

    pub(crate) fn record(&self, ns: u64) {
        self.buckets[bucket(ns)].fetch_add(1, Relaxed);
        self.sum_ns.fetch_add(ns, Relaxed);
        self.max_ns.fetch_max(ns, Relaxed);
    }

    pub(crate) fn read(&self) -> Histogram {
        Histogram {
            buckets: self.buckets.iter().map(|b| b.load(Relaxed)).collect(),
            sum_ns: self.sum_ns.load(Relaxed),
            max_ns: self.max_ns.load(Relaxed),
        }
    }
}

fn bucket(ns: u64) -> usize {
    if ns < 8 {
        return ns as usize;
    }
    let power = ns.ilog2() as usize;
    let eighth = (ns >> (power - 3)) as usize & 7;
    ((power - 2) * 8 + eighth).min(BUCKETS - 1)
}

fn upper(bucket: usize) -> u64 {
    if bucket < 8 {
        return bucket as u64;
    }
    let (power, eighth) = (bucket / 8 + 2, bucket as u64 % 8);
    ((9 + eighth) << (power - 3)) - 1
}

/// A distribution of durations in ns. Its quantiles are too large by at most an eighth.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    buckets: Vec<u64>,
    sum_ns: u64,
    /// The longest duration, which is exact.
    pub max_ns: u64,
}

impl Histogram {
    /// Reads the words of a histogram of the sched_ext programs: sum, maximum, then buckets.
    pub(crate) fn of(words: Vec<u64>) -> Histogram {
        match words[..] {
            [sum_ns, max_ns, ref buckets @ ..] => Histogram {
                buckets: buckets.to_vec(),
                sum_ns,
                max_ns,
            },
            _ => Histogram::default(),
        }
    }

    /// Returns the number of recorded durations.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the mean of the durations, or 0 if there are none.
    pub fn mean_ns(&self) -> u64 {
        self.sum_ns.checked_div(self.count()).unwrap_or(0)
    }

    /// Returns the duration that a share `q` (0 to 1) of the durations does not exceed, or 0 if
    /// there are none.
    pub fn quantile_ns(&self, q: f64) -> u64 {
        let wanted = (q.clamp(0.0, 1.0) * self.count() as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (i, n) in self.buckets.iter().enumerate() {
            seen += n;
            if seen >= wanted {
                return upper(i).min(self.max_ns);
            }
        }
        0
    }
}

#[derive(Debug)]
pub(crate) struct Counters {
    pub(crate) lateness: Recorder,
    pub(crate) opening: Recorder,
    pub(crate) closing: Recorder,
    pub(crate) cycles: AtomicU64,
    pub(crate) open_failures: AtomicU64,
    pub(crate) close_failures: AtomicU64,
    pub(crate) skipped: AtomicU64,
    pub(crate) cpu_ns: AtomicU64,
    pub(crate) behind_ns: AtomicI64,
    leads_ns: [AtomicU64; 2],
    pub(crate) pauses: PauseCounters,
}

#[derive(Debug)]
pub(crate) struct PauseCounters {
    pub(crate) thawed_by_guard: AtomicU64,
    pub(crate) guard_silent: AtomicU64,
    pub(crate) guard_lost: AtomicBool,
}

impl PauseCounters {
    const fn new() -> PauseCounters {
        PauseCounters {
            thawed_by_guard: AtomicU64::new(0),
            guard_silent: AtomicU64::new(0),
            guard_lost: AtomicBool::new(false),
        }
    }

    pub(crate) fn read(&self) -> Pauses {
        Pauses {
            thawed_by_guard: self.thawed_by_guard.load(Relaxed),
            guard_silent: self.guard_silent.load(Relaxed),
            guard_lost: self.guard_lost.load(Relaxed),
        }
    }
}

/// The number of times that gates stayed open although slots were over, by reason. Each such pause
/// lasts at least from its detection to the end of the next round (pass through the table of
/// slots).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pauses {
    /// Counts how often the dispatcher did not run for a cycle, for example because its process was
    /// stopped. Each time, the guard opened all gates.
    pub thawed_by_guard: u64,
    /// Counts how often the guard did not run, for example because its process was stopped. While
    /// no guard watches, the dispatcher closes no gate.
    pub guard_silent: u64,
    /// The guard process has ended. Gates stay open from then on, and the reservation should be
    /// stopped.
    pub guard_lost: bool,
}

impl Counters {
    pub(crate) const fn new() -> Counters {
        Counters {
            lateness: Recorder::new(),
            opening: Recorder::new(),
            closing: Recorder::new(),
            cycles: AtomicU64::new(0),
            open_failures: AtomicU64::new(0),
            close_failures: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            cpu_ns: AtomicU64::new(0),
            behind_ns: AtomicI64::new(0),
            leads_ns: [const { AtomicU64::new(0) }; 2],
            pauses: PauseCounters::new(),
        }
    }

    pub(crate) fn set_leads(&self, (opening_ns, closing_ns): (u64, u64)) {
        self.leads_ns[0].store(opening_ns, Relaxed);
        self.leads_ns[1].store(closing_ns, Relaxed);
    }

    pub(crate) fn read(&self, elapsed_ns: u64, gates: Vec<GateStats>) -> Stats {
        Stats {
            gates,
            elapsed_ns,
            cpu_ns: self.cpu_ns.load(Relaxed),
            cycles: self.cycles.load(Relaxed),
            lateness: self.lateness.read(),
            opening: self.opening.read(),
            closing: self.closing.read(),
            open_failures: self.open_failures.load(Relaxed),
            close_failures: self.close_failures.load(Relaxed),
            skipped_slots: self.skipped.load(Relaxed),
            behind_ns: self.behind_ns.load(Relaxed),
            leads: Lead {
                opening_ns: self.leads_ns[0].load(Relaxed),
                closing_ns: self.leads_ns[1].load(Relaxed),
            },
            pauses: self.pauses.read(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct GateCounters {
    pub(crate) ends: AtomicU64,
    pub(crate) working: AtomicU64,
    pub(crate) unknown: AtomicU64,
    pub(crate) hard: AtomicU64,
    pub(crate) taken_back: AtomicU64,
    pub(crate) unfinished: AtomicU64,
    pub(crate) waited: Recorder,
}

impl GateCounters {
    pub(crate) const fn new() -> GateCounters {
        GateCounters {
            ends: AtomicU64::new(0),
            working: AtomicU64::new(0),
            unknown: AtomicU64::new(0),
            hard: AtomicU64::new(0),
            taken_back: AtomicU64::new(0),
            unfinished: AtomicU64::new(0),
            waited: Recorder::new(),
        }
    }

    pub(crate) fn read(&self, server: &str) -> GateStats {
        GateStats {
            server: server.to_owned(),
            ends: self.ends.load(Relaxed),
            working: self.working.load(Relaxed),
            unknown: self.unknown.load(Relaxed),
            hard: self.hard.load(Relaxed),
            taken_back: self.taken_back.load(Relaxed),
            unfinished: self.unfinished.load(Relaxed),
            waited: self.waited.read(),
        }
    }
}

/// Counts the ends of a server's slots by the activity of its threads at that time.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GateStats {
    pub server: String,
    /// Counts the ends of the server's slots.
    pub ends: u64,
    /// Counts the slot ends at which a thread of the server was working.
    pub working: u64,
    /// Counts the slot ends at which the state of a thread was unknown and none was known to be
    /// working.
    pub unknown: u64,
    /// Counts the slot ends at which a hard gate froze a thread in the middle of its work. These
    /// slot ends also count in `working`.
    pub hard: u64,
    /// Counts the freezes that a soft gate undid a moment later, because a thread had woken up
    /// during the freeze.
    pub taken_back: u64,
    /// Counts the slot ends after which a thread worked until the next slot began.
    pub unfinished: u64,
    /// The time from the end of a slot until the dispatcher saw all threads waiting. It is too long
    /// by at most the pause between two checks of the threads, which grows from 0.2 to 2 ms.
    pub waited: Histogram,
}

/// The leads: the times by which gates open or close before a slot's start or end. A lead covers
/// the delays of nine in ten of the last 128 openings and closings. A delay is the time from the
/// dispatcher's planned wake-up until the gate is open or closed. A lead is at most 0.1 ms, or the
/// table's lead if that is longer. A slot ends early by at most a sixteenth of its length.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lead {
    /// The time, in ns, by which a gate begins to open before its slot begins.
    pub opening_ns: u64,
    /// The time, in ns, by which a gate begins to close before its slot ends.
    pub closing_ns: u64,
}

/// The counters of an enforcer (the mechanism that limits threads to slots), from its start on.
#[allow(missing_docs)]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    pub gates: Vec<GateStats>,
    pub elapsed_ns: u64,
    pub cpu_ns: u64,
    /// Counts the cycles so far, including skipped ones.
    pub cycles: u64,
    /// The time by which the dispatcher woke up later than planned. It plans to wake up before each
    /// opening or closing of a gate, by a lead time that covers most of its measured delays.
    pub lateness: Histogram,
    /// The time that each successful opening of a gate took (thaw).
    pub opening: Histogram,
    /// The time that each successful closing of a gate took (freeze).
    pub closing: Histogram,
    /// Counts failures to open a gate. The dispatcher tries again when the next gate of the table
    /// opens or closes.
    pub open_failures: u64,
    /// Counts failures to close a gate. The dispatcher tries again when the next gate of the table
    /// opens or closes.
    pub close_failures: u64,
    /// Counts slots that had ended before the dispatcher could open them.
    pub skipped_slots: u64,
    /// The shift in ns that [`set_origin`](crate::Reservation::set_origin) has asked for and that
    /// is not done yet. The cycles shift by at most half of the time between the last event of one
    /// round and the first event of the next.
    pub behind_ns: i64,
    pub leads: Lead,
    pub pauses: Pauses,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_quantiles_are_at_most_an_eighth_too_large() {
        let recorder = Recorder::new();
        assert_eq!(recorder.read().quantile_ns(0.5), 0);
        let mut values: Vec<u64> = (0..40_000).map(|i| i * i % 1_000_003).collect();
        values.iter().for_each(|&v| recorder.record(v));
        values.sort_unstable();
        let read = recorder.read();
        assert_eq!(read.count(), 40_000);
        assert_eq!(read.quantile_ns(1.0), *values.last().unwrap());
        for q in [0.001, 0.01, 0.5, 0.9, 0.999] {
            let truth = values[(q * 40_000.0) as usize - 1];
            let found = read.quantile_ns(q);
            assert!(
                found >= truth && found <= truth + truth / 8 + 1,
                "{q}: {truth} {found}"
            );
        }
        recorder.record(u64::MAX);
        assert_eq!(recorder.read().max_ns, u64::MAX);
    }
}
