//! Checks Equation 4.1 by hand, the optimum against brute force, and refusals.
use super::*;
use proptest::prelude::*;

fn limits(slot_ns: u64, epsilon_ns: u64, liveliness_ns: Option<u64>) -> Constraints {
    Constraints {
        slot_ns,
        epsilon_ns,
        liveliness_ns,
    }
}

fn brute(samples: &Samples, count: usize, limits: &Constraints) -> Option<f64> {
    fn go(
        samples: &Samples,
        ends: &mut Vec<u64>,
        left: usize,
        last: u64,
        limits: &Constraints,
        best: &mut Option<f64>,
    ) {
        let largest = limits.liveliness_ns.unwrap_or(u64::MAX);
        let fits = |ends: &[u64], x: u64| match ends.last() {
            None => x - limits.slot_ns > samples.best_ns(),
            Some(&before) => before < x - limits.slot_ns && x - before <= largest,
        };
        if left == 1 {
            if ends.is_empty() || fits(ends, last) {
                ends.push(last);
                let average = average_ns(samples, ends);
                ends.pop();
                if best.is_none_or(|b| average < b) {
                    *best = Some(average);
                }
            }
            return;
        }
        for x in limits.slot_ns..last {
            if fits(ends, x) {
                ends.push(x);
                go(samples, ends, left - 1, last, limits, best);
                ends.pop();
            }
        }
    }
    let last = samples.worst_ns() + limits.epsilon_ns + limits.slot_ns;
    let mut best = None;
    go(samples, &mut Vec::new(), count, last, limits, &mut best);
    best
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    // Brute force tries all whole numbers, so this proves the choice of candidates too.
    #[test]
    fn optimal_slots_equal_those_that_trying_all_placements_finds(
        latencies in proptest::collection::vec(0u64..26, 1..9),
        count in 1usize..5,
        slot in 1u64..5,
        epsilon in 0u64..4,
        liveliness in proptest::option::of(1u64..14),
    ) {
        let samples = Samples::new(&latencies);
        let limits = limits(slot, epsilon, liveliness);
        let found = optimal(&samples, count, &limits);
        match brute(&samples, count, &limits) {
            None => prop_assert!(found.is_err(), "{found:?}"),
            Some(best) => {
                let ends = found.unwrap();
                prop_assert_eq!(ends.len(), count);
                prop_assert_eq!(average_ns(&samples, &ends), best, "{:?}", ends);
                prop_assert!(count == 1 || ends[0] > samples.best_ns() + slot);
                prop_assert_eq!(ends[count - 1], samples.worst_ns() + epsilon + slot);
                for w in ends.windows(2) {
                    prop_assert!(w[0] < w[1] - slot && w[1] - w[0] <= liveliness.unwrap_or(u64::MAX));
                }
                let by_chance = random(&samples, count, &limits, 7);
                if let Ok(ends) = by_chance {
                    prop_assert!(average_ns(&samples, &ends) >= best);
                }
            }
        }
    }

    #[test]
    fn the_shares_of_bands_add_up_to_one_and_give_the_average_latency(
        latencies in proptest::collection::vec(1_000_000u64..90_000_000, 1..200),
        count in 1usize..6,
        seed in any::<u64>(),
    ) {
        let samples = Samples::new(&latencies);
        let limits = limits(100_000, 50_000, None);
        if let Ok(ends) = random(&samples, count, &limits, seed) {
            let shares = shares(&samples, &ends);
            prop_assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
            let average: f64 = shares.iter().zip(&ends).map(|(s, &x)| s * x as f64).sum();
            prop_assert!((average - average_ns(&samples, &ends)).abs() < 1.0);
        }
    }
}

#[test]
fn the_average_latency_of_bands_follows_equation_4_1_of_the_thesis() {
    let samples = Samples::new(&[10, 20, 20, 40]);
    assert_eq!(average_ns(&samples, &[41]), 41.0);
    assert_eq!(average_ns(&samples, &[20, 41]), (20.0 * 3.0 + 41.0) / 4.0);
    assert_eq!(average_ns(&samples, &[19, 41]), (19.0 + 41.0 * 3.0) / 4.0);
    assert_eq!(shares(&samples, &[20, 41]), [0.75, 0.25]);
    assert_eq!(optimal(&samples, 2, &limits(1, 0, None)), Ok(vec![20, 41]));
    // The first slot may not end before best + slot.
    assert_eq!(optimal(&samples, 2, &limits(15, 0, None)), Ok(vec![26, 55]));
}

#[test]
fn samples_with_huge_counts_cause_no_overflow() {
    let narrow = Samples::new(&[30_000_000, 31_000_000, 50_000_000, 80_000_000]);
    let mut wide = narrow.clone();
    wide.up_to.iter_mut().for_each(|n| *n *= 1 << 60);
    for count in 1..5 {
        let limits = limits(500_000, 0, Some(40_000_000));
        let ends = optimal(&narrow, count, &limits);
        assert!(ends.is_ok());
        assert_eq!(optimal(&wide, count, &limits), ends);
    }
}

#[test]
fn slots_placed_from_a_histogram_are_nearly_as_good_as_from_the_exact_samples() {
    let values: Vec<u64> = (0..5000u64).map(|i| 33_000_000 + i * i * 2).collect();
    let mut dist = Dist::new();
    values.iter().for_each(|&v| dist.record(v));
    let (exact, stored) = (Samples::new(&values), Samples::of(&dist));
    assert_eq!(stored.count(), 5000);
    assert_eq!(stored.worst_ns(), exact.worst_ns());
    for count in 1..6 {
        let limits = limits(1_000_000, 0, None);
        let ends = optimal(&stored, count, &limits).unwrap();
        let (a, b) = (average_ns(&exact, &ends), average_ns(&stored, &ends));
        assert!(a <= b && b - a < 1e-3 * a, "{count}: {a} {b}");
    }
}

#[test]
fn impossible_bands_are_refused_with_the_limit_that_they_violate() {
    let samples = Samples::new(&[10_000_000, 20_000_000]);
    let refused = |count, limits| optimal(&samples, count, &limits).unwrap_err().to_string();
    let none = optimal(&Samples::default(), 1, &limits(1, 0, None));
    assert_eq!(none, Err(BandsError::NoSamples));
    assert!(refused(0, limits(1, 0, None)).contains("1 to 16"));
    let text = refused(5, limits(5_000_000, 0, None));
    assert!(
        text.contains("5 ms") && text.contains("at most 2."),
        "{text}"
    );
    assert!(optimal(&samples, 2, &limits(5_000_000, 0, None)).is_ok());
    assert!(optimal(&samples, 3, &limits(5_000_000, 0, None)).is_err());
    assert!(refused(2, limits(5_000_000, 0, Some(1_000))).contains("0.001 ms"));
}

#[test]
fn the_suggested_number_of_bands_is_the_one_beyond_which_further_bands_gain_little() {
    // The values lie in three tight groups, so three bands gain nearly all.
    let values: Vec<u64> = (0..300u64)
        .map(|i| [30, 50, 80][(i % 3) as usize] * 1_000_000 + i * 1000)
        .collect();
    let samples = Samples::new(&values);
    assert_eq!(knee(&samples, &limits(500_000, 0, None)), Ok(3));
    assert_eq!(knee(&Samples::new(&[7]), &limits(5, 0, None)), Ok(1));
}
