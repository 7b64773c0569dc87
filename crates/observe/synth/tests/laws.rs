//! Laws of the synthesis. Merging is associative and commutative, and equals modelling all runs.
//! Figures stay within what is possible. No order of events causes a panic.

mod random;

use onbeat_document::cuts::Cut;
use onbeat_document::merge::{filter_mode, merge, set_mode, ModelMergeError};
use onbeat_document::schema::{JunctionKind, Run};
use onbeat_document::Model;
use onbeat_synth::mode_rules::ModeRule;
use onbeat_synth::{Synth, SynthOptions};
use onbeat_trace::Event;
use proptest::prelude::*;
use random::{any_event, round, system, Round};
use std::ops::Range;

fn run(id: u32, mode: &str) -> Run {
    Run {
        host: String::new(),
        boot: String::new(),
        id: format!("run{id}"),
        mode: mode.into(),
        distribution: vec!["jazzy".into()],
        start: u64::from(id) * 1_000_000,
        duration_ns: 0,
        lost: Default::default(),
        events: 0,
    }
}

fn synthesise(run: Run, events: &[Event]) -> Model {
    let mut options = SynthOptions::new(run);
    options.links = vec!["/b:subscription(/t0) -> /a:timer(10ms)".parse().unwrap()];
    let mut synth = Synth::new(options);
    events.iter().for_each(|e| synth.push(e));
    synth.finish()
}

fn models(number: Range<usize>) -> impl Strategy<Value = Vec<Model>> {
    let one = (prop::collection::vec(round(), 0..12), 0u8..2, any::<bool>());
    prop::collection::vec(one, number).prop_map(|runs| {
        runs.into_iter()
            .enumerate()
            .map(|(i, (rounds, kind, urban))| {
                let mode = if urban { "urban" } else { "highway" };
                synthesise(run(i as u32, mode), &system(&rounds, kind))
            })
            .collect()
    })
}

#[derive(Debug, Clone)]
struct Stated {
    modes: Vec<ModeRule>,
    link: Option<(usize, usize)>,
    /// The numbers of two callbacks: chains are measured from the first one to the publication of
    /// the second.
    cut: Option<(usize, usize)>,
}

fn stated() -> impl Strategy<Value = Stated> {
    let rules = prop::sample::subsequence(
        vec!["urban@400ms..1s", "urban,highway@/b", "x@1s..2s"],
        0..3,
    );
    let rules = rules.prop_map(|rules| rules.iter().map(|r| r.parse().unwrap()).collect());
    let numbers = || prop::option::of(any::<(usize, usize)>());
    (rules, numbers(), numbers()).prop_map(|(modes, link, cut)| Stated { modes, link, cut })
}

fn synthesise_stated(run: Run, events: &[Event], stated: &Stated) -> Model {
    let pass = |options: &SynthOptions| {
        let mut synth = Synth::new(options.clone());
        events.iter().for_each(|e| synth.push(e));
        synth
    };
    let mut options = SynthOptions::new(run);
    options.modes = stated.modes.clone();
    options.ids = pass(&options).into_ids();
    let model = pass(&options).finish();
    let callback = |n: usize| model.callbacks.get(n % model.callbacks.len().max(1));
    if let Some((Some(from), Some(to))) = stated.link.map(|(a, b)| (callback(a), callback(b))) {
        let link = format!("{} -> {}", from.id, to.id);
        options.links = link.parse().into_iter().collect();
    }
    if let Some((Some(from), Some(to))) = stated.cut.map(|(a, b)| (callback(a), callback(b))) {
        options.cuts = vec![Cut {
            from: Some(from.id.clone()),
            to: to.outputs.first().cloned(),
        }];
    }
    pass(&options).finish()
}

