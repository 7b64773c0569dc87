//! Checks every strategy on small models: slots, promises and refusals.
mod common;

use common::{and, callback, chain, dist, model, ms, synthetic};
use onbeat_document::schema::{CallbackType, Chain};
use onbeat_document::Model;
use onbeat_plan::request::{CpuRequest, OutputRequest, ThrottleRequest};
use onbeat_plan::schema::{Hold, Ms, Overshoot, Server};
use onbeat_plan::{compare, plan, Plan, PlanError, Request, Strategy};

fn request(strategy: Strategy) -> Request {
    Request {
        strategy,
        outputs: OutputRequest {
            epsilon_ns: Some(ms(1.0)),
            slot_ns: Some(ms(1.0)),
            ..OutputRequest::default()
        },
        ..Request::default()
    }
}

fn made(model: &Model, request: &Request) -> Plan {
    plan(model, request).unwrap()
}

fn refused(model: &Model, request: &Request) -> String {
    let text = plan(model, request).unwrap_err().to_string();
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

fn slots(server: &Server) -> Vec<(f64, f64)> {
    let of = |ns: Ms| ns.0 as f64 / 1e6;
    server.slots_ms.iter().map(|s| (of(s.0), of(s.1))).collect()
}

fn server<'p>(plan: &'p Plan, name: &str) -> &'p Server {
    plan.servers
        .iter()
        .find(|s| s.name == name)
        .unwrap_or_else(|| panic!("no {name} in {plan:?}"))
}

#[test]
fn the_fifo_strategy_gives_a_priority_and_no_slots() {
    let plan = made(&synthetic(), &request(Strategy::Fifo));
    assert_eq!(plan.servers.len(), 1);
    let gamma = server(&plan, "gamma");
    assert_eq!(
        (gamma.cpu, gamma.priority, gamma.slots_ms.len()),
        (1, 80, 0)
    );
    assert_eq!(gamma.callbacks.len(), 5);
    assert_eq!(plan.promises.worst_ms, Ms(ms(58.5)));
    assert_eq!(plan.promises.jitter_ms, Ms(ms((58.5 - 30.0) / 2.0)));
    assert_eq!(plan.promises.utilisation[&1], 0.75);
    // The model saw CPU 0 too, so the middleware gets it.
    assert_eq!((plan.middleware.cpu, plan.middleware.priority), (0, 91));
    assert!(plan.outputs.is_empty());
}

#[test]
fn slots_of_one_server_per_callback_equal_those_of_the_thesis() {
    // Section 4.1.2 has [0,16], [16,32], [32,48], [48,64], [64,80].
    let plan = made(&synthetic(), &request(Strategy::ServerPerCallback));
    let all: Vec<_> = plan.servers.iter().flat_map(slots).collect();
    assert_eq!(
        all,
        [
            (0.0, 16.0),
            (16.0, 32.0),
            (32.0, 48.0),
            (48.0, 64.0),
            (64.0, 80.0)
        ]
    );
    assert_eq!(plan.servers[1].callbacks, ["/n2:subscription(/t1)"]);
    assert_eq!(plan.promises.worst_ms, Ms(ms(80.0)));
    assert_eq!(plan.promises.average_ms, Ms(ms(74.0)));
    // Table 4.1 has about 5 ms: the variation of the last callback, and the buffer.
    assert_eq!(plan.promises.jitter_ms, Ms(ms(5.5)));
}

#[test]
fn a_callbacks_slot_includes_the_executors_work_before_the_callback() {
    let mut m = synthetic();
    for edge in &mut m.edges {
        edge.figures.latency_ns = dist(&[0.5, 2.0]);
    }
    let plan = made(&m, &request(Strategy::ServerPerCallback));
    let all: Vec<_> = plan.servers.iter().flat_map(slots).collect();
    let expected = [0.0, 16.0, 34.0, 52.0, 70.0, 88.0];
    let pairs: Vec<_> = expected.windows(2).map(|w| (w[0], w[1])).collect();
    assert_eq!(all, pairs);
    // The average is 70 ms, 1.25 ms on the way and 10 ms in the last callback.
    assert_eq!(plan.promises.average_ms, Ms(ms(81.25)));
}

fn side_chain(id: &str, side: &str, latencies: &[f64]) -> Chain {
    let (f, s) = (
        format!(
            "/{side}f:subscription(/{})",
            if side == "f" { "front" } else { "rear" }
        ),
        format!("/fuse:subscription(/{side}f)"),
    );
    chain(
        id,
        &[
            "/lidar:timer(100ms)",
            &f,
            &s,
            "/fuse:sync(/fused)",
            "/loc:subscription(/fused)",
        ],
        &[
            "/x",
            &format!("/{side}f"),
            &format!("/{side}f"),
            "/fused",
            "/pose",
        ],
        latencies,
    )
}

