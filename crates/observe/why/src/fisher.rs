//! Fisher's exact test: whether chance alone explains that late executions have a cause more often.

/// The probability above which sentences say that a cause may be chance, or leave it out.
pub(crate) const CHANCE: f64 = 0.05;

/// Returns the probability that chance alone gives the cause to at least `with` of the `late`
/// executions. It assumes that the late executions are drawn at random from all executions, and
/// that `with + others_with` of all executions have the cause.
pub(crate) fn chance((with, late): (u64, u64), (others_with, others): (u64, u64)) -> f64 {
    let (all, having) = (late + others, with + others_with);
    let whole = ln_choose(all, late);
    let p = |k: u64| {
        let rest = late - k;
        match all - having < rest {
            true => 0.0,
            false => (ln_choose(having, k) + ln_choose(all - having, rest) - whole).exp(),
        }
    };
    let sum: f64 = (with..=late.min(having)).map(p).sum();
    sum.min(1.0)
}

fn ln_choose(n: u64, k: u64) -> f64 {
    ln_factorial(n) - ln_factorial(k) - ln_factorial(n - k)
}

/// Returns ln(n!). Computes it as a sum for `n` up to 32, and by Stirling's series for a larger
/// `n`.
fn ln_factorial(n: u64) -> f64 {
    if n <= 32 {
        return (2..=n).map(|i| (i as f64).ln()).sum();
    }
    let x = n as f64;
    let series = 1.0 / (12.0 * x) - 1.0 / (360.0 * x.powi(3)) + 1.0 / (1260.0 * x.powi(5));
    x * x.ln() - x + 0.5 * (2.0 * std::f64::consts::PI * x).ln() + series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probability_of_a_difference_equals_fishers_exact_test() {
        // 3 of 3 late ones and 1 of 7 others: (C(4,3) C(6,0)) / C(10,3) = 4 / 120.
        let p = chance((3, 3), (1, 7));
        assert!((p - 4.0 / 120.0).abs() < 1e-12, "{p}");
        assert!((chance((0, 3), (4, 7)) - 1.0).abs() < 1e-12);
        assert!((chance((3, 3), (7, 7)) - 1.0).abs() < 1e-12);
        // 12 of 12 late ones and 3 of 588 others: C(585, 0) C(15, 12) / C(600, 12).
        let choose = |n: u64, k: u64| (0..k).fold(1.0, |c, i| c * (n - i) as f64 / (k - i) as f64);
        let exact = choose(15, 12) / choose(600, 12);
        let p = chance((12, 12), (3, 588));
        assert!((p / exact - 1.0).abs() < 1e-9, "{p} {exact}");
    }

    #[test]
    fn the_logarithm_of_a_factorial_is_exact_for_small_and_large_numbers() {
        let sum = |n: u64| (2..=n).map(|i| (i as f64).ln()).sum::<f64>();
        for n in [0, 1, 2, 32, 33, 34, 100, 5000] {
            let (is, exact) = (ln_factorial(n), sum(n));
            assert!(
                (is - exact).abs() < 1e-9 * exact.max(1.0),
                "{n}: {is} {exact}"
            );
        }
    }
}
