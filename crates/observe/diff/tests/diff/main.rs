//! Tests on pairs of models with known differences: exactly these must be found.

mod single;

use onbeat_diff::{diff, html, influence, json, How, Options, Report};
use onbeat_document::schema::{
    Bracket, Callback, CallbackFigures, CallbackType, Cause, Chain, ChainFigures, Component,
    ComponentKind, Durability, Edge, EdgeFigures, Endpoint, EndpointKind, History, Junction,
    JunctionKind, JunctionState, Liveliness, Matching, Model, Qos, Reliability, Run, RunExtremes,
    RunTypical, Typical, SCHEMA,
};
use onbeat_document::Dist;
use std::collections::BTreeMap;

struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }
}

#[derive(Clone)]
struct Program {
    times: Vec<f64>,
    all: f64,
    monitor: bool,
    /// One in thirty executions of the fourth callback takes longer, by this factor.
    tail: f64,
    executions: usize,
}

fn usual() -> Program {
    Program {
        times: vec![10.0, 5.0, 2.0, 20.0, 0.5, 8.0],
        all: 1.0,
        monitor: false,
        tail: 3.0,
        executions: EXECUTIONS as usize,
    }
}

const EXECUTIONS: u64 = 120;

/// Simulates runs of a program. Runs differ by 5 % in all callbacks together and by 2 % in each.
/// Each ten successive values of a callback are similar, and one value in thirty is three times as
/// long.
fn model(program: &Program, runs: usize, seed: u64) -> Model {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let nodes = program.times.len();
    let ids: Vec<String> = (0..nodes).map(id).collect();
    let mut model = empty(runs, seed);
    let mut execs = vec![(Dist::new(), BTreeMap::new()); nodes];
    let (mut latency, mut per_run) = (Dist::new(), BTreeMap::new());
    for run in &model.runs {
        let speed = (0.05 * random.normal()).exp() * program.all;
        let mut sums = vec![0.0; program.executions];
        for (i, ms) in program.times.iter().enumerate() {
            let own = ms * speed * (0.02 * random.normal()).exp();
            let mut exec = Dist::new();
            let mut level = 0.0;
            for (n, sum) in sums.iter_mut().enumerate() {
                if n % 10 == 0 {
                    level = 0.06 * random.normal();
                }
                let long = if i == 3 { program.tail } else { 3.0 };
                let tail = if random.unit() < 0.03 { long } else { 1.0 };
                let value = own * (level + 0.05 * random.normal()).exp() * tail;
                exec.record((value * 1e6) as u64);
                *sum += value;
            }
            execs[i].0.merge(&exec);
            execs[i].1.insert(run.id.clone(), extremes(run, &exec));
        }
        let mut dist = Dist::new();
        sums.iter().for_each(|ms| dist.record((ms * 1e6) as u64));
        latency.merge(&dist);
        per_run.insert(run.id.clone(), dist);
    }
    for (i, (exec, of_runs)) in execs.into_iter().enumerate() {
        model.callbacks.push(callback(&ids[i], i, exec, of_runs));
    }
    let topics: Vec<String> = (0..nodes).map(|i| format!("/t{i}")).collect();
    for i in 1..nodes {
        model.edges.push(edge(&ids[i - 1], &ids[i], &topics[i - 1]));
    }
    model.chains.push(chain(
        "chain-1",
        ids.clone(),
        topics.clone(),
        latency.clone(),
        per_run,
    ));
    if program.monitor {
        let (exec, of_runs) = (Dist::new(), BTreeMap::new());
        model
            .callbacks
            .push(callback("/monitor:subscription(/t2)", 3, exec, of_runs));
        model
            .edges
            .push(edge(&ids[2], "/monitor:subscription(/t2)", "/t2"));
        let mut way = ids[..3].to_vec();
        way.push("/monitor:subscription(/t2)".into());
        model.chains.push(chain(
            "chain-2",
            way,
            topics[..3].to_vec(),
            latency,
            BTreeMap::new(),
        ));
    }
    model
}

fn id(i: usize) -> String {
    match i {
        0 => "/n0:timer(100ms)".into(),
        _ => format!("/n{i}:subscription(/t{})", i - 1),
    }
}

fn empty(runs: usize, seed: u64) -> Model {
    let run = |i| Run {
        id: format!("{seed}-{i:02}"),
        host: String::new(),
        boot: String::new(),
        mode: "default".into(),
        distribution: vec![],
        start: i as u64,
        duration_ns: 12_000_000_000,
        lost: BTreeMap::new(),
        events: 1,
    };
    Model {
        schema: SCHEMA.into(),
        runs: (0..runs).map(run).collect(),
        callbacks: vec![],
        edges: vec![],
        junctions: vec![],
        chains: vec![],
        actions: vec![],
        executors: vec![],
        endpoints: Vec::new(),
        end_to_end: Vec::new(),
        helpers: Vec::new(),
        assumptions: vec![],
        coverage: vec![],
        evidence: serde_json::Value::Null,
    }
}

