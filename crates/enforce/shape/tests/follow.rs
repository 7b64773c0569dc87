//! Tests that follow a chain with held outputs, through hand-written events and shaper reports.

use onbeat_plan::schema::*;
use onbeat_plan::Plan;
use onbeat_shape::judge::{judge, Delivery, Judgement, Measured, Verdict};
use onbeat_shape::observe::{
    Attribution, Conflict, Execution, Executions, Fate, PlanObservation, Release, Roles, Watcher,
};
use onbeat_trace::text;

const MS: u64 = 1_000_000;
const TIMER: &str = "/talker:timer(100ms)";
const FILTER: &str = "/filter:subscription(/raw)";
const SINK: &str = "/sink:subscription(/good)";

/// The events of the chain `/talker` (10) -> /raw -> `/filter` (20) -> /good/held -> shaper (30) ->
/// /good -> `/sink` (40) -> /out. The numbers are process ids.
const NODES: &str = "
1ms cpu0 10/10 process command=/opt/talker distribution=kilted rmw=rmw_fastrtps_cpp
1ms cpu0 10/10 node_init node=0x1 rmw=0x1001 name=talker namespace=/
1ms cpu0 10/10 publisher_init publisher=0x10 node=0x1 rmw=0x1010 topic=/raw
1ms cpu0 10/10 timer_init timer=0x50 period_ns=100ms
1ms cpu0 10/10 timer_callback timer=0x50 callback=0x60
1ms cpu0 10/10 timer_node timer=0x50 node=0x1
1ms cpu0 20/20 process command=/opt/filter distribution=kilted rmw=rmw_fastrtps_cpp
1ms cpu0 20/20 node_init node=0x1 rmw=0x1001 name=filter namespace=/
1ms cpu0 20/20 subscription_init subscription=0x20 node=0x1 rmw=0x1020 topic=/raw
1ms cpu0 20/20 subscription_object subscription=0x20 object=0x25
1ms cpu0 20/20 subscription_callback object=0x25 callback=0x60
1ms cpu0 20/20 publisher_init publisher=0x10 node=0x1 rmw=0x1010 topic=/good/held
1ms cpu0 30/30 process command=/opt/shaper distribution=kilted rmw=rmw_fastrtps_cpp
1ms cpu0 30/30 node_init node=0x1 rmw=0x1001 name=onbeat_shaper namespace=/
1ms cpu0 30/30 publisher_init publisher=0x10 node=0x1 rmw=0x1010 topic=/good
1ms cpu0 40/40 process command=/opt/sink distribution=kilted rmw=rmw_fastrtps_cpp
1ms cpu0 40/40 node_init node=0x1 rmw=0x1001 name=sink namespace=/
1ms cpu0 40/40 subscription_init subscription=0x20 node=0x1 rmw=0x1020 topic=/good
1ms cpu0 40/40 subscription_object subscription=0x20 object=0x25
1ms cpu0 40/40 subscription_callback object=0x25 callback=0x60
1ms cpu0 40/40 publisher_init publisher=0x10 node=0x1 rmw=0x1010 topic=/out
";

fn cycle(t: u64) -> String {
    let at = |ms: u64| t + ms;
    format!(
        "{0}ms cpu0 10/10 timer_call timer=0x50
{0}ms cpu0 10/10 callback_start callback=0x60
{1}ms cpu0 10/10 publish rmw=0x1010 message=0x99 source_ns={1}ms
{1}ms cpu0 10/10 callback_end callback=0x60
{2}ms cpu0 20/20 take rmw=0x1020 source_ns={1}ms
{2}ms cpu0 20/20 callback_start callback=0x60
{3}ms cpu0 20/20 publish rmw=0x1010 message=0x99 source_ns={3}ms
{3}ms cpu0 20/20 callback_end callback=0x60
{4}ms cpu0 30/31 publish rmw=0x1010 message=0x77 source_ns={4}ms
{5}ms cpu0 40/40 take rmw=0x1020 source_ns={4}ms
{5}ms cpu0 40/40 callback_start callback=0x60
{6}ms cpu0 40/40 publish rmw=0x1010 message=0x99 source_ns={6}ms
{6}ms cpu0 40/40 callback_end callback=0x60
",
        at(0),
        at(5),
        at(6),
        at(30),
        at(90),
        at(91),
        at(95)
    )
}

