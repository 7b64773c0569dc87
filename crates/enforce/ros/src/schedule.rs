//! In which slot an item leaves: the condition *data AND slot*, as a pure function of a schedule
//! and two times.
//!
//! Execution `k` of a chain is released at `origin + k * cycle`. Its output may leave in the slots
//! `[origin + k * cycle + start, origin + k * cycle + end)` (thesis, Definitions 4.3.3 and 4.3.4).
//! A slot may lie behind the end of the cycle: `[cycle, cycle + d)` is logical execution time for
//! the whole chain (section 4.5.3). All times are CLOCK_MONOTONIC in ns.

use onbeat_time::{Cycle, Opening, Slot, MAX_CYCLE_NS, MAX_SLOTS};
use thiserror::Error;

/// Why a cycle and slots make no schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ScheduleError {
    /// The cycle has no length, or is longer than a day.
    #[error("the cycle is {0} ns: give one between 1 ns and a day")]
    Cycle(u64),
    /// No slots, or too many.
    #[error("there are {0} slots: give 1 to {MAX_SLOTS}")]
    Count(usize),
    /// A slot that is empty, longer than the cycle, or more than a day away.
    #[error(
        "slot [{0}, {1}) ns is empty, longer than the cycle or more than a day away: correct it"
    )]
    Slot(u64, u64),
}

/// Slots of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slots {
    slots: [Slot; MAX_SLOTS],
    count: usize,
}

impl Slots {
    fn new(cycle_ns: u64, slots: &[Slot]) -> Result<Slots, ScheduleError> {
        if slots.is_empty() || slots.len() > MAX_SLOTS {
            return Err(ScheduleError::Count(slots.len()));
        }
        let wrong = |s: &&Slot| !s.fits(cycle_ns) || s.end_ns > MAX_CYCLE_NS;
        if let Some(slot) = slots.iter().find(wrong) {
            return Err(ScheduleError::Slot(slot.start_ns, slot.end_ns));
        }
        let mut all = Slots {
            slots: [Slot::default(); MAX_SLOTS],
            count: slots.len(),
        };
        all.slots[..slots.len()].copy_from_slice(slots);
        Ok(all)
    }

    fn as_slice(&self) -> &[Slot] {
        &self.slots[..self.count]
    }
}

/// The slots of one output. Plain values: copied, never allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotSchedule {
    cycle: Cycle,
    earliest_ns: u64,
    slots: Slots,
    /// What executions have that were released before an instant.
    before: Option<Before>,
}

/// What executions have that were released before an instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Before {
    /// The instant, CLOCK_MONOTONIC.
    until_ns: i64,
    earliest_ns: u64,
    slots: Slots,
}

/// The slot in which an item leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// Execution that the item belongs to.
    pub cycle: i64,
    /// The slot: open now, or the next one.
    pub opening: Opening,
    /// The item has missed the slots of its own execution (overshoot): this is one of a later
    /// execution, or over.
    pub late: bool,
    /// It was there in time, and was not sent: the slot is its own, and over. It leaves at once.
    pub overslept: bool,
}

impl SlotSchedule {
    /// A schedule. `earliest_ns` is the chain's best case: an item that arrives sooner after a
    /// release belongs to the execution before. (Definition 4.3.4 has the first slot start after
    /// the best case.) With 0 an item belongs to the last release.
    pub fn new(
        cycle_ns: u64,
        origin_ns: i64,
        earliest_ns: u64,
        slots: &[Slot],
    ) -> Result<SlotSchedule, ScheduleError> {
        let cycle = Cycle::new(cycle_ns, origin_ns)
            .filter(|_| cycle_ns <= MAX_CYCLE_NS)
            .ok_or(ScheduleError::Cycle(cycle_ns))?;
        Ok(SlotSchedule {
            cycle,
            earliest_ns: earliest_ns.min(cycle_ns),
            slots: Slots::new(cycle_ns, slots)?,
            before: None,
        })
    }

