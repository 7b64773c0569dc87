//! Slots of a cycle: which is open, which opens next, and what lies outside of them.

use crate::cycle::{limited, Cycle};

/// An interval [start, end) of each cycle, as time from the start of the cycle in ns.
///
/// The end, and with logical execution time the start too (thesis, section 4.5.3), may lie beyond
/// the end of the cycle: the slot [period, period + d) of one cycle is open while the next one
/// begins. A slot is not longer than the period; [`Slot::fits`] checks it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Slot {
    /// First instant within the slot.
    pub start_ns: u64,
    /// First instant after the slot.
    pub end_ns: u64,
}

impl Slot {
    /// The slot [start, end). Any numbers: see [`Slot::fits`].
    pub const fn new(start_ns: u64, end_ns: u64) -> Slot {
        Slot { start_ns, end_ns }
    }

    /// Length in ns; 0 if it ends before it starts.
    pub const fn length_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }

    /// Whether a cycle can have this slot: it is not empty and not longer than the period.
    pub const fn fits(&self, period_ns: u64) -> bool {
        self.start_ns < self.end_ns && self.length_ns() <= period_ns
    }

    /// Whether an offset from the start of the slot's cycle lies in it.
    pub const fn contains(&self, offset_ns: u64) -> bool {
        self.start_ns <= offset_ns && offset_ns < self.end_ns
    }
}

/// The slot of one certain cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opening {
    /// Number of the cycle that the slot belongs to; it may end in a later one.
    pub cycle: i64,
    /// Index of the slot.
    pub slot: usize,
    /// When it opens.
    pub start_ns: i64,
    /// When it closes.
    pub end_ns: i64,
}

impl Opening {
    /// A number that grows by one from each opening to the next, if the slots are in order and do
    /// not overlap; `slots` is how many a cycle has. `None` before cycle 0.
    pub fn number(&self, slots: usize) -> Option<u64> {
        let before = u64::try_from(self.cycle).ok()?.checked_mul(slots as u64)?;
        before.checked_add(self.slot as u64)
    }
}

impl Cycle {
    /// The slot of the given cycle.
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

    /// The slot that is open at an instant; the one that opened first, where several are.
    pub fn open_slot(&self, slots: &[Slot], at_ns: impl Into<i128>) -> Option<Opening> {
        let at_ns = at_ns.into();
        self.first_opening(slots, |slot| {
            let last = self.position(at_ns - i128::from(slot.start_ns));
            (last.offset_ns < slot.length_ns()).then_some(last.cycle)
        })
    }

    /// The first slot that opens after an instant (not at it). `None` without slots.
    pub fn next_opening(&self, slots: &[Slot], at_ns: impl Into<i128>) -> Option<Opening> {
        let at_ns = at_ns.into();
        self.first_opening(slots, |slot| {
            Some(
                self.index(at_ns - i128::from(slot.start_ns))
                    .saturating_add(1),
            )
        })
    }

    /// The slot of cycle `from` or a later one that is open at an instant or opens next; the one
    /// that opens first, where several are open. `None` without slots.
    pub fn open_or_next(
        &self,
        slots: &[Slot],
        at_ns: impl Into<i128>,
        from: i64,
    ) -> Option<Opening> {
        let at_ns = at_ns.into();
        self.first_opening(slots, |slot| {
            // The first cycle whose slot ends after the instant.
            let cycle = self
                .index(at_ns - i128::from(slot.end_ns))
                .saturating_add(1);
            Some(cycle.max(from))
        })
    }

    /// The longest stretch of [from, until) that lies in no slot, ns. 0 without slots: what has
    /// none may run at any time. Of an interval of more than two periods, the first two say
    /// everything. The slots are in order, do not overlap and start within the cycle.
    ///
    /// Takes at most four steps per slot.
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
        // A slot of the cycle before may reach into this one.
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

    /// The opening that starts first, with the cycle that `cycle_of` picks for each slot.
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

    /// A cycle, and slots of it in any order that may overlap and lie up to two cycles later.
    fn cycle_and_slots() -> impl Strategy<Value = (Cycle, Vec<Slot>)> {
        (1u64..12, -40i64..40).prop_flat_map(|(period, origin)| {
            let slot = (0..3 * period, 1..=period).prop_map(|(s, l)| Slot::new(s, s + l));
            let cycle = Just(Cycle::new(period, origin).unwrap());
            (cycle, prop::collection::vec(slot, 0..4))
        })
    }

    /// Slots in order, without overlap, that start within the cycle; the last may wrap around.
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

    /// Every slot of many cycles, by the definition.
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
        fn openings_are_found_as_by_a_search((cycle, slots) in cycle_and_slots(), at in -60i64..60) {
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
        fn only_slots_of_wanted_cycles_are_used(
            (cycle, slots) in cycle_and_slots(), at in -60i64..60, from in -60i64..60,
        ) {
            let all = all(&cycle, &slots);
            let wanted = all.iter().find(|o| o.cycle >= from && o.end_ns > at);
            let found = cycle.open_or_next(&slots, at, from);
            prop_assert_eq!(found.map(|o| o.start_ns), wanted.map(|o| o.start_ns));
            prop_assert!(found.is_none_or(|f| f.cycle >= from && f.end_ns > at && all.contains(&f)));
        }

        #[test]
        fn the_longest_stretch_is_found_as_by_looking_at_every_instant(
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
        fn openings_are_numbered_without_gaps((cycle, slots) in disjoint(), at in 0i64..200) {
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
        fn no_slot_overflows(period in 1u64.., origin in any::<i64>(), s in any::<u64>(), e in any::<u64>(),
                             at in any::<u64>(), from in any::<i64>()) {
            let cycle = Cycle::new(period, origin).unwrap();
            let slots = [Slot::new(s, e)];
            let _ = (cycle.open_slot(&slots, at), cycle.next_opening(&slots, at));
            prop_assert!(cycle.open_or_next(&slots, at, from).is_some());
        }
    }

    #[test]
    fn a_slot_that_no_cycle_can_have_is_refused() {
        assert!(Slot::new(0, 10).fits(10) && Slot::new(15, 25).fits(10));
        for slot in [Slot::new(5, 5), Slot::new(5, 4), Slot::new(0, 11)] {
            assert!(!slot.fits(10), "{slot:?}");
        }
        assert!(Slot::new(2, 4).contains(2) && !Slot::new(2, 4).contains(4));
        assert_eq!(Slot::new(5, 4).length_ns(), 0);
    }

    #[cfg(feature = "serde")]
    #[test]
    fn files_name_start_end_and_policy() {
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