fn plan(chain: &[&str], output: &str) -> Plan {
    let server = |name: &str, slot: (u64, u64), callbacks: &[&str]| Server {
        name: name.into(),
        cpu: 1,
        priority: 80,
        slots_ms: vec![Slot(Ms(slot.0 * MS), Ms(slot.1 * MS))],
        callbacks: callbacks.iter().map(|c| (*c).to_owned()).collect(),
    };
    Plan {
        schema: SCHEMA.into(),
        strategy: "bands".into(),
        chains: vec![ChainRef {
            id: "chain-1".into(),
            title: String::new(),
            callbacks: chain.iter().map(|c| (*c).to_owned()).collect(),
            output: Some(output.into()),
        }],
        cycle_ms: Ms(100 * MS),
        origin: TIMER.into(),
        servers: vec![
            server("gamma", (0, 89), chain),
            server("delta", (89, 91), &[]),
        ],
        outputs: vec![Output {
            topic: "/good".into(),
            callback: FILTER.into(),
            node: "/filter".into(),
            hold: Hold::Republish,
            held_topic: Some("/good/held".into()),
            server: "delta".into(),
            ..template()
        }],
        inputs: vec![],
        middleware: Middleware {
            cpu: 0,
            priority: 95,
        },
        overshoot: Overshoot::Carry,
        promises: Promises {
            average_ms: Ms(90 * MS),
            worst_ms: Ms(91 * MS),
            jitter_ms: Ms(MS),
            bands: vec![Band {
                latency_ms: Slot(Ms(89 * MS), Ms(91 * MS)),
                share: 1.0,
            }],
            ..Promises::default()
        },
        callbacks: vec![],
        assumes: vec![],
    }
}

fn judged(plan: &Plan, judgements: &[Judgement], outside_ns: &[u64]) -> Verdict {
    let measured = Measured {
        judgements,
        outside_ns,
        ..Measured::default()
    };
    judge(plan, measured)
}

fn figure(verdict: &Verdict, name: &str) -> Option<(f64, Option<bool>)> {
    let found = verdict.figures.iter().find(|f| f.name == name);
    found.map(|f| (f.measured, f.kept))
}

fn template() -> Output {
    Output {
        topic: String::new(),
        callback: String::new(),
        node: String::new(),
        hold: Hold::Republish,
        held_topic: None,
        server: String::new(),
        earliest_ms: Ms(0),
    }
}

fn released(source_ns: i64, at_ms: u64) -> Release {
    Release {
        arrival_ns: 0,
        output: 0,
        source_ns,
        published_ns: at_ms * MS,
        done_ns: at_ms * MS,
        late: false,
        refused: false,
        born_ns: None,
    }
}

fn follow(plan: &Plan, releases_first: bool) -> (Vec<PlanObservation>, Vec<Execution>) {
    let mut watcher = Watcher::new(plan);
    let mut executions = Executions::new(plan, watcher.callbacks());
    let (mut observations, mut found) = (Vec::new(), Vec::new());
    watcher.push(&text::parse(NODES).expect("events"), &mut observations);
    for n in 1..=10 {
        let t = n * 100;
        let release = Release {
            arrival_ns: 0,
            output: 0,
            source_ns: ((t + 30) * MS) as i64,
            published_ns: (t + 90) * MS,
            done_ns: (t + 90) * MS + 1000,
            late: false,
            refused: false,
            born_ns: None,
        };
        if releases_first {
            executions.released(release, &mut found);
        }
        let mut seen = Vec::new();
        watcher.push(&text::parse(&cycle(t)).expect("events"), &mut seen);
        for observation in &seen {
            executions.see(observation, &mut found);
        }
        if !releases_first {
            executions.released(release, &mut found);
        }
        observations.extend(seen);
    }
    (observations, found)
}

#[test]
fn an_output_that_a_shaper_publishes_ends_the_chain() {
    for releases_first in [true, false] {
        let (_, found) = follow(&plan(&[TIMER, FILTER], "/good"), releases_first);
        assert_eq!(found.len(), 10, "{found:?}");
        for (n, execution) in found.iter().enumerate() {
            let t = (n as u64 + 1) * 100;
            assert_eq!(execution.start_ns, t * MS);
            assert_eq!(execution.left_ns, (t + 30) * MS);
            assert_eq!(execution.latency_ns(), 90 * MS);
        }
    }
}

