//! Finds the best placement of slots on given places by dynamic programming.
//!
//! The documentation of the parent module proves that the result is exact.

use super::{Frame, Samples};

/// Chooses `count` of the times `places` as slot ends, so that the average latency of the samples
/// is the smallest. The last slot always ends at the last entry of `places`. Returns `None` if no
/// choice meets the constraints.
pub(super) fn place(
    samples: &Samples,
    count: usize,
    frame: &Frame,
    places: &[u64],
) -> Option<Vec<u64>> {
    // Narrow integers are faster, so they are used wherever the sums fit.
    let most = u128::from(samples.count()) * u128::from(frame.last);
    if most < u128::from(u64::NONE) {
        place_by::<u64>(samples, count, frame, places)
    } else {
        place_by::<u128>(samples, count, frame, places)
    }
}

trait Cost: Copy + Ord {
    /// A cost that is larger than any sum of costs. Adding it to a sum does not overflow.
    const NONE: Self;
    fn of(n: u64, x: u64) -> Self;
    fn plus(self, other: Self) -> Self;
}

impl Cost for u64 {
    const NONE: Self = 1 << 62;
    fn of(n: u64, x: u64) -> Self {
        n * x
    }
    fn plus(self, other: Self) -> Self {
        self + other
    }
}

impl Cost for u128 {
    const NONE: Self = u128::MAX;
    fn of(n: u64, x: u64) -> Self {
        u128::from(n) * u128::from(x)
    }
    fn plus(self, other: Self) -> Self {
        self.saturating_add(other)
    }
}

fn place_by<C: Cost>(
    samples: &Samples,
    count: usize,
    frame: &Frame,
    places: &[u64],
) -> Option<Vec<u64>> {
    let until: Vec<u64> = places.iter().map(|&x| samples.until(x)).collect();
    // The cost of the best placement whose last slot so far ends at each place.
    let first = |(&x, &n): (&u64, &u64)| if x < frame.last { C::of(n, x) } else { C::NONE };
    let mut costs: Vec<C> = places.iter().zip(&until).map(first).collect();
    let mut choices: Vec<Vec<u32>> = Vec::with_capacity(count - 1);
    for _ in 1..count {
        let layer = Layer::new(places, &until, &costs, frame);
        let (next, choice) = layer.solve();
        costs = next;
        choices.push(choice);
    }
    let mut at = places.len() - 1;
    if costs[at] >= C::NONE {
        return None;
    }
    let mut ends = vec![frame.last];
    for choice in choices.iter().rev() {
        at = choice[at] as usize;
        ends.push(places[at]);
    }
    ends.reverse();
    Some(ends)
}

struct Layer<'a, C> {
    places: &'a [u64],
    until: &'a [u64],
    before: &'a [C],
    /// The times at which the next slot can end. Each entry has the index of such a time in
    /// `places`. Then follows an index range in `places`: the times at which the slot before can
    /// end.
    rows: Vec<(u32, u32, u32)>,
    costs: Vec<C>,
    choice: Vec<u32>,
}

impl<'a, C: Cost> Layer<'a, C> {
    fn new(places: &'a [u64], until: &'a [u64], before: &'a [C], frame: &Frame) -> Self {
        // The number of reachable places before each one.
        let mut reached = Vec::with_capacity(places.len() + 1);
        reached.push(0u32);
        let mut sum = 0;
        for &cost in before {
            sum += u32::from(cost < C::NONE);
            reached.push(sum);
        }
        let (mut low, mut high) = (0, 0);
        let mut rows = Vec::with_capacity(places.len());
        for (i, &x) in places.iter().enumerate() {
            while low < i && x - places[low] > frame.largest {
                low += 1;
            }
            while high < i && x - places[high] >= frame.least {
                high += 1;
            }
            if low < high && reached[high] > reached[low] {
                rows.push((i as u32, low as u32, high as u32));
            }
        }
        Layer {
            places,
            until,
            before,
            rows,
            costs: vec![C::NONE; places.len()],
            choice: vec![0; places.len()],
        }
    }

    fn solve(mut self) -> (Vec<C>, Vec<u32>) {
        self.between(0, self.rows.len(), 0, self.places.len());
        (self.costs, self.choice)
    }

    /// Computes, for each of the entries `from..to` of `rows`, the best end of the slot before.
    /// These best ends are times in `places` with indices in `low..high`.
    fn between(&mut self, from: usize, to: usize, low: usize, high: usize) {
        if from >= to {
            return;
        }
        let middle = from + (to - from) / 2;
        let (i, row_low, row_high) = self.rows[middle];
        let (i, row_low, row_high) = (i as usize, row_low as usize, row_high as usize);
        let (x, n) = (self.places[i], self.until[i]);
        // The best slot before a row lies between those of its neighbours.
        let (mut least, mut at) = (C::NONE, low);
        let range = row_low.max(low)..row_high.min(high);
        let start = range.start;
        for (j, (&before, &until)) in self.before[range.clone()]
            .iter()
            .zip(&self.until[range])
            .enumerate()
        {
            let cost = before.plus(C::of(n - until, x));
            if cost < least {
                (least, at) = (cost, start + j);
            }
        }
        self.costs[i] = least;
        self.choice[i] = at as u32;
        self.between(from, middle, low, (at + 1).min(high));
        self.between(middle + 1, to, at, high);
    }
}
