//! The results of an arm: latencies, bands, and the figures computed from them.

use crate::frame::report::Figure;
use crate::frame::Estimate;
use crate::measure::floor::Floor;
use crate::measure::stats::{over_blocks, Sorted};

pub(super) fn jitter(latency_ms: &Sorted) -> f64 {
    (latency_ms.quantile(0.995) - latency_ms.quantile(0.005)) / 2.0
}

#[derive(Default)]
pub(super) struct ArmResults {
    /// The end-to-end latencies in ms of the outputs that left in time. Late and discarded outputs
    /// are left out.
    pub latency_ms: Vec<f64>,
    /// The times in ms from the start of the chain's first callback until the output was ready, one
    /// for each latency in `latency_ms`.
    pub ready_ms: Vec<f64>,
    /// The number of the band, from 1, for each latency in `latency_ms`. `None` stands for an
    /// output outside of all bands.
    pub band: Vec<Option<u32>>,
    /// The latencies in ms of outputs that missed their last slot and were not discarded.
    pub late_ms: Vec<f64>,
    pub late: u64,
    pub dropped: u64,
    /// For each run: the 99.9th percentile of the times for which threads ran outside of their
    /// slots, in ms.
    pub outside_ms: Vec<f64>,
    pub cpu: Vec<(f64, f64)>,
    /// The times in ms from the start of the chain's first callback to the arrival of the output at
    /// the listener.
    pub heard_ms: Vec<f64>,
    pub notes: Vec<String>,
    pub floor: Floor,
}

impl ArmResults {
    pub fn sorted(&self) -> Sorted {
        Sorted::new(self.latency_ms.iter().copied())
    }

    /// Returns the jitter of the latencies without outliers, in ms: half of the range from their
    /// 0.5th to their 99.5th percentile.
    pub fn jitter_ms(&self) -> f64 {
        jitter(&self.sorted())
    }

    pub fn full_jitter_ms(&self) -> f64 {
        let sorted = self.sorted();
        (sorted.quantile(1.0) - sorted.quantile(0.0)) / 2.0
    }

    pub fn figures(&self, name: &str) -> [Figure; 3] {
        type Of = fn(&Sorted) -> f64;
        let all: [(&str, Of); 3] = [
            ("average", Sorted::mean),
            ("max", |of| of.quantile(1.0)),
            ("full_jitter", |of| {
                (of.quantile(1.0) - of.quantile(0.0)) / 2.0
            }),
        ];
        all.map(|(what, of)| {
            let estimate = over_blocks(&self.latency_ms, of);
            Figure::estimated(format!("{name}.{what}"), estimate, "ms")
        })
    }

    pub fn jitter_figure(&self, name: &str) -> Figure {
        let jitter = over_blocks(&self.latency_ms, jitter);
        Figure::estimated(format!("{name}.jitter"), jitter, "ms")
    }

    /// Returns jitter, average and maximum, in ms, of the times from the start of the chain's first
    /// callback until the output was ready. Without shaping, these would be the latencies of the
    /// same executions.
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

    /// Estimates the share of executions, in %, whose output left in a slot of its own cycle.
    pub fn inside_percent(&self) -> Estimate {
        let outside = self.outputs() as usize - self.latency_ms.len();
        let banded = self.band.iter().map(|band| f64::from(band.is_some()));
        let all: Vec<f64> = banded.chain(vec![0.0; outside]).collect();
        over_blocks(&all, Sorted::mean).map(|share| 100.0 * share)
    }

    /// Returns the share of executions, from 0 to 1, whose output left in a slot of its own cycle.
    pub fn inside(&self) -> f64 {
        let inside = self.band.iter().flatten().count();
        inside as f64 / self.outputs().max(1) as f64
    }
}
