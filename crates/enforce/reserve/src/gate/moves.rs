//! The last moves of gates, and how late each was: written by the dispatcher, read by its owner,
//! without locks.

use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// Moves that are kept: the oldest are written over.
const KEPT: usize = 1024;

/// A gate was opened or shut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    /// When it had moved, CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// How long after the instant at which the dispatcher was to wake up for it.
    pub delay_ns: u64,
    /// Index of the server.
    pub server: usize,
    /// Whether it was opened.
    pub open: bool,
}

/// The last moves.
pub(crate) struct Moves {
    /// Each is an instant, a delay, and a server with a bit that says whether it was opened.
    entries: Box<[[AtomicU64; 3]]>,
    count: AtomicU64,
}

impl Moves {
    pub(crate) fn new() -> Moves {
        let entry = |_| [const { AtomicU64::new(0) }; 3];
        Moves {
            entries: (0..KEPT).map(entry).collect(),
            count: AtomicU64::new(0),
        }
    }

    /// Real-time safe. One thread calls it.
    pub(crate) fn note(&self, one: Move) {
        let count = self.count.load(Relaxed);
        let [at, delay, what] = &self.entries[count as usize % KEPT];
        at.store(one.at_ns, Relaxed);
        delay.store(one.delay_ns, Relaxed);
        what.store(2 * one.server as u64 + u64::from(one.open), Relaxed);
        self.count.store(count + 1, Release);
    }

    /// The moves after the first `seen`, which becomes the number of all. Those that were written
    /// over are left out.
    pub(crate) fn since(&self, seen: &mut u64) -> Vec<Move> {
        let count = self.count.load(Acquire);
        // Half of them: the dispatcher may write while they are read.
        let first = (*seen).max(count.saturating_sub(KEPT as u64 / 2));
        *seen = count;
        let read = |n: u64| {
            let [at, delay, what] = self.entries[n as usize % KEPT]
                .each_ref()
                .map(|w| w.load(Relaxed));
            Move {
                at_ns: at,
                delay_ns: delay,
                server: (what / 2) as usize,
                open: what % 2 == 1,
            }
        };
        (first..count).map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_move_is_read_once_and_the_last_ones_stay() {
        let moves = Moves::new();
        let one = |at_ns: u64| Move {
            at_ns,
            delay_ns: at_ns / 2,
            server: at_ns as usize % 5,
            open: at_ns % 2 == 1,
        };
        let mut seen = 0;
        (0..3).for_each(|n| moves.note(one(n)));
        assert_eq!(moves.since(&mut seen), [one(0), one(1), one(2)]);
        assert!(moves.since(&mut seen).is_empty());
        (0..3 * KEPT as u64).for_each(|n| moves.note(one(n)));
        let last = moves.since(&mut seen);
        assert_eq!(
            (last.len(), last.last()),
            (KEPT / 2, Some(&one(3 * KEPT as u64 - 1)))
        );
    }
}