fn extremes(run: &Run, exec: &Dist) -> RunExtremes {
    let typical = Typical {
        count: exec.count(),
        median_ns: exec.quantile(0.5),
        p99_ns: (exec.count() >= Typical::TAIL).then(|| exec.quantile(0.99)),
        effective: EXECUTIONS / 10,
    };
    RunExtremes {
        start: run.start,
        count: exec.count(),
        min_ns: exec.min(),
        mean_ns: exec.mean(),
        max_ns: exec.max(),
        typical: Some(RunTypical {
            exec_ns: typical,
            ..RunTypical::default()
        }),
    }
}

fn callback(id: &str, i: usize, exec_ns: Dist, per_run: BTreeMap<String, RunExtremes>) -> Callback {
    Callback {
        id: id.into(),
        node: id.split(':').next().unwrap_or(id).into(),
        kind: if i == 0 {
            CallbackType::Timer
        } else {
            CallbackType::Subscription
        },
        input: String::new(),
        caller: None,
        period_ns: None,
        outputs: vec![],
        bracket: Bracket::Exact,
        identity: Default::default(),
        symbol: None,
        figures: CallbackFigures {
            exec_ns,
            ..CallbackFigures::default()
        },
        modes: BTreeMap::new(),
        threads: vec![],
        per_run,
    }
}

fn edge(from: &str, to: &str, topic: &str) -> Edge {
    Edge {
        from: from.into(),
        to: to.into(),
        topic: topic.into(),
        assumed: None,
        intra_process: false,
        figures: EdgeFigures {
            published: 1000,
            taken: 1000,
            ..EdgeFigures::default()
        },
        modes: BTreeMap::new(),
    }
}

fn chain(
    id: &str,
    callbacks: Vec<String>,
    topics: Vec<String>,
    latency_ns: Dist,
    per_run: BTreeMap<String, Dist>,
) -> Chain {
    Chain {
        id: id.into(),
        callbacks,
        topics,
        assumed: false,
        ambiguous: false,
        from_input: false,
        cut: false,
        figures: ChainFigures {
            executions: latency_ns.count(),
            latency_ns,
            ..ChainFigures::default()
        },
        modes: BTreeMap::new(),
        per_run,
    }
}

fn compared(a: &Model, b: &Model) -> Report {
    diff(a, b, &Options::default())
}

/// Returns the changes in short form, such as `execution time /n3...`; those that follow from
/// others are in brackets.
fn found(report: &Report) -> Vec<String> {
    let follows = |text: String, f: &Option<String>| {
        if f.is_some() {
            format!("({text})")
        } else {
            text
        }
    };
    let structure = report.structure.iter();
    let structure = structure.map(|d| follows(format!("{} {}", d.what.text(), d.id), &d.follows));
    let figures = report
        .figures
        .iter()
        .map(|f| follows(format!("{} {}", f.figure, f.id), &f.follows));
    structure.chain(figures).collect()
}

#[test]
fn unchanged_programs_rarely_show_a_change() {
    let pairs = (0..200u64).map(|i| (model(&usual(), 5, 2 * i + 1), model(&usual(), 5, 2 * i + 2)));
    let wrong = pairs.filter(|(a, b)| !compared(a, b).is_empty()).count();
    assert!(wrong <= 14, "{wrong} of 200");
}

#[test]
fn only_a_slower_callback_and_a_new_subscriber_are_found() {
    let mut after = usual();
    after.times[3] *= 1.1;
    after.monitor = true;
    let wanted = [
        "added /monitor:subscription(/t2)",
        "execution time /n3:subscription(/t2)",
    ];
    let mut more = 0;
    for seed in 0..40 {
        let before = model(&usual(), 8, 1000 + seed);
        let report = compared(&before, &model(&after, 8, 2000 + seed));
        let all = found(&report);
        let causes: Vec<&String> = all.iter().filter(|f| !f.starts_with('(')).collect();
        assert!(
            wanted.iter().all(|w| causes.iter().any(|c| c == w)),
            "{causes:?}"
        );
        assert!(all.contains(&"(added chain-2)".into()), "{all:?}");
        more += usize::from(causes.len() > 2);
        let slower = report.figures.iter().find(|f| f.id == id(3)).unwrap();
        let change = slower.change;
        assert!(change.low < 0.13 && 0.07 < change.high, "{change:?}");
    }
    // A false change in one of twenty pairs is the requested level.
    assert!(more <= 5, "{more} of 40");
}

