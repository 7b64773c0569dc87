//! A chain's latencies by start of the application: what they can promise of later ones. Executions
//! of one start are not independent of one another, so whole starts are drawn anew (a bootstrap by
//! clusters).

mod average;
mod pareto;
mod tail;

pub use average::Average;
pub use tail::Limit;

use crate::bands::{BandsError, Samples};
use crate::schema::Ms;
use onbeat_document::schema::{Chain, Run};
use onbeat_document::Dist;
use std::collections::BTreeMap;

/// The share of profiles of which a bound holds.
pub const CONFIDENCE: f64 = 0.95;

/// How often starts are drawn anew.
const DRAWS: usize = if cfg!(test) { 60 } else { 200 };

/// Fewest starts that are drawn from: of fewer, too few different draws can be made.
pub const LEAST_STARTS: usize = 5;

/// Why a profile carries no bound.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ProfileError {
    /// A rate that is none.
    #[error("a miss rate of {rate}: it lies above 0 and up to 0.5")]
    Rate {
        /// What was asked for.
        rate: f64,
    },
    /// It is not known which start each execution belongs to.
    #[error(
        "the model does not say of which start each execution was: make it again from its traces"
    )]
    NoStarts,
    /// Too few starts or executions.
    #[error("{executions} executions of {starts} starts, which count as {independent} that do not depend on one another, cannot show a miss rate of {rate}: record {need_starts} starts with {need_executions} executions in all")]
    Few {
        /// The asked rate.
        rate: f64,
        /// Measured starts.
        starts: usize,
        /// Measured executions.
        executions: u64,
        /// As many independent ones.
        independent: u64,
        /// Starts that would do, were they as those.
        need_starts: u64,
        /// Executions in all of these.
        need_executions: u64,
    },
    /// Too few starts for a bound of the average.
    #[error("a bound of the average needs {LEAST_STARTS} starts of the application at least, and the model has {starts}: record more")]
    FewStarts {
        /// Measured starts.
        starts: usize,
    },
    /// No number of bands keeps to the average.
    #[error("no number of bands keeps the average within {:.1} % of the unshaped one: the best are {bands} bands, with {:.1} % (upper bound of {:.0} %)", asked * 100.0, best * 100.0, CONFIDENCE * 100.0)]
    Average {
        /// Asked for, as a share.
        asked: f64,
        /// The least bound.
        best: f64,
        /// Its number of bands.
        bands: usize,
    },
    /// Slots cannot be placed.
    #[error(transparent)]
    Bands(#[from] BandsError),
    /// The limit lies beyond any cycle.
    #[error("the tail of the latencies is too heavy for a miss rate of {rate}: its limit would be {limit}")]
    Heavy {
        /// The asked rate.
        rate: f64,
        /// The limit.
        limit: Ms,
    },
}

/// Latencies by start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// All different values, ascending, ns.
    values: Vec<u64>,
    /// Of each start: index into the values, and how often it was seen; ascending.
    starts: Vec<Vec<(usize, u64)>>,
}

impl Profile {
    /// Of distributions, one for each start; those without values do not count.
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

    /// Of chains that are planned together.
    ///
    /// # Errors
    /// If the model does not say of which start each execution was.
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

    /// Number of starts.
    pub fn starts(&self) -> usize {
        self.starts.len()
    }

    /// Number of executions.
    pub fn executions(&self) -> u64 {
        self.starts.iter().flatten().map(|p| p.1).sum()
    }

    /// How often each value was seen, where each start counts as often as drawn.
    fn drawn(&self, drawn: &[u64]) -> Vec<u64> {
        let mut counts = vec![0; self.values.len()];
        for (start, &times) in self.starts.iter().zip(drawn).filter(|d| *d.1 > 0) {
            for &(value, n) in start {
                counts[value] += n * times;
            }
        }
        counts
    }

    /// How often each start is drawn, if as many are drawn as there are.
    fn draw(&self, random: &mut Random) -> Vec<u64> {
        let mut drawn = vec![0; self.starts()];
        for _ in 0..self.starts() {
            drawn[random.below(self.starts())] += 1;
        }
        drawn
    }

    /// The latencies where each start counts as often as drawn.
    fn samples(&self, drawn: &[u64]) -> Samples {
        let counts = self.drawn(drawn);
        Samples::counted(self.values.iter().copied().zip(counts))
    }
}

/// SplitMix64: equal profiles give equal plans everywhere.
struct Random(u64);

impl Random {
    fn new() -> Self {
        Random(0x6f6e_6265_6174)
    }

    fn below(&mut self, n: usize) -> usize {
        crate::bands::below(&mut self.0, n as u64) as usize
    }
}

/// The value below which most of these lie: [`CONFIDENCE`] of them.
fn upper(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = (values.len() as f64 * CONFIDENCE).ceil() as usize;
    values.get(at.max(1) - 1).copied().unwrap_or(f64::INFINITY)
}

#[cfg(test)]
mod tests;
