//! The results of an arm: latencies, bands, and the figures computed from them.

use crate::measure::floor::Floor;
use crate::measure::stats::Sorted;

#[derive(Default)]
pub(super) struct ArmResults {
    /// End-to-end latencies in order, without late and discarded outputs.
    pub latency_ms: Vec<f64>,
    /// The latencies of the same executions until their outputs were ready.
    pub ready_ms: Vec<f64>,
    /// The band of each of these executions, from 1, or `None` outside of all bands.
    pub band: Vec<Option<u32>>,
    /// The latencies of outputs that missed their last slot and were not discarded.
    pub late_ms: Vec<f64>,
    /// The number of outputs that missed their last slot.
    pub late: u64,
    pub dropped: u64,
    /// How long threads ran outside of their slots, p99.9 of each run.
    pub outside_ms: Vec<f64>,
    /// The CPU time of onbeat and of its shaper in each run, % of a core.
    pub cpu: Vec<(f64, f64)>,
    /// The latencies at the listener: from the start of the first callback to the arrival.
    pub heard_ms: Vec<f64>,
    pub notes: Vec<String>,
    pub floor: Floor,
}

impl ArmResults {
    pub fn sorted(&self) -> Sorted {
        Sorted::new(self.latency_ms.iter().copied())
    }

    /// Returns half of the range from p0.5 to p99.5.
    pub fn jitter_ms(&self) -> f64 {
        let sorted = self.sorted();
        (sorted.quantile(0.995) - sorted.quantile(0.005)) / 2.0
    }

    /// Returns half of the whole range, which is the thesis's definition of jitter.
    pub fn full_jitter_ms(&self) -> f64 {
        let sorted = self.sorted();
        (sorted.quantile(1.0) - sorted.quantile(0.0)) / 2.0
    }

    /// Returns jitter, average and worst case of the same executions until their outputs were
    /// ready, ms.
    pub fn unshaped_ms(&self) -> (f64, f64, f64) {
        let sorted = Sorted::new(self.ready_ms.iter().copied());
        let jitter = (sorted.quantile(0.995) - sorted.quantile(0.005)) / 2.0;
        (jitter, sorted.mean(), sorted.quantile(1.0))
    }

    pub fn band_jitters_ms(&self) -> Vec<f64> {
        let bands = self.band.iter().flatten().copied().max().unwrap_or(0);
        (1..=bands)
            .map(|b| {
                let inside = self.latency_ms.iter().zip(&self.band);
                let sorted = Sorted::new(
                    inside
                        .filter(|(_, band)| **band == Some(b))
                        .map(|(l, _)| *l),
                );
                (sorted.quantile(0.995) - sorted.quantile(0.005)) / 2.0
            })
            .collect()
    }

    pub fn outputs(&self) -> u64 {
        self.latency_ms.len() as u64 + self.late_ms.len() as u64 + self.dropped
    }

    /// Returns the share of executions whose output left in a slot of its own cycle, 0 to 1.
    pub fn inside(&self) -> f64 {
        let inside = self.band.iter().flatten().count();
        inside as f64 / self.outputs().max(1) as f64
    }
}