#[test]
fn a_slower_machine_is_reported_as_one_change_unless_absolute_times_are_compared() {
    let mut slower = usual();
    slower.all = 1.5;
    let (a, b) = (model(&usual(), 6, 31), model(&slower, 6, 32));
    assert_eq!(found(&compared(&a, &b)), ["speed "]);
    let absolute = Options {
        absolute: true,
        ..Options::default()
    };
    let report = diff(&a, &b, &absolute);
    let times = report
        .figures
        .iter()
        .filter(|f| f.figure == "execution time");
    assert_eq!(times.count(), 6);
}

#[test]
fn single_runs_show_only_large_changes_and_note_their_assumptions() {
    let mut after = usual();
    after.times[3] *= 1.1;
    let report = compared(&model(&usual(), 1, 7), &model(&after, 1, 8));
    assert!(report.is_empty(), "{:?}", found(&report));
    assert!(
        report.notes.iter().any(|n| n.contains("--run-spread")),
        "{:?}",
        report.notes
    );
    after.times[3] *= 3.0;
    let report = compared(&model(&usual(), 1, 7), &model(&after, 1, 8));
    assert_eq!(
        found(&report)[..1],
        ["execution time /n3:subscription(/t2)"]
    );
}

#[test]
fn a_significant_but_small_change_is_only_counted() {
    let mut after = usual();
    after.times[3] *= 1.04;
    let (a, b) = (model(&usual(), 40, 51), model(&after, 40, 52));
    let report = compared(&a, &b);
    assert!(report.is_empty() && report.small > 0, "{report:?}");
    let finer = Options {
        min_effect: 0.02,
        ..Options::default()
    };
    assert_eq!(
        found(&diff(&a, &b, &finer))[..1],
        ["execution time /n3:subscription(/t2)"]
    );
}

#[test]
fn changes_are_sorted_by_their_effect_on_the_chain() {
    let mut after = usual();
    after.times[4] *= 1.5; // 0.25 ms
    after.times[5] *= 1.3; // 2.4 ms
    let report = compared(&model(&usual(), 8, 61), &model(&after, 8, 62));
    let ids: Vec<&str> = report.figures.iter().map(|f| f.id.as_str()).collect();
    assert_eq!(ids[..2], ["/n5:subscription(/t4)", "/n4:subscription(/t3)"]);
}

#[test]
fn changed_losses_junctions_and_routes_are_reported() {
    let junction = |kind, state| Junction {
        callback: id(1),
        kind,
        inputs: vec![id(0)],
        criterion: "data_flow".into(),
        confidence: 1.0,
        state,
        matching: Matching::InTurn,
        readings: vec![],
        settle: String::new(),
    };
    let (mut a, mut b) = (model(&usual(), 2, 71), model(&usual(), 2, 71));
    a.junctions
        .push(junction(JunctionKind::And, JunctionState::Decided));
    b.junctions
        .push(junction(JunctionKind::Or, JunctionState::Decided));
    b.edges[1].intra_process = true;
    b.edges[2].figures.lost = 30;
    a.edges[3].figures.lost = 3;
    let report = compared(&a, &b);
    let over = format!("{} -> {} over /t1", id(1), id(2));
    let lossy = format!("loss {} -> {} over /t2", id(2), id(3));
    let expected = [
        format!("changed {over}"),
        format!("changed {}", id(1)),
        lossy,
    ];
    assert_eq!(found(&report), expected);
    // An undecided junction is not a change, but a note reports it.
    b.junctions[0].state = JunctionState::Ambiguous;
    let report = compared(&a, &b);
    assert_eq!(report.structure.len(), 1);
    assert!(report.notes[0].contains("ambiguous"), "{:?}", report.notes);
}

