//! Slots of a cycle: which one is open, which opens next, and how much time lies outside of them.

use crate::cycle::{limited, Cycle};

/// An interval [start, end) of each cycle, in ns from the start of the cycle.
///
/// The end may lie beyond the end of the cycle: the slot [period, period + d) of one cycle is open
/// while the next cycle begins. With logical execution time, the start may lie beyond the end of
/// the cycle, too (thesis, section 4.5.3). A slot must not be longer than the period;
/// [`Slot::fits`] checks this.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Slot {
    pub start_ns: u64,
    pub end_ns: u64,
}

impl Slot {
    /// Creates the slot [start, end) without a check. [`Slot::fits`] checks a slot.
    pub const fn new(start_ns: u64, end_ns: u64) -> Slot {
        Slot { start_ns, end_ns }
    }

    /// Returns the length of the slot in ns, or 0 if the slot ends before it starts.
    pub const fn length_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }

    /// Returns whether a cycle of this period can have the slot: the slot is not empty and not
    /// longer than the period.
    pub const fn fits(&self, period_ns: u64) -> bool {
        self.start_ns < self.end_ns && self.length_ns() <= period_ns
    }

    /// Returns whether an offset from the start of the slot's cycle lies in the slot.
    pub const fn contains(&self, offset_ns: u64) -> bool {
        self.start_ns <= offset_ns && offset_ns < self.end_ns
    }
}

/// The slot of one particular cycle, with the instants at which it opens and closes, in ns on the
/// clock of the cycle's origin.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opening {
    /// The number of the cycle that the slot belongs to. The slot may end in a later cycle.
    pub cycle: i64,
    /// The index of the slot among the slots of its cycle.
    pub slot: usize,
    pub start_ns: i64,
    pub end_ns: i64,
}

impl Opening {
    /// Returns the number of this opening among all openings, counted from 0 at the first slot of
    /// cycle 0. Returns `None` before cycle 0. `slots` is the number of slots per cycle. The slots
    /// must be in order and must not overlap.
    pub fn number(&self, slots: usize) -> Option<u64> {
        let before = u64::try_from(self.cycle).ok()?.checked_mul(slots as u64)?;
        before.checked_add(self.slot as u64)
    }
}

impl Cycle {
    /// Returns one slot of the given cycle, or `None` if that slot does not exist.
    pub fn opening(&self, slots: &[Slot], cycle: i64, slot: usize) -> Option<Opening> {
        let of_cycle = slots.get(slot)?;
        let start = self.start(cycle);
        Some(Opening {
            cycle,
            slot,
            start_ns: limited(start + i128::from(of_cycle.start_ns)),
            end_ns: limited(start + i128::from(of_cycle.end_ns)),
        })
    }

    /// Returns the slot that is open at an instant. If several are open, the one that opened first
    /// is returned.
    pub fn open_slot(&self, slots: &[Slot], at_ns: impl Into<i128>) -> Option<Opening> {
        let at_ns = at_ns.into();
        self.first_opening(slots, |slot| {
            let last = self.position(at_ns - i128::from(slot.start_ns));
            (last.offset_ns < slot.length_ns()).then_some(last.cycle)
        })
    }

    /// Returns the first slot that opens after an instant. A slot that opens at the instant does
    /// not count. Returns `None` if `slots` is empty.
    pub fn next_opening(&self, slots: &[Slot], at_ns: impl Into<i128>) -> Option<Opening> {
        let at_ns = at_ns.into();
        self.first_opening(slots, |slot| {
            Some(
                self.index(at_ns - i128::from(slot.start_ns))
                    .saturating_add(1),
            )
        })
    }

    /// Returns the slot that is open at an instant, or else the slot that opens next, among the
    /// slots of cycle `from` and later. If several are open, returns the one that opened first.
    /// Returns `None` if `slots` is empty.
    pub fn open_or_next(
        &self,
        slots: &[Slot],
        at_ns: impl Into<i128>,
        from: i64,
    ) -> Option<Opening> {
        let at_ns = at_ns.into();
        self.first_opening(slots, |slot| {
            // This is the first cycle whose slot ends after the instant.
            let cycle = self
                .index(at_ns - i128::from(slot.end_ns))
                .saturating_add(1);
            Some(cycle.max(from))
        })
    }

