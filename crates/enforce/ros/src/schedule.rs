//! Computes in which slot an item leaves: the condition *data AND slot*, as a pure function of a
//! schedule and two times.
//!
//! Execution `k` of a chain is released at `origin + k * cycle`. Its output may leave in the slots
//! `[origin + k * cycle + start, origin + k * cycle + end)` (thesis, Definitions 4.3.3 and 4.3.4).
//! A slot may lie after the end of the cycle: `[cycle, cycle + d)` is logical execution time for
//! the whole chain (section 4.5.3). All times are CLOCK_MONOTONIC in ns.

use onbeat_time::{Cycle, Opening, Slot, MAX_CYCLE_NS, MAX_SLOTS};
use thiserror::Error;

/// The reason why a cycle and slots do not form a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[allow(missing_docs)] // The messages say the rest.
pub enum ScheduleError {
    #[error("the cycle is {0} ns long. Give a cycle from 1 ns to one day")]
    Cycle(u64),
    #[error("the schedule has {0} slots. Give 1 to {MAX_SLOTS}")]
    Count(usize),
    #[error(
        "slot [{0}, {1}) ns is empty, longer than the cycle, or ends more than a day after the cycle's start. Correct the slot"
    )]
    Slot(u64, u64),
}

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

/// The cycle, the origin and the slots of one output. Copying this value allocates no memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotSchedule {
    cycle: Cycle,
    earliest_ns: u64,
    slots: Slots,
    before: Option<Before>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Before {
    until_ns: i64,
    earliest_ns: u64,
    slots: Slots,
}

/// The slot in which an item leaves, and whether the item missed its own slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// The number of the execution of the chain to which the item belongs.
    pub cycle: i64,
    /// The slot in which the item leaves: the one that is open now, or the next one.
    pub opening: Opening,
    /// Whether the item missed the slots of its own execution (overshoot). Such an item leaves in a
    /// slot of a later execution, or after the last slot of its own execution.
    pub late: bool,
    /// Whether the sender did not run during the slot of an item that arrived in time. The item
    /// then leaves at once.
    pub overslept: bool,
}

impl SlotSchedule {
    /// Creates a schedule. `earliest_ns` is the chain's best case: no execution publishes earlier
    /// after its release. An item that arrives less than this time after a release therefore
    /// belongs to the previous execution. The first slot cannot show this, because it may start
    /// after the best case (Definition 4.3.4). If `earliest_ns` is 0, each item belongs to the
    /// execution that was released last.
    ///
    /// # Errors
    ///
    /// Returns a [`ScheduleError`] if the cycle or a slot is invalid.
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

    /// Returns this schedule, with the slots `before` and the best case `earliest_ns` for
    /// executions released before `from_ns`.
    ///
    /// Each execution uses one table of slots, the one of its release. So no execution is left out
    /// or served twice when the slots change. `from_ns` is rounded to the nearest release, so that
    /// a small move of the origin has no effect.
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

    /// Returns the time between two releases of the chain, in ns.
    pub fn cycle_ns(&self) -> u64 {
        self.cycle.period_ns()
    }

    /// Returns the number of the last execution that can have published an item that arrived at
    /// `arrival_ns`. Real-time safe.
    pub fn cycle_of(&self, arrival_ns: i64) -> i64 {
        let of = |earliest_ns| {
            let latest_release = i128::from(arrival_ns) - i128::from(earliest_ns);
            self.cycle.index(latest_release)
        };
        let cycle = of(self.earliest_ns);
        match self.before {
            // Executions of the table before are distinguished by its best case.
            Some(before) if cycle < self.first_after(before) => {
                of(before.earliest_ns).min(self.first_after(before) - 1)
            }
            _ => cycle,
        }
    }

    fn first_after(&self, before: Before) -> i64 {
        let half = (self.cycle_ns() / 2) as i64;
        self.cycle.index(before.until_ns.saturating_add(half))
    }

    /// Returns the number of the execution that began at `born_ns`: the one with the nearest
    /// release. An execution can begin a little before its release, because the origin is an
    /// estimate. Real-time safe.
    pub fn cycle_begun(&self, born_ns: u64) -> i64 {
        self.cycle
            .index(i128::from(born_ns) + i128::from(self.cycle.period_ns() / 2))
    }

    /// Returns the length of `count` cycles in ns. Real-time safe.
    pub fn cycles_ns(&self, count: i64) -> i64 {
        let period_ns = i64::try_from(self.cycle.period_ns()).unwrap_or(i64::MAX);
        count.saturating_mul(period_ns)
    }