fn fusion() -> Model {
    let callbacks = vec![
        callback(
            "/lidar:timer(100ms)",
            CallbackType::Timer,
            &[2.0],
            &["/front", "/rear"],
        ),
        callback(
            "/ff:subscription(/front)",
            CallbackType::Subscription,
            &[30.0],
            &["/ff"],
        ),
        callback(
            "/rf:subscription(/rear)",
            CallbackType::Subscription,
            &[20.0],
            &["/rf"],
        ),
        callback(
            "/fuse:subscription(/ff)",
            CallbackType::Subscription,
            &[1.0],
            &[],
        ),
        callback(
            "/fuse:subscription(/rf)",
            CallbackType::Subscription,
            &[3.0],
            &[],
        ),
        callback("/fuse:sync(/fused)", CallbackType::Sync, &[], &["/fused"]),
        callback(
            "/loc:subscription(/fused)",
            CallbackType::Subscription,
            &[10.0],
            &["/pose"],
        ),
    ];
    let mut m = model(
        callbacks,
        vec![
            side_chain("chain-aa", "f", &[40.0, 50.0]),
            side_chain("chain-ab", "r", &[42.0, 52.0]),
        ],
    );
    m.junctions = vec![and(
        "/fuse:sync(/fused)",
        vec![
            "/fuse:subscription(/ff)".into(),
            "/fuse:subscription(/rf)".into(),
        ],
    )];
    m
}

fn both_sides(strategy: Strategy) -> Request {
    Request {
        chains: vec!["chain-aa".into(), "ab".into()],
        cpus: CpuRequest {
            default: Some(1),
            of: vec![("/ff".into(), 0)],
            ..request(strategy).cpus
        },
        ..request(strategy)
    }
}

#[test]
fn callbacks_of_one_node_share_a_server_and_a_synchronisers_slot_follows_both_inputs() {
    let both = made(&fusion(), &both_sides(Strategy::ServerPerCallback));
    let by_callback = |id: &str| {
        let server = both
            .servers
            .iter()
            .find(|s| s.callbacks.iter().any(|c| c == id))
            .unwrap();
        (server.cpu, slots(server))
    };
    assert_eq!(
        by_callback("/ff:subscription(/front)"),
        (0, vec![(3.0, 34.0)])
    );
    assert_eq!(
        by_callback("/rf:subscription(/rear)"),
        (1, vec![(3.0, 24.0)])
    );
    // Both share one thread. The rear's slot comes at once, the front's after that of the front
    // filter.
    let fuse = by_callback("/fuse:subscription(/ff)");
    assert_eq!(fuse, by_callback("/fuse:subscription(/rf)"));
    assert_eq!(fuse, (1, vec![(24.0, 28.0), (34.0, 36.0)]));
    assert_eq!(
        by_callback("/loc:subscription(/fused)"),
        (1, vec![(36.0, 47.0)])
    );
    assert!(both
        .servers
        .iter()
        .all(|s| s.callbacks.iter().all(|c| !c.contains("sync"))));
}

#[test]
fn chains_that_end_in_one_output_are_shaped_together() {
    let shaped = made(&fusion(), &both_sides(Strategy::Bands(1)));
    // Half of the best cases is left out: of the lidar at the start, of fusion and localiser at the
    // end.
    assert_eq!(slots(server(&shaped, "gamma-0")), [(1.0, 47.5)]);
    assert_eq!(slots(server(&shaped, "gamma-1")), [(0.0, 53.0)]);
    assert_eq!(
        server(&shaped, "gamma-0").callbacks,
        ["/ff:subscription(/front)"]
    );
    assert_eq!(slots(server(&shaped, "delta")), [(53.0, 54.0)]);
    assert_eq!(
        shaped.outputs.len(),
        1,
        "both chains end in the same output"
    );
    assert!(shaped.assumes[0].contains("4 executions"));
}

#[test]
fn a_plan_that_drops_late_outputs_says_that_their_executions_run_on() {
    let m = fusion();
    for (overshoot, strategy, says) in [
        (Overshoot::Drop, Strategy::Bands(1), true),
        (Overshoot::Carry, Strategy::Bands(1), false),
        (Overshoot::Stop, Strategy::Bands(1), false),
        // Without held outputs nothing can be dropped.
        (Overshoot::Drop, Strategy::Fifo, false),
    ] {
        let mut r = both_sides(strategy);
        r.outputs.overshoot = overshoot;
        let said = made(&m, &r).assumes;
        let found = said.iter().any(|a| a.contains("runs on to its end"));
        assert_eq!(found, says, "{overshoot:?} {strategy:?}: {said:?}");
    }
}

#[test]
fn a_plan_names_the_inputs_that_its_chain_waits_for() {
    let m = fusion();
    let mut r = both_sides(Strategy::Bands(1));
    r.chains = vec!["chain-ab".into()];
    r.cpus.of.clear();
    let alone = made(&m, &r);
    assert!(alone
        .assumes
        .iter()
        .any(|a| a.contains("in time") && a.contains("/fuse:subscription(/ff)")));
    // The synchroniser publishes for its node. Only its output is held back, not its inputs.
    r.strategy = Strategy::LetPerCallback;
    let held: Vec<_> = made(&m, &r)
        .outputs
        .iter()
        .map(|o| o.callback.clone())
        .collect();
    assert_eq!(
        held,
        [
            "/fuse:sync(/fused)",
            "/loc:subscription(/fused)",
            "/rf:subscription(/rear)",
            "/lidar:timer(100ms)"
        ]
    );
    r.cpus.of = vec![("/fuse:subscription(/rf)".into(), 0), ("/fuse".into(), 1)];
    r.chains = vec!["aa".into(), "ab".into()];
    assert!(refused(&m, &r).contains("CPU 1 and to CPU 0"));
}

