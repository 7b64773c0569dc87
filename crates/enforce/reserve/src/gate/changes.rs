//! The log of priority changes that soft gates make. The dispatcher writes it and its owner reads
//! it, without locks.
//!
//! Comparing executions with slots needs these instants, because the kernel reports no switch when
//! a running thread's priority changes.

use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// The number of recorded priority changes. New changes overwrite the oldest.
const KEPT: usize = 4096;

/// A change of the priority of a server's threads by its soft gate.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// The instant of the change, CLOCK_MONOTONIC.
    pub at_ns: u64,
    pub server: usize,
    /// Is true if the threads got the server's priority, and false if they got a normal one.
    pub is_raised: bool,
}

pub(crate) struct Changes {
    /// The recorded priority changes. Each entry has the instant of a change (CLOCK_MONOTONIC, ns),
    /// and the value 2 * index of the server + 1 if the priority was raised, or + 0 if it was
    /// lowered.
    entries: Box<[(AtomicU64, AtomicU64)]>,
    count: AtomicU64,
}

impl Changes {
    pub(crate) fn new() -> Changes {
        let entry = |_| (AtomicU64::new(0), AtomicU64::new(0));
        Changes {
            entries: (0..KEPT).map(entry).collect(),
            count: AtomicU64::new(0),
        }
    }

    pub(crate) fn note(&self, server: usize, at_ns: u64, is_raised: bool) {
        let count = self.count.load(Relaxed);
        let (at, what) = &self.entries[count as usize % KEPT];
        at.store(at_ns, Relaxed);
        what.store(2 * server as u64 + u64::from(is_raised), Relaxed);
        self.count.store(count + 1, Release);
    }

    /// Returns the priority changes that happened after the first `seen` ones, and sets `seen` to
    /// the number of all changes. Changes that were overwritten are missing.
    pub(crate) fn since(&self, seen: &mut u64) -> Vec<Change> {
        let count = self.count.load(Acquire);
        // Only half of the entries are read, because the dispatcher may write meanwhile.
        let first = (*seen).max(count.saturating_sub(KEPT as u64 / 2));
        *seen = count;
        let read = |n: u64| {
            let (at, what) = &self.entries[n as usize % KEPT];
            let what = what.load(Relaxed);
            Change {
                at_ns: at.load(Relaxed),
                server: (what / 2) as usize,
                is_raised: what % 2 == 1,
            }
        };
        (first..count).map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_priority_change_of_a_gate_is_read_once_and_in_order() {
        let changes = Changes::new();
        let mut seen = 0;
        assert!(changes.since(&mut seen).is_empty());
        changes.note(3, 100, false);
        changes.note(4, 200, true);
        let change = |at_ns, server, is_raised| Change {
            at_ns,
            server,
            is_raised,
        };
        assert_eq!(
            changes.since(&mut seen),
            [change(100, 3, false), change(200, 4, true)]
        );
        assert!(changes.since(&mut seen).is_empty());
        (0..3 * KEPT as u64).for_each(|n| changes.note(1, n, true));
        let last = changes.since(&mut seen);
        assert_eq!(last.last(), Some(&change(3 * KEPT as u64 - 1, 1, true)));
        assert_eq!(last.len(), KEPT / 2);
    }
}