    /// Returns the longest time within [from, until) that lies outside of all slots, in ns. Returns
    /// 0 if `slots` is empty, because a thread without slots may run at any time. The slots must be
    /// in order, must not overlap, and must start within the cycle.
    ///
    /// Takes at most four steps per slot. If the interval is longer than two periods, examines only
    /// its first two periods, because they contain every gap.
    pub fn longest_outside_ns(
        &self,
        slots: &[Slot],
        from_ns: impl Into<i128>,
        until_ns: impl Into<i128>,
    ) -> u64 {
        let (from, until) = (from_ns.into(), until_ns.into());
        if slots.is_empty() || until <= from {
            return 0;
        }
        let until = until.min(from + 2 * i128::from(self.period_ns()));
        let (mut longest, mut at) = (0, from);
        // A slot of the previous cycle may reach into this one.
        let mut cycle = self.index(from).saturating_sub(1);
        while at < until {
            let start = self.start(cycle);
            if start > until {
                break;
            }
            for slot in slots {
                let opens = start + i128::from(slot.start_ns);
                let closes = start + i128::from(slot.end_ns);
                if opens >= until {
                    break;
                }
                if closes > at {
                    longest = longest.max(opens - at);
                    at = at.max(closes);
                }
            }
            cycle += 1;
        }
        longest.max(until - at).max(0) as u64
    }