#[test]
fn latency_bands_end_where_groups_of_measured_latencies_end() {
    let m = synthetic();
    let one = made(&m, &request(Strategy::Bands(1)));
    // Section 4.5.2 has [0,59] and [59,60] for 58.5 ms. Epsilon is 1 ms here.
    assert_eq!(slots(server(&one, "gamma")), [(0.0, 59.5)]);
    let delta = server(&one, "delta");
    assert_eq!(
        (slots(delta), delta.cpu, delta.priority),
        (vec![(59.5, 60.5)], 1, 81)
    );
    assert!(delta.callbacks.is_empty());
    assert_eq!(one.promises.average_ms, Ms(ms(60.5)));
    assert_eq!(one.promises.jitter_ms, Ms(ms(0.5)));
    assert_eq!(one.promises.utilisation[&1], 0.76);
    let output = &one.outputs[0];
    assert_eq!(
        (output.topic.as_str(), output.node.as_str()),
        ("/t5", "/n5")
    );
    assert_eq!(output.held_topic.as_deref(), Some("/t5/onbeat_held"));
    assert_eq!(
        (output.hold, output.server.as_str()),
        (Hold::Republish, "delta")
    );

    // Slots end where the groups of latencies end. The first slot lies behind the best case.
    let three = made(&m, &request(Strategy::Bands(3)));
    let ends: Vec<u64> = server(&three, "delta")
        .slots_ms
        .iter()
        .map(|s| s.1 .0)
        .collect();
    let near = |a: u64, b: f64| (a as i64 - ms(b) as i64).abs() < 5_000;
    assert!(
        near(ends[0], 31.0) && near(ends[1], 45.0) && ends[2] == ms(60.5),
        "{ends:?}"
    );
    let shares: Vec<f64> = three.promises.bands.iter().map(|b| b.share).collect();
    assert_eq!(shares, [0.571429, 0.285714, 0.142857]);
    assert!(three.promises.average_ms < one.promises.average_ms);
    assert_eq!(three.promises.worst_ms, one.promises.worst_ms);

    let auto = made(&m, &request(Strategy::AutoBands));
    assert_eq!(
        (auto.promises.bands.len(), auto.strategy.as_str()),
        (3, "bands")
    );

    let random = |seed| made(&m, &request(Strategy::RandomBands { bands: 3, seed }));
    assert_eq!(random(1), random(1));
    assert_ne!(random(1).servers, random(2).servers);
    assert!(random(1).promises.average_ms >= three.promises.average_ms);

    let mut asynchronous = request(Strategy::Bands(2));
    asynchronous.outputs.hold = Hold::PublisherThread;
    asynchronous.outputs.overshoot = Overshoot::Drop;
    let plan = made(&m, &asynchronous);
    assert_eq!(
        (plan.outputs[0].hold, plan.outputs[0].held_topic.as_ref()),
        (Hold::PublisherThread, None)
    );
    assert_eq!(plan.overshoot, Overshoot::Drop);

    // A short liveliness needs close bands.
    let mut live = request(Strategy::Bands(3));
    live.outputs.liveliness_ns = Some(ms(8.0));
    let ends: Vec<u64> = server(&made(&m, &live), "delta")
        .slots_ms
        .iter()
        .map(|s| s.1 .0)
        .collect();
    assert!(ends.windows(2).all(|w| w[1] - w[0] <= ms(8.0)), "{ends:?}");
}

#[test]
fn settings_that_the_user_leaves_out_come_from_the_measurements() {
    let mut m = synthetic();
    let auto = Request::default();
    let plan = made(&m, &auto);
    // The slot begins after 58.5 ms and 1 %, and is 0.74 ms of transport long, both rounded up to
    // tenths.
    assert_eq!(slots(server(&plan, "gamma")), [(0.0, 59.1)]);
    assert_eq!(slots(server(&plan, "delta")), [(59.1, 59.9)]);
    m.edges
        .iter_mut()
        .for_each(|e| e.figures.transport_ns = dist(&[0.01]));
    assert_eq!(slots(server(&made(&m, &auto), "delta")), [(59.1, 59.6)]);
    m.edges
        .iter_mut()
        .for_each(|e| e.figures.transport_ns = dist(&[30.0]));
    assert_eq!(slots(server(&made(&m, &auto), "delta")), [(59.1, 61.1)]);
    m.edges.clear();
    assert_eq!(slots(server(&made(&m, &auto), "delta")), [(59.1, 60.1)]);
}

