//! The log of the last moves of gates and their delays. The dispatcher writes it and its owner
//! reads it, without locks.

use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// The number of recorded moves (openings and closings of gates). New moves overwrite the oldest.
const KEPT: usize = 1024;

/// An opening or closing of a gate.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    /// The instant at which the gate had finished opening or closing, CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// The delay in ns from the dispatcher's planned wake-up until the gate had finished opening or
    /// closing.
    pub delay_ns: u64,
    pub server: usize,
    pub open: bool,
}

pub(crate) struct Moves {
    /// The recorded moves (openings and closings of gates). Each entry has the instant of a move,
    /// the delay in ns, and the value 2 * index of the server + 1 if the gate opened, or + 0 if it
    /// closed.
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

    pub(crate) fn note(&self, one: Move) {
        let count = self.count.load(Relaxed);
        let [at, delay, what] = &self.entries[count as usize % KEPT];
        at.store(one.at_ns, Relaxed);
        delay.store(one.delay_ns, Relaxed);
        what.store(2 * one.server as u64 + u64::from(one.open), Relaxed);
        self.count.store(count + 1, Release);
    }

    /// Returns the moves (openings and closings of gates) that happened after the first `seen`
    /// ones, and sets `seen` to the number of all moves. Moves that were overwritten are missing.
    pub(crate) fn since(&self, seen: &mut u64) -> Vec<Move> {
        let count = self.count.load(Acquire);
        // Only half of the entries are read, because the dispatcher may write meanwhile.
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
    fn each_opening_or_closing_of_a_gate_is_read_once_and_a_full_log_loses_the_oldest() {
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
