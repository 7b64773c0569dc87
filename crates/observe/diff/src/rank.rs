//! Implements the Mann-Whitney test on binned values: which of two samples lies higher, and by
//! which factor.

use onbeat_document::Dist;

/// A sample: its values in ascending order, each with its share of the sample.
pub struct Sample {
    values: Vec<(f64, f64)>,
    /// The number of independent values that would be as informative as the sample.
    worth: f64,
}

/// A factor with its 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    /// The factor by which the first sample must be multiplied to match the second one
    /// (Hodges-Lehmann estimator).
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

impl Sample {
    /// Makes a sample of a distribution with at least one value. `worth` is the number of
    /// independent values that would be as informative as the sample.
    pub fn of(dist: &Dist, worth: u64) -> Sample {
        let all = dist.count() as f64;
        let middle = |low: u64, width: u64| {
            let middle = low + (width - 1) / 2;
            middle.clamp(dist.min(), dist.max()).max(1) as f64
        };
        let buckets = dist.buckets();
        Sample {
            values: buckets
                .map(|(low, width, n)| (middle(low, width), n as f64 / all))
                .collect(),
            worth: worth.max(1) as f64,
        }
    }
}

/// Returns Cliff's delta of `b` times `factor` over `a`, from -1 to 1, and the share by which ties
/// reduce the variance of the test. Cliff's delta is the share of pairs in which the value of `b`
/// times `factor` is higher than the value of `a`, minus the share in which it is lower.
fn dominance(a: &Sample, b: &Sample, factor: f64) -> (f64, f64) {
    let share = a.worth / (a.worth + b.worth);
    let (mut above, mut tied) = (0.0, 0.0);
    // `below` is the share of `a` below the present value of `b`.
    let (mut i, mut below) = (0, 0.0);
    for &(value, weight) in &b.values {
        let value = value * factor;
        while i < a.values.len() && a.values[i].0 < value {
            below += a.values[i].1;
            i += 1;
        }
        let same = match a.values.get(i) {
            Some(&(v, w)) if v == value => w,
            _ => 0.0,
        };
        above += weight * (below - (1.0 - below - same));
        tied += (share * same + (1.0 - share) * weight).powi(3);
    }
    (above, tied)
}

/// Returns Cliff's delta of `b` over `a`, from -1 to 1: the share of pairs in which the value of
/// `b` is higher than the value of `a`, minus the share in which it is lower.
pub fn delta(a: &Sample, b: &Sample) -> f64 {
    dominance(a, b, 1.0).0
}

/// Returns the factor by which the values of `b` are larger than those of `a`, with its confidence
/// interval.
pub fn ratio(a: &Sample, b: &Sample) -> Ratio {
    let (n, m) = (a.worth, b.worth);
    let (_, tied) = dominance(a, b, 1.0);
    let variance = (n + m + 1.0) / (3.0 * n * m) * (1.0 - tied).max(0.0);
    let wide = 1.96 * variance.sqrt();
    // The more `b` is scaled down, the smaller is its dominance, so a binary search finds the
    // factor.
    let at = |target: f64| {
        let (mut low, mut high) = (-30.0f64, 30.0f64);
        for _ in 0..60 {
            let middle = (low + high) / 2.0;
            match dominance(a, b, (-middle).exp()).0 > target {
                true => low = middle,
                false => high = middle,
            }
        }
        ((low + high) / 2.0).exp()
    };
    Ratio {
        // If the dominance is 0 over a range of factors, the middle of the range is taken.
        value: (at(1e-9) * at(-1e-9)).sqrt(),
        low: at(wide.min(1.0 - 1e-9)),
        high: at(-wide.min(1.0 - 1e-9)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dist(values: impl Iterator<Item = u64>) -> Dist {
        let mut dist = Dist::new();
        values.for_each(|v| dist.record(v));
        dist
    }

    #[test]
    fn cliffs_delta_equals_the_count_over_all_pairs_of_values() {
        let (a, b) = ([10u64, 20, 20, 50], [20u64, 30, 5, 60, 61]);
        let mut pairs = 0i32;
        for x in a {
            pairs += b
                .iter()
                .map(|&y| (y > x) as i32 - (y < x) as i32)
                .sum::<i32>();
        }
        let (a, b) = (dist(a.into_iter()), dist(b.into_iter()));
        let delta = delta(&Sample::of(&a, 4), &Sample::of(&b, 5));
        assert!((delta - f64::from(pairs) / 20.0).abs() < 1e-12, "{delta}");
    }

    #[test]
    fn the_factor_between_two_samples_is_found_despite_a_heavy_tail() {
        let long = |i: u64| if i.is_multiple_of(20) { 40 } else { 1 };
        let of =
            |times: u64| dist((0..400).map(move |i| (10_000 + i * 37 % 3000) * times * long(i)));
        let found = ratio(&Sample::of(&of(100), 400), &Sample::of(&of(110), 400));
        assert!((found.value - 1.1).abs() < 0.01, "{found:?}");
        assert!(1.05 < found.low && found.high < 1.15, "{found:?}");
        let none = ratio(&Sample::of(&of(100), 400), &Sample::of(&of(100), 400));
        assert!(
            (none.value - 1.0).abs() < 1e-3 && none.low < 1.0 && none.high > 1.0,
            "{none:?}"
        );
        // Fewer independent values give wider intervals.
        let few = ratio(&Sample::of(&of(100), 6), &Sample::of(&of(110), 6));
        assert!(few.low < 1.0 && few.high > 1.2, "{few:?}");
    }

    #[test]
    fn the_factor_between_samples_without_overlap_is_finite() {
        let far = ratio(
            &Sample::of(&dist([1000].into_iter()), 1),
            &Sample::of(&dist([0].into_iter()), 1),
        );
        assert!(far.value > 0.0 && far.value.is_finite(), "{far:?}");
    }
}