#[test]
fn changed_qos_settings_are_found_and_unknown_ones_are_noted() {
    let qos = |reliability, depth, deadline_ns| Qos {
        history: History::KeepLast,
        depth,
        reliability,
        durability: Durability::Volatile,
        deadline_ns,
        lifespan_ns: None,
        liveliness: Liveliness::Automatic,
        lease_ns: None,
    };
    let endpoint = |kind, topic: &str, qos: &[Qos]| Endpoint {
        node: "/n1".into(),
        topic: topic.into(),
        kind,
        qos: qos.to_vec(),
    };
    let (publisher, subscription) = (EndpointKind::Publisher, EndpointKind::Subscription);
    let usually = qos(Reliability::Reliable, 10, None);
    let (mut a, mut b) = (model(&usual(), 5, 1), model(&usual(), 5, 2));
    let said = |a: &Model, b: &Model| diff(a, b, &Options::default()).notes.join(" ");
    assert!(said(&a, &b).contains("Neither of the models has QoS settings"));
    a.endpoints = vec![
        endpoint(publisher, "/t1", &[usually]),
        endpoint(subscription, "/t0", &[usually]),
        endpoint(subscription, "/gone", &[usually]),
    ];
    assert!(said(&a, &b).contains("One of the models has QoS settings"));
    b.endpoints = a.endpoints[..2].to_vec();
    let report = diff(&a, &b, &Options::default());
    assert_eq!(report.structure, []);
    assert!(report
        .notes
        .join(" ")
        .contains("only one of the models shows (1)"));
    b.endpoints[0].qos = vec![qos(Reliability::BestEffort, 1, Some(250_000_000))];
    b.endpoints[1]
        .qos
        .push(qos(Reliability::BestEffort, 10, None));
    let report = diff(&a, &b, &Options::default());
    let found: Vec<String> = report
        .structure
        .iter()
        .map(|d| format!("{}: {}", d.id, d.why))
        .collect();
    let both = "history keep_last, depth 10, reliability reliable, durability volatile, deadline none, lifespan none, liveliness automatic, lease none";
    assert_eq!(
        found,
        [
            "/n1 publishes /t1: depth 1, was 10; reliability best_effort, was reliable; deadline 250 ms, was none".to_string(),
            format!("/n1 subscribes to /t0: {both}; or {}; was {both}", both.replace("reliable", "best_effort")),
        ]
    );
    assert!(!report.is_empty());
}

#[test]
fn models_without_medians_of_runs_are_not_compared() {
    let (mut a, b) = (model(&usual(), 1, 81), model(&usual(), 1, 82));
    a.chains.clear();
    for c in &mut a.callbacks {
        c.per_run.values_mut().for_each(|r| r.typical = None);
    }
    let report = compared(&a, &b);
    assert_eq!((report.compared, report.open), (0, 6));
}

#[test]
fn names_cannot_inject_html_into_the_page() {
    let mut after = usual();
    after.times[3] *= 2.0;
    let (mut a, mut b) = (model(&usual(), 6, 91), model(&after, 6, 92));
    let bad = "/n<script>\u{202e}&:timer(1ms)";
    for m in [&mut a, &mut b] {
        m.callbacks[3].id = bad.into();
        m.chains[0].callbacks[3] = bad.into();
    }
    b.callbacks[1].id = "/<b>".into();
    let report = compared(&a, &b);
    let page = html(&report, &a, &b, "<x>");
    assert!(page.contains("&lt;script&gt;") && !page.contains("<script") && !page.contains("<b>"));
    assert!(!page.contains('\u{202e}'));
    assert_eq!(json(&report)["changed"], true);
}

/// Adds a cause of waits to the model's callback with index `i`: the component `by` had the CPU for
/// `us` microseconds in total, in `times` waits.
fn costs(model: &mut Model, i: usize, by: (&str, &str), us: u64, times: u64) {
    let figures = &mut model.callbacks[i].figures;
    figures.causes.push(Cause {
        by: Component {
            process: by.0.into(),
            thread: by.1.into(),
            ..Component::of(ComponentKind::Thread)
        },
        preempted_ns: us * 1000,
        preempted: times,
        delayed_ns: us * 1000,
        delayed: times,
        blocked_ns: 0,
        blocked: 0,
    });
}

