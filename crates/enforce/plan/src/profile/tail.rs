//! Finds the limit that later executions exceed at most at a miss rate. It is an upper confidence
//! limit of a quantile of the latency.
//!
//! The limit is the larger of two:
//!
//! - The *order statistic* (Wilks 1941; Conover, Practical Nonparametric Statistics, 3.2) assumes
//!   nothing about the distribution. It needs enough independent executions: 2995 for one in 1000.
//! - The *generalised Pareto* tail (Pickands 1975) is fitted to the largest min(n / 10, 3 sqrt(n))
//!   values. This threshold is that of Vehtari, Simpson, Gelman, Yao and Gabry, "Pareto smoothed
//!   importance sampling", 2024; the tenth is from DuMouchel 1983. The upper limit of its quantile
//!   comes from draws of whole starts.
//!
//! The Pareto tail extrapolates from the shape of the tail. Alone it does not reach the confidence
//! (0.80 to 0.93 for 0.95 in simulations), so it can only raise the limit. A rate that the order
//! statistic does not support is refused.
//!
//! **Independent executions.** Starts differ in how many of their executions belong to the largest
//! tenth of all. The design effect is chi-square of these counts, divided by its degrees of
//! freedom. It is the factor by which the counts' variance exceeds that of independent executions.
//! The number of executions is divided by the upper confidence limit of the design effect. Few
//! starts cannot show that they are alike, so they count for less.

use super::pareto::Pareto;
use super::{upper_limit, Profile, ProfileError, Random, CONFIDENCE, DRAW_COUNT};
use crate::schema::Ms;

const MIN_TAIL_VALUES: u64 = 50;

const LONGEST_NS: f64 = 864e12;

const MAX_STARTS_ASKED: u64 = 100_000;

/// An upper confidence limit of the latency.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limit {
    /// The latency in ns. At most the share `rate` of later executions takes longer.
    pub ns: u64,
    pub starts: usize,
    pub executions: u64,
    /// The effective number of executions: this number of independent executions would support the
    /// limit equally well.
    pub independent: u64,
    /// The shape of the fitted tail: below 0 it is bounded, above 0 heavy. It is `None` if too few
    /// executions lie above the threshold, or if their share is not above the miss rate.
    pub shape: Option<f64>,
}

/// Returns the number of independent executions that support the miss rate `rate` at
/// [`CONFIDENCE`]. The longest of so many executions is a latency that at most the share `rate` of
/// later executions exceeds.
fn least(rate: f64) -> f64 {
    ((1.0 - CONFIDENCE).ln() / (1.0 - rate).ln()).ceil()
}

impl Profile {
    /// Returns the latency that at most the share `rate` of later executions exceeds, at
    /// [`CONFIDENCE`].
    ///
    /// # Errors
    /// Fails if there are too few starts and executions. The error says how many would suffice.
    pub fn limit(&self, rate: f64) -> Result<Limit, ProfileError> {
        if !(rate > 0.0 && rate <= 0.5) {
            return Err(ProfileError::Rate { rate });
        }
        let counts = self.drawn(&vec![1; self.starts()]);
        let spread = self.spread(&counts);
        let executions = self.executions();
        let effect = spread.effect(self.starts() as u64);
        let independent = executions as f64 / effect;
        if independent < least(rate) {
            return Err(self.too_few(rate, &spread, independent));
        }
        let order = self.order_statistic_ns(&counts, rate, independent, effect);
        let (above, shape) = self.pareto(&counts, rate);
        let ns = above.unwrap_or(0.0).max(order as f64);
        if ns > LONGEST_NS {
            return Err(ProfileError::Heavy {
                rate,
                limit: Ms(ns.min(1e18) as u64),
            });
        }
        Ok(Limit {
            ns: ns.ceil() as u64,
            starts: self.starts(),
            executions,
            independent: independent as u64,
            shape,
        })
    }

    /// Estimates the design effect from the differences between the starts. It is at least 1.
    /// Unlike [`Profile::limit`], the result is not an upper limit: a single start shows no
    /// difference and gives 1.
    pub(crate) fn estimated_effect(&self) -> f64 {
        let spread = self.spread(&self.drawn(&vec![1; self.starts()]));
        match spread.degrees_of_freedom {
            freedom if freedom < 1.0 => 1.0,
            freedom => (spread.chi_square / freedom).max(1.0),
        }
    }

    fn too_few(&self, rate: f64, spread: &Spread, independent: f64) -> ProfileError {
        let each = (self.executions() / self.starts().max(1) as u64).max(1);
        let enough = |starts: &u64| (starts * each) as f64 / spread.as_of(*starts) >= least(rate);
        let more = (self.starts() as u64 + 1).max(2)..MAX_STARTS_ASKED;
        let starts = more.clone().find(enough).unwrap_or(MAX_STARTS_ASKED);
        ProfileError::Few {
            rate,
            starts: self.starts(),
            executions: self.executions(),
            independent: independent as u64,
            need_starts: starts,
            need_executions: starts * each,
        }
    }