fn stored(model: &Model) -> Model {
    let text = serde_json::to_vec(model).unwrap();
    onbeat_document::file::read(&text).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").map_or(48, |n| n.parse().unwrap()),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn merging_is_associative_and_commutative(models in models(2..5)) {
        let all = merge(models.clone()).unwrap();
        let mut backwards = models.clone();
        backwards.reverse();
        prop_assert!(merge(backwards).unwrap() == all, "not commutative");
        let left = models.iter().cloned().reduce(|a, b| merge(vec![stored(&a), b]).unwrap()).unwrap();
        prop_assert!(left == all, "not associative from the left");
        let right = models.iter().rev().cloned().reduce(|a, b| merge(vec![b, stored(&a)]).unwrap()).unwrap();
        prop_assert!(right == all, "not associative from the right");
        // Nothing is counted twice or lost.
        for c in &all.callbacks {
            let sum: u64 = models.iter().flat_map(|m| &m.callbacks).filter(|o| o.id == c.id).map(|o| o.figures.exec_ns.count()).sum();
            prop_assert_eq!(c.figures.exec_ns.count(), sum);
            let load = c.figures.exec_ns.sum() as f64 / c.figures.observed_ns.max(1) as f64;
            prop_assert!((c.figures.load - load).abs() < 1e-12);
            let mut summed = std::collections::BTreeMap::new();
            for cause in models.iter().flat_map(|m| &m.callbacks).filter(|o| o.id == c.id).flat_map(|o| &o.figures.causes) {
                *summed.entry(cause.by.clone()).or_insert(0) += cause.preempted_ns;
            }
            let merged: std::collections::BTreeMap<_, _> = c.figures.causes.iter().map(|cause| (cause.by.clone(), cause.preempted_ns)).collect();
            prop_assert_eq!(merged.len(), c.figures.causes.len(), "each component is listed once");
            prop_assert_eq!(&merged, &summed);
            prop_assert_eq!(u128::from(summed.values().sum::<u64>()), c.figures.preempted_ns.sum());
        }
        // A model merged alone stays as it was.
        prop_assert!(merge(vec![models[0].clone()]).unwrap() == models[0]);
        // The part of each mode holds its own runs, and all parts together are the whole.
        let modes: std::collections::BTreeSet<String> = models.iter().map(|m| m.runs[0].mode.clone()).collect();
        for mode in &modes {
            let part = filter_mode(all.clone(), mode).unwrap();
            let of_mode: Vec<Model> = models.iter().filter(|m| &m.runs[0].mode == mode).cloned().collect();
            let apart = merge(of_mode).unwrap();
            prop_assert_eq!(part.runs.len(), apart.runs.len());
            for c in &apart.callbacks {
                if c.figures.exec_ns.count() > 0 {
                    let same = part.callbacks.iter().find(|p| p.id == c.id).unwrap();
                    prop_assert_eq!(&same.figures, &c.figures);
                    prop_assert_eq!(&same.per_run, &c.per_run);
                }
            }
        }
        let united = set_mode(all.clone(), "any").unwrap();
        prop_assert!(united.callbacks.iter().all(|c| c.modes.is_empty()));
    }

    #[test]
    fn merges_in_any_grouping_give_the_same_bytes(
        models in models(2..10),
        picks in prop::collection::vec((any::<usize>(), 1usize..5), 20),
    ) {
        let bytes = |model: &Model| serde_json::to_vec_pretty(model).unwrap();
        let all = bytes(&merge(models.clone()).unwrap());
        // Groups of any size and of any models are merged as files until one is left.
        let mut parts: Vec<Vec<u8>> = models.iter().map(bytes).collect();
        let mut picks = picks.into_iter().cycle();
        while parts.len() > 1 {
            let mut group = Vec::new();
            for _ in 0..picks.next().unwrap().1.min(parts.len()) {
                let part = parts.swap_remove(picks.next().unwrap().0 % parts.len());
                group.push(onbeat_document::file::read(&part).unwrap());
            }
            parts.push(bytes(&merge(group).unwrap()));
        }
        prop_assert!(parts[0] == all);
    }

    #[test]
    fn shares_and_times_of_a_model_are_consistent(rounds in prop::collection::vec(round(), 6..20), kind in 0u8..2) {
        let m = synthesise(run(1, "x"), &system(&rounds, kind));
        let lost: u64 = rounds.iter().filter(|r| r.lost).count() as u64 * (1 + u64::from(kind));
        for c in &m.callbacks {
            prop_assert!(c.figures.exec_ns.max() <= c.figures.response_ns.max());
        }
        for e in &m.edges {
            let f = &e.figures;
            prop_assert!(f.taken + f.lost <= f.published && f.overwritten <= f.lost);
            prop_assert_eq!(f.latency_ns.count(), f.taken);
            // Every output of synchronised inputs counts, whichever input published it.
            if e.to.starts_with("/c") && e.from.contains(":sync(") {
                prop_assert_eq!(f.published - f.taken, lost);
            }
        }
        for c in &m.chains {
            let f = &c.figures;
            let sum: u128 = f.shares.iter().map(|s| s.sum_ns.parse::<u128>().unwrap()).sum();
            prop_assert_eq!(sum, f.latency_ns.sum());
            prop_assert!(f.executions <= rounds.len() as u64);
        }
        let and = m.junctions.iter().any(|j| j.kind == JunctionKind::And);
        prop_assert_eq!(and, kind == 0, "{:#?}", m.junctions);
    }

    #[test]
    fn random_events_in_any_order_give_a_model_without_a_panic(
        mut events in prop::collection::vec(any_event(), 0..400),
        in_time in any::<bool>(),
    ) {
        if in_time {
            events.sort_by_key(|e| e.time_ns);
        }
        let m = synthesise(run(1, "x"), &events);
        for e in &m.edges {
            prop_assert!(e.figures.taken <= e.figures.published, "{} {} {} {:?}", e.from, e.to, e.topic, e.figures);
        }
        prop_assert!(stored(&m) == m);
        prop_assert!(merge(vec![m.clone()]).unwrap() == m);
    }

    #[test]
    fn merging_a_single_model_does_not_change_its_bytes(
        runs in prop::collection::vec(
            (prop::collection::vec(any_event(), 0..200), any::<bool>(), stated()),
            1..4,
        ),
    ) {
        let bytes = |model: &Model| serde_json::to_string_pretty(model).unwrap();
        let runs = runs.into_iter().enumerate();
        let models = runs.map(|(i, (mut events, in_time, stated))| {
            if in_time {
                events.sort_by_key(|e| e.time_ns);
            }
            synthesise_stated(run(i as u32, "x"), &events, &stated)
        });
        let models: Vec<Model> = models.collect();
        let all = merge(models.clone()).unwrap();
        for model in models.into_iter().chain([all]) {
            let before = bytes(&model);
            let mut after = vec![merge(vec![stored(&model)])];
            if let [run] = model.runs.as_slice() {
                // The whole run has this mode.
                after.push(filter_mode(model.clone(), &run.mode));
                after.push(set_mode(model.clone(), &run.mode));
            }
            for after in after {
                let after = bytes(&after.unwrap());
                let mut lines = before.lines().zip(after.lines()).enumerate();
                let differ = lines.find(|(_, (a, b))| a != b);
                prop_assert!(after == before, "{differ:?}");
            }
        }
    }
}

