use super::pareto::Pareto;
use super::*;
use crate::bands::{average_ns, optimal, Constraints};

fn uniform(random: &mut Random) -> f64 {
    (random.below(1 << 40) as f64 + 0.5) / (1u64 << 40) as f64
}

type Tail = fn(f64) -> f64;

const EXPONENTIAL: Tail = |p| -p.ln();
const BOUNDED: Tail = |p| 2.0 * (1.0 - p.sqrt());
const UNIFORM: Tail = |p| 1.0 - p;
/// This generalised Pareto tail has shape 1/4, so that its moments below the fourth are finite.
const PARETO: Tail = |p| (p.powf(-0.25) - 1.0) / 0.25;
/// This tail has shape 1/2 and therefore no variance.
const HEAVY: Tail = |p| (p.powf(-0.5) - 1.0) / 0.5;

fn latency(more: f64) -> u64 {
    (1e7 + 1e6 * more) as u64
}

/// Generates a random profile of `starts` starts with `each` executions, whose times above 10 ms
/// follow the distribution `tail`. In a share `effect` of the starts, these parts above 10 ms are
/// 1.5 times as long.
fn profile(random: &mut Random, tail: Tail, starts: usize, each: usize, effect: f64) -> Profile {
    let dists: Vec<Dist> = (0..starts)
        .map(|_| {
            let factor = if uniform(random) < effect { 1.5 } else { 1.0 };
            let mut dist = Dist::new();
            for _ in 0..each {
                dist.record(latency(factor * tail(uniform(random))));
            }
            dist
        })
        .collect();
    Profile::of(&dists)
}

fn truth(tail: Tail, effect: f64, rate: f64) -> u64 {
    // Bisects the quantile function to find how often a value is exceeded.
    let exceeded = |x: f64| {
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..60 {
            let p = (low + high) / 2.0;
            if tail(p) > x {
                low = p;
            } else {
                high = p;
            }
        }
        (low + high) / 2.0
    };
    let (mut low, mut high) = (0.0, 1e4);
    for _ in 0..80 {
        let x = (low + high) / 2.0;
        let p = (1.0 - effect) * exceeded(x) + effect * exceeded(x / 1.5);
        if p > rate {
            low = x;
        } else {
            high = x;
        }
    }
    latency((low + high) / 2.0)
}

#[test]
fn a_pareto_fit_finds_the_tail_from_which_values_were_drawn() {
    for (shape, scale) in [(-0.4, 2.0), (0.0, 1.0), (0.25, 0.5), (0.7, 3.0)] {
        let drawn = Pareto { shape, scale };
        let n = 20_000;
        let at = |i: u32| drawn.exceeded_with(1.0 - (f64::from(i) + 0.5) / f64::from(n));
        let values: Vec<(f64, u64)> = (0..n).map(|i| (at(i), 1)).collect();
        let fit = Pareto::fit(&values).unwrap();
        assert!((fit.shape - shape).abs() < 0.03, "{drawn:?} {fit:?}");
        assert!((fit.scale / scale - 1.0).abs() < 0.05, "{drawn:?} {fit:?}");
        // Values with a count of two equal values that occur twice.
        let twice: Vec<(f64, u64)> = values.iter().map(|v| (v.0, 2)).collect();
        let both = values.iter().flat_map(|v| [*v, *v]).collect::<Vec<_>>();
        let (a, b) = (Pareto::fit(&twice).unwrap(), Pareto::fit(&both).unwrap());
        assert!((a.shape - b.shape).abs() < 1e-9 && (a.scale - b.scale).abs() < 1e-9);
    }
    assert_eq!(Pareto::fit(&[(1.0, 100)]), None);
}

