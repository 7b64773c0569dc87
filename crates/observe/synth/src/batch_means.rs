//! Estimates how many independent values the values of one run are worth, because values near in
//! time resemble one another.
//!
//! The method is batch means, applied to logarithms so that a heavy tail does not hide the rest. If
//! the means of blocks of m values vary c times as much as those of independent values, then n
//! values count as n / c.

/// The maximum number of blocks into which the values of a run are grouped. When this number is
/// reached, neighbouring blocks are merged in pairs, so that each block has twice as many values.
const MAX_BLOCKS: usize = 32;
const MIN_BLOCKS: usize = 6;

#[derive(Debug, Clone, Default)]
pub(super) struct BatchMeans {
    count: u64,
    sum: f64,
    squares: f64,
    block_sums: Vec<f64>,
    block_length: u64,
    in_block: u64,
    block_sum: f64,
}

impl BatchMeans {
    pub(super) fn record(&mut self, value_ns: u64) {
        let value = (value_ns.max(1) as f64).ln();
        self.count += 1;
        self.sum += value;
        self.squares += value * value;
        self.block_length = self.block_length.max(1);
        self.block_sum += value;
        self.in_block += 1;
        if self.in_block < self.block_length {
            return;
        }
        self.block_sums.push(self.block_sum);
        (self.in_block, self.block_sum) = (0, 0.0);
        if self.block_sums.len() == MAX_BLOCKS {
            self.block_sums = pairs(&self.block_sums);
            self.block_length *= 2;
        }
    }

    /// Returns how many independent values the recorded values are equivalent to. The result is at
    /// most the number of recorded values, and 0 if there are too few values for an estimate.
    pub(super) fn effective(&self) -> u64 {
        if self.block_sums.len() < MIN_BLOCKS {
            return 0;
        }
        let n = self.count as f64;
        let variance = (self.squares - self.sum * self.sum / n).max(0.0) / (n - 1.0);
        // The values are all equal, except for rounding.
        if variance < 1e-15 {
            return self.count;
        }
        let (mut blocks, mut length) = (self.block_sums.clone(), self.block_length as f64);
        let mut alike = 1.0f64;
        // Slow changes are visible in long blocks only.
        while blocks.len() >= MIN_BLOCKS {
            alike = alike.max(variance_of(&blocks) / length / variance);
            blocks = pairs(&blocks);
            length *= 2.0;
        }
        ((n / alike) as u64).max(1)
    }
}

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

    fn effective_of_repeating(count: u64, fresh: u64) -> u64 {
        let mut values = BatchMeans::default();
        let (mut random, mut value) = (1u64, 1_000_000u64);
        for i in 0..count {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            if i % fresh == 0 {
                value = 1_000_000 + random % 1_000_000;
            }
            values.record(value);
        }
        values.effective()
    }

    #[test]
    fn repeated_values_do_not_count_as_independent() {
        // Some blocks always vary a little more than others.
        let alone = effective_of_repeating(8000, 1);
        assert!((3000..=8000).contains(&alone), "{alone}");
        let tenth = effective_of_repeating(8000, 10);
        assert!((300..=1000).contains(&tenth), "{tenth}");
        assert_eq!(
            effective_of_repeating(5, 1),
            0,
            "too few values for an estimate"
        );
    }

    #[test]
    fn values_that_drift_slowly_count_as_few_and_equal_values_all_count_as_independent() {
        let (mut drift, mut constant) = (BatchMeans::default(), BatchMeans::default());
        for i in 0..1000 {
            drift.record(1_000_000 + i * 1000);
            constant.record(77);
        }
        let left = drift.effective();
        assert!((5..=12).contains(&left), "{left}");
        assert_eq!(constant.effective(), 1000);
    }
}
