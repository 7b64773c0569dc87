//! Cuts: parts of chains with latencies of their own, by the names that a user writes.

use super::reference::{reference, reference_until};
use super::structure::System;
use super::*;
use onbeat_document::cuts::{self, CutError, Ends};

fn ends(from: &str, to: &str, through: &[&str]) -> Ends {
    let some = |text: &str| (!text.is_empty()).then(|| text.to_string());
    Ends {
        from: some(from),
        to: some(to),
        through: through.iter().map(|t| t.to_string()).collect(),
    }
}

fn cut(trace: &str, ends: &Ends) -> (Model, Model) {
    let events = text::parse(trace).unwrap();
    let mut synth = Synth::new(SynthOptions::new(run("r1", DEFAULT_MODE)));
    events.iter().for_each(|e| synth.push(e));
    let mut options = SynthOptions::new(run("r1", DEFAULT_MODE));
    options.ids = synth.clone().into_ids();
    let whole = synth.finish();
    let ways = cuts::ways(&whole, ends).unwrap();
    options.cuts = ways.iter().map(|w| w.cut(ends)).collect();
    options.cuts.dedup();
    (whole, model_of(trace, options))
}

fn whole_chains(model: &Model) -> Vec<&Chain> {
    model.chains.iter().filter(|c| !c.cut).collect()
}

fn line() -> System {
    let mut s = System::new();
    let a = s.node("lidar/driver", &[100], &[], &["/points"]);
    let f = s.node("lidar/filter", &[], &["/points"], &["/filtered"]);
    let m = s.node("mapper", &[], &["/filtered"], &["/map", "/debug"]);
    let k = s.node("sink", &[], &["/map"], &[]);
    for i in 1..=10 {
        let (t, later) = (100_000 * i, 300 * i);
        s.timer(t, a, 0, &[0], 1_000);
        s.take(t + 2_000, f, 0, System::stamp(t, 0), &[0], 1_000);
        let taken = t + 5_000 + later;
        s.take(taken, m, 0, System::stamp(t + 2_000, 0), &[0, 1], 1_000);
        s.take(taken + 3_000, k, 0, System::stamp(taken, 0), &[], 1_000);
    }
    s
}

const FILTER: &str = "/lidar/filter:subscription(/points)";
const MAPPER: &str = "/mapper:subscription(/filtered)";

#[test]
fn the_part_of_a_chain_between_two_publications_has_its_own_latency() {
    let trace = line().trace();
    let part = format!("{FILTER} > {MAPPER}");
    for (from, to) in [
        ("/lidar/filter", "/map"),
        (FILTER, "/map"),
        ("filter", "topic:/map"),
        ("topic:/points", "map"),
    ] {
        let (whole, m) = cut(&trace, &ends(from, to, &[]));
        assert_eq!(whole_chains(&m), whole.chains.iter().collect::<Vec<_>>());
        let found = chain(&m, &part);
        assert!(found.cut, "{from} {to}");
        assert_eq!(found.topics, ["/filtered", "/map"]);
        let figures = &found.figures;
        // The filter starts at 2 ms. The mapper publishes at 5.5 ms, or up to 3 ms later.
        assert_eq!(figures.executions, 10);
        let near = |is: u64, us: u64| is.abs_diff(us * 1_000) <= 1_000;
        assert!(
            near(figures.latency_ns.min(), 3_800),
            "{from} {to} {:?}",
            figures.latency_ns
        );
        assert!(near(figures.latency_ns.max(), 6_500), "{from} {to}");
        assert_eq!(cuts::readers(&m, found), ["/sink:subscription(/map)"]);
        assert_eq!(cuts::sources(&m, found), ["/lidar/driver:timer(100ms)"]);
    }
    // If only one end is stated, the other end is that of the whole chain.
    let (_, m) = cut(&trace, &ends("", "/map", &[]));
    let found = m.chains.iter().find(|c| c.cut).unwrap();
    assert_eq!(found.callbacks.len(), 3);
    let (_, m) = cut(&trace, &ends("mapper", "", &[]));
    let found = m.chains.iter().find(|c| c.cut).unwrap();
    assert_eq!(found.callbacks.len(), 2);
    let said = |a: &String| a.contains("as stated with --from and --to");
    assert!(m.assumptions.iter().any(said));
}