#[test]
fn latency_limits_hold_with_the_stated_confidence_or_are_refused() {
    const REPEAT: usize = 60;
    let rate = 0.01;
    let mut random = Random(1);
    for (name, tail, effect, starts, each) in [
        ("exponential", EXPONENTIAL, 0.0, 10, 150),
        ("exponential, many starts", EXPONENTIAL, 0.0, 40, 40),
        ("uniform", UNIFORM, 0.0, 10, 150),
        ("bounded", BOUNDED, 0.0, 10, 150),
        ("pareto", PARETO, 0.0, 10, 150),
        ("heavy", HEAVY, 0.0, 10, 150),
        ("heavy, more", HEAVY, 0.0, 20, 200),
        ("starts differ", EXPONENTIAL, 0.5, 40, 60),
        ("starts differ, heavy", HEAVY, 0.5, 40, 60),
        ("few starts differ", EXPONENTIAL, 0.1, 40, 60),
        ("few starts, and they differ", EXPONENTIAL, 0.5, 8, 400),
    ] {
        let truth = truth(tail, effect, rate);
        let (mut wrong, mut given) = (0, 0);
        for _ in 0..REPEAT {
            match profile(&mut random, tail, starts, each, effect).limit(rate) {
                Ok(limit) => {
                    given += 1;
                    wrong += usize::from(limit.ns < truth);
                }
                Err(e) => assert!(matches!(e, ProfileError::Few { .. }), "{e}"),
            }
        }
        // At 95 %, 3 of 60 are expected to be wrong. The seed is fixed.
        assert!(
            wrong * 20 <= given.max(20) + 20,
            "{name}: {wrong} of {given} limits are too low"
        );
        // Few starts that differ do not support a limit.
        let refused = starts < 10 && given * 2 < REPEAT;
        assert!(
            refused || given * 2 > REPEAT,
            "{name}: {given} of {REPEAT} profiles gave a limit"
        );
        println!("{name}: {wrong} of {given} limits are too low");
    }
}

#[test]
fn a_miss_rate_without_enough_starts_is_refused_with_the_number_that_suffices() {
    let mut random = Random(2);
    let refused = |p: &Profile, rate| match p.limit(rate) {
        Err(ProfileError::Few {
            starts,
            executions,
            need_starts,
            need_executions,
            ..
        }) => {
            assert_eq!((starts, executions), (p.starts(), p.executions()));
            (need_starts, need_executions)
        }
        other => panic!("{other:?}"),
    };
    // One start says nothing about others, however long it is.
    let (starts, executions) = refused(&profile(&mut random, EXPONENTIAL, 1, 20_000, 0.0), 1e-3);
    assert!(starts >= 2 && executions == starts * 20_000);
    let few = profile(&mut random, EXPONENTIAL, 10, 250, 0.0);
    let (starts, executions) = refused(&few, 1e-3);
    assert!(
        (12..60).contains(&starts) && executions == starts * 250,
        "{starts}"
    );
    // The number of starts that the refusal names suffices.
    let enough = profile(&mut random, EXPONENTIAL, starts as usize + 5, 250, 0.0);
    let limit = enough.limit(1e-3).unwrap();
    assert!(limit.independent >= 2995 && limit.independent <= limit.executions);
    assert!(limit.ns >= truth(EXPONENTIAL, 0.0, 1e-3));
    // Executions of starts that differ count for less.
    let alike = profile(&mut random, EXPONENTIAL, 20, 250, 0.0)
        .limit(0.01)
        .unwrap();
    match profile(&mut random, EXPONENTIAL, 20, 250, 0.5).limit(0.01) {
        Ok(differ) => assert!(differ.independent * 2 < alike.independent),
        Err(e) => assert!(matches!(e, ProfileError::Few { .. })),
    }
    for rate in [0.0, -1.0, 0.6, f64::NAN] {
        let error = few.limit(rate).unwrap_err();
        assert!(matches!(error, ProfileError::Rate { .. }), "{error}");
    }
    let line = few.limit(1e-3).unwrap_err().to_string();
    assert!(
        line.contains("2500 executions of 10 starts") && !line.contains('\n'),
        "{line}"
    );
}

