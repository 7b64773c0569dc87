//! Finds the fewest bands whose average latency stays within a bound.
//!
//! The bound is measured in the way that the plan will be used: slots are placed for some starts,
//! and other starts run under them. Each draw draws starts anew (Efron 1979) and places slots for
//! them. It then takes the average by Equation 4.1 of the starts that were not drawn, over their
//! own mean. The bound is the upper confidence limit of the draws.

use super::{upper_limit, Profile, ProfileError, Random, DRAW_COUNT, LEAST_STARTS};
use crate::bands::{average_ns, optimal, BandsError, Constraints, Samples, MAX_BANDS};

/// A number of bands, and the share by which these bands make the average latency longer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Average {
    /// The smallest number of bands with which the average latency stays within the requested
    /// limit.
    pub bands: usize,
    /// The share by which the bands make the average latency longer, over all measured executions.
    pub above: f64,
    /// The upper confidence limit, for later starts, of the share by which the bands make the
    /// average latency longer.
    pub bound: f64,
}

impl Profile {
    /// Returns the smallest number of bands with which the average latency exceeds the unshaped one
    /// by at most the share `asked`, at [`CONFIDENCE`](super::CONFIDENCE). The last slot begins at
    /// `last_ns`; `start_ns` is added to all latencies.
    ///
    /// # Errors
    /// Fails if the profile has too few starts, or if no number of bands suffices. The error names
    /// the best number.
    pub fn fewest(
        &self,
        asked: f64,
        last_ns: u64,
        limits: &Constraints,
        start_ns: u64,
    ) -> Result<Average, ProfileError> {
        let starts = self.starts();
        if starts < LEAST_STARTS {
            return Err(ProfileError::FewStarts { starts });
        }
        let above = |placed: &Samples, of: &Samples, bands| -> Result<f64, BandsError> {
            let capped = placed.capped(last_ns);
            let limits = Constraints {
                epsilon_ns: last_ns - capped.worst_ns(),
                ..*limits
            };
            let ends = optimal(&capped, bands, &limits)?;
            let start = start_ns as f64;
            Ok((average_ns(of, &ends) + start) / (of.mean_ns() + start) - 1.0)
        };
        let all = self.samples(&vec![1; starts]);
        let mut tried: Vec<Average> = Vec::new();
        for bands in 1..=MAX_BANDS {
            let measured = match above(&all, &all, bands) {
                Ok(measured) => measured,
                Err(BandsError::NoRoom { .. }) if !tried.is_empty() => break,
                Err(e) => return Err(e.into()),
            };
            // The bound is at least the measured average, so draws cannot help if that is too much.
            let bound = match measured <= asked {
                true => self.bound(|placed, of| above(placed, of, bands)),
                false => f64::INFINITY,
            };
            let found = Average {
                bands,
                above: measured,
                bound,
            };
            if bound <= asked {
                return Ok(found);
            }
            tried.push(found);
        }
        let by = |a: &&Average, b: &&Average| {
            let order = a.bound.total_cmp(&b.bound);
            order.then(a.above.total_cmp(&b.above))
        };
        let bands = tried.iter().min_by(by).map_or(1, |b| b.bands);
        Err(ProfileError::Average {
            asked,
            best: self.bound(|placed, of| above(placed, of, bands)),
            bands,
        })
    }

    /// Returns the upper confidence limit of a figure. `figure` computes it from two samples: the
    /// starts that were drawn at random, and the starts that were not drawn.
    fn bound(&self, figure: impl Fn(&Samples, &Samples) -> Result<f64, BandsError>) -> f64 {
        let mut random = Random::new();
        let mut figures = Vec::with_capacity(DRAW_COUNT);
        for _ in 0..DRAW_COUNT {
            let drawn = self.draw(&mut random);
            let others: Vec<u64> = drawn.iter().map(|&n| u64::from(n == 0)).collect();
            if others.iter().all(|&n| n == 0) {
                continue;
            }
            // A draw that leaves no room for the slots has no bound.
            let one = figure(&self.samples(&drawn), &self.samples(&others));
            figures.push(one.unwrap_or(f64::INFINITY));
        }
        upper_limit(figures)
    }
}
