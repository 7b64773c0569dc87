//! What a share of a sample tells of the share of all executions. Pure.

/// The share of all executions that a sample shows at most, with 95 % confidence: `hits` of `all` were
/// seen (Clopper and Pearson's upper limit, for executions that are independent of each other).
pub(crate) fn most(hits: u64, all: u64) -> f64 {
    if hits >= all {
        return 1.0;
    }
    // The share of which so few hits are just unlikely enough.
    let (mut low, mut high) = (hits as f64 / all as f64, 1.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        match at_most(hits, all, middle) > 0.05 {
            true => low = middle,
            false => high = middle,
        }
    }
    high
}

/// The chance of at most `hits` of `all`, each with the chance `p`.
fn at_most(hits: u64, all: u64, p: f64) -> f64 {
    let (yes, no) = (p.ln(), (-p).ln_1p());
    // Logarithms of the ways to choose: a million executions are no more than numbers can hold.
    let mut ways = 0.0;
    let mut sum = 0.0;
    for n in 0..=hits {
        sum += (ways + n as f64 * yes + (all - n) as f64 * no).exp();
        ways += ((all - n) as f64).ln() - ((n + 1) as f64).ln();
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let limit = most(hits, all);
            let off = (limit - expected).abs() / expected;
            assert!(off < 0.005, "{hits} of {all}: {limit}");
        }
    }
}
