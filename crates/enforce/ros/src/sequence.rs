//! Which execution of the chain an item belongs to, by its arrival and the items before it. Pure.
//!
//! Only for items whose execution is not known ([`crate::lineage`]).
//!
//! An item that comes later in a cycle than the chain's best case may be this cycle's, early or on
//! time, or that of an execution before which took more than a cycle. Where one item came per cycle
//! so far and the cycle before brought none, an item that comes no later than most is the one that
//! is missing.

/// After so many items in a row, one per cycle, an output is taken to publish once per cycle.
const STEADY: u32 = 8;
/// Most items in a row that are taken for late ones. If more follow, an item was lost and none is
/// late.
const MOST_LATE: u32 = 3;
/// Weight of a new item in the usual time: one in so many.
const WEIGHT: i64 = 8;

/// Follows the items of one output.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sequence {
    last: Option<i64>,
    steady: u32,
    late: u32,
    /// When in their cycle items usually come, ns.
    usual_ns: i64,
    /// How far from that they usually are, ns.
    off_ns: i64,
}

impl Sequence {
    /// The execution of an item: `cycle` is the last one that can have brought it, and it came
    /// `after_ns` behind that one's release. Real-time safe.
    pub fn place(&mut self, cycle: i64, after_ns: i64) -> i64 {
        let missing = self.last.is_some_and(|last| cycle == last + 2);
        let early = after_ns < self.usual_ns.saturating_add(self.off_ns);
        if missing && self.steady >= STEADY && self.late < MOST_LATE && early {
            self.late += 1;
            self.last = Some(cycle - 1);
            return cycle - 1;
        }
        self.follow(cycle, after_ns);
        cycle
    }

    /// The execution of an item is known: it came `after_ns` behind its release. Real-time safe.
    pub fn is_of(&mut self, cycle: i64, after_ns: i64) {
        // A late one, or a second one of a cycle, says nothing of when the next is due.
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

    /// Executions of arrivals, in ms since the first release; the best case is 20 ms.
    fn places(sequence: &mut Sequence, arrivals_ms: &[i64]) -> Vec<i64> {
        let place = |&ms: &i64| {
            let cycle = (ms * MS - BEST).div_euclid(CYCLE);
            sequence.place(cycle, ms * MS - cycle * CYCLE)
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
    fn an_overrun_by_more_than_a_cycle_is_known_by_what_is_missing() {
        // Execution 10 takes 138 ms, 11 is held up by it, 12 is in phase.
        assert_eq!(
            places(&mut steady(), &[1138, 1190, 1250, 1351]),
            [10, 11, 12, 13]
        );
        // It comes a little later than usual, as some do.
        let spread: Vec<i64> = (0..20).map(|n| n * 100 + 50 + 12 * (n % 2)).collect();
        let mut sequence = Sequence::default();
        assert_eq!(places(&mut sequence, &spread), (0..20).collect::<Vec<_>>());
        assert_eq!(places(&mut sequence, &[2159, 2195, 2250]), [20, 21, 22]);
        // Both of the next come late.
        assert_eq!(
            places(&mut steady(), &[1138, 1235, 1270, 1350]),
            [10, 11, 12, 13]
        );
    }

    #[test]
    fn an_item_that_was_lost_shifts_no_other_for_long() {
        // 10 never comes. A few are taken for the one before, then no more.
        let arrivals: Vec<i64> = (11..31).map(|n| n * 100 + 45).collect();
        let found = places(&mut steady(), &arrivals);
        assert_eq!(found[..3], [10, 11, 12]);
        assert_eq!(found[3..], (14..31).collect::<Vec<_>>());
        // One that comes as usual is not taken for it at all.
        assert_eq!(places(&mut steady(), &[1155, 1252]), [11, 12]);
    }

    #[test]
    fn what_comes_every_other_cycle_or_twice_is_left_alone() {
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
