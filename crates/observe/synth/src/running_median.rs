//! The running median of the last few values.

const KEPT: usize = 15;

/// Keeps the last few values.
#[derive(Debug, Clone, Default)]
pub(super) struct RunningMedian {
    last: [u64; KEPT],
    n: usize,
    median: u64,
}

impl RunningMedian {
    /// One more value. The median follows with a little delay once there are enough.
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

    /// True while there is no value.
    pub(super) fn is_empty(&self) -> bool {
        self.n == 0
    }

    /// 0 while there is no value.
    pub(super) fn median(&self) -> u64 {
        self.median
    }
}