#[test]
fn logical_execution_time_is_planned_for_each_callback_or_for_the_chain() {
    let m = synthetic();
    let each = made(
        &m,
        &Request {
            outputs: OutputRequest {
                slot_ns: Some(ms(2.0)),
                ..request(Strategy::LetPerCallback).outputs
            },
            ..request(Strategy::LetPerCallback)
        },
    );
    assert_eq!(slots(server(&each, "delta")), [(0.0, 2.0)]);
    assert_eq!(slots(server(&each, "gamma")), [(0.0, 100.0)]);
    assert_eq!(each.outputs.len(), 5, "every callback's output waits");
    // Table 4.5 has five periods, and one.
    assert_eq!(each.promises.worst_ms, Ms(ms(502.0)));
    let whole = made(&m, &request(Strategy::LetPerChain));
    assert_eq!(whole.outputs.len(), 1);
    assert_eq!(whole.promises.worst_ms, Ms(ms(101.0)));
    assert_eq!(whole.promises.bands[0].share, 1.0);

    // Chains of different lengths get a band each, and the average of both.
    let mut two = synthetic();
    let ids = [
        "/n1:timer(100ms)",
        "/n2:subscription(/t1)",
        "/n6:subscription(/t2)",
    ];
    two.callbacks.push(callback(
        ids[2],
        CallbackType::Subscription,
        &[5.0],
        &["/t6"],
    ));
    two.chains.push(chain(
        "chain-cc",
        &ids,
        &["/t1", "/t2", "/t6"],
        &[20.0, 40.0],
    ));
    let both = made(
        &two,
        &Request {
            chains: two.chains.iter().map(|c| c.id.clone()).collect(),
            cpus: CpuRequest {
                default: Some(1),
                ..request(Strategy::LetPerCallback).cpus
            },
            outputs: OutputRequest {
                slot_ns: Some(ms(2.0)),
                ..request(Strategy::LetPerCallback).outputs
            },
            ..request(Strategy::LetPerCallback)
        },
    );
    let bands: Vec<_> = both
        .promises
        .bands
        .iter()
        .map(|b| (b.latency_ms.1, b.share))
        .collect();
    assert_eq!(bands, [(Ms(ms(302.0)), 0.5), (Ms(ms(502.0)), 0.5)]);
    assert_eq!(both.promises.average_ms, Ms(ms(402.0)));
    assert_eq!(both.promises.worst_ms, Ms(ms(502.0)));
}

#[test]
fn a_node_that_subscribes_to_its_own_held_topic_is_refused() {
    let mut m = synthetic();
    let own = callback(
        "/n5:subscription(/t5)",
        CallbackType::Subscription,
        &[1.0],
        &[],
    );
    m.callbacks.push(own);
    let mut r = request(Strategy::Bands(1));
    let text = refused(&m, &r);
    assert!(
        text.contains("/n5") && text.contains("both publishes and takes"),
        "{text}"
    );
    // The middleware's thread holds the output back without remapping.
    r.outputs.hold = Hold::PublisherThread;
    made(&m, &r);
    // Another node may take the topic.
    m.callbacks.last_mut().unwrap().node = "/n7".into();
    made(&m, &request(Strategy::Bands(1)));
}

#[test]
fn a_callbacks_wait_counts_only_as_far_as_the_worst_case_still_fits_into_the_cycle() {
    let mut m = synthetic();
    m.callbacks[4].figures.exec_ns = dist(&[5.0, 6.0]);
    let plain = made(&m, &request(Strategy::ServerPerCallback));
    // The callback once waited 500 ms, which does not fit into the chain's worst case.
    m.callbacks[1].figures.blocked_ns = dist(&[0.0, 500.0]);
    let plan = made(&m, &request(Strategy::ServerPerCallback));
    assert!(plan.promises.worst_ms > plain.promises.worst_ms);
    assert!(plan.promises.worst_ms <= plan.cycle_ms);
}

#[test]
fn a_throttled_input_is_let_through_once_per_cycle() {
    let mut m = synthetic();
    let first = &mut m.callbacks[0];
    (first.kind, first.input, first.period_ns) =
        (CallbackType::Subscription, "/points".into(), None);
    first.figures.interarrival_ns = dist(&[60.0, 99.8, 99.9, 180.0]);
    let mut r = request(Strategy::Bands(1));
    assert!(refused(&m, &r).contains("--throttle"));
    m.callbacks[0].period_ns = Some(ms(99.8));
    let text = refused(&m, &r);
    assert!(text.contains("60 ms") && text.contains("180 ms"), "{text}");

    r.inputs.throttles = vec![ThrottleRequest {
        topic: "/points".into(),
        node: None,
    }];
    assert!(refused(&m, &r).contains("no callback of the model publishes '/points'"));
    r.inputs.throttles[0].node = Some("/bag".into());
    let plan = made(&m, &r);
    assert_eq!(plan.cycle_ms, Ms(ms(100.0)), "almost every 100 ms");
    // Like row 3 of Table 4.3, the cycle has the input, the chain's worst case and the output. The
    // work of the first callback's executor belongs to the chain.
    assert_eq!(slots(server(&plan, "throttle")), [(0.0, 0.8)]);
    assert_eq!(slots(server(&plan, "gamma")), [(0.0, 60.3)]);
    assert_eq!(slots(server(&plan, "delta")), [(60.3, 61.3)]);
    assert_eq!(plan.promises.worst_ms, Ms(ms(61.3)));
    assert_eq!(plan.inputs[0].held_topic, "/points/onbeat_held");
    assert_eq!(
        (plan.inputs[0].node.as_str(), plan.inputs[0].server.as_str()),
        ("/bag", "throttle")
    );
    r.inputs.cycle_ns = Some(ms(200.0));
    assert_eq!(made(&m, &r).cycle_ms, Ms(ms(200.0)));

    // The publisher of the input must come in time, so it waits for no slot.
    m.callbacks.push(callback(
        "/bag:timer(100ms)",
        CallbackType::Timer,
        &[1.0],
        &["/points/onbeat_held"],
    ));
    let plan = made(&m, &r);
    let feeders = server(&plan, "feeders");
    assert_eq!(feeders.callbacks, ["/bag:timer(100ms)"]);
    assert!(feeders.slots_ms.is_empty() && feeders.priority > 0);
    // The publisher's load on the chain's CPU counts.
    r.cpus.of = vec![("/bag".into(), 1)];
    assert_eq!(made(&m, &r).promises.utilisation[&1], 0.375 + 0.009 + 0.01);
    m.callbacks.last_mut().unwrap().figures.load = 0.7;
    let text = refused(&m, &r);
    assert!(text.contains("CPU 1") && text.contains("/bag"), "{text}");
    r.cpus.of.clear();

    // Latencies that count from the input contain the way to the first callback.
    assert_eq!(made(&m, &r).outputs[0].earliest_ms, Ms(ms(0.8 + 15.0)));
    m.chains[0].from_input = true;
    assert_eq!(slots(server(&made(&m, &r), "gamma")), [(0.0, 59.5)]);
    assert_eq!(made(&m, &r).outputs[0].earliest_ms, Ms(ms(15.0)));
}

