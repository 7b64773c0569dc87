//! Keeps the last executions in a ring.

use crate::bands::Samples;
use crate::profile::Profile;
use onbeat_document::Dist;
use std::collections::VecDeque;

/// The times at which the outputs of the last executions were ready, in ns from the start of their
/// cycles.
#[derive(Debug, Clone)]
pub(super) struct Window {
    capacity: usize,
    values: VecDeque<u64>,
    /// The number of latest executions under the current load, at most `recent_capacity`.
    recent: usize,
    recent_capacity: usize,
    range_of_last_load: u64,
}

impl Window {
    pub(super) fn new(capacity: usize, recent_capacity: usize) -> Window {
        Window {
            capacity,
            values: VecDeque::with_capacity(capacity),
            recent: 0,
            recent_capacity,
            range_of_last_load: 0,
        }
    }

    pub(super) fn push(&mut self, ready_ns: u64) {
        if self.values.len() == self.capacity {
            self.values.pop_front();
        }
        self.values.push_back(ready_ns);
        self.recent = (self.recent + 1).min(self.recent_capacity);
    }

    pub(super) fn start_new_load(&mut self) {
        self.range_of_last_load = self.range();
        self.recent = 0;
    }

    pub(super) fn is_full(&self) -> bool {
        self.values.len() == self.capacity
    }

    fn last(&self, from: usize, until: usize) -> Vec<u64> {
        let begin = self.values.len() - self.recent;
        self.values
            .range(begin + from..begin + until)
            .copied()
            .collect()
    }

    pub(super) fn recent(&self) -> Samples {
        Samples::new(&self.last(0, self.recent))
    }

    pub(super) fn halves_of(&self, count: usize) -> (Samples, Samples) {
        let begin = self.recent.saturating_sub(count);
        let half = (begin + self.recent) / 2;
        let part = |from, until| Samples::new(&self.last(from, until));
        (part(begin, half), part(half, self.recent))
    }

    pub(super) fn keep_recent(&mut self, count: usize) {
        self.recent = self.recent.min(count);
    }

    pub(super) fn longest(&self) -> u64 {
        self.values.iter().copied().max().unwrap_or(0)
    }

    /// Returns the difference between the longest and the shortest time of the recent executions,
    /// which are the latest ones under the current load. If their number is below half of
    /// `recent_capacity`, the result is at least the difference under the previous load.
    pub(super) fn range(&self) -> u64 {
        let recent = self.recent();
        let range = recent.worst_ns() - recent.best_ns();
        match self.recent * 2 < self.recent_capacity {
            true => range.max(self.range_of_last_load),
            false => range,
        }
    }

    /// Returns the profile of all stored executions. Every `each` consecutive executions form one
    /// cluster, because consecutive executions depend on one another.
    pub(super) fn profile(&self, each: usize) -> Profile {
        let values: Vec<u64> = self.values.iter().copied().collect();
        let dists: Vec<Dist> = values
            .chunks(each)
            .map(|block| {
                let mut dist = Dist::new();
                block.iter().for_each(|&v| dist.record(v));
                dist
            })
            .collect();
        Profile::of(&dists)
    }
}
