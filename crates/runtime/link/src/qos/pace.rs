//! Deadlines: expects a message at least once in every period, and counts periods without one.
//!
//! One thread reports messages; any thread may read. Pure: no clock. No allocation, no lock.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug)]
pub struct Pace {
    period_ns: Option<u64>,
    due_ns: AtomicU64,
    missed: AtomicU64,
}

impl Pace {
    /// Starts the first period at `now_ns`. If `period_ns` is `None`, no message is ever due.
    pub fn new(period_ns: Option<u64>, now_ns: u64) -> Pace {
        let period_ns = period_ns.map(|p| p.max(1));
        Pace {
            period_ns,
            due_ns: AtomicU64::new(now_ns.saturating_add(period_ns.unwrap_or(u64::MAX))),
            missed: AtomicU64::new(0),
        }
    }

    pub fn due_ns(&self) -> Option<u64> {
        self.period_ns.map(|_| self.due_ns.load(Ordering::Relaxed))
    }

    fn overdue(&self, now_ns: u64) -> u64 {
        let due_ns = self.due_ns.load(Ordering::Relaxed);
        let late = self.period_ns.filter(|_| now_ns >= due_ns);
        late.map_or(0, |period| 1 + (now_ns - due_ns) / period)
    }

    /// Counts the periods that have ended without a message. Returns how many of them were not
    /// counted before.
    pub fn pass(&self, now_ns: u64) -> u64 {
        let late = self.overdue(now_ns);
        if let Some(period) = self.period_ns.filter(|_| late > 0) {
            self.due_ns.fetch_add(late * period, Ordering::Relaxed);
            self.missed.fetch_add(late, Ordering::Relaxed);
        }
        late
    }

    /// Counts a message, which begins a new period. Returns the number of periods that ended
    /// without a message and were not counted before.
    pub fn happens(&self, now_ns: u64) -> u64 {
        let late = self.pass(now_ns);
        if let Some(period) = self.period_ns {
            let due = now_ns.saturating_add(period);
            self.due_ns.store(due, Ordering::Relaxed);
        }
        late
    }

    pub fn missed(&self, now_ns: u64) -> u64 {
        self.missed.load(Ordering::Relaxed) + self.overdue(now_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_period_without_a_message_is_counted_once() {
        let pace = Pace::new(Some(10), 100);
        assert_eq!((pace.happens(109), pace.due_ns()), (0, Some(119)));
        assert_eq!(
            (pace.missed(118), pace.missed(119), pace.missed(139)),
            (0, 1, 3)
        );
        assert_eq!(
            (pace.pass(119), pace.pass(128), pace.due_ns()),
            (1, 0, Some(129))
        );
        assert_eq!((pace.happens(131), pace.missed(131)), (1, 2));
        assert_eq!((pace.due_ns(), pace.happens(140)), (Some(141), 0));
        assert_eq!(pace.missed(140), 2);
        let none = Pace::new(None, 5);
        assert_eq!(
            (none.happens(u64::MAX), none.missed(u64::MAX), none.due_ns()),
            (0, 0, None)
        );
    }
}