#[test]
fn background_callbacks_get_the_time_that_the_chain_leaves() {
    let mut m = synthetic();
    m.callbacks.push(callback(
        "/int:timer(10ms)",
        CallbackType::Timer,
        &[2.0],
        &[],
    ));
    let mut r = request(Strategy::ServerPerChain);
    r.background = vec!["/int".into()];
    let plan = made(&m, &r);
    let background = server(&plan, "background");
    assert_eq!(
        (background.priority, slots(background)),
        (0, vec![(0.0, 100.0)])
    );
    assert_eq!(slots(server(&plan, "gamma")), [(0.0, 59.5)]);
    assert_eq!(plan.promises.utilisation[&1], 0.77);
    r.cpus.of = vec![("/int".into(), 0)];
    assert_eq!(server(&made(&m, &r), "background").cpu, 0);
    r.background = vec!["/n3".into()];
    assert!(refused(&m, &r).contains("belongs to a planned chain"));
    r.background = vec!["/nobody".into()];
    assert!(refused(&m, &r).contains("/nobody"));
}

fn assert_says(text: String, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "no '{word}' in: {text}");
    }
}

#[test]
fn impossible_settings_are_refused_with_their_values_and_limits() {
    let m = synthetic();
    let ask = |f: fn(&mut Request)| {
        let mut r = request(Strategy::Bands(1));
        f(&mut r);
        refused(&m, &r)
    };
    assert_says(
        ask(|r| r.chains = vec!["nonsense".into()]),
        &["nonsense", "chain-0123456789ab"],
    );
    assert_says(ask(|r| r.priority = 90), &["90", "1 to 89"]);
    assert_says(ask(|r| r.priority = 0), &["1 to 89"]);
    assert_says(ask(|r| r.outputs.slot_ns = Some(ms(100.0))), &["100 ms"]);
    assert_says(
        ask(|r| r.outputs.slot_ns = Some(ms(45.0))),
        &["104.5 ms", "100 ms"],
    );
    assert_says(
        ask(|r| r.outputs.epsilon_ns = Some(ms(41.0))),
        &["100.5 ms", "100 ms"],
    );
    assert_says(
        ask(|r| r.inputs.cycle_ns = Some(ms(50.0))),
        &["50 ms", "100 ms"],
    );
    assert_says(ask(|r| r.strategy = Strategy::Bands(0)), &["1 to 16"]);
    assert_says(
        ask(|r| {
            r.strategy = Strategy::Bands(16);
            r.outputs.slot_ns = Some(ms(4.0));
        }),
        &["16 slots", "at most"],
    );
    assert_says(
        ask(|r| r.cpus.of = vec![("/else".into(), 1)]),
        &["--cpu", "/else"],
    );
    assert_says(
        ask(|r| (r.strategy, r.outputs.epsilon_ns) = (Strategy::ServerPerCallback, Some(ms(6.0)))),
        &["105 ms", "100 ms"],
    );
}

#[test]
fn a_chain_with_rare_slow_executions_is_refused_with_a_suggested_miss_rate() {
    let mut model = model_of_starts(40, 250);
    model.chains[0].figures.latency_ns.record(ms(330.0));
    let text = refused(&model, &request(Strategy::Bands(1)));
    assert_says(
        text,
        &[
            "the chain does not fit into its period",
            "need 332 ms, but the cycle leaves only 100 ms",
            "The chain's slowest execution took 330 ms; 99 % of its executions took at most 49.",
            "--miss 1%",
        ],
    );
    let text = refused(&model, &request(Strategy::ServerPerChain));
    assert_says(text, &["took 330 ms", "or its period longer"]);
}

#[test]
fn a_model_that_fits_no_plan_is_refused_with_the_reason() {
    let m = synthetic();
    let mut heavy = m.clone();
    heavy.callbacks[4].figures.exec_ns = dist(&[41.0]);
    assert_says(
        refused(&heavy, &request(Strategy::Fifo)),
        &["CPU 1", "101.0 %", "41.0 % /n5"],
    );
    let mut two = request(Strategy::Fifo);
    two.cpus.of = vec![("/n5".into(), 0)];
    assert!(plan(&heavy, &two).is_ok());

    let mut late = m.clone();
    late.callbacks[0].figures.interarrival_ns = dist(&[200.0, 200.0]);
    assert_says(
        refused(&late, &request(Strategy::Fifo)),
        &["every 200 ms", "100 ms"],
    );

    let mut silent = m.clone();
    silent.chains[0].topics.pop();
    assert_says(
        refused(&silent, &request(Strategy::Bands(1))),
        &["publishes nothing"],
    );
    assert!(plan(&silent, &request(Strategy::ServerPerChain)).is_ok());

    let mut never = m.clone();
    never.chains[0].figures.latency_ns = dist(&[]);
    assert_says(
        refused(&never, &request(Strategy::Fifo)),
        &["Record longer"],
    );

    let mut huge = m;
    huge.chains[0].figures.latency_ns.record(u64::MAX);
    for (_, row) in compare(&huge, &Request::default()) {
        assert!(row.is_err());
    }
}

