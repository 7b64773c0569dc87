//! The limit that later executions exceed at a miss rate at most: an upper confidence limit of a
//! quantile of the latency.
//!
//! It is the larger of two. The *order statistic* (Wilks 1941; Conover, Practical Nonparametric
//! Statistics, 3.2) assumes nothing of the distribution, and bounds the rate for as many executions
//! as are independent: 2995 for one in 1000. The *generalised Pareto* tail (Pickands 1975) is fitted
//! to what exceeds a threshold, the largest min(n / 10, 3 sqrt(n)) values (Vehtari, Simpson, Gelman,
//! Yao and Gabry, "Pareto smoothed importance sampling", 2024; the tenth: DuMouchel 1983), and its
//! quantile's upper limit is that of draws of whole starts. It extrapolates from the shape of the
//! tail, and alone it keeps less than the confidence (in simulations 0.80 to 0.93 for 0.95), so that
//! it only ever raises the limit, and what the order statistic cannot carry is refused.
//!
//! **Independent executions.** Let starts differ in how many of their executions exceed the largest
//! tenth of all: chi-square of these counts, by its degrees of freedom, is the factor by which their
//! variance exceeds that of independent ones (the design effect). Its upper confidence limit is what
//! the number of executions is divided by. Few starts cannot show that they are alike, so they count
//! for less.

use super::pareto::Pareto;
use super::{upper, Profile, ProfileError, Random, CONFIDENCE, DRAWS};
use crate::schema::Ms;

/// Fewest values above the threshold to which a tail is fitted.
const LEAST_ABOVE: u64 = 50;

/// Longest limit: ten days.
const LONGEST_NS: f64 = 864e12;

/// Most starts that are asked for.
const MOST_STARTS: u64 = 100_000;

/// An upper confidence limit of the latency.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limit {
    /// Later executions take longer than this at the miss rate at most, ns.
    pub ns: u64,
    /// Starts of the application in the profile.
    pub starts: usize,
    /// Their executions.
    pub executions: u64,
    /// As many independent ones.
    pub independent: u64,
    /// Shape of the fitted tail: below 0 it is bounded, above it is heavy. None where too little
    /// exceeds the threshold, or less than the miss rate does.
    pub shape: Option<f64>,
}

/// Executions of which the longest is exceeded at the rate at most, with the confidence.
fn least(rate: f64) -> f64 {
    ((1.0 - CONFIDENCE).ln() / (1.0 - rate).ln()).ceil()
}

impl Profile {
    /// The limit that later executions exceed at this rate at most, at [`CONFIDENCE`].
    ///
    /// # Errors
    /// If starts and executions are too few for it: says how many would do.
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
            return Err(self.few(rate, &spread, independent));
        }
        let order = self.order(&counts, rate, independent, effect);
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

    /// What a refusal says: how many starts, with as many executions each, would do.
    fn few(&self, rate: f64, spread: &Spread, independent: f64) -> ProfileError {
        let each = (self.executions() / self.starts().max(1) as u64).max(1);
        let enough = |starts: &u64| (starts * each) as f64 / spread.as_of(*starts) >= least(rate);
        let more = (self.starts() as u64 + 1).max(2)..MOST_STARTS;
        let starts = more.clone().find(enough).unwrap_or(MOST_STARTS);
        ProfileError::Few {
            rate,
            starts: self.starts(),
            executions: self.executions(),
            independent: independent as u64,
            need_starts: starts,
            need_executions: starts * each,
        }
    }

    /// How much starts differ in how many of their executions exceed the largest tenth.
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
                // All of the largest are alike.
                0 => freedom,
                _ => self.starts.iter().map(difference).sum(),
            },
            freedom,
        }
    }

    /// The order statistic.
    fn order(&self, counts: &[u64], rate: f64, independent: f64, effect: f64) -> u64 {
        // The most of the largest that may be left out: one fewer than as many exceed the quantile
        // but rarely.
        let n = independent.floor();
        // The logarithm of the probability that exactly so many exceed it.
        let (mut exactly, mut at_most, mut left_out) = (n * (-rate).ln_1p(), 0.0, 0.0);
        loop {
            at_most += exactly.exp();
            if at_most > 1.0 - CONFIDENCE || left_out >= n {
                break;
            }
            exactly += ((n - left_out) / (left_out + 1.0) * rate / (1.0 - rate)).ln();
            left_out += 1.0;
        }
        // One of them stands for as many as the effect says.
        let mut rank = ((left_out - 1.0_f64).max(0.0) * effect).floor() as u64 + 1;
        for (value, &count) in self.values.iter().zip(counts).rev() {
            match rank.checked_sub(count) {
                Some(left) if left > 0 => rank = left,
                _ => return *value,
            }
        }
        self.values.last().copied().unwrap_or(0)
    }

    /// The upper limit of the fitted tail's quantile, and the tail's shape.
    fn pareto(&self, counts: &[u64], rate: f64) -> (Option<f64>, Option<f64>) {
        let Some((_, shape)) = self.quantile(counts, rate) else {
            return (None, None);
        };
        let mut random = Random::new();
        let draws = (0..DRAWS).filter_map(|_| {
            let counts = self.drawn(&self.draw(&mut random));
            self.quantile(&counts, rate).map(|q| q.0)
        });
        (Some(upper(draws.collect())), Some(shape))
    }

    /// The fitted tail's quantile for values seen so often, ns, and the tail's shape.
    fn quantile(&self, counts: &[u64], rate: f64) -> Option<(f64, f64)> {
        let n: u64 = counts.iter().sum();
        let most = (n / 10).min((3.0 * (n as f64).sqrt()) as u64);
        let (mut above, mut at) = (0, counts.len());
        while at > 0 && above + counts[at - 1] <= most {
            at -= 1;
            above += counts[at];
        }
        let share = above as f64 / n.max(1) as f64;
        if above < LEAST_ABOVE || share <= rate {
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

/// How much starts differ.
struct Spread {
    chi_square: f64,
    /// Starts, less one.
    freedom: f64,
}

impl Spread {
    /// The upper confidence limit of the design effect, for so many starts; none can be alike.
    fn effect(&self, starts: u64) -> f64 {
        if starts < 2 {
            return f64::INFINITY;
        }
        (self.chi_square / chi_square(starts as f64 - 1.0)).max(1.0)
    }

    /// The same for more starts that differ as much.
    fn as_of(&self, starts: u64) -> f64 {
        // One start does not differ from others.
        let factor = match self.freedom {
            f if f < 1.0 => 1.0,
            f => (self.chi_square / f).max(1.0),
        };
        let freedom = starts as f64 - 1.0;
        (factor * freedom / chi_square(freedom)).max(1.0)
    }
}

/// The value that chi-square of so many degrees of freedom falls below with 1 - [`CONFIDENCE`]
/// (Wilson and Hilferty 1931; exact for one and two).
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
