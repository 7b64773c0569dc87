//! Confidence limits: what a sample shows about the share or mean of all executions. The functions
//! are pure and do not allocate.
//!
//! All limits assume that executions are independent of one another. Neighbours in one recording
//! seldom are. Several recordings, each with a new start of the application, show more than one
//! long recording.

use statrs::function::beta::checked_beta_reg;

/// Returns the upper limit, at the confidence `confidence`, of the share of executions with a
/// property (Clopper and Pearson's limit). `hits` of `all` measured executions had the property.
pub fn share_at_most(hits: u64, all: u64, confidence: f64) -> f64 {
    if hits >= all {
        return 1.0;
    }
    // The chance of at most `hits` falls as the share grows. Bisection finds the share where it
    // equals 1 - confidence.
    let (mut low, mut high) = (hits as f64 / all as f64, 1.0);
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        match chance_of_at_most(hits, all, middle) > 1.0 - confidence {
            true => low = middle,
            false => high = middle,
        }
    }
    high
}

/// Returns the lower limit, at the confidence `confidence`, of the share of executions with a
/// property (Clopper and Pearson's limit). `hits` of `all` measured executions had the property.
pub fn share_at_least(hits: u64, all: u64, confidence: f64) -> f64 {
    let hits = hits.min(all);
    1.0 - share_at_most(all - hits, all, confidence)
}

/// Returns the probability of at most `hits` hits in `all` trials if each trial is a hit with
/// probability `p`: the regularised incomplete beta function. `hits` must be smaller than `all`.
fn chance_of_at_most(hits: u64, all: u64, p: f64) -> f64 {
    let (yes, no) = ((hits + 1) as f64, (all - hits) as f64);
    checked_beta_reg(no, yes, 1.0 - p).unwrap_or(1.0)
}

/// Returns how many executions without a hit are needed to show, with this confidence, that at most
/// `share` of all executions are hits. A hit is an execution with a certain property, for example a
/// late one.
pub fn enough(share: f64, confidence: f64) -> u64 {
    if share >= 1.0 || confidence <= 0.0 {
        return 1;
    }
    let count = (-confidence).ln_1p() / (-share).ln_1p();
    // Where both logarithms are nearly whole multiples, rounding must not ask for one more.
    ((count - 1e-9).ceil() as u64).max(1)
}

/// Returns half the width of the confidence interval around the mean of a sample. Each end of the
/// interval is a one-sided limit with the confidence `confidence`. `deviation` is the sample's
/// standard deviation. Returns `None` for fewer than 30 executions, where the normal distribution
/// is a poor approximation.
pub fn mean_within(deviation: f64, count: u64, confidence: f64) -> Option<f64> {
    (count >= 30).then(|| normal_quantile(confidence) * deviation / (count as f64).sqrt())
}

/// Returns the probability that a standard normal value is greater than `z`.
pub fn normal_beyond(z: f64) -> f64 {
    statrs::function::erf::erfc(z / std::f64::consts::SQRT_2) / 2.0
}

/// Returns the probability that a value of Student's distribution with `freedom` degrees of freedom
/// is greater than `t`. `t` must not be negative.
pub fn student_beyond(t: f64, freedom: f64) -> f64 {
    let part = freedom / (freedom + t * t);
    checked_beta_reg(freedom / 2.0, 0.5, part).unwrap_or(1.0) / 2.0
}

/// Returns the value below which `share` (at least 0.5) of Student's distribution lies.
pub fn student_quantile(share: f64, freedom: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1e6);
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        match student_beyond(middle, freedom) > 1.0 - share {
            true => low = middle,
            false => high = middle,
        }
    }
    high
}

/// Returns the probability that chance alone splits hits between two samples at least as unevenly
/// as observed (two-sided). `second` of `all` hits fell into the second sample, which has `share`
/// of all trials.
pub fn split_by_chance(second: u64, all: u64, share: f64) -> f64 {
    let few = |hits: u64, p: f64| {
        if hits >= all {
            1.0
        } else {
            chance_of_at_most(hits, all, p)
        }
    };
    let (least, most) = (few(second, share), few(all - second.min(all), 1.0 - share));
    (2.0 * least.min(most)).min(1.0)
}