#[test]
fn the_hot_path_of_the_reference_system_ends_at_the_stated_end() {
    let asked = ends("/front_lidar", "/collision", &[]);
    let (whole, m) = cut(&reference(20).trace(), &asked);
    let reads = |c: &Chain| c.callbacks.last().unwrap().starts_with("/collision:");
    assert!(
        !whole.chains.iter().any(reads),
        "a chain already ends there"
    );
    let found: Vec<&Chain> = m.chains.iter().filter(|c| reads(c)).collect();
    assert_eq!(found.len(), 1, "{:?}", chains(&m));
    assert!(found[0].cut && found[0].topics.last().unwrap() == "/collision");
    assert!(found[0].callbacks[0].starts_with("/front_lidar:timer"));
    // The system without the readers of /collision, in which the chain ends there by itself.
    let until = reference_until(20, "collision").model();
    let alone = until
        .chains
        .iter()
        .find(|c| c.callbacks == found[0].callbacks);
    let alone = alone.unwrap_or_else(|| panic!("{:?}", chains(&until)));
    assert!(!alone.cut && alone.figures.executions > 100);
    assert_eq!(found[0].figures.latency_ns, alone.figures.latency_ns);
    assert_eq!(found[0].figures.shares, alone.figures.shares);
    assert_eq!(whole_chains(&m), whole.chains.iter().collect::<Vec<_>>());
}

#[test]
fn latencies_of_a_chains_part_from_several_runs_are_merged() {
    let asked = ends("/lidar/filter", "/map", &[]);
    let (_, one) = cut(&line().trace(), &asked);
    let mut other = one.clone();
    other.runs[0].id = "r2".into();
    let both = onbeat_document::merge(vec![one.clone(), other]).unwrap();
    let of = |m: &Model| {
        let part = m.chains.iter().find(|c| c.cut).unwrap();
        (part.id.clone(), part.figures.executions)
    };
    assert_eq!(of(&both), (of(&one).0, 2 * of(&one).1));
    // Chains keep the run of each execution, from the first model of one run on.
    for chain in &both.chains {
        let alone = one.chains.iter().find(|c| c.id == chain.id).unwrap();
        assert!(alone.per_run.is_empty());
        let latency = &alone.figures.latency_ns;
        let runs = chain.latency_per_run(&both.runs).unwrap();
        assert_eq!(runs, [("r1", latency), ("r2", latency)]);
        assert_eq!(alone.latency_per_run(&one.runs).unwrap(), [("r1", latency)]);
    }
}

#[test]
fn errors_for_cuts_that_are_not_possible_list_similar_names() {
    let m = line().model();
    let error = |from: &str, to: &str, through: &[&str]| {
        let error = cuts::ways(&m, &ends(from, to, through)).unwrap_err();
        let text = error.to_string();
        assert!(!text.contains('\n') && text.len() < 600, "{text}");
        (error, text)
    };
    let (_, text) = error("fil", "", &[]);
    assert_eq!(
        text,
        "--from: 'fil' is not a callback, node or topic on a chain. Use one of the similar names: \
         /filtered, /lidar/filter, /lidar/filter:subscription(/points), /mapper:subscription(/filtered)"
    );
    assert_eq!(
        error("nowhere", "", &[]).1,
        "--from: 'nowhere' is not a callback, node or topic on a chain. Use a name from one of the model's chains."
    );
    let (no_way, text) = error("mapper", "/filtered", &[]);
    assert!(matches!(no_way, CutError::NoWay { .. }));
    assert_eq!(
        text,
        "no chain leads from 'mapper' to '/filtered'. Chains from there pass /mapper, /sink. \
         Chains to there pass /lidar/driver, /lidar/filter. Choose two ends of one chain."
    );
    let (_, text) = error("driver", "/map", &["sink"]);
    assert_eq!(
        text,
        "no chain between these ends passes sink. The chains between these ends pass /lidar/driver, /lidar/filter, /mapper. Choose from these names."
    );
    // Two nodes whose names end alike.
    let mut s = System::new();
    let a = s.node("left/ndt", &[100], &[], &["/a"]);
    s.node("right/ndt", &[], &["/a"], &[]);
    for i in 1..=4 {
        let t = 100_000 * i;
        s.timer(t, a, 0, &[0], 1_000);
        s.take(t + 2_000, 1, 0, System::stamp(t, 0), &[], 1_000);
    }
    let several = cuts::ways(&s.model(), &ends("ndt", "", &[])).unwrap_err();
    assert_eq!(
        several.to_string(),
        "--from: 'ndt' fits 2 names: /left/ndt, /right/ndt. Name one of them in full."
    );
}