#[test]
fn the_verdict_counts_outputs_by_how_their_cycle_was_found() {
    let plan = plan(&[TIMER, FILTER], "/good");
    let left = |source_ns| PlanObservation::Left {
        callback: 1,
        topic: Some("/good/held".into()),
        time_ns: 130 * MS,
        source_ns: Some(source_ns),
        from: 0,
        start_ns: 100 * MS,
    };
    for (born_ms, expected) in [
        (None, Attribution::Arrival),
        (Some(100), Attribution::Lineage),
        (Some(140), Attribution::Lineage),
        (Some(0), Attribution::Disputed),
    ] {
        let mut executions = Executions::new(&plan, Watcher::new(&plan).callbacks());
        let mut found = Vec::new();
        let release = Release {
            born_ns: born_ms.map(|b| b * MS),
            ..released(7, 190)
        };
        executions.released(release, &mut found);
        executions.see(&left(7), &mut found);
        let by: Vec<Attribution> = found.iter().map(|e| e.attribution).collect();
        assert_eq!(by, [expected]);
        let judgement = Judgement::new(&plan, found[0], 0);
        let verdict = judged(&plan, &[judgement], &[]);
        let told = verdict
            .figures
            .iter()
            .filter(|f| f.name.contains("outputs whose cycle ") || f.name.contains("lineage and"));
        let told: Vec<_> = told.map(|f| (&*f.name, f.measured)).collect();
        let name = match expected {
            Attribution::Lineage => "outputs whose cycle is known from lineage",
            Attribution::Arrival => "outputs whose cycle was inferred from arrival",
            _ => "outputs that lineage and recording put into different cycles",
        };
        assert_eq!(told, [(name, 1.0)], "{verdict:?}");
    }
}

#[test]
fn several_paths_from_start_to_output_count_as_one_execution_of_the_chain() {
    let plan = plan(&[TIMER, FILTER], "/good");
    let mut executions = Executions::new(&plan, Watcher::new(&plan).callbacks());
    let left = |topic: &str| PlanObservation::Left {
        callback: 1,
        topic: Some(topic.into()),
        time_ns: 130 * MS,
        source_ns: Some(7),
        from: 0,
        start_ns: 100 * MS,
    };
    let release = released(7, 190);
    let mut found = Vec::new();
    executions.released(release, &mut found);
    executions.see(&left("/good/held"), &mut found);
    executions.see(&left("/good/held"), &mut found);
    assert_eq!(found.len(), 1, "{found:?}");
    // The same holds if nothing is held back.
    let mut bare = plan.clone();
    bare.outputs.clear();
    let mut executions = Executions::new(&bare, Watcher::new(&bare).callbacks());
    found.clear();
    executions.see(&left("/good"), &mut found);
    executions.see(&left("/good"), &mut found);
    assert_eq!(found.len(), 1, "{found:?}");
}

#[test]
fn a_chain_is_followed_through_a_shaper_in_its_middle() {
    let (_, found) = follow(&plan(&[TIMER, FILTER, SINK], "/out"), true);
    assert_eq!(found.len(), 10, "{found:?}");
    assert!(found.iter().all(|e| e.latency_ns() == 95 * MS), "{found:?}");
}

#[test]
fn a_chain_begins_when_the_throttler_publishes_its_input() {
    let mut plan = plan(&[SINK], "/out");
    plan.origin = SINK.into();
    plan.outputs.clear();
    plan.inputs.push(Throttle {
        topic: "/good".into(),
        node: "/filter".into(),
        held_topic: "/good/held".into(),
        server: "delta".into(),
    });
    let (_, found) = follow(&plan, true);
    assert_eq!(found.len(), 10, "{found:?}");
    // The input is published 90 ms after the talker's start, and taken 1 ms later.
    assert_eq!(found[0].start_ns, 190 * MS);
    assert!(found.iter().all(|e| e.latency_ns() == 5 * MS), "{found:?}");
}

