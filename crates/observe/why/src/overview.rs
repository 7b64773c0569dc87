//! The latency of every execution over time, in bounded memory.

use serde::Serialize;
use std::collections::BTreeMap;

const BINS_MAX: usize = 2048;

/// The initial width of a bin in ns. The width is doubled until [`BINS_MAX`] bins cover the
/// recording.
const WIDTH_NS: u64 = 1_000_000;

/// The shortest and the longest latency of executions over time, in bins of equal width.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Overview {
    pub width_ns: u64,
    /// The bins that contain an execution, in order of time.
    pub bins: Vec<Bin>,
}

/// The executions that start within one bin of the recording's time.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Bin {
    /// The start of the bin, CLOCK_MONOTONIC.
    pub start_ns: u64,
    pub count: u64,
    pub min_ns: u64,
    pub max_ns: u64,
}

impl Bin {
    fn join(&mut self, other: &Bin) {
        self.count += other.count;
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }
}

#[derive(Debug)]
pub(crate) struct Collector {
    width_ns: u64,
    bins: BTreeMap<u64, Bin>,
}

impl Default for Collector {
    fn default() -> Collector {
        Collector {
            width_ns: WIDTH_NS,
            bins: BTreeMap::new(),
        }
    }
}

impl Collector {
    pub(crate) fn add(&mut self, start_ns: u64, latency_ns: u64) {
        self.join(&Bin {
            start_ns,
            count: 1,
            min_ns: latency_ns,
            max_ns: latency_ns,
        });
        while self.bins.len() > BINS_MAX {
            self.width_ns = self.width_ns.saturating_mul(2);
            for bin in std::mem::take(&mut self.bins).into_values() {
                self.join(&bin);
            }
        }
    }

    fn join(&mut self, bin: &Bin) {
        let number = bin.start_ns / self.width_ns;
        let start_ns = number * self.width_ns;
        let of = Bin { start_ns, ..*bin };
        let known = self.bins.entry(number).and_modify(|known| known.join(bin));
        known.or_insert(of);
    }

    pub(crate) fn finish(self) -> Overview {
        Overview {
            width_ns: self.width_ns,
            bins: self.bins.into_values().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_overview_of_any_run_has_few_bins_that_keep_counts_and_extremes() {
        let mut all = Collector::default();
        for i in 0..100_000u64 {
            all.add(7 + i * 10_000_000, 1_000 + i % 1_000);
        }
        all.add(u64::MAX, 5);
        let overview = all.finish();
        assert!(overview.bins.len() <= BINS_MAX);
        let count: u64 = overview.bins.iter().map(|b| b.count).sum();
        assert_eq!(count, 100_001);
        let least = overview.bins.iter().map(|b| b.min_ns).min();
        let most = overview.bins.iter().map(|b| b.max_ns).max();
        assert_eq!((least, most), (Some(5), Some(1_999)));
        let is_apart = |b: &[Bin]| b[0].start_ns + overview.width_ns <= b[1].start_ns;
        assert!(overview.bins.windows(2).all(is_apart));
    }
}