#[test]
fn ambiguous_chain_names_are_refused() {
    let m = synthetic();
    let mut none = m.clone();
    none.chains.clear();
    assert_says(refused(&none, &Request::default()), &["no chain"]);
    let mut two = m;
    two.chains.push(chain(
        "chain-0123456789ff",
        &["/n2:subscription(/t1)"],
        &["/t2"],
        &[5.0],
    ));
    assert_says(refused(&two, &Request::default()), &["2 chains", "--chain"]);
    let mut both = Request {
        chains: vec!["0123".into()],
        ..Request::default()
    };
    assert_says(refused(&two, &both), &["beginning of 2"]);
    both.chains = vec!["chain-0123456789ab".into(), "0123456789ff".into()];
    assert_says(refused(&two, &both), &["same callback"]);
}

#[test]
fn services_cannot_be_held_back() {
    let callbacks = vec![
        callback(
            "/a:timer(100ms)",
            CallbackType::Timer,
            &[1.0],
            &["/s/request"],
        ),
        callback(
            "/b:service(/s)",
            CallbackType::Service,
            &[1.0],
            &["/s/response"],
        ),
    ];
    let m = model(
        callbacks,
        vec![chain(
            "chain-s",
            &["/a:timer(100ms)", "/b:service(/s)"],
            &["/s/request", "/s/response"],
            &[3.0],
        )],
    );
    assert!(refused(&m, &request(Strategy::Bands(1))).contains("belongs to a service"));
    assert!(refused(&m, &request(Strategy::LetPerCallback)).contains("/s/request"));
    assert!(plan(&m, &request(Strategy::ServerPerCallback)).is_ok());
}

#[test]
fn a_comparison_of_strategies_lists_the_cost_of_each() {
    let rows = compare(&synthetic(), &request(Strategy::Fifo));
    let of = |name: &str| {
        rows.iter()
            .find(|r| r.0 == name)
            .unwrap()
            .1
            .clone()
            .unwrap()
    };
    let averages: Vec<_> = (1..=8)
        .map(|k| of(&format!("bands --bands {k}")).average_ms)
        .collect();
    assert!(averages.windows(2).all(|w| w[1] <= w[0]), "{averages:?}");
    assert!(of("fifo").average_ms < averages[7]);
    assert!(averages[0] < of("let-per-chain").average_ms);
    assert!(of("let-per-chain").average_ms < of("let-per-callback").average_ms);
}

fn assert_the_throttler_is_not_a_feeder(m: &Model, asked: &Request, fed: &str) {
    let (mut m, mut asked) = (m.clone(), asked.clone());
    m.callbacks.push(callback(
        "/throttler:thread(/f)",
        CallbackType::Thread,
        &[0.1],
        &["/f"],
    ));
    let mut edge = m.edges.iter().find(|e| e.to == fed).unwrap().clone();
    edge.from = "/throttler:thread(/f)".into();
    m.edges.push(edge);
    let inputs = [("/r", "/rear"), ("/f", "/front")];
    asked.inputs.throttles = inputs
        .map(|(topic, node)| ThrottleRequest {
            topic: topic.into(),
            node: Some(node.into()),
        })
        .into();
    asked.inputs.cycle_ns = Some(ms(100.0));
    let plan = made(&m, &asked);
    let held = |s: &Server| s.callbacks.iter().any(|c| c.contains("throttler"));
    assert!(!plan.servers.iter().any(held), "{:?}", plan.servers);
}

#[test]
fn feeders_of_a_chain_run_at_any_time() {
    let sub = CallbackType::Subscription;
    let callbacks = vec![
        callback("/rear:timer(100ms)", CallbackType::Timer, &[2.0], &["/r"]),
        callback("/front:timer(100ms)", CallbackType::Timer, &[2.0], &["/f"]),
        callback("/filter:subscription(/f)", sub, &[5.0], &["/ff"]),
        callback("/fuse:subscription(/r)", sub, &[3.0], &[]),
        callback("/fuse:subscription(/ff)", sub, &[3.0], &[]),
        callback("/fuse:sync(/out)", CallbackType::Sync, &[1.0], &["/out"]),
        callback("/other:timer(10ms)", CallbackType::Timer, &[1.0], &[]),
    ];
    let rear = [
        "/rear:timer(100ms)",
        "/fuse:subscription(/r)",
        "/fuse:sync(/out)",
    ];
    let front = [
        "/front:timer(100ms)",
        "/filter:subscription(/f)",
        "/fuse:subscription(/ff)",
        "/fuse:sync(/out)",
    ];
    let chains = vec![
        chain("chain-1", &rear, &["/r", "/r", "/out"], &[9.0, 10.0]),
        chain(
            "chain-2",
            &front,
            &["/f", "/ff", "/ff", "/out"],
            &[9.0, 12.0],
        ),
    ];
    let mut m = model(callbacks, chains);
    m.junctions = vec![and(
        "/fuse:sync(/out)",
        vec![rear[1].into(), front[2].into()],
    )];
    let mut asked = request(Strategy::Bands(1));
    asked.chains = vec!["chain-1".into()];
    asked.cpus.default = Some(1);
    asked.cpus.middleware = Some(0);
    let plan = made(&m, &asked);
    let server = |name: &str| {
        plan.servers
            .iter()
            .find(|s| s.name == name)
            .expect("a server")
    };
    assert_eq!(
        server("feeders").callbacks,
        ["/front:timer(100ms)", "/filter:subscription(/f)"]
    );
    assert_eq!(
        (server("feeders").cpu, server("feeders").slots_ms.len()),
        (0, 0)
    );
    // The same thread takes the fusion's other input.
    assert!(server("gamma").callbacks.iter().any(|c| c == front[2]));

    assert_the_throttler_is_not_a_feeder(&m, &asked, front[1]);
    asked.cpus.of = vec![("/filter".into(), 3)];
    let plan = made(&m, &asked);
    let of = |id: &str| {
        plan.servers
            .iter()
            .find(|s| s.callbacks.iter().any(|c| c == id))
    };
    assert_eq!(of("/filter:subscription(/f)").map(|s| s.cpu), Some(3));
}