    /// The same, where the executions that were released before `from_ns` leave in other slots, and
    /// had another best case.
    /// Every execution has the slots of one table: that of its release. So none is left out or has
    /// its turn twice when a table follows another. `from_ns` counts as the nearest release, so that
    /// a phase that moves a little decides nothing.
    pub fn after(
        self,
        from_ns: i64,
        earliest_ns: u64,
        before: &[Slot],
    ) -> Result<SlotSchedule, ScheduleError> {
        let before = Before {
            until_ns: from_ns,
            earliest_ns: earliest_ns.min(self.cycle_ns()),
            slots: Slots::new(self.cycle_ns(), before)?,
        };
        Ok(SlotSchedule {
            before: Some(before),
            ..self
        })
    }

    /// Length of a cycle in ns.
    pub fn cycle_ns(&self) -> u64 {
        self.cycle.period_ns()
    }

    /// The last execution that can have published an item which arrived at this time. Real-time
    /// safe.
    pub fn cycle_of(&self, arrival_ns: i64) -> i64 {
        let of = |earliest_ns| {
            let latest_release = i128::from(arrival_ns) - i128::from(earliest_ns);
            self.cycle.index(latest_release)
        };
        let cycle = of(self.earliest_ns);
        match self.before {
            // Executions of the table before are told apart by its best case.
            Some(before) if cycle < self.first_after(before) => {
                of(before.earliest_ns).min(self.first_after(before) - 1)
            }
            _ => cycle,
        }
    }

    /// The first execution that has the slots of this table.
    fn first_after(&self, before: Before) -> i64 {
        let half = (self.cycle_ns() / 2) as i64;
        self.cycle.index(before.until_ns.saturating_add(half))
    }

    /// The execution that began at this time: that of the nearest release, since the origin is an
    /// estimate, and a start can lie a little before it. Real-time safe.
    pub fn cycle_begun(&self, born_ns: u64) -> i64 {
        self.cycle
            .index(i128::from(born_ns) + i128::from(self.cycle.period_ns() / 2))
    }

    /// Length of so many cycles, ns. Real-time safe.
    pub fn cycles_ns(&self, count: i64) -> i64 {
        let period_ns = i64::try_from(self.cycle.period_ns()).unwrap_or(i64::MAX);
        count.saturating_mul(period_ns)
    }

    /// The slot of execution `from` or a later one that is open now or opens next. Real-time safe:
    /// at most twice [`MAX_SLOTS`] steps.
    pub fn opening(&self, now_ns: i64, from: i64) -> Opening {
        let slots = self.slots.as_slice();
        let opening = match &self.before {
            None => self.cycle.open_or_next(slots, now_ns, from),
            Some(before) => {
                let first = self.first_after(*before);
                let earlier = self.opening_before(before.slots.as_slice(), now_ns, from, first);
                let later = self.cycle.open_or_next(slots, now_ns, from.max(first));
                match (earlier, later) {
                    (Some(e), Some(l)) if l.start_ns < e.start_ns => Some(l),
                    (earlier, later) => earlier.or(later),
                }
            }
        };
        // A schedule has slots.
        opening.unwrap_or(Opening {
            cycle: from,
            slot: 0,
            start_ns: now_ns,
            end_ns: now_ns,
        })
    }

    /// The first slot of executions `from` to `until` (not included) that is open now or opens next.
    fn opening_before(
        &self,
        slots: &[Slot],
        now_ns: i64,
        from: i64,
        until: i64,
    ) -> Option<Opening> {
        let mut first: Option<Opening> = None;
        for (slot, one) in slots.iter().enumerate() {
            let one = std::slice::from_ref(one);
            let found = self.cycle.open_or_next(one, now_ns, from);
            let Some(found) = found.filter(|o| o.cycle < until) else {
                continue;
            };
            if first.is_none_or(|f| found.start_ns < f.start_ns) {
                first = Some(Opening { slot, ..found });
            }
        }
        first
    }

    /// Time from an execution's release to `at_ns`. Real-time safe.
    pub fn after_ns(&self, cycle: i64, at_ns: i64) -> i64 {
        self.cycle.since_start_ns(cycle, at_ns)
    }

    /// The slot for an item of this execution that arrived at `arrival_ns` and has not left by now:
    /// never a slot of an execution before its own. Real-time safe.
    pub fn due(&self, cycle: i64, arrival_ns: i64, now_ns: i64) -> Due {
        let next = self.opening(now_ns.max(arrival_ns), cycle);
        let late = next.cycle > cycle;
        let overslept = match late {
            true => self.overslept(cycle, arrival_ns, now_ns, &next),
            false => None,
        };
        Due {
            cycle,
            opening: overslept.unwrap_or(next),
            late,
            overslept: overslept.is_some(),
        }
    }

