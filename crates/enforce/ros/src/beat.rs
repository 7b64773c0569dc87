//! When an item may leave: the condition *data AND slot* as a pure function of a table and two times.
//!
//! Execution `k` of a chain is released at `origin + k * cycle`. Its output may leave in the slots
//! `[origin + k * cycle + start, origin + k * cycle + end)` (thesis, Definitions 4.3.3 and 4.3.4).
//! A slot may lie behind the end of the cycle: `[cycle, cycle + d)` is logical execution time for the
//! whole chain (section 4.5.3). All times are CLOCK_MONOTONIC in ns.

use thiserror::Error;

/// Most slots of one output: bounds the work per decision.
pub const MAX_SLOTS: usize = 16;
/// Longest cycle and furthest slot: a day. Keeps sums far from overflow.
const LONGEST_NS: u64 = 86_400_000_000_000;

/// A slot, from the release of the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slot {
    /// First instant at which items leave.
    pub start_ns: u64,
    /// First instant at which they no longer do.
    pub end_ns: u64,
}

/// Why slots and cycle make no table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BeatError {
    /// No cycle.
    #[error("the cycle is {0} ns: give one between 1 ns and a day")]
    Cycle(u64),
    /// None or too many.
    #[error("there are {0} slots: give 1 to {MAX_SLOTS}")]
    Count(usize),
    /// A slot that cannot be.
    #[error(
        "slot [{0}, {1}) ns is empty, longer than the cycle or more than a day away: correct it"
    )]
    Slot(u64, u64),
}

/// The table of one output. Plain values: copied, never allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beat {
    cycle_ns: u64,
    origin_ns: i64,
    earliest_ns: u64,
    slots: [Slot; MAX_SLOTS],
    count: usize,
}

/// A slot of a certain execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opening {
    /// Number of the chain's execution (cycle) that the slot belongs to.
    pub cycle: i64,
    /// Which of the slots.
    pub slot: u16,
    /// When it opens.
    pub start_ns: i64,
    /// When it closes.
    pub end_ns: i64,
}

/// Where an item leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// Execution that the item belongs to.
    pub cycle: i64,
    /// The slot: open now, or the next one.
    pub opening: Opening,
    /// The slot is one of a later execution: the item has missed its own (overshoot).
    pub late: bool,
}

impl Beat {
    /// A table. `earliest_ns` is the chain's best case: an item that arrives sooner than that after
    /// a release belongs to the execution before. (Definition 4.3.4 has the first slot start after
    /// the best case.) With 0 an item counts as the last release's.
    pub fn new(
        cycle_ns: u64,
        origin_ns: i64,
        earliest_ns: u64,
        slots: &[Slot],
    ) -> Result<Beat, BeatError> {
        if cycle_ns == 0 || cycle_ns > LONGEST_NS {
            return Err(BeatError::Cycle(cycle_ns));
        }
        if slots.is_empty() || slots.len() > MAX_SLOTS {
            return Err(BeatError::Count(slots.len()));
        }
        let mut beat = Beat {
            cycle_ns,
            origin_ns,
            earliest_ns: earliest_ns.min(cycle_ns),
            slots: [Slot::default(); MAX_SLOTS],
            count: slots.len(),
        };
        for (place, slot) in beat.slots.iter_mut().zip(slots) {
            let length = slot.end_ns.checked_sub(slot.start_ns);
            if !length.is_some_and(|l| l > 0 && l <= cycle_ns) || slot.end_ns > LONGEST_NS {
                return Err(BeatError::Slot(slot.start_ns, slot.end_ns));
            }
            *place = *slot;
        }
        Ok(beat)
    }

    /// Length of a cycle.
    pub fn cycle_ns(&self) -> u64 {
        self.cycle_ns
    }

    /// The last execution that can have brought an item which arrived then. Real-time safe.
    pub fn cycle_of(&self, arrival_ns: i64) -> i64 {
        self.cycles(i128::from(arrival_ns) - i128::from(self.earliest_ns))
    }