/// Makes the synthetic chain with one more callback, which reads `/t5` and publishes nothing. With
/// `measured`, the model also has the part up to `/t5` as a chain.
fn synthetic_with_reader(measured: bool) -> onbeat_document::Model {
    let whole = synthetic();
    let mut callbacks = whole.callbacks.clone();
    let reader = "/n6:subscription(/t5)";
    callbacks.push(callback(reader, CallbackType::Subscription, &[1.0], &[]));
    let mut part = whole.chains[0].clone();
    let mut long = part.clone();
    long.id = "chain-ffff".into();
    long.callbacks.push(reader.into());
    part.cut = true;
    let mut chains = vec![long];
    chains.extend(measured.then_some(part));
    model(callbacks, chains)
}

fn between(from: &str, to: &str) -> Request {
    let mut request = request(Strategy::Bands(1));
    request.ends.from = Some(from.into());
    request.ends.to = Some(to.into());
    request
}

#[test]
fn a_chain_can_be_planned_up_to_an_output_that_other_nodes_read() {
    let model = synthetic_with_reader(true);
    let refused = plan(&model, &request(Strategy::Bands(1))).unwrap_err();
    assert!(matches!(refused, PlanError::WhichChain { .. }), "{refused}");
    let mut whole = request(Strategy::Bands(1));
    whole.chains = vec!["ffff".into()];
    let refused = plan(&model, &whole).unwrap_err();
    assert!(matches!(refused, PlanError::NoOutput { .. }), "{refused}");
    for (from, to) in [("/n1", "/n5"), ("n1", "topic:/t5"), ("/n1", "/t5")] {
        let made = plan(&model, &between(from, to)).unwrap();
        assert_eq!(made.chains[0].output.as_deref(), Some("/t5"));
        assert_eq!(made.outputs[0].callback, "/n5:subscription(/t4)");
        // The plan equals the one without the reader, apart from the note about it.
        let alone = plan(&synthetic(), &request(Strategy::Bands(1))).unwrap();
        assert_eq!(made.promises, alone.promises);
        let cut: Vec<&String> = made
            .assumes
            .iter()
            .filter(|a| !alone.assumes.contains(a))
            .collect();
        assert_eq!(cut, ["The chain is cut: it begins with /n1:timer(100ms) and ends with /t5 (read by /n6:subscription(/t5)); the plan and its promises do not cover the callbacks before and after this part of the chain."]);
    }
}

#[test]
fn an_unmeasured_part_of_a_chain_is_refused_with_the_command_that_measures_it() {
    let error = |from: &str, to: &str| {
        let refused = plan(&synthetic_with_reader(false), &between(from, to)).unwrap_err();
        refused.to_string()
    };
    assert_eq!(
        error("/n1", "/t5"),
        "the 5 callbacks between the chosen ends are only a part of a chain, but the model has only the latency of the whole chain. \
         Make the model again from its traces with 'onbeat model TRACE --from /n1 --to /t5'."
    );
    assert!(error("/n9", "/t5").contains("'/n9' is not a callback, node or topic"));
    assert!(error("/n4", "/t2").contains("no chain leads from '/n4' to '/t2'"));
    let mut both = synthetic_with_reader(true);
    let mut other = both.chains[0].clone();
    other.id = "chain-eeee".into();
    other.callbacks.remove(2);
    other.topics.remove(2);
    both.chains.push(other);
    // A branch without a latency is not left out silently.
    let refused = plan(&both, &between("/n1", "/t5")).unwrap_err().to_string();
    assert!(
        refused.starts_with("the 4 callbacks between the chosen ends"),
        "{refused}"
    );
    // Both branches have the same ends, so they are planned together.
    let mut part = both.chains[2].clone();
    (part.id, part.cut) = ("chain-dddd".into(), true);
    part.callbacks.pop();
    part.figures.latency_ns = dist(&[61.0]);
    both.chains.push(part);
    let all = plan(&both, &between("/n1", "/t5")).unwrap();
    assert_eq!((all.chains.len(), all.outputs.len()), (2, 1));
    assert_eq!(slots(server(&all, "gamma")), [(0.0, 62.0)]);
    let mut through = between("/n1", "/t5");
    through.ends.through = vec!["/n3".into()];
    let one = plan(&both, &through).unwrap();
    assert_eq!((one.chains.len(), one.chains[0].callbacks.len()), (1, 5));
    assert_eq!(slots(server(&one, "gamma")), [(0.0, 59.5)]);
}

