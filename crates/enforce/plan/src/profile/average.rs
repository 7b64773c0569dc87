//! The fewest bands whose average latency keeps to a bound.
//!
//! The bound is found as the plan will be used: slots are placed for some starts, and other starts
//! run under them. In each draw, starts are drawn anew (Efron 1979), slots are placed for these, and
//! the average by Equation 4.1 is that of the starts that were not drawn, over their own mean. The
//! upper confidence limit of the draws is the bound.

use super::{upper, Profile, ProfileError, Random, DRAWS, LEAST_STARTS};
use crate::bands::{average_ns, optimal, BandsError, Constraints, Samples, MAX_BANDS};

/// A number of bands, and what it costs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Average {
    /// How many bands.
    pub bands: usize,
    /// The average over the unshaped one, less 1: as measured, and its upper bound.
    pub above: f64,
    /// Upper confidence limit of the same.
    pub bound: f64,
}

impl Profile {
    /// The fewest bands whose average is at most `asked` (a share) over the unshaped one, with
    /// confidence. The last slot begins at `last_ns`; `start_ns` is added to all latencies.
    ///
    /// # Errors
    /// If there are too few starts, or no number of bands does: says which is the best.
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
            // The bound is not lower than what was measured: where that is too much, no draw helps.
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

    /// The upper confidence limit of a figure of starts that were not drawn, from those that were.
    fn bound(&self, figure: impl Fn(&Samples, &Samples) -> Result<f64, BandsError>) -> f64 {
        let mut random = Random::new();
        let mut figures = Vec::with_capacity(DRAWS);
        for _ in 0..DRAWS {
            let drawn = self.draw(&mut random);
            let others: Vec<u64> = drawn.iter().map(|&n| u64::from(n == 0)).collect();
            if others.iter().all(|&n| n == 0) {
                continue;
            }
            // Where a draw leaves no room for the slots, no bound is known.
            let one = figure(&self.samples(&drawn), &self.samples(&others));
            figures.push(one.unwrap_or(f64::INFINITY));
        }
        upper(figures)
    }
}
