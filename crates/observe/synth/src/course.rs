//! How many independent values a run's values are worth: neighbours in time resemble one another.
//!
//! The method of batch means, on logarithms, so that a heavy tail does not hide the rest: where the means
//! of blocks of m values vary c times as much as those of independent values would, n values are worth n / c.

/// Most blocks. Their length doubles when there are more.
const BLOCKS: usize = 32;
/// Fewest blocks whose means tell how much these vary.
const FEWEST: usize = 6;

/// The values of one figure in one run, in the order in which they came.
#[derive(Debug, Clone, Default)]
pub(super) struct Course {
    count: u64,
    sum: f64,
    squares: f64,
    /// Sums of full blocks.
    full: Vec<f64>,
    /// Values of a block, and of the one that is not full.
    length: u64,
    begun: u64,
    part: f64,
}

impl Course {
    /// One more value.
    pub(super) fn record(&mut self, value_ns: u64) {
        let value = (value_ns.max(1) as f64).ln();
        self.count += 1;
        self.sum += value;
        self.squares += value * value;
        self.length = self.length.max(1);
        self.part += value;
        self.begun += 1;
        if self.begun < self.length {
            return;
        }
        self.full.push(self.part);
        (self.begun, self.part) = (0, 0.0);
        if self.full.len() == BLOCKS {
            self.full = pairs(&self.full);
            self.length *= 2;
        }
    }

    /// How many independent values these are worth: at most their number. Zero where they are too few to
    /// tell.
    pub(super) fn effective(&self) -> u64 {
        if self.full.len() < FEWEST {
            return 0;
        }
        let n = self.count as f64;
        let variance = (self.squares - self.sum * self.sum / n).max(0.0) / (n - 1.0);
        // All the same, but for rounding.
        if variance < 1e-15 {
            return self.count;
        }
        let (mut blocks, mut length) = (self.full.clone(), self.length as f64);
        let mut alike = 1.0f64;
        // Slow changes show in long blocks only.
        while blocks.len() >= FEWEST {
            alike = alike.max(variance_of(&blocks) / length / variance);
            blocks = pairs(&blocks);
            length *= 2.0;
        }
        ((n / alike) as u64).max(1)
    }
}

/// The sums of neighbours; a last one without a neighbour is left out.
fn pairs(sums: &[f64]) -> Vec<f64> {
    sums.chunks_exact(2).map(|pair| pair[0] + pair[1]).collect()
}

fn variance_of(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `count` values; each but a share `fresh` of them repeats the one before.
    fn worth(count: u64, fresh: u64) -> u64 {
        let mut course = Course::default();
        let (mut random, mut value) = (1u64, 1_000_000u64);
        for i in 0..count {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            if i % fresh == 0 {
                value = 1_000_000 + random % 1_000_000;
            }
            course.record(value);
        }
        course.effective()
    }

    #[test]
    fn values_that_repeat_are_worth_as_many_as_are_new() {
        // Some blocks always vary a little more than others.
        let alone = worth(8000, 1);
        assert!((3000..=8000).contains(&alone), "{alone}");
        let tenth = worth(8000, 10);
        assert!((300..=1000).contains(&tenth), "{tenth}");
        assert_eq!(worth(5, 1), 0, "too few to tell");
    }

    #[test]
    fn a_slow_drift_leaves_few_values_and_a_constant_all() {
        let (mut drift, mut constant) = (Course::default(), Course::default());
        for i in 0..1000 {
            drift.record(1_000_000 + i * 1000);
            constant.record(77);
        }
        let left = drift.effective();
        assert!((5..=12).contains(&left), "{left}");
        assert_eq!(constant.effective(), 1000);
    }
}
