//! Simulates pairs of single runs of random systems, and counts changes that are found and false
//! alarms.

use super::{callback, chain, compared, edge, empty, id, Random};
use onbeat_diff::{diff, Kind, Options, Report};
use onbeat_document::schema::{Model, RunExtremes, RunTypical, Typical};
use onbeat_document::Dist;
use std::collections::BTreeMap;

#[derive(Clone, Copy)]
struct System {
    callbacks: usize,
    /// The standard deviation of a callback's typical execution time from run to run, as a share of
    /// the callback's interquartile range.
    spread: f64,
    tails: Tails,
    seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Tails {
    Normal,
    /// Student's distribution with four degrees of freedom.
    Heavy,
}

const GROUP: usize = 10;

impl Random {
    fn level(&mut self, tails: Tails) -> f64 {
        let squares: f64 = (0..4).map(|_| self.normal().powi(2)).sum();
        match tails {
            Tails::Normal => self.normal(),
            // The variance of this distribution is 2.
            Tails::Heavy => self.normal() / (squares / 4.0).sqrt() / 2f64.sqrt(),
        }
    }
}

/// Simulates one run. `times` has for each callback the factor by which the callback is slower than
/// usual.
fn run(system: &System, times: &[f64], seed: u64) -> Model {
    let mut fixed = Random(system.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut random = Random(seed.wrapping_mul(0xD134_2543_DE82_EF95) | 1);
    (0..20).for_each(|_| {
        fixed.unit();
        random.unit();
    });
    let mut model = empty(1, seed);
    let of_run = model.runs[0].clone();
    let speed = 0.05 * random.normal();
    let mut sums = vec![0.0; 150];
    for (i, slower) in times.iter().enumerate() {
        let usual = (0.3 * 30f64.powf(fixed.unit())).ln();
        // A few callbacks are three times as wide as most.
        let wide =
            0.03 * (0.5 * fixed.normal()).exp() * if fixed.unit() < 0.15 { 3.0 } else { 1.0 };
        let count = 150 * (1 + (fixed.unit() * 4.0) as usize);
        let waits = 0.2 * (1.0 * fixed.normal()).exp();
        // The middle half of a normal distribution is 1.35 standard deviations wide.
        let own = system.spread * 1.35 * wide * random.level(system.tails);
        let queue = waits * (0.15 * random.level(system.tails)).exp();
        let [mut exec, mut response, mut period] = [Dist::new(), Dist::new(), Dist::new()];
        let mut level = 0.0;
        for n in 0..count {
            if n % GROUP == 0 {
                level = 0.5 * wide * random.normal();
            }
            let noise = level + 0.866 * wide * random.normal();
            let ms = (usual + speed + own + noise).exp() * slower;
            let all = ms - queue * random.unit().max(1e-6).ln();
            exec.record((ms * 1e6) as u64);
            response.record((all * 1e6) as u64);
            period.record((20e6 * (1.0 + 0.002 * random.normal())) as u64);
            if let Some(sum) = sums.get_mut(n) {
                *sum += all;
            }
        }
        let typical = RunTypical {
            exec_ns: typical(&exec),
            response_ns: typical(&response),
            interarrival_ns: typical(&period),
        };
        let extremes = RunExtremes {
            start: of_run.start,
            count: exec.count(),
            min_ns: exec.min(),
            mean_ns: exec.mean(),
            max_ns: exec.max(),
            typical: Some(typical),
        };
        let per_run = BTreeMap::from([(of_run.id.clone(), extremes)]);
        let mut callback = callback(&id(i), i, exec, per_run);
        callback.figures.response_ns = response;
        callback.figures.interarrival_ns = period;
        model.callbacks.push(callback);
        if i > 0 {
            model
                .edges
                .push(edge(&id(i - 1), &id(i), &format!("/t{}", i - 1)));
        }
    }
    let mut latency = Dist::new();
    sums.iter().for_each(|ms| latency.record((ms * 1e6) as u64));
    let (ids, topics) = (0..times.len()).map(|i| (id(i), format!("/t{i}"))).unzip();
    let per_run = BTreeMap::from([(of_run.id, latency.clone())]);
    model
        .chains
        .push(chain("chain-1", ids, topics, latency, per_run));
    model
}

/// Returns the typical figures of a run. Groups of ten executions share a quarter of the variance,
/// so ten executions are worth 10 / 3.25 independent ones.
fn typical(dist: &Dist) -> Typical {
    Typical {
        count: dist.count(),
        median_ns: dist.quantile(0.5),
        p99_ns: None,
        effective: dist.count() * 4 / 13,
    }
}

/// Compares pairs of single runs. In the second run of each pair, `changed` callbacks take `factor`
/// times as long.
fn pairs(system: System, changed: usize, factor: f64, count: u64) -> Vec<(Report, Vec<String>)> {
    let pair = |seed: u64| {
        let system = System {
            seed: system.seed + seed,
            ..system
        };
        let usual = vec![1.0; system.callbacks];
        let mut after = usual.clone();
        // The changed callbacks are spread over the system.
        let step = system.callbacks / changed.max(1);
        let slower: Vec<usize> = (0..changed)
            .map(|i| (seed as usize + i * step) % system.callbacks)
            .collect();
        slower.iter().for_each(|&i| after[i] = factor);
        let seeds = (
            2 * (system.seed * 7919 + seed) + 1,
            2 * (system.seed * 7919 + seed) + 2,
        );
        let report = compared(
            &run(&system, &usual, seeds.0),
            &run(&system, &after, seeds.1),
        );
        (report, slower.into_iter().map(id).collect())
    };
    (0..count).map(pair).collect()
}

fn has_false_alarm((report, slower): &(Report, Vec<String>)) -> bool {
    let own = |id: &String| slower.contains(id) || id.starts_with("chain") && !slower.is_empty();
    report.figures.iter().any(|f| !own(&f.id))
}

fn power(pairs: &[(Report, Vec<String>)]) -> f64 {
    let found = |(report, slower): &(Report, Vec<String>)| {
        let reported = |id: &&String| {
            let mut of = report.figures.iter();
            of.any(|f| f.figure == "execution time" && f.id == **id)
        };
        slower.iter().filter(reported).count()
    };
    let all: usize = pairs.iter().map(|(_, slower)| slower.len()).sum();
    pairs.iter().map(found).sum::<usize>() as f64 / all as f64
}

fn false_alarms(pairs: &[(Report, Vec<String>)]) -> usize {
    pairs.iter().filter(|p| has_false_alarm(p)).count()
}

fn system(callbacks: usize, spread: f64, tails: Tails) -> System {
    System {
        callbacks,
        spread,
        tails,
        seed: 100 * callbacks as u64,
    }
}

const TAILS: [Tails; 2] = [Tails::Normal, Tails::Heavy];

#[test]
fn equal_single_runs_rarely_show_a_change() {
    let (mut wrong, mut all) = (0, 0);
    for (callbacks, count) in [(2, 6), (5, 6), (12, 8), (40, 1)] {
        for spread in [0.1, 0.35, 0.8] {
            for tails in TAILS {
                let pairs = pairs(system(callbacks, spread, tails), 0, 1.0, count);
                all += pairs.len();
                wrong += false_alarms(&pairs);
            }
        }
    }
    // The requested level is one of twenty.
    assert!(wrong * 20 <= all, "{wrong} of {all}");
}

#[test]
fn a_callback_that_is_a_fifth_slower_is_found_in_single_runs() {
    for tails in TAILS {
        let pairs = pairs(system(12, 0.15, tails), 1, 1.2, 20);
        let (power, wrong) = (power(&pairs), false_alarms(&pairs));
        assert!(power >= 0.85 && wrong <= 1, "{power}, {wrong} wrong");
        let resolution = pairs[0].0.resolution.unwrap();
        assert!((0.1..0.16).contains(&resolution), "{resolution}");
    }
}

#[test]
fn several_changed_callbacks_are_all_found() {
    for tails in TAILS {
        let pairs = pairs(system(12, 0.15, tails), 4, 1.4, 12);
        let (power, wrong) = (power(&pairs), false_alarms(&pairs));
        assert!(power >= 0.75 && wrong <= 1, "{power}, {wrong} wrong");
    }
}

#[test]
fn runs_that_differ_much_show_only_large_changes() {
    let quiet = &pairs(system(12, 0.1, Tails::Normal), 0, 1.0, 1)[0].0;
    let noisy = &pairs(system(12, 2.0, Tails::Normal), 0, 1.0, 1)[0].0;
    let share = |report: &Report| {
        let of = report.spreads.iter().find(|s| s.kind == Kind::Execution);
        let spread = of.unwrap();
        assert!(spread.estimated, "{spread:?}");
        spread.share
    };
    assert!(share(quiet) < 0.025 && share(noisy) > 0.05);
    assert!(noisy.resolution.unwrap() > 2.0 * quiet.resolution.unwrap());
}

#[test]
fn the_assumed_spread_applies_if_there_are_few_figures_or_the_user_sets_it() {
    let resolution = |callbacks: usize, options: &Options| {
        let system = system(callbacks, 0.1, Tails::Normal);
        let usual = vec![1.0; callbacks];
        let report = diff(&run(&system, &usual, 1), &run(&system, &usual, 2), options);
        (report.resolution.unwrap(), report)
    };
    let (few, report) = resolution(2, &Options::default());
    assert!((0.3..0.5).contains(&few), "{few}");
    assert!(report
        .spreads
        .iter()
        .all(|s| s.kind != Kind::Execution || !s.estimated));
    let chosen = Options {
        estimate_spread: false,
        ..Options::default()
    };
    let (whole, report) = resolution(12, &chosen);
    assert!((0.35..0.55).contains(&whole), "{whole}");
    assert!(
        report.spreads.iter().all(|s| !s.estimated),
        "{:?}",
        report.spreads
    );
    assert!(
        report
            .notes
            .iter()
            .any(|n| n.contains("execution times 8.0 % (assumed)")),
        "{:?}",
        report.notes
    );
    // More figures make the estimate count for more.
    let between = resolution(6, &Options::default()).0;
    assert!(between < few && between > resolution(12, &Options::default()).0);
}

#[test]
fn a_slower_machine_is_not_a_slower_callback_in_single_runs() {
    let system = system(12, 0.1, Tails::Normal);
    let (a, b) = (run(&system, &[1.0; 12], 1), run(&system, &[2.0; 12], 2));
    let report = compared(&a, &b);
    let ids: Vec<&str> = report.figures.iter().map(|f| f.figure.as_str()).collect();
    assert!(!ids.contains(&"execution time"), "{ids:?}");
    assert!(ids.contains(&"speed"), "{ids:?}");
}

#[test]
fn a_burst_of_lost_items_in_a_single_run_is_not_reported_as_a_change() {
    let system = system(3, 0.1, Tails::Normal);
    let lossy = |seconds: u64, lost: u64, runs: usize| {
        let models = [0, lost].map(|lost| {
            let mut model = run(&system, &[1.0; 3], 1);
            model.runs[0].duration_ns = seconds * 1_000_000_000;
            model.runs = vec![model.runs[0].clone(); runs];
            model.edges[0].figures.lost = lost;
            model
        });
        let report = compared(&models[0], &models[1]);
        report.figures.iter().any(|f| f.figure == "loss")
    };
    // A quarter of 15 s is a late start.
    assert!(!lossy(15, 250, 1));
    assert!(lossy(15, 700, 1) && lossy(120, 250, 1));
    assert!(lossy(15, 250, 2));
}