#[test]
fn branches_that_begin_with_different_callbacks_are_not_one_chain() {
    let mut model = synthetic();
    let mut later = model.chains[0].clone();
    later.id = "chain-cccc".into();
    later.callbacks.drain(..2);
    later.topics.drain(..2);
    model.chains.push(later);
    let mut to = request(Strategy::Bands(1));
    to.ends.to = Some("/t5".into());
    assert_says(
        refused(&model, &to),
        &["2 chains fit the ends that you name (--from, --to), but begin or end differently. Choose one with --through: "],
    );
}

fn model_of_starts(starts: u64, each: u64) -> Model {
    let mut model = synthetic();
    let mut all = onbeat_document::Dist::new();
    let run = model.runs[0].clone();
    model.runs.clear();
    let mut state = 1u64;
    for start in 0..starts {
        let mut latency = onbeat_document::Dist::new();
        for _ in 0..each {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let share = (state >> 11) as f64 / (1u64 << 53) as f64;
            latency.record(ms(30.0 + 20.0 * share.powi(4)));
        }
        let id = format!("run-{start}");
        all.merge(&latency);
        model.chains[0].per_run.insert(id.clone(), latency);
        model
            .runs
            .push(onbeat_document::schema::Run { id, ..run.clone() });
    }
    let figures = &mut model.chains[0].figures;
    (figures.executions, figures.latency_ns) = (all.count(), all);
    model
}

#[test]
fn the_last_slot_lies_at_the_latency_limit_of_the_requested_miss_rate() {
    let model = model_of_starts(40, 250);
    let mut rare = request(Strategy::Bands(2));
    (rare.outputs.epsilon_ns, rare.outputs.miss) = (None, Some(1e-3));
    let plan = made(&model, &rare);
    let miss = plan.promises.miss.unwrap();
    assert_eq!(
        (miss.rate, miss.starts, miss.executions),
        (1e-3, 40, 10_000)
    );
    assert!(
        miss.independent > 5_000 && miss.independent <= 10_000,
        "{miss:?}"
    );
    // One in 1000 takes longer than 49.98 ms.
    let ms_of = |t: Ms| t.0 as f64 / 1e6;
    assert!((49.9..50.5).contains(&ms_of(miss.limit_ms)), "{miss:?}");
    let delta = server(&plan, "delta");
    let last = delta.slots_ms.last().unwrap();
    let behind = ms_of(last.0) - ms_of(miss.limit_ms);
    assert!((0.0..0.1).contains(&behind), "{behind}");
    assert!(plan.assumes[0].contains("is exceeded with probability m/("));
    // The written plan can be read again. Older plans have no miss rate.
    let text = onbeat_plan::file::write(&plan).unwrap();
    assert_eq!(onbeat_plan::file::read(text.as_bytes()).unwrap(), plan);
    assert!(text.contains("rate: 0.001"), "{text}");
    let wrong = text.replace("rate: 0.001", "rate: 1.5");
    assert!(onbeat_plan::file::read(wrong.as_bytes()).is_err());
    // At one in ten, the last slot lies before the longest execution, whose thread still has its
    // time.
    rare.outputs.miss = Some(0.1);
    let often = made(&model, &rare);
    assert!(ms_of(often.promises.miss.unwrap().limit_ms) < 45.0);
    assert!(ms_of(server(&often, "gamma").slots_ms[0].1) > 49.0);
    for (name, promises) in compare(&model, &rare) {
        let promised = promises.unwrap().miss.is_some();
        assert_eq!(promised, name.starts_with("bands"), "{name}");
    }
    // A miss rate needs slots for outputs, and a profile that supports it.
    rare.strategy = Strategy::ServerPerChain;
    assert!(refused(&model, &rare).contains("--strategy bands"));
    let mut rare = request(Strategy::Bands(1));
    rare.outputs.miss = Some(1e-3);
    assert!(refused(&synthetic(), &rare).contains("7 executions of 1 starts"));
    let mut unknown = model.clone();
    unknown.chains[0].per_run.clear();
    assert!(refused(&unknown, &rare).contains("which start of the application each"));
}

#[test]
fn the_plan_has_the_fewest_bands_that_keep_the_requested_average_latency() {
    let model = model_of_starts(12, 60);
    let mut averages = Vec::new();
    for above in [0.3, 0.1, 0.05] {
        let plan = made(&model, &request(Strategy::Average(above)));
        let cost = plan.promises.cost.unwrap();
        assert!(
            cost.measured <= cost.bound && cost.bound <= above,
            "{cost:?}"
        );
        let unshaped = model.chains[0].figures.latency_ns.mean();
        let average = plan.promises.average_ms.0 as f64 / unshaped - 1.0;
        assert!((average - cost.measured).abs() < 1e-3, "{average} {cost:?}");
        averages.push(plan.promises.bands.len());
    }
    assert!(
        averages[0] < averages[1] && averages[1] < averages[2],
        "{averages:?}"
    );
    assert!(refused(&model, &request(Strategy::Average(1e-4))).contains("The best result is"));
    assert!(refused(&synthetic(), &request(Strategy::Average(0.1)))
        .contains("needs measurements of 5 starts"));
}