#[test]
fn each_thread_belongs_to_the_one_server_of_its_callbacks() {
    let plan = plan(&[TIMER, FILTER], "/good");
    let (observations, _) = follow(&plan, true);
    let watcher = Watcher::new(&plan);
    let mut roles = Roles::new(&plan, watcher.callbacks());
    for observation in &observations {
        if let PlanObservation::Ran {
            callback, pid, tid, ..
        } = *observation
        {
            roles.ran(callback, pid, tid).expect("no conflict");
        }
    }
    assert_eq!(
        roles.threads().keys().copied().collect::<Vec<_>>(),
        [10, 20]
    );
    assert_eq!((roles.seen(0), roles.seen(1)), (10, 10));
    let mut two = plan.clone();
    two.servers[0].callbacks = vec![TIMER.into()];
    two.servers[1].callbacks = vec![FILTER.into()];
    let mut roles = Roles::new(&two, watcher.callbacks());
    assert!(roles.ran(0, 7, 7).is_ok());
    let conflict = Conflict {
        tid: 7,
        callbacks: [0, 1],
    };
    assert_eq!(roles.ran(1, 7, 7), Err(conflict));
    // A new thread may get the id of one that has ended.
    assert!(roles.ran(1, 8, 7).is_ok());
    // In a run of days many threads come and go, and the recording may miss the end of one.
    for tid in 100..20_100 {
        assert!(roles.ran(0, 9, tid).is_ok());
        roles.saw(tid, u64::from(tid));
    }
    assert_eq!(roles.threads().len(), 4096);
    assert!(roles.threads().contains_key(&20_099));
}

#[test]
fn promises_are_judged_as_kept_or_broken() {
    let plan = plan(&[TIMER, FILTER], "/good");
    let (_, found) = follow(&plan, true);
    let judgements: Vec<Judgement> = found.iter().map(|&e| Judgement::new(&plan, e, 0)).collect();
    assert!(judgements.iter().all(|o| o.band == Some(0)));
    let verdict = judged(&plan, &judgements, &[0, 1000]);
    assert!(verdict.is_kept(), "{verdict:?}");
    // One output in ten is late: it exceeds the promised worst case and leaves outside of its slot.
    let mut late = judgements.clone();
    late[3].execution.output_ns += 100 * MS;
    late[3] = Judgement::new(&plan, late[3].execution, 0);
    let verdict = judged(&plan, &late, &[0, 1000]);
    assert!(!verdict.is_kept());
    let broken: Vec<&str> = verdict
        .figures
        .iter()
        .filter(|f| f.kept == Some(false))
        .map(|f| f.name.as_str())
        .collect();
    assert!(broken.contains(&"outputs inside a slot"), "{broken:?}");
    assert!(broken.contains(&"largest latency of the fastest 99.9 % of executions"));
    // Threads ran outside of their slots; then nothing was measured at all.
    assert!(!judged(&plan, &judgements, &[2 * MS; 10]).is_kept());
    assert!(!judged(&plan, &[], &[]).is_kept());
}

#[test]
fn verdicts_use_the_promised_miss_rate() {
    let mut plan = plan(&[TIMER, FILTER], "/good");
    let (_, found) = follow(&plan, true);
    let mut judgements: Vec<Judgement> =
        found.iter().map(|&e| Judgement::new(&plan, e, 0)).collect();
    judgements[3].execution.output_ns += 100 * MS;
    judgements[3] = Judgement::new(&plan, judgements[3].execution, 0);
    judgements[3].execution.late = true;
    for (rate, kept, worst) in [
        (
            0.11,
            true,
            "largest latency of the fastest 89 % of executions",
        ),
        (
            0.09,
            false,
            "largest latency of the fastest 91 % of executions",
        ),
        (
            0.0001,
            false,
            "largest latency of the fastest 99.99 % of executions",
        ),
    ] {
        plan.promises.average_ms = Ms(110 * MS);
        plan.promises.miss = Some(Miss {
            rate,
            confidence: 0.95,
            limit_ms: Ms(89 * MS),
            starts: 1,
            executions: 10,
            independent: 10,
            shape: None,
        });
        let verdict = judged(&plan, &judgements, &[]);
        let inside = figure(&verdict, "outputs inside a slot");
        assert_eq!(inside, Some((90.0, Some(kept))), "{rate}");
        let worst = figure(&verdict, worst).expect("a worst case");
        assert_eq!(worst.1, Some(kept), "{rate}");
        assert_eq!(verdict.is_kept(), kept, "{verdict:?}");
    }
    // One of ten outputs is outside. With 95 % confidence at most 39.4 % are.
    let verdict = judged(&plan, &judgements, &[]);
    let most = figure(
        &verdict,
        "share of outputs outside a slot: upper limit at 95 % confidence",
    );
    assert!(most.is_some_and(|(most, kept)| (most - 39.4).abs() < 0.05 && kept.is_none()));
}