#[test]
fn equal_profiles_give_equal_limits_and_a_lower_miss_rate_gives_a_later_limit() {
    let mut random = Random(3);
    let profile = profile(&mut random, PARETO, 30, 300, 0.0);
    let limit = profile.limit(1e-3).unwrap();
    assert_eq!(profile.clone().limit(1e-3).unwrap(), limit);
    assert!(profile.limit(1e-2).unwrap().ns < limit.ns);
    assert!(
        limit.shape.is_some_and(|s| (0.0..0.5).contains(&s)),
        "{limit:?}"
    );
    // With so many executions, the probability that none exceeds the limit underflows.
    let many = self::profile(&mut random, EXPONENTIAL, 40, 500, 0.0);
    let (limit, truth) = (many.limit(0.1).unwrap(), truth(EXPONENTIAL, 0.0, 0.1));
    assert!(limit.independent > 7_500, "{limit:?}");
    assert!(
        (truth..truth + 100_000).contains(&limit.ns),
        "{limit:?} {truth}"
    );
    // All values are equal, so the limit is that value.
    let mut one = Dist::new();
    (0..200).for_each(|_| one.record(5_000_000));
    let constant = Profile::of(&vec![one; 20]).limit(1e-2).unwrap();
    assert_eq!((constant.ns, constant.shape), (5_000_000, None));
}

fn groups(random: &mut Random, starts: usize, each: usize) -> Profile {
    let tail: Tail = |p| match p {
        p if p < 0.05 => 50.0 + 40.0 * p,
        p if p < 0.3 => 20.0 + 4.0 * p,
        p => 10.0 * p,
    };
    profile(random, tail, starts, each, 0.0)
}

const LIMITS: Constraints = Constraints {
    slot_ns: 500_000,
    epsilon_ns: 0,
    liveliness_ns: None,
};

#[test]
fn the_fewest_bands_for_an_average_latency_also_keep_it_in_later_starts() {
    let mut random = Random(4);
    let last = 63_000_000;
    let (mut kept, mut few) = (0, 0);
    for _ in 0..20 {
        let seen = groups(&mut random, 8, 60);
        let found = seen.fewest(0.20, last, &LIMITS, 0).unwrap();
        assert!(
            found.above <= found.bound && found.bound <= 0.20,
            "{found:?}"
        );
        // Slots are placed for the seen starts, and an unseen start runs under them.
        let samples = seen.samples(&[1; 8]).capped(last);
        let limits = Constraints {
            epsilon_ns: last - samples.worst_ns(),
            ..LIMITS
        };
        let ends = optimal(&samples, found.bands, &limits).unwrap();
        let later = groups(&mut random, 5, 60).samples(&[1; 5]);
        kept += u32::from(average_ns(&later, &ends) / later.mean_ns() - 1.0 <= 0.20);
        // One band fewer does not reach the average.
        let fewer = optimal(&samples, found.bands - 1, &limits).unwrap();
        few += u32::from(average_ns(&samples, &fewer) / samples.mean_ns() - 1.0 > 0.15);
        assert_eq!(seen.fewest(0.20, last, &LIMITS, 0).unwrap(), found);
    }
    assert!(kept >= 19 && few >= 15, "{kept} {few}");
}

#[test]
fn an_average_latency_that_no_number_of_bands_reaches_is_refused_with_the_best_number() {
    let mut random = Random(5);
    let refused = groups(&mut random, 6, 60).fewest(0.001, 63_000_000, &LIMITS, 0);
    let Err(ProfileError::Average { asked, best, bands }) = refused else {
        panic!("{refused:?}");
    };
    assert!(
        asked == 0.001 && best > 0.001 && best < 0.2 && bands > 3,
        "{best} {bands}"
    );
    let few = groups(&mut random, LEAST_STARTS - 1, 60).fewest(0.5, 63_000_000, &LIMITS, 0);
    assert_eq!(few.unwrap_err(), ProfileError::FewStarts { starts: 4 });
}
