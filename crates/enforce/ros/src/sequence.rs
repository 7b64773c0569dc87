//! Infers to which execution of the chain an item belongs, from its arrival and the items before
//! it. Pure.
//!
//! It is used only for items whose execution is unknown ([`crate::lineage`]).
//!
//! An item that arrives later in a cycle than the chain's best case may belong to this cycle. It
//! may also belong to an earlier execution that took more than a cycle. If one item came per cycle
//! so far and the previous cycle brought none, an item that arrives no later than most is the
//! missing one.

/// The number of consecutive items, one per cycle, after which an output counts as publishing once
/// per cycle.
const STEADY_AFTER: u32 = 8;
/// The greatest number of consecutive items that count as late. If more items in a row seem late,
/// an item was lost instead.
const MAX_LATE: u32 = 3;
/// The divisor of the running averages: a new item has the weight 1/`WEIGHT`.
const WEIGHT: i64 = 8;

#[derive(Debug, Clone, Copy, Default)]
pub struct Sequence {
    last: Option<i64>,
    steady: u32,
    late: u32,
    usual_ns: i64,
    /// The usual deviation from `usual_ns`, in ns: the running average of the distances between
    /// `usual_ns` and the items' times from release to arrival.
    off_ns: i64,
}

impl Sequence {
    /// Returns the number of the execution to which an item belongs. `cycle` is the last execution
    /// that can have published the item, and `after_ns` is the time from the release of `cycle` to
    /// the item's arrival. Real-time safe.
    pub fn infer_cycle(&mut self, cycle: i64, after_ns: i64) -> i64 {
        let missing = self.last.is_some_and(|last| cycle == last + 2);
        let early = after_ns < self.usual_ns.saturating_add(self.off_ns);
        if missing && self.steady >= STEADY_AFTER && self.late < MAX_LATE && early {
            self.late += 1;
            self.last = Some(cycle - 1);
            return cycle - 1;
        }
        self.follow(cycle, after_ns);
        cycle
    }

    /// Updates the usual time from release to arrival with an item of the known execution `cycle`.
    /// The item arrived `after_ns` after the release of this execution. Real-time safe.
    pub fn note_known(&mut self, cycle: i64, after_ns: i64) {
        // A late item, or a second one of a cycle, does not show when the next is due.
        if self.last.is_some_and(|last| cycle <= last) {
            return;
        }
        self.follow(cycle, after_ns);
    }

    fn follow(&mut self, cycle: i64, after_ns: i64) {
        if self.last == Some(cycle - 1) {
            let off_ns = after_ns.saturating_sub(self.usual_ns);
            if self.steady == 0 {
                (self.usual_ns, self.off_ns) = (after_ns, 0);
            } else {
                self.usual_ns += off_ns / WEIGHT;
                self.off_ns += (off_ns.saturating_abs() - self.off_ns) / WEIGHT;
            }
            self.steady = self.steady.saturating_add(1);
        } else {
            self.steady = 0;
        }
        self.late = 0;
        self.last = Some(cycle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;
    const CYCLE: i64 = 100 * MS;
    const BEST: i64 = 20 * MS;

    fn places(sequence: &mut Sequence, arrivals_ms: &[i64]) -> Vec<i64> {
        let place = |&ms: &i64| {
            let cycle = (ms * MS - BEST).div_euclid(CYCLE);
            sequence.infer_cycle(cycle, ms * MS - cycle * CYCLE)
        };
        arrivals_ms.iter().map(place).collect()
    }

    fn steady() -> Sequence {
        let mut sequence = Sequence::default();
        let arrivals: Vec<i64> = (0..10).map(|n| n * 100 + 50 + n % 3).collect();
        assert_eq!(
            places(&mut sequence, &arrivals),
            (0..10).collect::<Vec<_>>()
        );
        sequence
    }

    #[test]
    fn a_missing_item_reveals_an_overrun_of_more_than_a_cycle() {
        // Execution 10 takes 138 ms, 11 is delayed by it, 12 is in phase.
        assert_eq!(
            places(&mut steady(), &[1138, 1190, 1250, 1351]),
            [10, 11, 12, 13]
        );
        // The item comes a little later than usual, as some do.
        let spread: Vec<i64> = (0..20).map(|n| n * 100 + 50 + 12 * (n % 2)).collect();
        let mut sequence = Sequence::default();
        assert_eq!(places(&mut sequence, &spread), (0..20).collect::<Vec<_>>());
        assert_eq!(places(&mut sequence, &[2159, 2195, 2250]), [20, 21, 22]);
        // Both of the next items come late.
        assert_eq!(
            places(&mut steady(), &[1138, 1235, 1270, 1350]),
            [10, 11, 12, 13]
        );
    }

    #[test]
    fn a_lost_item_shifts_the_cycles_of_only_a_few_later_items() {
        // Item 10 never comes. The next few count as items of the previous execution, later ones do
        // not.
        let arrivals: Vec<i64> = (11..31).map(|n| n * 100 + 45).collect();
        let found = places(&mut steady(), &arrivals);
        assert_eq!(found[..3], [10, 11, 12]);
        assert_eq!(found[3..], (14..31).collect::<Vec<_>>());
        // An item that comes at the usual time never counts as the missing one.
        assert_eq!(places(&mut steady(), &[1155, 1252]), [11, 12]);
    }

    #[test]
    fn items_that_come_every_other_cycle_or_twice_per_cycle_keep_their_cycle() {
        let mut sequence = Sequence::default();
        let every_other: Vec<i64> = (0..20).map(|n| 2 * n * 100 + 50 - n % 4).collect();
        let expected: Vec<i64> = (0..20).map(|n| 2 * n).collect();
        assert_eq!(places(&mut sequence, &every_other), expected);
        let mut sequence = Sequence::default();
        let twice: Vec<i64> = (0..20).map(|n| n / 2 * 100 + 50 + n % 2).collect();
        let expected: Vec<i64> = (0..20).map(|n| n / 2).collect();
        assert_eq!(places(&mut sequence, &twice), expected);
    }
}