    /// Returns the slot that is open now, or else the slot that opens next. Considers only the
    /// slots of execution `from` and of later executions. Real-time safe: at most twice
    /// [`MAX_SLOTS`] steps.
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
        // A schedule has at least one slot, so the default is never used.
        opening.unwrap_or(Opening {
            cycle: from,
            slot: 0,
            start_ns: now_ns,
            end_ns: now_ns,
        })
    }

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

    /// Returns the time in ns from the release of execution `cycle` to `at_ns` (CLOCK_MONOTONIC).
    /// Real-time safe.
    pub fn after_ns(&self, cycle: i64, at_ns: i64) -> i64 {
        self.cycle.since_start_ns(cycle, at_ns)
    }

    /// Returns the slot for an item of execution `cycle` that arrived at `arrival_ns` and has not
    /// left yet. The slot never belongs to an earlier execution. Real-time safe.
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

    /// Returns the last slot of the execution if the sender overslept it: the item arrived before
    /// the end of this slot, and this end is nearer to `now_ns` than the start of `next`. The item
    /// then leaves at once, which is better than one cycle later and delays no other item.
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

    /// Returns the slot in which the throttler passes its latest item. At most one item passes per
    /// cycle, so the slot is in a later cycle than `last`. If a new origin has renumbered the
    /// cycles, the wait is still at most two cycles. Real-time safe.
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
        #[test]
        fn a_held_item_leaves_when_there_is_data_and_a_slot_is_open((cycle, slots) in slots(), origin in -50i64..50, earliest in 0u64..12,
                         arrival in 0i64..100, waited in 0i64..60) {
            let schedule = SlotSchedule::new(cycle, origin, earliest, &slots).unwrap();
            let earliest = earliest.min(cycle) as i64;
            // The item's own execution is the last one released at least the best case ago.
            let own = (-500..500).rev()
                .find(|k| origin + k * cycle as i64 + earliest <= arrival).unwrap();
            let now = arrival + waited;
            let due = schedule.due(schedule.cycle_of(arrival), arrival, now);
            prop_assert_eq!(due.cycle, own);
            let (t, k) = walk(cycle as i64, origin, &slots, own, now);
            // The item arrived while a slot of its own was open or to come, and now all are over.
            let last = origin + own * cycle as i64 + slots.iter().map(|s| s.end_ns as i64).max().unwrap();
            let overslept = arrival < last && last <= now && now - last < t - now;
            prop_assert_eq!(due.overslept, overslept, "{:?}, next {}", due, t);
            if overslept {
                prop_assert_eq!((due.opening.end_ns, due.opening.cycle, due.late), (last, own, true));
                return Ok(());
            }
            prop_assert_eq!(due.opening.start_ns.max(now), t);
            prop_assert!(t < due.opening.end_ns);
            // If slots of two executions are open at once, both give this time. The result names
            // the first to open.
            let same_start = walk_start(cycle as i64, origin, &slots, k, due.opening.cycle, t);
            prop_assert!(same_start, "{:?} instead of execution {}", due, k);
            prop_assert_eq!(due.late, due.opening.cycle > own);
        }

        #[test]
        fn every_execution_uses_one_table_of_slots(
            ((cycle, new), old) in slots().prop_flat_map(|(cycle, new)| {
                let slot = (0..3 * cycle, 1..=cycle).prop_map(|(s, l)| Slot::new(s, s + l));
                (Just((cycle, new)), prop::collection::vec(slot, 1..4))
            }),
            origin in -50i64..50, from in -10i64..20, now in 0i64..100, at in 0i64..100, off in -5i64..5,
        ) {
            let period = cycle as i64;
            let first = (at - origin).div_euclid(period);
            // The phase has moved: the instant of the table is a little off its release.
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

        #[test]
        fn an_item_belongs_to_the_last_execution_that_can_have_sent_it(
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

        #[test]
        fn the_throttler_passes_one_item_per_cycle_and_is_never_blocked((cycle, slots) in slots(), origin in -50i64..50, now in 0i64..100,
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

    /// Reports whether the slots of executions `a` and `b` that are open at time `t` began at the
    /// same time.
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
    fn a_slot_that_begins_after_the_cycle_gives_logical_execution_time() {
        // The slot is [100, 101) of a 100 ns cycle. An item released at 0 leaves at the next
        // release. An item that arrives while that slot is open belongs to the next execution.
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
        // With a best case of 10, the item is known to belong to the last execution, in time.
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
    fn invalid_cycles_and_slots_are_refused() {
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
