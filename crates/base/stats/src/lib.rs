//! What a sample tells of all executions: confidence limits of shares and means. Pure: no clock, no
//! allocation.
//!
//! All limits are for executions that are independent of one another. Neighbours in one recording seldom
//! are: several recordings, each started anew, tell more than a long one.

use statrs::function::beta::checked_beta_reg;

/// The share of all executions that a sample shows at most, with this confidence: `hits` of `all` were
/// seen (Clopper and Pearson's upper limit).
pub fn share_at_most(hits: u64, all: u64, confidence: f64) -> f64 {
    if hits >= all {
        return 1.0;
    }
    // The chance of so few hits falls with the share: the share at which it is just unlikely enough.
    let (mut low, mut high) = (hits as f64 / all as f64, 1.0);
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        match so_few(hits, all, middle) > 1.0 - confidence {
            true => low = middle,
            false => high = middle,
        }
    }
    high
}

/// The share of all executions that a sample shows at least, with this confidence.
pub fn share_at_least(hits: u64, all: u64, confidence: f64) -> f64 {
    let hits = hits.min(all);
    1.0 - share_at_most(all - hits, all, confidence)
}

/// The chance of at most `hits` of `all`, each with the chance `p`: the regularised incomplete beta
/// function. `hits` is smaller than `all`.
fn so_few(hits: u64, all: u64, p: f64) -> f64 {
    let (yes, no) = ((hits + 1) as f64, (all - hits) as f64);
    checked_beta_reg(no, yes, 1.0 - p).unwrap_or(1.0)
}

/// So many executions without a hit show, with this confidence, that at most this share has one.
pub fn enough(share: f64, confidence: f64) -> u64 {
    if share >= 1.0 || confidence <= 0.0 {
        return 1;
    }
    let count = (-confidence).ln_1p() / (-share).ln_1p();
    // Where both logarithms are nearly whole multiples, rounding must not ask for one more.
    ((count - 1e-9).ceil() as u64).max(1)
}

/// Half the width of the interval around the mean of a sample that holds the mean of all executions, with
/// this confidence on each side: `deviation` is the sample's standard deviation. `None` for fewer than 30
/// executions, for which the normal distribution is no good guess.
pub fn mean_within(deviation: f64, count: u64, confidence: f64) -> Option<f64> {
    (count >= 30).then(|| normal_quantile(confidence) * deviation / (count as f64).sqrt())
}

/// The value below which a share of the standard normal distribution lies.
fn normal_quantile(share: f64) -> f64 {
    -std::f64::consts::SQRT_2 * statrs::function::erf::erfc_inv(2.0 * share)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Limits from tables of the binomial distribution.
    #[test]
    fn limits_are_those_of_the_binomial_distribution() {
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
    fn so_many_without_a_hit_are_enough_and_one_fewer_is_not() {
        assert_eq!((enough(0.001, 0.95), enough(0.01, 0.95)), (2995, 299));
        assert_eq!((enough(0.5, 0.75), enough(1.0, 0.95)), (2, 1));
        for share in [0.5, 0.1, 0.01, 0.001] {
            let count = enough(share, 0.95);
            assert!(share_at_most(0, count, 0.95) <= share * (1.0 + 1e-6));
            assert!(share_at_most(0, count - 1, 0.95) > share);
        }
    }

    #[test]
    fn a_mean_is_as_sure_as_its_sample_is_large() {
        assert_eq!(mean_within(1.0, 29, 0.95), None);
        let half = mean_within(10.0, 100, 0.95).unwrap();
        assert!((half - 1.6449).abs() < 1e-3, "{half}");
    }

    proptest! {
        /// What was seen lies between the limits, and more confidence never narrows them.
        #[test]
        fn limits_hold_what_was_seen(all in 0u64..5_000_000, part in 0.0f64..=1.0, sure in 0.5f64..0.999) {
            let hits = (all as f64 * part) as u64;
            let share = hits as f64 / (all as f64).max(1.0);
            let (least, most) = (share_at_least(hits, all, sure), share_at_most(hits, all, sure));
            prop_assert!((0.0..=1.0).contains(&least) && (0.0..=1.0).contains(&most));
            prop_assert!(least <= share + 1e-9 && (share <= most + 1e-9 || all == 0), "{least} {share} {most}");
            prop_assert!(share_at_most(hits, all, sure + 0.0005) >= most - 1e-12);
        }
    }
}
