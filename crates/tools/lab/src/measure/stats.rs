//! Statistics over raw samples: exact percentiles, and estimates with their uncertainty.

use crate::frame::report::number;
use crate::frame::rng::Rng;
use crate::frame::Estimate;

pub const RESAMPLES: usize = 400;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sorted(Vec<f64>);

impl Sorted {
    pub fn new(samples: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = samples.into_iter().filter(|v| !v.is_nan()).collect();
        values.sort_unstable_by(f64::total_cmp);
        Sorted(values)
    }

    pub fn values(&self) -> &[f64] {
        &self.0
    }

    /// Returns the nearest-rank quantile: the smallest sample that at least a share `q` of all
    /// samples does not exceed. Returns 0 without samples.
    pub fn quantile(&self, q: f64) -> f64 {
        if self.0.is_empty() {
            return 0.0;
        }
        // The small deduction keeps 0.9 * 10 = 9.000000000000002 at rank 9.
        let rank = (q.clamp(0.0, 1.0) * self.0.len() as f64 - 1e-9)
            .ceil()
            .max(1.0) as usize;
        self.0[rank.min(self.0.len()) - 1]
    }

    pub fn shown(&self, q: f64) -> String {
        if self.is_empty() {
            return "-".into();
        }
        number(self.quantile(q))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn mean(&self) -> f64 {
        mean(&self.0)
    }

    pub fn summary(&self) -> Summary {
        let n = self.0.len();
        let m = self.mean();
        let variance = if n > 1 {
            self.0.iter().map(|v| (v - m) * (v - m)).sum::<f64>() / (n - 1) as f64
        } else {
            0.0
        };
        Summary {
            count: n,
            mean: m,
            sd: variance.sqrt(),
            p50: self.quantile(0.5),
            p90: self.quantile(0.9),
            p99: self.quantile(0.99),
            p99_9: self.quantile(0.999),
            p99_99: self.quantile(0.9999),
            max: self.0.last().copied().unwrap_or(0.0),
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Summary {
    pub count: usize,
    pub mean: f64,
    /// The standard deviation of the samples (divided by n - 1).
    pub sd: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub p99_9: f64,
    pub p99_99: f64,
    pub max: f64,
}

pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() {
        0.0
    } else {
        values.iter().sum::<f64>() / values.len() as f64
    }
}

/// Returns the mean and its 80 % confidence interval by Student's distribution. The samples must be
/// independent.
pub fn mean_80(values: &[f64]) -> Estimate {
    let summary = Sorted::new(values.iter().copied()).summary();
    let half = student_90(summary.count) * summary.sd / (summary.count.max(1) as f64).sqrt();
    Estimate {
        value: summary.mean,
        low: summary.mean - half,
        high: summary.mean + half,
    }
}

/// Returns the quantile 0.9 of Student's distribution for a number of samples, approximated from
/// the normal distribution (Abramowitz and Stegun, 26.7.5).
fn student_90(samples: usize) -> f64 {
    const Z: f64 = 1.281_551_6;
    let free = samples.saturating_sub(1).max(1) as f64;
    let first = (Z.powi(3) + Z) / 4.0;
    let second = (5.0 * Z.powi(5) + 16.0 * Z.powi(3) + 3.0 * Z) / 96.0;
    Z + first / free + second / free.powi(2)
}

/// Returns the mean after outliers were replaced by the median, as papers do. Outliers lie more
/// than 1.5 interquartile ranges outside of the quartiles.
pub fn mean_replaced(sorted: &Sorted) -> f64 {
    let (low, high) = (sorted.quantile(0.25), sorted.quantile(0.75));
    let reach = 1.5 * (high - low);
    let median = sorted.quantile(0.5);
    let is_usual = |v: f64| v >= low - reach && v <= high + reach;
    let values = sorted.values().iter();
    let sum: f64 = values.map(|v| if is_usual(*v) { *v } else { median }).sum();
    sum / sorted.len().max(1) as f64
}

pub fn median(values: &[f64]) -> f64 {
    let sorted = Sorted::new(values.iter().copied());
    let v = sorted.values();
    match v.len() {
        0 => 0.0,
        n if n % 2 == 1 => v[n / 2],
        n => (v[n / 2 - 1] + v[n / 2]) / 2.0,
    }
}

/// Returns a figure over whole blocks (rounds) with its 95 % confidence interval. Resamples whole
/// blocks, because samples within a block depend on each other. An equal `rng` gives an equal
/// result.
pub fn bootstrap(
    blocks: usize,
    resamples: usize,
    rng: &mut Rng,
    figure: impl Fn(&[usize]) -> f64,
) -> Estimate {
    let all: Vec<usize> = (0..blocks).collect();
    let value = figure(&all);
    let drawn = Sorted::new((0..resamples).map(|_| {
        let pick: Vec<usize> = all
            .iter()
            .map(|_| rng.below(blocks as u64) as usize)
            .collect();
        figure(&pick)
    }));
    if drawn.is_empty() {
        return Estimate::exact(value);
    }
    Estimate {
        value,
        low: drawn.quantile(0.025),
        high: drawn.quantile(0.975),
    }
}

pub fn resampled(values: &[f64], rng: &mut Rng, figure: impl Fn(&[f64]) -> f64) -> Estimate {
    bootstrap(values.len(), RESAMPLES, rng, |pick| {
        figure(&pick.iter().map(|&i| values[i]).collect::<Vec<_>>())
    })
}

/// Fits a line by least squares. Returns its slope, its intercept and the share of the variance
/// that it explains.
pub fn fit_line(points: &[(f64, f64)]) -> (f64, f64, f64) {
    let n = points.len() as f64;
    let (mx, my) = (
        points.iter().map(|p| p.0).sum::<f64>() / n,
        points.iter().map(|p| p.1).sum::<f64>() / n,
    );
    let sxx: f64 = points.iter().map(|p| (p.0 - mx).powi(2)).sum();
    let syy: f64 = points.iter().map(|p| (p.1 - my).powi(2)).sum();
    let sxy: f64 = points.iter().map(|p| (p.0 - mx) * (p.1 - my)).sum();
    if sxx == 0.0 || syy == 0.0 {
        return (0.0, my, 1.0);
    }
    (sxy / sxx, my - sxy / sxx * mx, sxy * sxy / (sxx * syy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_exact_on_known_data() {
        // 1..=10000, shuffled: the q-quantile by nearest rank is exactly q * 10000.
        let mut values: Vec<f64> = (1..=10_000).map(f64::from).collect();
        Rng::new(7).shuffle(&mut values);
        let s = Sorted::new(values).summary();
        assert_eq!((s.count, s.max), (10_000, 10_000.0));
        assert_eq!(
            (s.p50, s.p90, s.p99, s.p99_9, s.p99_99),
            (5000.0, 9000.0, 9900.0, 9990.0, 9999.0)
        );
        assert_eq!(s.mean, 5000.5);
        // The variance of 1..=n, divided by n - 1, is n (n + 1) / 12.
        assert!((s.sd - (10_000.0f64 * 10_001.0 / 12.0).sqrt()).abs() < 1e-6);
    }

    #[test]
    fn quantiles_of_few_samples_are_measured_samples() {
        let s = Sorted::new([30.0, 10.0, 20.0]);
        assert_eq!(
            [0.0, 0.33, 0.34, 0.5, 0.99, 1.0].map(|q| s.quantile(q)),
            [10.0, 10.0, 20.0, 20.0, 30.0, 30.0]
        );
        let ten = Sorted::new((1..=10).map(f64::from));
        assert_eq!((ten.quantile(0.9), ten.quantile(0.91)), (9.0, 10.0));
        assert_eq!(Sorted::new([]).summary().p99, 0.0);
        assert_eq!(
            (median(&[4.0, 1.0, 3.0]), median(&[4.0, 1.0, 3.0, 2.0])),
            (3.0, 2.5)
        );
    }

    #[test]
    fn mean_replaced_replaces_outliers_by_the_median() {
        let mut values = vec![10.0; 50];
        values.extend([11.0; 50]);
        let plain = Sorted::new(values.clone());
        assert_eq!(mean_replaced(&plain), 10.5);
        values.push(1000.0);
        let with = Sorted::new(values);
        assert!((mean_replaced(&with) - 10.5).abs() < 0.01);
        assert!(with.mean() > 20.0);
    }

    #[test]
    fn intervals_of_few_samples_use_students_distribution() {
        // From tables of the distribution: the quantile 0.9 for 2, 8 and 100 degrees of freedom.
        for (samples, quantile) in [(3, 1.886), (9, 1.397), (101, 1.290)] {
            let error = (student_90(samples) - quantile).abs();
            assert!(error < 0.025 * quantile, "{samples}: {error}");
        }
        let mean = mean_80(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]);
        // sd is 2.7386 for 9 samples: 1.397 * 2.7386 / 3.
        assert!((mean.high - mean.value - 1.275).abs() < 0.01);
        assert_eq!(mean.value, 5.0);
    }

    #[test]
    fn the_bootstrap_interval_contains_the_mean_and_is_repeatable() {
        let blocks: Vec<f64> = (0..40).map(|i| f64::from(i % 10)).collect();
        let of = |pick: &[usize]| mean(&pick.iter().map(|&i| blocks[i]).collect::<Vec<_>>());
        let a = bootstrap(blocks.len(), 500, &mut Rng::new(1), of);
        let b = bootstrap(blocks.len(), 500, &mut Rng::new(1), of);
        assert_eq!(a, b);
        assert_eq!(a.value, 4.5);
        // The standard error is 2.87 / sqrt(40) = 0.45, so the interval is about 4.5 +- 0.9.
        assert!(
            (3.2..4.0).contains(&a.low) && (5.0..5.8).contains(&a.high),
            "{a:?}"
        );
    }

    #[test]
    fn fit_line_finds_the_line_of_exact_points() {
        let points: Vec<_> = (0..5)
            .map(|x| (f64::from(x), 3.0 + 2.0 * f64::from(x)))
            .collect();
        let (slope, intercept, r2) = fit_line(&points);
        assert!(
            (slope - 2.0).abs() < 1e-12
                && (intercept - 3.0).abs() < 1e-12
                && (r2 - 1.0).abs() < 1e-12
        );
    }
}