#[test]
fn the_cost_of_a_neighbour_is_reported_and_a_chance_difference_is_not() {
    let with = |neighbour_us: u64, rare: bool| {
        let mut model = model(&usual(), 2, 5);
        for c in &mut model.callbacks {
            let n = c.figures.exec_ns.count();
            // Each execution is preempted for 1 ms; a tenth of this has no known cause.
            (0..n).for_each(|_| c.figures.preempted_ns.record(1_000_000));
        }
        for i in 0..2 {
            costs(&mut model, i, ("kernel", "rcu"), 240 * 450, 900);
            costs(&mut model, i, ("camera", "grab"), 240 * neighbour_us, 400);
            costs(&mut model, i, ("camera", "encode"), 240 * neighbour_us, 400);
        }
        if rare {
            // The same mean cost as the others, but from only three waits in 240 executions.
            costs(&mut model, 3, ("cron", "cron"), 240 * 2000, 3);
        }
        model
    };
    let options = Options {
        min_effect: 0.01,
        ..Options::default()
    };
    let same = influence(&with(100, false), &with(100, false), &options);
    assert_eq!(same.found, []);
    assert!(same.compared >= 2);
    let report = influence(&with(100, false), &with(900, true), &options);
    let found: Vec<_> = report.found.iter().collect();
    let [camera] = found[..] else {
        panic!("{:#?}", report.found)
    };
    assert_eq!(
        (camera.component.as_str(), camera.how),
        ("camera", How::HasCpu)
    );
    // Two threads and two callbacks count. Waiting before the first callback's start is not part of
    // the latency.
    assert!((camera.a.mean_ns - 600_000.0).abs() < 1.0, "{camera:?}");
    assert!((camera.b.mean_ns - 5_400_000.0).abs() < 1.0, "{camera:?}");
    assert_eq!((camera.b.executions, camera.b.times), (240, 2400));
    assert_eq!(camera.mostly, id(1));
    assert!(camera.of_latency > 0.05 && camera.of_latency < 0.2);
    let said = report.notes.join(" ");
    assert!(said.contains("In the first model, the cause"), "{said}");
    // A model without causes is not treated as a model without preemption.
    let mut silent = with(0, false);
    silent
        .callbacks
        .iter_mut()
        .for_each(|c| c.figures.causes.clear());
    let report = influence(&silent, &silent, &options);
    assert!(
        report.notes[0].contains("contains no causes of preemption"),
        "{:?}",
        report.notes
    );
    assert!(!onbeat_diff::tells(&silent));
}

#[test]
fn waits_concentrated_in_few_executions_do_not_count_as_a_change() {
    // A neighbour takes 1 ms of each execution, or the same total within two executions, as when it
    // starts.
    let with = |together: bool, runs: usize| {
        let mut model = model(&usual(), runs, 5);
        let preempted = &mut model.callbacks[1].figures.preempted_ns;
        let n = 120 * runs as u64;
        for i in 0..n {
            preempted.record(match (together, i < 2) {
                (true, true) => n / 2 * 1_000_000,
                (true, false) => 0,
                (false, _) => 900_000 + i % 2 * 200_000,
            });
        }
        costs(&mut model, 1, ("camera", "grab"), n * 1000, n);
        let cause = &mut model.callbacks[1].figures.causes[0];
        (cause.delayed_ns, cause.delayed) = (0, 0);
        model
    };
    let options = Options {
        min_effect: 0.01,
        ..Options::default()
    };
    let mut none = with(false, 1);
    none.callbacks[1].figures.causes.clear();
    let found = |b: &Model| influence(&none, b, &options).found.len();
    assert_eq!((found(&with(false, 1)), found(&with(true, 1))), (1, 0));
    // One run may differ by this much from the next; only ten runs of each show the difference.
    let more = |runs: usize| {
        let mut model = with(false, runs);
        model.callbacks[1].figures.causes[0].preempted_ns *= 3;
        model.callbacks[1].figures.causes[0].preempted_ns /= 2;
        influence(&with(false, runs), &model, &options)
    };
    assert_eq!((more(1).found.len(), more(10).found.len()), (0, 1));
    let notes = more(10).notes.join(" ");
    assert!(
        notes.contains("onbeat assumes 16 %")
            && notes.contains("10 in the first model, 10 in the second"),
        "{notes}"
    );
}

#[test]
fn a_longer_tail_is_found_if_runs_have_enough_executions() {
    let many = Program {
        executions: 600,
        ..usual()
    };
    let longer = Program {
        tail: 5.0,
        ..many.clone()
    };
    let report = compared(&model(&many, 6, 101), &model(&longer, 6, 102));
    let tail = format!("execution time, p99 {}", id(3));
    assert_eq!(found(&report), [tail, "(latency, p99 chain-1)".to_string()]);
    let shift = report.figures[0].change.shift;
    assert!((0.5..0.85).contains(&shift), "{shift}, of 0.67");
    assert!(report.figures[0].a > 1.5 * 20e6, "its 99th percentile");
    // Nearly all unchanged pairs show no change.
    let pairs =
        (0..40u64).map(|i| compared(&model(&many, 5, 2 * i + 201), &model(&many, 5, 2 * i + 202)));
    let wrong = pairs.filter(|report| !report.is_empty()).count();
    assert!(wrong <= 5, "{wrong} of 40 pairs");
    // With too few executions or runs, tails are not compared.
    let few = model(&usual(), 6, 103);
    let report = compared(
        &few,
        &model(
            &Program {
                tail: 5.0,
                ..usual()
            },
            6,
            104,
        ),
    );
    assert_eq!(found(&report), [""; 0]);
}
