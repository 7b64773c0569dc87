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

/// The chance that a standard normal value is beyond `z`, on one side.
pub fn normal_beyond(z: f64) -> f64 {
    statrs::function::erf::erfc(z / std::f64::consts::SQRT_2) / 2.0
}

/// The chance that a value of Student's distribution is beyond `t`, on one side; `t` is not negative.
pub fn student_beyond(t: f64, freedom: f64) -> f64 {
    let part = freedom / (freedom + t * t);
    checked_beta_reg(freedom / 2.0, 0.5, part).unwrap_or(1.0) / 2.0
}

/// The value below which a share (a half or more) of Student's distribution lies.
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

/// The chance that of `all` hits, shared out by chance, so few or so many fall to the second of two samples,
/// which has this share of all trials: both sides together.
pub fn split_by_chance(second: u64, all: u64, share: f64) -> f64 {
    let few = |hits: u64, p: f64| {
        if hits >= all {
            1.0
        } else {
            so_few(hits, all, p)
        }
    };
    let (least, most) = (few(second, share), few(all - second.min(all), 1.0 - share));
    (2.0 * least.min(most)).min(1.0)
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

    /// Values from tables.
    #[test]
    fn chances_are_those_of_the_normal_and_of_students_distribution() {
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
    fn hits_are_shared_out_by_chance_or_not() {
        // All ten in one of two halves: 2 of 1024.
        assert!((split_by_chance(10, 10, 0.5) - 2.0 / 1024.0).abs() < 1e-9);
        assert!((split_by_chance(0, 10, 0.5) - 2.0 / 1024.0).abs() < 1e-9);
        assert_eq!(split_by_chance(5, 10, 0.5), 1.0);
        assert_eq!(split_by_chance(0, 0, 0.5), 1.0);
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