    /// Computes a chi-square statistic for the slowest tenth of all executions. It measures how
    /// unevenly these executions are spread over the starts. `counts` has the number of executions
    /// for each latency.
    fn spread(&self, counts: &[u64]) -> Spread {
        let n = self.executions();
        let (mut above, mut at) = (0, counts.len());
        while at > 0 && (above + counts[at - 1]) * 10 <= n {
            at -= 1;
            above += counts[at];
        }
        let share = above as f64 / n.max(1) as f64;
        let difference = |start: &Vec<(usize, u64)>| {
            let all: u64 = start.iter().map(|p| p.1).sum();
            let over: u64 = start.iter().filter(|p| p.0 >= at).map(|p| p.1).sum();
            let expected = all as f64 * share;
            (over as f64 - expected).powi(2) / (expected * (1.0 - share))
        };
        let freedom = self.starts().max(1) as f64 - 1.0;
        Spread {
            chi_square: match above {
                // All of the largest values are equal.
                0 => freedom,
                _ => self.starts.iter().map(difference).sum(),
            },
            degrees_of_freedom: freedom,
        }
    }

    fn order_statistic_ns(&self, counts: &[u64], rate: f64, independent: f64, effect: f64) -> u64 {
        // Finds how many of the largest values may be left out.
        let n = independent.floor();
        // The logarithm of the probability that exactly `left_out` executions exceed the quantile.
        let (mut exactly, mut at_most, mut left_out) = (n * (-rate).ln_1p(), 0.0, 0.0);
        loop {
            at_most += exactly.exp();
            if at_most > 1.0 - CONFIDENCE || left_out >= n {
                break;
            }
            exactly += ((n - left_out) / (left_out + 1.0) * rate / (1.0 - rate)).ln();
            left_out += 1.0;
        }
        // One independent execution stands for `effect` measured ones.
        let mut rank = ((left_out - 1.0_f64).max(0.0) * effect).floor() as u64 + 1;
        for (value, &count) in self.values.iter().zip(counts).rev() {
            match rank.checked_sub(count) {
                Some(left) if left > 0 => rank = left,
                _ => return *value,
            }
        }
        self.values.last().copied().unwrap_or(0)
    }

    fn pareto(&self, counts: &[u64], rate: f64) -> (Option<f64>, Option<f64>) {
        let Some((_, shape)) = self.quantile(counts, rate) else {
            return (None, None);
        };
        let mut random = Random::new();
        let draws = (0..DRAW_COUNT).filter_map(|_| {
            let counts = self.drawn(&self.draw(&mut random));
            self.quantile(&counts, rate).map(|q| q.0)
        });
        (Some(upper_limit(draws.collect())), Some(shape))
    }

    /// Fits a tail to the latencies. `counts` has the number of executions for each latency.
    /// Returns the latency in ns that the share `rate` of executions exceeds, and the tail's shape.
    fn quantile(&self, counts: &[u64], rate: f64) -> Option<(f64, f64)> {
        let n: u64 = counts.iter().sum();
        let most = (n / 10).min((3.0 * (n as f64).sqrt()) as u64);
        let (mut above, mut at) = (0, counts.len());
        while at > 0 && above + counts[at - 1] <= most {
            at -= 1;
            above += counts[at];
        }
        let share = above as f64 / n.max(1) as f64;
        if above < MIN_TAIL_VALUES || share <= rate {
            return None;
        }
        let seen = (0..at).rev().find(|&i| counts[i] > 0)?;
        let threshold = self.values[seen];
        let over = at..counts.len();
        let over: Vec<(f64, u64)> = over
            .filter(|&i| counts[i] > 0)
            .map(|i| ((self.values[i] - threshold) as f64, counts[i]))
            .collect();
        let fit = Pareto::fit(&over)?;
        let over = fit.exceeded_with(rate / share);
        over.is_finite()
            .then_some((threshold as f64 + over, fit.shape))
    }
}

struct Spread {
    chi_square: f64,
    degrees_of_freedom: f64,
}

impl Spread {
    /// Returns the upper confidence limit of the design effect. Fewer than two starts give
    /// infinity.
    fn effect(&self, starts: u64) -> f64 {
        if starts < 2 {
            return f64::INFINITY;
        }
        (self.chi_square / chi_square(starts as f64 - 1.0)).max(1.0)
    }

    fn as_of(&self, starts: u64) -> f64 {
        // One start cannot show a difference.
        let factor = match self.degrees_of_freedom {
            f if f < 1.0 => 1.0,
            f => (self.chi_square / f).max(1.0),
        };
        let freedom = starts as f64 - 1.0;
        (factor * freedom / chi_square(freedom)).max(1.0)
    }
}

/// Returns the value that a chi-square variable with `freedom` degrees of freedom exceeds with the
/// probability [`CONFIDENCE`] (Wilson and Hilferty 1931; exact for one and two degrees).
fn chi_square(freedom: f64) -> f64 {
    match freedom {
        f if f < 1.5 => 0.003_932,
        f if f < 2.5 => 0.102_587,
        f => {
            let part = 2.0 / (9.0 * f);
            f * (1.0 - part - 1.644_854 * part.sqrt()).powi(3)
        }
    }
}