#[test]
fn discarded_outputs_count_as_outside_of_their_slot() {
    let plan = plan(&[TIMER, FILTER], "/good");
    let (_, found) = follow(&plan, true);
    let mut judgements: Vec<Judgement> =
        found.iter().map(|&e| Judgement::new(&plan, e, 0)).collect();
    judgements[4].execution.fate = Fate::Discarded;
    let verdict = judged(&plan, &judgements, &[]);
    let inside = verdict
        .figures
        .iter()
        .find(|f| f.name == "outputs inside a slot");
    assert_eq!(
        inside.map(|f| (f.measured, f.kept)),
        Some((90.0, Some(false)))
    );
}

#[test]
fn the_verdict_has_the_unshaped_latencies_of_the_same_executions() {
    let plan = plan(&[TIMER, FILTER], "/good");
    let (_, found) = follow(&plan, true);
    let judgements: Vec<Judgement> = found.iter().map(|&e| Judgement::new(&plan, e, 0)).collect();
    let verdict = judged(&plan, &judgements, &[]);
    assert_eq!(figure(&verdict, "average"), Some((90.0, Some(true))));
    let unshaped = |what: &str| figure(&verdict, &format!("unshaped: {what}"));
    assert_eq!(unshaped("average"), Some((30.0, None)));
    assert_eq!(unshaped("worst case"), Some((30.0, None)));
    assert_eq!(unshaped("jitter, all executions"), Some((0.0, None)));
    // If the plan holds back an output in the middle of a chain, the unshaped latency of the chain
    // is unknown.
    let mut per_callback = plan.clone();
    per_callback.outputs.push(Output {
        topic: "/raw".into(),
        callback: TIMER.into(),
        ..plan.outputs[0].clone()
    });
    let mut not_held = plan.clone();
    not_held.outputs.clear();
    for plan in [per_callback, not_held] {
        let verdict = judged(&plan, &judgements, &[]);
        assert_eq!(figure(&verdict, "unshaped: average"), None);
    }
}

#[test]
fn a_cycle_without_output_breaks_a_promise() {
    let plan = plan(&[TIMER, FILTER], "/good");
    let (_, found) = follow(&plan, true);
    let judgements: Vec<Judgement> = found.iter().map(|&e| Judgement::new(&plan, e, 0)).collect();
    for (without, share, kept) in [(0, 100.0, true), (1, 90.0, false)] {
        let delivery = Delivery {
            delivered: 10 - without,
            without,
        };
        let measured = Measured {
            judgements: &judgements,
            deliveries: &[delivery],
            outside_ns: &[],
            ..Measured::default()
        };
        let verdict = judge(&plan, measured);
        let found = figure(&verdict, "cycles with an output");
        assert_eq!(found, Some((share, Some(kept))));
        assert_eq!(verdict.is_kept(), kept);
    }
}

#[test]
fn refused_publications_are_not_delivered() {
    let plan = plan(&[TIMER, FILTER], "/good");
    let watcher = Watcher::new(&plan);
    let mut executions = Executions::new(&plan, watcher.callbacks());
    let mut found = Vec::new();
    executions.see(
        &PlanObservation::Left {
            callback: 1,
            topic: Some("/good/held".into()),
            time_ns: 130 * MS,
            source_ns: Some(7),
            from: 0,
            start_ns: 100 * MS,
        },
        &mut found,
    );
    let release = Release {
        refused: true,
        ..released(7, 190)
    };
    executions.released(release, &mut found);
    let fates: Vec<Fate> = found.iter().map(|e| e.fate).collect();
    assert_eq!(fates, [Fate::Refused]);
    let judgements: Vec<Judgement> = found.iter().map(|&e| Judgement::new(&plan, e, 0)).collect();
    assert!(!judged(&plan, &judgements, &[]).is_kept());
}