    /// The slot of execution `from` or a later one that is open now or opens next. Real-time safe: at
    /// most [`MAX_SLOTS`] steps.
    pub fn opening(&self, now_ns: i64, from: i64) -> Opening {
        let mut best: Option<Opening> = None;
        for (i, slot) in self.slots[..self.count].iter().enumerate() {
            // The first execution whose slot does not end before now.
            let ends_after = self.cycles(i128::from(now_ns) - i128::from(slot.end_ns)) + 1;
            let cycle = from.max(ends_after);
            let release =
                i128::from(self.origin_ns) + i128::from(cycle) * i128::from(self.cycle_ns);
            let opening = Opening {
                cycle,
                slot: i as u16,
                start_ns: narrow(release + i128::from(slot.start_ns)),
                end_ns: narrow(release + i128::from(slot.end_ns)),
            };
            if best.is_none_or(|b| opening.start_ns < b.start_ns) {
                best = Some(opening);
            }
        }
        best.unwrap_or(Opening {
            cycle: from,
            slot: 0,
            start_ns: now_ns,
            end_ns: now_ns,
        })
    }

    /// How long after the release of an execution that was. Real-time safe.
    pub fn after_ns(&self, cycle: i64, at_ns: i64) -> i64 {
        let release = i128::from(self.origin_ns) + i128::from(cycle) * i128::from(self.cycle_ns);
        narrow(i128::from(at_ns) - release)
    }

    /// Where an item of this execution leaves that arrived then and has not left by now: never in a slot
    /// of an execution before its own. Real-time safe.
    pub fn due(&self, cycle: i64, arrival_ns: i64, now_ns: i64) -> Due {
        let opening = self.opening(now_ns.max(arrival_ns), cycle);
        Due {
            cycle,
            opening,
            late: opening.cycle > cycle,
        }
    }

    /// Where the throttler lets its newest item through: at most one per cycle, so in a slot after that
    /// of `last`. A new origin may have renumbered the cycles; it cannot lock the input out, since no
    /// wait is longer than two cycles. Real-time safe.
    pub fn throttled(&self, now_ns: i64, last: Option<i64>) -> Opening {
        let any = self.opening(now_ns, i64::MIN / 2);
        match last {
            None => any,
            Some(last) => {
                let next = self.opening(now_ns, last.saturating_add(1));
                let wait = i128::from(next.start_ns) - i128::from(now_ns);
                if wait > 2 * i128::from(self.cycle_ns) {
                    any
                } else {
                    next
                }
            }
        }
    }

    /// Whole cycles from the origin to then, rounded down.
    fn cycles(&self, time_ns: i128) -> i64 {
        narrow((time_ns - i128::from(self.origin_ns)).div_euclid(i128::from(self.cycle_ns)))
    }
}

