//! Fits the generalised Pareto distribution to values above a threshold (Pickands 1975).
//!
//! The fit follows Zhang and Stephens, "A new and efficient estimation method for the generalized
//! Pareto distribution", Technometrics 51 (2009): the mean of the profile likelihood over a grid of
//! its one parameter. It always converges, and works for tails of any weight.

/// The smallest number of parameter values that a fit tries. The number grows with the square root
/// of the number of fitted values.
const GRID: usize = 20;

const MAX_GRID: usize = 40;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Pareto {
    /// The shape of the tail: below 0 the tail is bounded, at 0 exponential, above 0 heavy.
    pub(super) shape: f64,
    pub(super) scale: f64,
}

impl Pareto {
    /// Returns the generalised Pareto tail that fits best to positive, ascending values, each with
    /// its count. Returns `None` for fewer than two different values.
    pub(super) fn fit(values: &[(f64, u64)]) -> Option<Self> {
        let n: u64 = values.iter().map(|v| v.1).sum();
        let count = n as f64;
        if values.len() < 2 {
            return None;
        }
        let quarter = (count / 4.0 + 0.5).floor().max(1.0) as u64;
        let mut seen = 0;
        let lower = values.iter().find(|v| {
            seen += v.1;
            seen >= quarter
        });
        let (lower, most) = (lower?.0, values.last()?.0);
        let grid = (GRID + count.sqrt() as usize).min(MAX_GRID);
        let place = |j: usize| {
            let root = (grid as f64 / (j as f64 - 0.5)).sqrt();
            1.0 / most + (1.0 - root) / (3.0 * lower)
        };
        let shape = |theta: f64| {
            let sum: f64 = values
                .iter()
                .map(|&(v, n)| n as f64 * (-theta * v).ln_1p())
                .sum();
            sum / count
        };
        let places: Vec<f64> = (1..=grid).map(place).collect();
        let likelihood = |&theta: &f64| {
            let k = -shape(theta);
            count * ((theta / k).ln() + k - 1.0)
        };
        let likelihoods: Vec<f64> = places.iter().map(likelihood).collect();
        let weight = |own: &f64| 1.0 / likelihoods.iter().map(|l| (l - own).exp()).sum::<f64>();
        let mean: f64 = places
            .iter()
            .zip(&likelihoods)
            .map(|(theta, own)| theta * weight(own))
            .filter(|part| part.is_finite())
            .sum();
        let shape = shape(mean);
        let fit = Pareto {
            shape,
            scale: -shape / mean,
        };
        (fit.shape.is_finite() && fit.scale > 0.0).then_some(fit)
    }

    pub(super) fn exceeded_with(&self, probability: f64) -> f64 {
        if self.shape.abs() < 1e-9 {
            return -self.scale * probability.ln();
        }
        self.scale / self.shape * (probability.powf(-self.shape) - 1.0)
    }
}