#[test]
fn the_mean_over_all_chains_is_compared_with_the_promised_average() {
    let mut plan = plan(&[TIMER, FILTER], "/good");
    plan.outputs.clear();
    plan.promises.bands.clear();
    plan.promises.average_ms = Ms(50 * MS);
    plan.promises.worst_ms = Ms(60 * MS);
    plan.chains.push(ChainRef {
        id: "chain-2".into(),
        ..plan.chains[0].clone()
    });
    let judgement = |chain, latency_ms: u64| {
        let execution = Execution {
            chain,
            start_ns: 100 * MS,
            left_ns: (100 + latency_ms) * MS,
            output_ns: (100 + latency_ms) * MS,
            fate: Fate::Delivered,
            late: false,
            attribution: Attribution::NotHeld,
        };
        Judgement::new(&plan, execution, 0)
    };
    let both: Vec<Judgement> = (0..10)
        .flat_map(|_| [judgement(0, 40), judgement(1, 60)])
        .collect();
    let verdict = judged(&plan, &both, &[]);
    assert!(verdict.is_kept(), "{verdict:?}");
    let slow: Vec<Judgement> = (0..10)
        .flat_map(|_| [judgement(0, 50), judgement(1, 60)])
        .collect();
    assert!(!judged(&plan, &slow, &[]).is_kept());
}

#[test]
fn a_topic_of_two_chains_is_held_once_and_judged_per_chain() {
    let mut plan = plan(&[TIMER, FILTER], "/good");
    let other = Output {
        callback: SINK.into(),
        node: "/sink".into(),
        ..plan.outputs[0].clone()
    };
    plan.outputs.push(other);
    plan.chains.push(ChainRef {
        id: "chain-2".into(),
        callbacks: vec![TIMER.into(), SINK.into()],
        ..plan.chains[0].clone()
    });
    let watcher = Watcher::new(&plan);
    let callbacks = watcher.callbacks();
    let mut executions = Executions::new(&plan, callbacks);
    let mut found = Vec::new();
    for (n, callback) in [(1, FILTER), (2, SINK)] {
        executions.released(released(n as i64, 190 + n), &mut found);
        executions.see(
            &PlanObservation::Left {
                callback: callbacks.iter().position(|c| c == callback).unwrap(),
                topic: Some("/good/held".into()),
                time_ns: 130 * MS,
                source_ns: Some(n as i64),
                from: 0,
                start_ns: 100 * MS,
            },
            &mut found,
        );
    }
    let chains: Vec<usize> = found.iter().map(|e| e.chain).collect();
    assert_eq!(chains, [0, 1]);
}

#[test]
fn a_chain_that_begins_in_the_middle_is_followed_from_there() {
    // The plan does not contain the talker, but the talker's data still enters the chain.
    let mut plan = plan(&[FILTER], "/good");
    plan.origin = FILTER.into();
    let mut watcher = Watcher::new(&plan);
    let mut executions = Executions::new(&plan, watcher.callbacks());
    let mut seen = Vec::new();
    let text: String = (1..=4).map(|i| cycle(100 * i)).collect();
    // The events come in pieces, as in a recording. New data is recognised from the second cycle
    // on.
    for events in text::parse(&format!("{NODES}{text}")).unwrap().chunks(5) {
        watcher.push(events, &mut seen);
    }
    let mut found = Vec::new();
    for observation in &seen {
        executions.see(observation, &mut found);
    }
    for i in 1..=4 {
        let release = Release {
            arrival_ns: 0,
            output: 0,
            source_ns: ((100 * i + 30) * MS) as i64,
            published_ns: (100 * i + 90) * MS,
            done_ns: (100 * i + 91) * MS,
            late: false,
            refused: false,
            born_ns: None,
        };
        executions.released(release, &mut found);
    }
    let latencies: Vec<u64> = found.iter().map(|e| e.latency_ns() / MS).collect();
    // The latency counts from the filter's start at 6 ms, not from the talker's.
    assert!(
        latencies.len() >= 3 && latencies.iter().all(|&l| l == 84),
        "{latencies:?}"
    );
}
