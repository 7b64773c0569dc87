//! Bounds the latencies of later executions by the latencies of measured starts.
//!
//! Executions of one start are not independent of one another, so whole starts are drawn anew (a
//! bootstrap by clusters).

mod average;
mod pareto;
mod share;
mod tail;

pub use average::Average;
pub(crate) use share::upper_share;
pub use tail::Limit;

use crate::bands::{BandsError, Samples};
use crate::schema::Ms;
use onbeat_document::schema::{Chain, Run};
use onbeat_document::Dist;
use std::collections::BTreeMap;

/// The confidence of all bounds. If many profiles were measured in the same way, this share of
/// their bounds would hold.
pub const CONFIDENCE: f64 = 0.95;

const DRAW_COUNT: usize = if cfg!(test) { 60 } else { 200 };

/// The fewest starts of the application from which a bound is computed. A bound comes from random
/// draws of starts, and fewer starts allow too few different draws.
pub const LEAST_STARTS: usize = 5;

#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ProfileError {
    #[error("a miss rate of {rate} is not possible. Choose one above 0 and up to 0.5.")]
    Rate { rate: f64 },
    #[error(
        "the model does not say which start of the application each execution belongs to. Make the model again from its traces."
    )]
    NoStarts,
    #[error("{executions} executions of {starts} starts of the application count as {independent} independent ones, which are too few for a miss rate of {rate}. Record {need_starts} starts with {need_executions} executions in all.")]
    Few {
        rate: f64,
        starts: usize,
        executions: u64,
        independent: u64,
        need_starts: u64,
        need_executions: u64,
    },
    #[error("--average needs measurements of {LEAST_STARTS} starts of the application, but the model has {starts}. Record more starts.")]
    FewStarts { starts: usize },
    #[error("no number of bands keeps the average latency within {:.1} % of the unshaped one. The best result is {bands} bands with {:.1} % (upper limit at {:.0} % confidence). Ask for at least this percentage with --average.", asked * 100.0, best * 100.0, CONFIDENCE * 100.0)]
    Average {
        /// The requested limit for the growth of the average latency, as a share of the average
        /// without bands.
        asked: f64,
        /// The smallest growth of the average latency that any number of bands can promise, as a
        /// share of the average without bands.
        best: f64,
        bands: usize,
    },
    #[error(transparent)]
    Bands(#[from] BandsError),
    #[error("the tail of the latencies is too heavy for a miss rate of {rate}: the latency limit would be {limit}. Choose a higher miss rate.")]
    Heavy { rate: f64, limit: Ms },
}

/// The measured latencies of a chain, separate for each start of the application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    values: Vec<u64>,
    /// For each start: the different latencies in ascending order, each as its index in `values`
    /// and its count.
    starts: Vec<Vec<(usize, u64)>>,
}

impl Profile {
    /// Makes a profile from one distribution of latencies per start. Empty distributions do not
    /// count.
    pub fn of<'d>(starts: impl IntoIterator<Item = &'d Dist>) -> Self {
        let lists: Vec<Vec<(u64, u64)>> = starts
            .into_iter()
            .filter(|d| d.count() > 0)
            .map(Samples::pairs)
            .collect();
        let mut values: Vec<u64> = lists.iter().flatten().map(|p| p.0).collect();
        values.sort_unstable();
        values.dedup();
        let place = |(value, n): (u64, u64)| (values.partition_point(|&v| v < value), n);
        let starts = lists
            .into_iter()
            .map(|list| list.into_iter().map(place).collect())
            .collect();
        Profile { values, starts }
    }

    /// Makes a profile of chains that are planned together.
    ///
    /// # Errors
    /// Fails if the model does not say which start each execution belongs to.
    pub(crate) fn of_chains(chains: &[&Chain], runs: &[Run]) -> Result<Self, ProfileError> {
        let mut starts: BTreeMap<&str, Dist> = BTreeMap::new();
        for chain in chains {
            let per_run = chain.latency_per_run(runs).ok_or(ProfileError::NoStarts)?;
            for (run, latency) in per_run {
                starts.entry(run).or_default().merge(latency);
            }
        }
        Ok(Self::of(starts.values()))
    }

    /// Returns the number of starts of the application that were measured.
    pub fn starts(&self) -> usize {
        self.starts.len()
    }

    /// Returns the number of executions in all starts together.
    pub fn executions(&self) -> u64 {
        self.starts.iter().flatten().map(|p| p.1).sum()
    }

    fn drawn(&self, drawn: &[u64]) -> Vec<u64> {
        let mut counts = vec![0; self.values.len()];
        for (start, &times) in self.starts.iter().zip(drawn).filter(|d| *d.1 > 0) {
            for &(value, n) in start {
                counts[value] += n * times;
            }
        }
        counts
    }

    fn draw(&self, random: &mut Random) -> Vec<u64> {
        let mut drawn = vec![0; self.starts()];
        for _ in 0..self.starts() {
            drawn[random.below(self.starts())] += 1;
        }
        drawn
    }

    fn samples(&self, drawn: &[u64]) -> Samples {
        let counts = self.drawn(drawn);
        Samples::from_counts(self.values.iter().copied().zip(counts))
    }
}

/// A SplitMix64 generator with a fixed seed: equal profiles give equal plans on every machine.
struct Random(u64);

impl Random {
    fn new() -> Self {
        Random(0x6f6e_6265_6174)
    }

    fn below(&mut self, n: usize) -> usize {
        crate::bands::below(&mut self.0, n as u64) as usize
    }
}

fn upper_limit(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = (values.len() as f64 * CONFIDENCE).ceil() as usize;
    values.get(at.max(1) - 1).copied().unwrap_or(f64::INFINITY)
}

#[cfg(test)]
mod tests;
