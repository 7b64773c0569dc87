//! The running median of the latest values.

const KEPT: usize = 15;

#[derive(Debug, Clone, Default)]
pub(super) struct RunningMedian {
    last: [u64; KEPT],
    n: usize,
    median: u64,
}

impl RunningMedian {
    /// Adds a value. Once there are `KEPT` values, only every fourth value updates the median.
    pub(super) fn add(&mut self, value: u64) {
        self.last[self.n % KEPT] = value;
        self.n += 1;
        if self.n <= KEPT || self.n.is_multiple_of(4) {
            let mut sorted = self.last;
            let filled = &mut sorted[..self.n.min(KEPT)];
            filled.sort_unstable();
            self.median = filled[filled.len() / 2];
        }
        if self.n >= 2 * KEPT {
            self.n -= KEPT;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.n == 0
    }

    pub(super) fn median(&self) -> u64 {
        self.median
    }
}
