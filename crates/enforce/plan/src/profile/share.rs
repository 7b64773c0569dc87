//! Bounds the share of later executions that are longer than the measured ones that a plan keeps.

use super::CONFIDENCE;

/// Returns the upper confidence limit ([`CONFIDENCE`]) of the share of later executions that exceed
/// a limit (Clopper and Pearson 1934). Of `executions` independent measured executions, `exceeded`
/// exceeded the limit. Returns 1 if all did.
pub(crate) fn upper_share(exceeded: u64, executions: u64) -> f64 {
    if exceeded >= executions {
        return 1.0;
    }
    let (mut low, mut high) = (0.0_f64, 1.0_f64);
    for _ in 0..60 {
        let share = (low + high) / 2.0;
        match at_most(exceeded, executions, share) > 1.0 - CONFIDENCE {
            true => low = share,
            false => high = share,
        }
    }
    high
}

/// Returns the probability that at most `most` of `n` executions exceed a limit that each exceeds
/// with probability `share`.
fn at_most(most: u64, n: u64, share: f64) -> f64 {
    let n = n as f64;
    let (mut exactly, mut sum) = (n * (-share).ln_1p(), 0.0);
    for i in 0..=most {
        sum += exactly.exp();
        let i = i as f64;
        exactly += ((n - i) / (i + 1.0) * share / (1.0 - share)).ln();
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_upper_confidence_limit_of_a_share_matches_published_tables() {
        // The rule of three, and 95 % one-sided Clopper-Pearson limits.
        for (exceeded, n, expected) in [
            (0, 100, 0.0295),
            (1, 600, 0.00788),
            (5, 100, 0.1023),
            (30, 600, 0.0672),
        ] {
            let share = upper_share(exceeded, n);
            assert!((share - expected).abs() < 2e-4, "{exceeded}/{n}: {share}");
        }
        assert_eq!(upper_share(3, 3), 1.0);
        assert!(upper_share(0, 1_000_000) < 4e-6);
    }
}