    fn first_opening(
        &self,
        slots: &[Slot],
        cycle_of: impl Fn(&Slot) -> Option<i64>,
    ) -> Option<Opening> {
        let mut first: Option<Opening> = None;
        for (index, slot) in slots.iter().enumerate() {
            let opening = cycle_of(slot).and_then(|cycle| self.opening(slots, cycle, index));
            if let Some(opening) = opening {
                if first.is_none_or(|f| opening.start_ns < f.start_ns) {
                    first = Some(opening);
                }
            }
        }
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cycle_and_slots() -> impl Strategy<Value = (Cycle, Vec<Slot>)> {
        (1u64..12, -40i64..40).prop_flat_map(|(period, origin)| {
            let slot = (0..3 * period, 1..=period).prop_map(|(s, l)| Slot::new(s, s + l));
            let cycle = Just(Cycle::new(period, origin).unwrap());
            (cycle, prop::collection::vec(slot, 0..4))
        })
    }

    fn disjoint() -> impl Strategy<Value = (Cycle, Vec<Slot>)> {
        (
            1u64..60,
            -90i64..300,
            prop::collection::btree_set(0u64..120, 0..8),
        )
            .prop_map(|(period, origin, cuts)| {
                let cuts: Vec<u64> = cuts.into_iter().collect();
                let slots = cuts.chunks_exact(2).map(|c| Slot::new(c[0], c[1]));
                let first = cuts.first().copied().unwrap_or(0);
                let slots: Vec<Slot> = slots
                    .filter(|s| s.start_ns < period && s.end_ns <= period + first)
                    .collect();
                (Cycle::new(period, origin).unwrap(), slots)
            })
    }

    fn all(cycle: &Cycle, slots: &[Slot]) -> Vec<Opening> {
        let mut all = Vec::new();
        for k in -250i64..250 {
            for (slot, s) in slots.iter().enumerate() {
                let start = cycle.origin_ns() + k * cycle.period_ns() as i64;
                all.push(Opening {
                    cycle: k,
                    slot,
                    start_ns: start + s.start_ns as i64,
                    end_ns: start + s.end_ns as i64,
                });
            }
        }
        all.sort_by_key(|o| o.start_ns);
        all
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn slot_openings_equal_those_of_an_exhaustive_search((cycle, slots) in cycle_and_slots(), at in -60i64..60) {
            let all = all(&cycle, &slots);
            let start = |o: Option<Opening>| o.map(|o| o.start_ns);
            let open = all.iter().find(|o| o.start_ns <= at && at < o.end_ns).copied();
            let found = cycle.open_slot(&slots, at);
            prop_assert_eq!(start(found), start(open));
            let next = all.iter().find(|o| o.start_ns > at).copied();
            let found_next = cycle.next_opening(&slots, at);
            prop_assert_eq!(start(found_next), start(next));
            for found in [found, found_next].into_iter().flatten() {
                prop_assert!(all.contains(&found));
            }
        }

        #[test]
        fn open_or_next_ignores_slots_of_earlier_cycles(
            (cycle, slots) in cycle_and_slots(), at in -60i64..60, from in -60i64..60,
        ) {
            let all = all(&cycle, &slots);
            let wanted = all.iter().find(|o| o.cycle >= from && o.end_ns > at);
            let found = cycle.open_or_next(&slots, at, from);
            prop_assert_eq!(found.map(|o| o.start_ns), wanted.map(|o| o.start_ns));
            prop_assert!(found.is_none_or(|f| f.cycle >= from && f.end_ns > at && all.contains(&f)));
        }

        #[test]
        fn the_longest_time_outside_slots_equals_a_check_of_every_instant(
            (cycle, slots) in disjoint(), from in 0i64..200, long in 0i64..400,
        ) {
            let all = all(&cycle, &slots);
            let is_open = |t: i64| all.iter().any(|o| o.start_ns <= t && t < o.end_ns);
            let (mut longest, mut now) = (0, 0);
            for at in from..from + long {
                now = if slots.is_empty() || is_open(at) { 0 } else { now + 1 };
                longest = longest.max(now);
            }
            prop_assert_eq!(cycle.longest_outside_ns(&slots, from, from + long), longest);
        }

        #[test]
        fn slot_openings_are_numbered_without_gaps((cycle, slots) in disjoint(), at in 0i64..200) {
            let next = cycle.next_opening(&slots, at);
            let after = next.and_then(|n| cycle.next_opening(&slots, n.start_ns));
            if let (Some(next), Some(after)) = (next, after) {
                match (next.number(slots.len()), after.number(slots.len())) {
                    (Some(number), Some(later)) => prop_assert_eq!(later, number + 1),
                    (None, later) => prop_assert!(next.cycle < 0 && later.is_none_or(|l| l == 0)),
                    (Some(_), None) => prop_assert!(false, "numbers do not end"),
                }
            }
        }

        #[test]
        fn slots_at_extreme_times_do_not_overflow(period in 1u64.., origin in any::<i64>(), s in any::<u64>(), e in any::<u64>(),
                             at in any::<u64>(), from in any::<i64>()) {
            let cycle = Cycle::new(period, origin).unwrap();
            let slots = [Slot::new(s, e)];
            let _ = (cycle.open_slot(&slots, at), cycle.next_opening(&slots, at));
            prop_assert!(cycle.open_or_next(&slots, at, from).is_some());
        }
    }

    #[test]
    fn an_empty_slot_or_one_longer_than_the_cycle_does_not_fit() {
        assert!(Slot::new(0, 10).fits(10) && Slot::new(15, 25).fits(10));
        for slot in [Slot::new(5, 5), Slot::new(5, 4), Slot::new(0, 11)] {
            assert!(!slot.fits(10), "{slot:?}");
        }
        assert!(Slot::new(2, 4).contains(2) && !Slot::new(2, 4).contains(4));
        assert_eq!(Slot::new(5, 4).length_ns(), 0);
    }

    #[cfg(feature = "serde")]
    #[test]
    fn slots_and_policies_have_stable_names_in_files() {
        use crate::Overshoot;
        let slot = serde_json::to_string(&Slot::new(1, 2)).unwrap();
        assert_eq!(slot, r#"{"start_ns":1,"end_ns":2}"#);
        assert!(serde_json::from_str::<Slot>(r#"{"start_ns":1,"end_ns":2,"x":3}"#).is_err());
        let policies = [Overshoot::Carry, Overshoot::Drop, Overshoot::Stop];
        assert_eq!(
            serde_json::to_string(&policies).unwrap(),
            r#"["carry","drop","stop"]"#
        );
    }
}
