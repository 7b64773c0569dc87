//! Finds which observed message answers to which recorded one, also if messages of either side are
//! missing.
//!
//! If the messages have time stamps that identify them (a header's stamp that an application passes
//! on), messages with equal stamps belong together. Otherwise both sides are aligned as sequences,
//! as cheaply as possible:
//!
//! | step | cost |
//! |---|---|
//! | a message without a partner | 1000 |
//! | a pair with equal contents that both sides have once | at most 10: the time between the two |
//! | a pair with equal contents that come several times | 1000 for each usual distance of messages between the two |
//! | a pair with different contents | 500, and 2000 for each usual distance of messages between the two |

use super::fields::Digest;
use std::collections::{HashMap, HashSet, VecDeque};

/// The maximum number of recorded messages, and of observed messages, that are aligned at once. The
/// memory for an alignment, in bytes, is the product of these two numbers.
pub const MOST: usize = 1024;

const ALONE: i64 = 1000;
const DIFFERENT: i64 = 500;
const DIFFERENT_DISTANCE: i64 = 2000;
const UNIQUE: i64 = 10;
const SHORTEST_DISTANCE_NS: u64 = 100_000;
const MOST_GAPS: usize = 101;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    pub time_ns: i64,
    pub digest: Digest,
}

impl Mark {
    fn near(&self, other: &Mark, within_ns: u64) -> bool {
        self.time_ns.abs_diff(other.time_ns) <= within_ns
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stamps {
    common: usize,
    possible: usize,
}

impl Stamps {
    pub fn add(&mut self, expected: &[Mark], observed: &[Mark]) {
        let stamps = |marks: &[Mark]| -> Vec<i64> {
            marks.iter().filter_map(|m| m.digest.stamp_ns).collect()
        };
        let (a, b) = (stamps(expected), stamps(observed));
        let known: HashSet<i64> = a.iter().copied().collect();
        let others: HashSet<i64> = b.iter().copied().collect();
        // Stamps that nearly all messages share, such as 0, identify nothing.
        if known.len() * 2 < a.len() || others.len() * 2 < b.len() {
            self.possible += a.len().min(b.len());
            return;
        }
        self.common += known.intersection(&others).count();
        self.possible += known.len().min(others.len());
    }

    pub fn identify(&self) -> bool {
        self.possible > 0 && self.common * 2 >= self.possible
    }
}

/// For each recorded message, the index of the observed message that matches it.
pub type Pairs = Vec<Option<usize>>;

/// Pairs messages with equal time stamps. If several messages have the same stamp, pairs those with
/// equal contents first, and then the remaining ones in their order.
pub fn by_stamp(expected: &[Mark], observed: &[Mark], within_ns: u64) -> Pairs {
    let mut groups: HashMap<Option<i64>, Vec<usize>> = HashMap::new();
    for (n, mark) in observed.iter().enumerate() {
        groups.entry(mark.digest.stamp_ns).or_default().push(n);
    }
    let mut pairs = vec![None; expected.len()];
    for is_equal_wanted in [true, false] {
        for (e, pair) in expected.iter().zip(&mut pairs) {
            let Some(group) = groups.get_mut(&e.digest.stamp_ns) else {
                continue;
            };
            let fits = |o: &usize| {
                let o = &observed[*o];
                o.near(e, within_ns) && (!is_equal_wanted || o.digest == e.digest)
            };
            if pair.is_none() {
                let at = group.iter().position(fits);
                *pair = at.map(|at| group.remove(at));
            }
        }
    }
    pairs
}

/// Pairs messages by their order, contents and times. `distance_ns` is the usual time between two
/// messages. Also pairs messages out of order if their contents occur only once on each side.
pub fn by_order(expected: &[Mark], observed: &[Mark], distance_ns: u64, within_ns: u64) -> Pairs {
    let expected_counts = counts(expected);
    let observed_counts = counts(observed);
    let is_unique = |mark: &Mark| {
        let hash = &mark.digest.hash;
        expected_counts.get(hash) == Some(&1) && observed_counts.get(hash) == Some(&1)
    };
    let costs = Costs {
        within_ns,
        distance_ns,
        unique: expected.iter().map(is_unique).collect(),
    };
    let mut pairs = align(expected, observed, &costs);
    let mut taken = vec![false; observed.len()];
    pairs.iter().flatten().for_each(|&o| taken[o] = true);
    let free: HashMap<u64, usize> = (0..observed.len())
        .filter(|&o| !taken[o])
        .map(|o| (observed[o].digest.hash, o))
        .collect();
    for (n, pair) in pairs.iter_mut().enumerate() {
        let e = &expected[n];
        if pair.is_none() && costs.unique[n] {
            let o = free.get(&e.digest.hash).copied();
            *pair = o.filter(|&o| observed[o].near(e, within_ns));
        }
    }
    pairs
}

fn counts(marks: &[Mark]) -> HashMap<u64, usize> {
    let mut counts = HashMap::new();
    for mark in marks {
        *counts.entry(mark.digest.hash).or_default() += 1;
    }
    counts
}

#[derive(Debug, Clone, Default)]
pub struct Distances {
    gaps_ns: VecDeque<u64>,
}

impl Distances {
    pub fn add(&mut self, gap_ns: u64) {
        if self.gaps_ns.len() >= MOST_GAPS {
            self.gaps_ns.pop_front();
        }
        self.gaps_ns.push_back(gap_ns);
    }

    /// Returns the usual time between two messages. This is the median, which single lost messages
    /// do not change. It is at least a quarter of the mean, because messages may come in groups.
    /// Returns `None` if neither side has two messages.
    pub fn usual_ns(&self) -> Option<u64> {
        let mut sorted: Vec<u64> = self.gaps_ns.iter().copied().collect();
        sorted.sort_unstable();
        let median = *sorted.get(sorted.len().checked_sub(1)? / 2)?;
        let sum: u128 = sorted.iter().map(|&gap| u128::from(gap)).sum();
        let mean = u64::try_from(sum / sorted.len() as u128).unwrap_or(u64::MAX);
        Some(median.max(mean / 4).max(SHORTEST_DISTANCE_NS))
    }
}

struct Costs {
    within_ns: u64,
    distance_ns: u64,
    /// For each recorded message: true if its contents occur exactly once on each side.
    unique: Vec<bool>,
}

impl Costs {
    fn of(&self, e: &Mark, o: &Mark, is_unique: bool) -> Option<i64> {
        let off_ns = e.time_ns.abs_diff(o.time_ns);
        if off_ns > self.within_ns {
            return None;
        }
        let share = |of_ns: u64, cost: i64| {
            let cost = u128::from(off_ns) * cost.unsigned_abs() as u128 / u128::from(of_ns.max(1));
            i64::try_from(cost).unwrap_or(i64::MAX / 4)
        };
        let is_equal = e.digest.hash == o.digest.hash;
        Some(match (is_equal, is_unique) {
            (true, true) => share(self.within_ns, UNIQUE),
            (true, false) => share(self.distance_ns, ALONE),
            (false, _) => DIFFERENT + share(self.distance_ns, DIFFERENT_DISTANCE),
        })
    }
}

fn align(expected: &[Mark], observed: &[Mark], costs: &Costs) -> Pairs {
    const PAIR: u8 = 0;
    const MISSING: u8 = 1;
    const ADDITIONAL: u8 = 2;
    let (rows, columns) = (expected.len() + 1, observed.len() + 1);
    let mut from = vec![ADDITIONAL; rows * columns];
    let mut above: Vec<i64> = (0..columns as i64).map(|n| n * ALONE).collect();
    let mut row = vec![0; columns];
    for (n, e) in expected.iter().enumerate() {
        let steps = &mut from[(n + 1) * columns..(n + 2) * columns];
        row[0] = above[0] + ALONE;
        steps[0] = MISSING;
        for (m, o) in observed.iter().enumerate() {
            let mut best = (above[m + 1] + ALONE, MISSING);
            if row[m] + ALONE < best.0 {
                best = (row[m] + ALONE, ADDITIONAL);
            }
            let pair = costs.of(e, o, costs.unique[n]).map(|c| above[m] + c);
            if let Some(cost) = pair.filter(|&cost| cost <= best.0) {
                best = (cost, PAIR);
            }
            (row[m + 1], steps[m + 1]) = best;
        }
        std::mem::swap(&mut above, &mut row);
    }
    let mut pairs = vec![None; expected.len()];
    let (mut n, mut m) = (expected.len(), observed.len());
    while n > 0 || m > 0 {
        match from[n * columns + m] {
            PAIR => {
                (n, m) = (n - 1, m - 1);
                pairs[n] = Some(m);
            }
            MISSING => n -= 1,
            _ => m -= 1,
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PERIOD_NS: i64 = 100_000_000;
    const WITHIN_NS: u64 = 2_000_000_000;

    /// Creates messages from tuples: number of the period, shift in ms, contents. If `stamped`, the
    /// number is also the messages' time stamp.
    fn marks(all: &[(i64, i64, u64)], stamped: bool) -> Vec<Mark> {
        let mark = |&(n, shift_ms, hash): &(i64, i64, u64)| Mark {
            time_ns: n * PERIOD_NS + shift_ms * 1_000_000,
            digest: Digest {
                stamp_ns: stamped.then_some(n),
                hash,
            },
        };
        all.iter().map(mark).collect()
    }

    #[test]
    fn equal_messages_with_a_loss_are_paired_by_their_times() {
        let expected = marks(
            &[(0, 0, 7), (1, 0, 7), (2, 0, 7), (3, 0, 7), (4, 0, 7)],
            false,
        );
        let observed = marks(&[(0, 3, 7), (1, 3, 7), (3, 3, 7), (4, 3, 7)], false);
        let pairs = by_order(&expected, &observed, PERIOD_NS as u64, WITHIN_NS);
        assert_eq!(pairs, [Some(0), Some(1), None, Some(2), Some(3)]);
    }

    #[test]
    fn different_messages_with_a_loss_are_paired_by_order_and_time() {
        let expected: Vec<_> = (0..50).map(|n| (n, 0, n as u64)).collect();
        let observed: Vec<_> = (0..50)
            .filter(|n| n % 10 != 9)
            .map(|n| (n, 20, 1000 + n as u64))
            .collect();
        let pairs = by_order(
            &marks(&expected, false),
            &marks(&observed, false),
            PERIOD_NS as u64,
            WITHIN_NS,
        );
        for (n, pair) in pairs.iter().enumerate() {
            assert_eq!(pair.is_some(), n % 10 != 9, "{n}");
            assert!(pair.is_none_or(|o| observed[o].0 == n as i64), "{n}");
        }
    }

    #[test]
    fn messages_with_unique_contents_are_paired_at_any_distance_and_out_of_order() {
        let expected: Vec<_> = (0..20).map(|n| (n, 0, n as u64)).collect();
        let late: Vec<_> = expected
            .iter()
            .skip(2)
            .map(|&(n, _, hash)| (n, 350, hash))
            .collect();
        let pairs = by_order(
            &marks(&expected, false),
            &marks(&late, false),
            PERIOD_NS as u64,
            WITHIN_NS,
        );
        let wanted: Pairs = (0..20).map(|n: usize| n.checked_sub(2)).collect();
        assert_eq!(pairs, wanted);
        let mut swapped = expected.clone();
        swapped.swap(5, 6);
        let pairs = by_order(
            &marks(&expected, false),
            &marks(&swapped, false),
            PERIOD_NS as u64,
            WITHIN_NS,
        );
        assert_eq!((pairs[5], pairs[6]), (Some(6), Some(5)));
    }

    #[test]
    fn stamps_that_do_not_identify_messages_are_not_used() {
        let used = |expected: &[Mark], observed: &[Mark]| {
            let mut stamps = Stamps::default();
            stamps.add(expected, observed);
            stamps.identify()
        };
        let own = marks(&[(0, 0, 1), (1, 0, 2), (2, 0, 3)], true);
        assert!(used(&own, &own[1..]));
        let now = marks(&[(7, 0, 1), (8, 0, 2), (2, 0, 3)], true);
        assert!(!used(&own, &now), "most stamps are new");
        let zero: Vec<Mark> = own
            .iter()
            .map(|m| Mark {
                digest: Digest {
                    stamp_ns: Some(0),
                    ..m.digest
                },
                ..*m
            })
            .collect();
        assert!(!used(&zero, &zero), "all stamps are equal");
        assert!(!used(&marks(&[(0, 0, 1)], false), &own));
    }

    proptest! {
        #[test]
        fn messages_between_losses_are_paired(
            lost in proptest::collection::vec(0u8..4, 60), shift_ms in -10i64..10,
        ) {
            let all: Vec<_> = (0..60).map(|n| (n, 0, n as u64)).collect();
            let (mut expected, mut observed) = (Vec::new(), Vec::new());
            for (one, &lost) in all.iter().zip(&lost) {
                if lost != 0 { expected.push(*one); }
                if lost != 1 { observed.push((one.0, shift_ms, one.2)); }
            }
            for stamped in [true, false] {
                let (e, o) = (marks(&expected, stamped), marks(&observed, stamped));
                let pairs = match stamped {
                    true => by_stamp(&e, &o, WITHIN_NS),
                    false => by_order(&e, &o, PERIOD_NS as u64, WITHIN_NS),
                };
                for (n, pair) in pairs.iter().enumerate() {
                    let wanted = observed.iter().position(|one| one.0 == expected[n].0);
                    if stamped || wanted.is_some() {
                        prop_assert_eq!(*pair, wanted, "message {}", n);
                    }
                }
            }
        }

        #[test]
        fn each_observed_message_is_paired_at_most_once(
            e in proptest::collection::vec((0i64..20, 0i64..99, 0u64..3), 0..30),
            o in proptest::collection::vec((0i64..20, 0i64..99, 0u64..3), 0..30),
        ) {
            for stamped in [true, false] {
                let (e, o) = (marks(&e, stamped), marks(&o, stamped));
                let order = by_order(&e, &o, PERIOD_NS as u64, WITHIN_NS);
                for pairs in [by_stamp(&e, &o, WITHIN_NS), order] {
                    let used: Vec<usize> = pairs.into_iter().flatten().collect();
                    let distinct: HashSet<usize> = used.iter().copied().collect();
                    prop_assert_eq!(used.len(), distinct.len());
                }
            }
        }
    }
}