fn normal_quantile(share: f64) -> f64 {
    -std::f64::consts::SQRT_2 * statrs::function::erf::erfc_inv(2.0 * share)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn confidence_limits_of_a_share_match_tables_of_the_binomial_distribution() {
        for (hits, all, expected) in [
            (0, 2995, 0.001),
            (0, 299, 0.009_97),
            (1, 10, 0.394_2),
            (5, 100, 0.102_3),
            (10, 10, 1.0),
            (0, 0, 1.0),
            (900, 1_000_000, 0.000_951),
        ] {
            let limit = share_at_most(hits, all, 0.95);
            let off = (limit - expected).abs() / expected;
            assert!(off < 0.005, "{hits} of {all}: {limit}");
        }
    }

    #[test]
    fn the_function_enough_returns_the_smallest_sufficient_number_of_executions() {
        assert_eq!((enough(0.001, 0.95), enough(0.01, 0.95)), (2995, 299));
        assert_eq!((enough(0.5, 0.75), enough(1.0, 0.95)), (2, 1));
        for share in [0.5, 0.1, 0.01, 0.001] {
            let count = enough(share, 0.95);
            assert!(share_at_most(0, count, 0.95) <= share * (1.0 + 1e-6));
            assert!(share_at_most(0, count - 1, 0.95) > share);
        }
    }

    #[test]
    fn a_larger_sample_gives_a_narrower_interval_of_the_mean() {
        assert_eq!(mean_within(1.0, 29, 0.95), None);
        let half = mean_within(10.0, 100, 0.95).unwrap();
        assert!((half - 1.6449).abs() < 1e-3, "{half}");
    }

    #[test]
    fn probabilities_match_tables_of_normal_and_student_distributions() {
        for (t, freedom, expected) in [
            (2.228, 10.0, 0.025),
            (4.604, 4.0, 0.005),
            (1.0, 1.0, 0.25),
            (0.0, 3.0, 0.5),
            (1.96, 1e6, 0.025),
        ] {
            let p = student_beyond(t, freedom);
            assert!((p - expected).abs() < 1e-4, "{t} {freedom}: {p}");
        }
        assert!((student_quantile(0.975, 4.0) - 2.7764).abs() < 1e-3);
        assert!((normal_beyond(1.6449) - 0.05).abs() < 1e-4);
    }

    #[test]
    fn the_probability_of_an_uneven_split_by_chance_is_binomial() {
        // All ten hits fall into one of two halves: 2 chances of 1024.
        assert!((split_by_chance(10, 10, 0.5) - 2.0 / 1024.0).abs() < 1e-9);
        assert!((split_by_chance(0, 10, 0.5) - 2.0 / 1024.0).abs() < 1e-9);
        assert_eq!(split_by_chance(5, 10, 0.5), 1.0);
        assert_eq!(split_by_chance(0, 0, 0.5), 1.0);
    }

    proptest! {
        #[test]
        fn confidence_limits_enclose_the_observed_share_and_widen_with_the_confidence(all in 0u64..5_000_000, part in 0.0f64..=1.0, sure in 0.5f64..0.999) {
            let hits = (all as f64 * part) as u64;
            let share = hits as f64 / (all as f64).max(1.0);
            let (least, most) = (share_at_least(hits, all, sure), share_at_most(hits, all, sure));
            prop_assert!((0.0..=1.0).contains(&least) && (0.0..=1.0).contains(&most));
            prop_assert!(least <= share + 1e-9 && (share <= most + 1e-9 || all == 0), "{least} {share} {most}");
            prop_assert!(share_at_most(hits, all, sure + 0.0005) >= most - 1e-12);
        }
    }
}
