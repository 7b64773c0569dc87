//! When soft gates changed the priority of their threads: written by the dispatcher, read by its
//! owner, without locks. Who compares runs with slots needs the instants, because the kernel reports
//! no switch when a running thread's priority changes.

use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// Changes that are kept: the oldest are written over.
const KEPT: usize = 4096;

/// A soft gate changed the priority of its server's threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// When, CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// Index of the server.
    pub server: usize,
    /// Whether they have the server's priority since then; else a normal one.
    pub is_raised: bool,
}

/// The last changes.
pub(crate) struct Changes {
    /// Each is an instant, and a server with a bit that says whether it was raised.
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

    /// Real-time safe. One thread calls it.
    pub(crate) fn note(&self, server: usize, at_ns: u64, is_raised: bool) {
        let count = self.count.load(Relaxed);
        let (at, what) = &self.entries[count as usize % KEPT];
        at.store(at_ns, Relaxed);
        what.store(2 * server as u64 + u64::from(is_raised), Relaxed);
        self.count.store(count + 1, Release);
    }

    /// The changes after the first `seen`, which becomes the number of all. Those that were written
    /// over are left out.
    pub(crate) fn since(&self, seen: &mut u64) -> Vec<Change> {
        let count = self.count.load(Acquire);
        // Half of them: the dispatcher may write while they are read.
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
    fn each_change_is_read_once_in_its_order() {
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