fn narrow(value: i128) -> i64 {
    value.clamp(i128::from(i64::MIN / 2), i128::from(i64::MAX / 2)) as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn slots() -> impl Strategy<Value = (u64, Vec<Slot>)> {
        (1u64..12).prop_flat_map(|cycle| {
            let slot = (0..3 * cycle, 1..=cycle).prop_map(|(start, length)| Slot {
                start_ns: start,
                end_ns: start + length,
            });
            (Just(cycle), prop::collection::vec(slot, 1..4))
        })
    }

    /// By definition: walks the time tick by tick and looks through all slots of all executions.
    fn walk(cycle: i64, origin: i64, slots: &[Slot], from_cycle: i64, now: i64) -> (i64, i64) {
        for t in now.. {
            let mut open: Option<(i64, i64)> = None;
            for k in from_cycle..from_cycle + 200 {
                for s in slots {
                    let release = origin + k * cycle;
                    let start = release + s.start_ns as i64;
                    if start <= t
                        && t < release + s.end_ns as i64
                        && open.is_none_or(|o| start < o.0)
                    {
                        open = Some((start, k));
                    }
                }
            }
            if let Some((_, k)) = open {
                return (t, k);
            }
        }
        unreachable!()
    }

    proptest! {
        /// The item leaves at the first instant at which there is both: it, and a slot of its own or
        /// a later execution.
        #[test]
        fn data_and_slot((cycle, slots) in slots(), origin in -50i64..50, earliest in 0u64..12,
                         arrival in 0i64..100, waited in 0i64..60) {
            let beat = Beat::new(cycle, origin, earliest, &slots).unwrap();
            let earliest = earliest.min(cycle) as i64;
            // The last execution that was released at least the best case ago.
            let own = (-500..500).rev()
                .find(|k| origin + k * cycle as i64 + earliest <= arrival).unwrap();
            let now = arrival + waited;
            let due = beat.due(beat.cycle_of(arrival), arrival, now);
            prop_assert_eq!(due.cycle, own);
            let (t, k) = walk(cycle as i64, origin, &slots, own, now);
            prop_assert_eq!(due.opening.start_ns.max(now), t);
            prop_assert!(t < due.opening.end_ns);
            // Where slots of two executions are open at once, either tells when; the first to open
            // is named.
            let same_start = walk_start(cycle as i64, origin, &slots, k, due.opening.cycle, t);
            prop_assert!(same_start, "{:?} instead of execution {}", due, k);
            prop_assert_eq!(due.late, due.opening.cycle > own);
        }

        /// The throttler: one item per cycle, and none is ever locked out.
        #[test]
        fn throttle((cycle, slots) in slots(), origin in -50i64..50, now in 0i64..100,
                    last in -40i64..40) {
            let beat = Beat::new(cycle, origin, 0, &slots).unwrap();
            let opening = beat.throttled(now, Some(last));
            prop_assert!(opening.end_ns > now);
            prop_assert!(opening.start_ns - now <= 2 * cycle as i64);
            let allowed = beat.opening(now, last + 1);
            if allowed.start_ns - now <= 2 * cycle as i64 {
                prop_assert_eq!(opening, allowed);
                prop_assert!(opening.cycle > last);
            }
        }
    }

    /// True when some slot of execution `a` and some of `b`, both open at t, opened together.
    fn walk_start(cycle: i64, origin: i64, slots: &[Slot], a: i64, b: i64, t: i64) -> bool {
        let starts = |k: i64| {
            let release = origin + k * cycle;
            slots
                .iter()
                .filter(move |s| {
                    release + (s.start_ns as i64) <= t && t < release + s.end_ns as i64
                })
                .map(move |s| release + s.start_ns as i64)
                .min()
        };
        a == b || starts(a) == starts(b)
    }

    #[test]
    fn logical_execution_time() {
        // Slot [100, 101) of a 100 ns cycle: what was released at 0 leaves when the next is released,
        // and what arrives while that slot is open belongs to the next.
        let slot = [Slot {
            start_ns: 100,
            end_ns: 101,
        }];
        let beat = Beat::new(100, 0, 0, &slot).unwrap();
        assert_eq!(beat.due(beat.cycle_of(40), 40, 40).opening.start_ns, 100);
        assert!(!beat.due(beat.cycle_of(40), 40, 40).late);
        assert_eq!(beat.due(beat.cycle_of(100), 100, 100).opening.start_ns, 200);
        // With a best case of 10 it is known to be the last one's, in time.
        let beat = Beat::new(100, 0, 10, &slot).unwrap();
        assert_eq!(beat.due(beat.cycle_of(100), 100, 100).opening.start_ns, 100);
        assert!(!beat.due(beat.cycle_of(100), 100, 100).late);
        assert!(beat.due(beat.cycle_of(105), 105, 105).late);
    }

    #[test]
    fn nonsense_is_refused() {
        let slot = |start_ns, end_ns| Slot { start_ns, end_ns };
        assert_eq!(Beat::new(0, 0, 0, &[slot(0, 1)]), Err(BeatError::Cycle(0)));
        assert_eq!(Beat::new(9, 0, 0, &[]), Err(BeatError::Count(0)));
        for (start, end) in [(5, 5), (5, 4), (0, 10), (u64::MAX - 1, u64::MAX)] {
            assert_eq!(
                Beat::new(9, 0, 0, &[slot(start, end)]),
                Err(BeatError::Slot(start, end))
            );
        }
    }
}
