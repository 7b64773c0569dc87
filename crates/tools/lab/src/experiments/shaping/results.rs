//! Results of an arm: latencies, bands, and what is computed from them.

use crate::measure::floor::Floor;
use crate::measure::stats::Sorted;

/// The measurements of an arm over all its runs.
#[derive(Default)]
pub(super) struct ArmResults {
    /// End-to-end latencies in ms, in order, without late and discarded outputs.
    pub latency_ms: Vec<f64>,
    /// The same executions' latencies until their outputs were ready, ms.
    pub ready_ms: Vec<f64>,
    /// Band of each of these, from 1; none outside of all.
    pub band: Vec<Option<u32>>,
    /// Latencies of outputs that came after their last slot and left all the same, ms.
    pub late_ms: Vec<f64>,
    /// Outputs that came after their last slot, and those that were discarded.
    pub late: u64,
    /// See above.
    pub dropped: u64,
    /// How far threads ran outside their slots, p99.9 of each run, ms.
    pub outside_ms: Vec<f64>,
    /// CPU time of onbeat and of its shaper over the time shaped, % of a core, of each run.
    pub cpu: Vec<(f64, f64)>,
    /// At the listener outside: from the start of the first callback to its arrival, ms.
    pub heard_ms: Vec<f64>,
    /// The command's notes on overruns.
    pub notes: Vec<String>,
    /// cyclictest beside it.
    pub floor: Floor,
}

impl ArmResults {
    /// Latencies in ascending order.
    pub fn sorted(&self) -> Sorted {
        Sorted::new(self.latency_ms.iter().copied())
    }

    /// Half of the range from p0.5 to p99.5, ms.
    pub fn jitter_ms(&self) -> f64 {
        let sorted = self.sorted();
        (sorted.quantile(0.995) - sorted.quantile(0.005)) / 2.0
    }

    /// Half of the whole range, ms: the jitter as the thesis has it.
    pub fn full_jitter_ms(&self) -> f64 {
        let sorted = self.sorted();
        (sorted.quantile(1.0) - sorted.quantile(0.0)) / 2.0
    }

    /// Jitter, average and worst case that the same executions would have had if their outputs had
    /// not been held back, ms.
    pub fn unshaped_ms(&self) -> (f64, f64, f64) {
        let sorted = Sorted::new(self.ready_ms.iter().copied());
        let jitter = (sorted.quantile(0.995) - sorted.quantile(0.005)) / 2.0;
        (jitter, sorted.mean(), sorted.quantile(1.0))
    }

    /// The same within each band.
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

    /// Number of outputs, the late and discarded ones included.
    pub fn outputs(&self) -> u64 {
        self.latency_ms.len() as u64 + self.late_ms.len() as u64 + self.dropped
    }

    /// Share of executions whose output left in a slot of its own cycle, 0 to 1.
    pub fn inside(&self) -> f64 {
        let inside = self.band.iter().flatten().count();
        inside as f64 / self.outputs().max(1) as f64
    }
}