    /// The last slot of an execution whose item was there before that ended, if it lies nearer than
    /// the next one. Who sends did not run then. An instant behind its slot the item is worth more
    /// than a cycle later, and holds up none behind it.
    fn overslept(
        &self,
        cycle: i64,
        arrival_ns: i64,
        now_ns: i64,
        next: &Opening,
    ) -> Option<Opening> {
        let slots = match &self.before {
            Some(before) if cycle < self.first_after(*before) => before.slots.as_slice(),
            _ => self.slots.as_slice(),
        };
        let last = (0..slots.len()).max_by_key(|&slot| slots[slot].end_ns)?;
        let last = self.cycle.opening(slots, cycle, last)?;
        let is_over = arrival_ns < last.end_ns && last.end_ns <= now_ns;
        let is_nearer = now_ns.saturating_sub(last.end_ns) < next.start_ns.saturating_sub(now_ns);
        (is_over && is_nearer).then_some(last)
    }

    /// The slot in which the throttler lets its newest item through: at most one per cycle, so a
    /// slot after that of `last`. A new origin may have renumbered the cycles; it cannot lock the
    /// input out, since no wait is longer than two cycles. Real-time safe.
    pub fn throttled(&self, now_ns: i64, last: Option<i64>) -> Opening {
        let any = self.opening(now_ns, i64::MIN / 2);
        match last {
            None => any,
            Some(last) => {
                let next = self.opening(now_ns, last.saturating_add(1));
                let wait = i128::from(next.start_ns) - i128::from(now_ns);
                if wait > 2 * i128::from(self.cycle_ns()) {
                    any
                } else {
                    next
                }
            }
        }
    }
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
        /// The item leaves at the first instant at which there is both: it, and a slot of its own
        /// or a later execution.
        #[test]
        fn data_and_slot((cycle, slots) in slots(), origin in -50i64..50, earliest in 0u64..12,
                         arrival in 0i64..100, waited in 0i64..60) {
            let schedule = SlotSchedule::new(cycle, origin, earliest, &slots).unwrap();
            let earliest = earliest.min(cycle) as i64;
            // The last execution that was released at least the best case ago.
            let own = (-500..500).rev()
                .find(|k| origin + k * cycle as i64 + earliest <= arrival).unwrap();
            let now = arrival + waited;
            let due = schedule.due(schedule.cycle_of(arrival), arrival, now);
            prop_assert_eq!(due.cycle, own);
            let (t, k) = walk(cycle as i64, origin, &slots, own, now);
            // It was there while a slot of its own was open or to come, and now all are over.
            let last = origin + own * cycle as i64 + slots.iter().map(|s| s.end_ns as i64).max().unwrap();
            let overslept = arrival < last && last <= now && now - last < t - now;
            prop_assert_eq!(due.overslept, overslept, "{:?}, next {}", due, t);
            if overslept {
                prop_assert_eq!((due.opening.end_ns, due.opening.cycle, due.late), (last, own, true));
                return Ok(());
            }
            prop_assert_eq!(due.opening.start_ns.max(now), t);
            prop_assert!(t < due.opening.end_ns);
            // Where slots of two executions are open at once, either gives the time; the first to
            // open is named.
            let same_start = walk_start(cycle as i64, origin, &slots, k, due.opening.cycle, t);
            prop_assert!(same_start, "{:?} instead of execution {}", due, k);
            prop_assert_eq!(due.late, due.opening.cycle > own);
        }