#[test]
fn the_same_run_cannot_be_merged_twice() {
    let m = synthesise(run(1, "x"), &[]);
    assert_eq!(
        merge(vec![m.clone(), m]),
        Err(ModelMergeError::SameRun("run1".into()))
    );
    assert_eq!(merge(vec![]), Err(ModelMergeError::Empty));
    let m = synthesise(run(1, "x"), &[]);
    let none = filter_mode(m, "y").unwrap_err();
    assert_eq!(
        none.to_string(),
        "the model has no run of mode 'y'. Choose one of its modes: x"
    );
}

#[test]
fn merging_keeps_coverage_sentences_of_other_programs() {
    let mut m = synthesise(run(1, "x"), &system(&[], 0));
    m.coverage
        .push("The probe of x could not be attached.".into());
    let all = merge(vec![m, synthesise(run(2, "x"), &[])]).unwrap();
    assert!(all
        .coverage
        .contains(&"The probe of x could not be attached.".into()));
    let again = merge(vec![all.clone()]).unwrap();
    assert!(again == all);
}

#[test]
fn conclusions_are_drawn_from_all_runs_together() {
    let steady = Round {
        run: [10; 4],
        swapped: false,
        lost: false,
        preempted: false,
    };
    let swapped = Round {
        swapped: true,
        ..steady.clone()
    };
    // Three outputs are too few to decide that the two inputs wait for each other. Six are enough.
    let half = |id| {
        synthesise(
            run(id, "x"),
            &system(&[steady.clone(), swapped.clone(), steady.clone()], 0),
        )
    };
    let and = |m: &Model| {
        m.junctions
            .iter()
            .filter(|j| j.kind == JunctionKind::And)
            .count()
    };
    let (a, b) = (half(1), half(2));
    assert_eq!((and(&a), and(&b)), (0, 0));
    let both = merge(vec![stored(&a), stored(&b)]).unwrap();
    assert_eq!(and(&both), 1);
    let through = both
        .chains
        .iter()
        .filter(|c| c.callbacks.iter().any(|c| c == "/b:sync(/out)"));
    assert_eq!(
        through.map(|c| c.figures.executions).collect::<Vec<_>>(),
        [6, 6]
    );
    // A run that contradicts takes it back, and every figure is as before.
    let apart: Vec<Model> = (3..9)
        .map(|id| synthesise(run(id, "x"), &system(&[steady.clone(), steady.clone()], 1)))
        .collect();
    let mut all = apart.clone();
    all.insert(0, stored(&both));
    let all = merge(all).unwrap();
    assert_eq!(and(&all), 0, "{:#?}", all.junctions);
    let direct: u64 = all
        .edges
        .iter()
        .filter(|e| e.from.starts_with("/b:subscription") && e.assumed.is_none())
        .map(|e| e.figures.taken)
        .sum();
    assert_eq!(direct, 6 + 6 * 4);
}