        /// Where a table follows another, by definition: the first open slot of all executions, each
        /// with the slots of the table of its release.
        #[test]
        fn every_execution_has_one_table(
            ((cycle, new), old) in slots().prop_flat_map(|(cycle, new)| {
                let slot = (0..3 * cycle, 1..=cycle).prop_map(|(s, l)| Slot::new(s, s + l));
                (Just((cycle, new)), prop::collection::vec(slot, 1..4))
            }),
            origin in -50i64..50, from in -10i64..20, now in 0i64..100, at in 0i64..100, off in -5i64..5,
        ) {
            let period = cycle as i64;
            let first = (at - origin).div_euclid(period);
            // A moved phase: the table's instant is a little off the release that it stands for.
            let from_ns = origin + first * period + off.clamp(-(period - 1) / 2, (period - 1) / 2);
            let schedule = SlotSchedule::new(cycle, origin, 0, &new).unwrap();
            let schedule = schedule.after(from_ns, 0, &old).unwrap();
            let table = |k: i64| if k < first { &old } else { &new };
            let all = (from..from + 300).flat_map(|k| {
                let release = origin + k * period;
                table(k).iter().map(move |s| (release + s.start_ns as i64, release + s.end_ns as i64, k))
            });
            let expected = all.filter(|o| o.1 > now).min().unwrap();
            let found = schedule.opening(now, from);
            prop_assert_eq!(found.start_ns, expected.0);
            let slot = table(found.cycle)[found.slot];
            prop_assert_eq!(found.start_ns - slot.start_ns as i64, origin + found.cycle * period);
            prop_assert!(found.cycle >= from && found.end_ns > now);
        }

        /// An item is the last execution's that can have published it, each with the best case of its
        /// table.
        #[test]
        fn an_item_belongs_to_an_execution_of_one_table(
            (cycle, slots) in slots(), origin in -50i64..50, arrival in 0i64..100,
            (old, new) in (0u64..12, 0u64..12), first in -10i64..20,
        ) {
            let period = cycle as i64;
            let schedule = SlotSchedule::new(cycle, origin, new, &slots).unwrap();
            let schedule = schedule.after(origin + first * period, old, &slots).unwrap();
            let can = |k: &i64| {
                let earliest = if *k < first { old } else { new };
                origin + k * period + earliest.min(cycle) as i64 <= arrival
            };
            prop_assert_eq!(schedule.cycle_of(arrival), (-500..500).rev().find(can).unwrap());
        }

        /// The throttler: one item per cycle, and none is ever locked out.
        #[test]
        fn throttle((cycle, slots) in slots(), origin in -50i64..50, now in 0i64..100,
                    last in -40i64..40) {
            let schedule = SlotSchedule::new(cycle, origin, 0, &slots).unwrap();
            let opening = schedule.throttled(now, Some(last));
            prop_assert!(opening.end_ns > now);
            prop_assert!(opening.start_ns - now <= 2 * cycle as i64);
            let allowed = schedule.opening(now, last + 1);
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
        // Slot [100, 101) of a 100 ns cycle: what was released at 0 leaves when the next is
        // released, and what arrives while that slot is open belongs to the next.
        let slot = [Slot {
            start_ns: 100,
            end_ns: 101,
        }];
        let schedule = SlotSchedule::new(100, 0, 0, &slot).unwrap();
        assert_eq!(
            schedule.due(schedule.cycle_of(40), 40, 40).opening.start_ns,
            100
        );
        assert!(!schedule.due(schedule.cycle_of(40), 40, 40).late);
        assert_eq!(
            schedule
                .due(schedule.cycle_of(100), 100, 100)
                .opening
                .start_ns,
            200
        );
        // With a best case of 10 it is known to be the last one's, in time.
        let schedule = SlotSchedule::new(100, 0, 10, &slot).unwrap();
        assert_eq!(
            schedule
                .due(schedule.cycle_of(100), 100, 100)
                .opening
                .start_ns,
            100
        );
        assert!(!schedule.due(schedule.cycle_of(100), 100, 100).late);
        assert!(schedule.due(schedule.cycle_of(105), 105, 105).late);
    }

    #[test]
    fn nonsense_is_refused() {
        let slot = |start_ns, end_ns| Slot { start_ns, end_ns };
        assert_eq!(
            SlotSchedule::new(0, 0, 0, &[slot(0, 1)]),
            Err(ScheduleError::Cycle(0))
        );
        assert_eq!(
            SlotSchedule::new(9, 0, 0, &[]),
            Err(ScheduleError::Count(0))
        );
        for (start, end) in [(5, 5), (5, 4), (0, 10), (u64::MAX - 1, u64::MAX)] {
            assert_eq!(
                SlotSchedule::new(9, 0, 0, &[slot(start, end)]),
                Err(ScheduleError::Slot(start, end))
            );
        }
    }
}
