//! Checks plans for executors that run more than the chain.
//!
//! The model is a graph of 24 nodes in one process, like Autoware's reference system. Its hot path,
//! which is a part of the whole chain, is in the model as a chain of its own. A simulation checks
//! the promises of random plans.
mod common;

use common::{callback, chain, dist, model, ms};
use onbeat_document::schema::{CallbackType, Executor, ThreadUse};
use onbeat_document::Model;
use onbeat_plan::request::{CpuRequest, OutputRequest};
use onbeat_plan::schema::{Ms, Server};
use onbeat_plan::{plan, validate, Plan, PlanError, Request, Strategy};
use proptest::prelude::*;

/// The nodes, each with the nodes whose topics it reads, and the period of its timer in ms (0: no
/// timer). Each node publishes on a topic that has the node's name.
const NODES: &[(&str, &[&str], u64)] = &[
    ("FrontLidarDriver", &[], 100),
    ("RearLidarDriver", &[], 100),
    ("PointCloudMap", &[], 120),
    ("Visualizer", &[], 60),
    ("Lanelet2Map", &[], 100),
    ("EuclideanClusterSettings", &[], 25),
    ("PointsTransformerFront", &["FrontLidarDriver"], 0),
    ("PointsTransformerRear", &["RearLidarDriver"], 0),
    (
        "PointCloudFusion",
        &["PointsTransformerFront", "PointsTransformerRear"],
        0,
    ),
    ("VoxelGridDownsampler", &["PointCloudFusion"], 0),
    ("PointCloudMapLoader", &["PointCloudMap"], 0),
    ("RayGroundFilter", &["PointCloudFusion"], 0),
    (
        "NDTLocalizer",
        &["VoxelGridDownsampler", "PointCloudMapLoader"],
        0,
    ),
    ("Lanelet2GlobalPlanner", &["Visualizer", "NDTLocalizer"], 0),
    (
        "Lanelet2MapLoader",
        &["Lanelet2Map", "Lanelet2GlobalPlanner"],
        0,
    ),
    ("ParkingPlanner", &["Lanelet2MapLoader"], 0),
    ("LanePlanner", &["Lanelet2MapLoader"], 0),
    (
        "EuclideanClusterDetector",
        &["RayGroundFilter", "EuclideanClusterSettings"],
        0,
    ),
    ("ObjectCollisionEstimator", &["EuclideanClusterDetector"], 0),
    (
        "BehaviorPlanner",
        &["ObjectCollisionEstimator", "NDTLocalizer"],
        100,
    ),
    ("MPCController", &["BehaviorPlanner"], 0),
    ("VehicleInterface", &["MPCController", "BehaviorPlanner"], 0),
    ("VehicleDBWSystem", &["VehicleInterface"], 0),
    ("IntersectionOutput", &["EuclideanIntersection"], 0),
];

const HOT: [&str; 6] = [
    "/FrontLidarDriver:timer(100ms)",
    "/PointsTransformerFront:subscription(/FrontLidarDriver)",
    "/PointCloudFusion:subscription(/PointsTransformerFront)",
    "/RayGroundFilter:subscription(/PointCloudFusion)",
    "/EuclideanClusterDetector:subscription(/RayGroundFilter)",
    "/ObjectCollisionEstimator:subscription(/EuclideanClusterDetector)",
];

#[derive(Debug, Clone, Copy, PartialEq)]
enum Form {
    Single,
    Multi(usize),
    PerNode,
}

fn reference(form: Form) -> Model {
    let mut callbacks = Vec::new();
    for (name, inputs, period) in NODES {
        let topic = format!("/{name}");
        if *period > 0 {
            let id = format!("/{name}:timer({period}ms)");
            let mut timer = callback(&id, CallbackType::Timer, &[2.0], &[&topic]);
            timer.period_ns = Some(ms(*period as f64));
            callbacks.push(timer);
        }
        for input in *inputs {
            let id = format!("/{name}:subscription(/{input})");
            let gap = if input.ends_with("Settings") {
                25.0
            } else {
                100.0
            };
            let mut takes = callback(&id, CallbackType::Subscription, &[2.0], &[&topic]);
            takes.period_ns = Some(ms(gap));
            takes.figures.interarrival_ns = dist(&[gap]);
            callbacks.push(takes);
        }
    }
    for c in &mut callbacks {
        let gap = c.period_ns.unwrap_or(ms(100.0));
        c.figures.load = ms(2.0) as f64 / gap as f64;
        c.threads[0].policy = "other".into();
    }
    let topics: Vec<String> = HOT
        .iter()
        .map(|id| format!("/{}", id[1..].split(':').next().unwrap()))
        .collect();
    let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
    let mut hot = chain("chain-hot", &HOT, &topics, &[10.5, 12.0, 20.0]);
    hot.cut = true;
    let mut whole: Vec<&str> = HOT.to_vec();
    whole.push("/BehaviorPlanner:subscription(/ObjectCollisionEstimator)");
    let whole = chain("chain-whole", &whole, &topics, &[12.5, 22.0]);
    let mut m = model(callbacks, vec![whole, hot]);
    let all: Vec<String> = m.callbacks.iter().map(|c| c.id.clone()).collect();
    let one = |threads| {
        vec![Executor {
            callbacks: all.clone(),
            threads,
        }]
    };
    match form {
        Form::Single => m.executors = one(1),
        Form::Multi(threads) => m.executors = one(threads),
        Form::PerNode => {}
    }
    m
}

fn hot_path(strategy: Strategy) -> Request {
    let mut request = Request {
        strategy,
        cpus: CpuRequest {
            default: Some(1),
            middleware: Some(0),
            ..CpuRequest::default()
        },
        outputs: OutputRequest {
            epsilon_ns: Some(ms(1.0)),
            slot_ns: Some(ms(1.0)),
            ..OutputRequest::default()
        },
        ..Request::default()
    };
    request.ends.from = Some("FrontLidarDriver".into());
    request.ends.to = Some("/ObjectCollisionEstimator".into());
    request
}

fn server<'p>(plan: &'p Plan, name: &str) -> &'p Server {
    let found = plan.servers.iter().find(|s| s.name == name);
    found.unwrap_or_else(|| panic!("no {name} in {plan:#?}"))
}

fn slots(server: &Server) -> Vec<(f64, f64)> {
    let of = |ns: Ms| ns.0 as f64 / 1e6;
    server.slots_ms.iter().map(|s| (of(s.0), of(s.1))).collect()
}

fn assumption<'p>(plan: &'p Plan, what: &str) -> &'p str {
    let found = plan.assumes.iter().find(|a| a.contains(what));
    found.unwrap_or_else(|| panic!("no {what:?} in {:#?}", plan.assumes))
}

#[test]
fn a_single_threaded_executor_of_all_nodes_is_planned_and_never_frozen() {
    let m = reference(Form::Single);
    let made = plan(&m, &hot_path(Strategy::Bands(1))).unwrap();
    let gamma = server(&made, "gamma");
    assert_eq!(slots(gamma), [(0.0, 100.0)]);
    // The slot begins after 20 ms, one other callback of 2 ms before the first one, and the buffer.
    assert_eq!(slots(server(&made, "delta")), [(23.0, 24.0)]);
    assert_eq!(made.promises.worst_ms, Ms(ms(24.0)));
    assert_eq!(gamma.callbacks.len(), m.callbacks.len());
    // Callbacks outside the chain are optional, but their thread belongs to the server.
    assert_eq!(made.callbacks.len(), m.callbacks.len() - HOT.len());
    assert!(made
        .callbacks
        .iter()
        .all(|r| !r.required && !HOT.contains(&r.id.as_str())));
    assert!(HOT.iter().all(|id| made.requires(id)));
    let text = assumption(&made, "on the threads of server gamma");
    assert!(
        text.contains("26 callbacks outside of the planned chains also run")
            && text.contains("took 65.0 % of a CPU"),
        "{text}"
    );
    assert!(
        text.contains("/EuclideanClusterSettings:timer(25ms)") && text.contains("at any time"),
        "{text}"
    );
    // The CPU's share contains all callbacks.
    assert!(
        (made.promises.utilisation[&1] - (0.12 + 0.65 + 0.01)).abs() < 0.001,
        "{:?}",
        made.promises
    );
    assert!(!made
        .assumes
        .iter()
        .any(|a| a.contains("longer than when it was measured")));
}

#[test]
fn a_first_callback_that_starts_late_moves_the_slot_and_adds_to_the_jitter() {
    let mut m = reference(Form::Single);
    let at = |m: &Model| {
        let made = plan(m, &hot_path(Strategy::Bands(1))).unwrap();
        let late = made.assumes.iter().any(|a| a.contains("after its release"));
        let last = slots(server(&made, "delta"))[0].0;
        (last, made.promises.jitter_ms, late)
    };
    assert_eq!(at(&m), (23.0, Ms(ms(1.5)), true));
    let first = m.callbacks.iter_mut().find(|c| c.id == HOT[0]).unwrap();
    // The longest value is a release that was left out.
    first.figures.release_jitter_ns = dist(&[0.1, 4.0, 130.0]);
    let (last, jitter, _) = at(&m);
    assert!(
        (last - 27.0).abs() < 0.01 && jitter.0.abs_diff(ms(3.5)) < 10_000,
        "{last} {jitter}"
    );
    // Releases are unknown here, so the distance of the starts shows the delay.
    let first = m.callbacks.iter_mut().find(|c| c.id == HOT[0]).unwrap();
    first.figures.release_jitter_ns = dist(&[]);
    first.figures.interarrival_ns = dist(&[97.0, 103.0, 200.0]);
    assert!((at(&m).0 - 26.0).abs() < 0.011, "{:?}", at(&m));
    // The first callback is alone on its thread, but waits for others on its CPU. Two of them run
    // before the chain: 4 ms.
    m.executors = reference(Form::PerNode).executors;
    let (last, jitter, late) = at(&m);
    assert!(
        (last - 30.0).abs() < 0.011 && jitter.0.abs_diff(ms(3.0)) < 10_000 && late,
        "{last} {jitter}"
    );
    // Nothing else runs there.
    m.callbacks.retain(|c| HOT.contains(&c.id.as_str()));
    assert_eq!(at(&m), (21.0, Ms(ms(0.5)), false));
}

#[test]
fn all_threads_of_a_pool_are_in_one_server_and_the_wait_for_them_is_bounded() {
    let mut m = reference(Form::Multi(3));
    let made = plan(&m, &hot_path(Strategy::Bands(1))).unwrap();
    // The expected length is the shortest one that holds all that comes within it: the chain's 20
    // ms and every other callback as often as it comes.
    let text = assumption(&made, "longer than when it was measured");
    let gamma = server(&made, "gamma");
    assert_eq!(slots(gamma), [(0.0, 100.0)]);
    let last = slots(server(&made, "delta"))[0].0;
    let within = |w: f64| -> f64 {
        let others = m.callbacks.iter().filter(|c| !HOT.contains(&c.id.as_str()));
        others
            .map(|c| 2.0 * ((w / (c.period_ns.unwrap() as f64 / 1e6)).floor() + 1.0))
            .sum()
    };
    // The buffer and the callback that may run before the first one do not belong to it.
    let length = last - 1.0 - 2.0;
    assert!(
        (length - (20.0 + within(length))).abs() < 1e-6,
        "{last} {text}"
    );
    assert!(
        assumption(&made, "All 3 threads of 1 executor belong to server gamma").contains("CPU 1")
    );
    // Latencies that were measured at a real-time priority on that CPU contain the wait.
    for callback in &mut m.callbacks {
        callback.threads = vec![ThreadUse {
            comm: "p".into(),
            policy: "fifo".into(),
            priority: 19,
            cpus: vec![1],
        }];
    }
    let again = plan(&m, &hot_path(Strategy::Bands(1))).unwrap();
    assert_eq!(slots(server(&again, "delta")), [(23.0, 24.0)]);
    // The others need more than a cycle, so the plan is refused.
    let mut busy = reference(Form::Multi(2));
    let front = busy
        .callbacks
        .iter_mut()
        .find(|c| c.id.starts_with("/MPC"))
        .unwrap();
    front.figures.exec_ns = dist(&[30.0]);
    let refused = plan(&busy, &hot_path(Strategy::Bands(1))).unwrap_err();
    assert!(
        matches!(refused, PlanError::SharedTooLong { .. }),
        "{refused}"
    );
    let text = refused.to_string();
    assert!(
        text.contains("executors of their own") && !text.contains('\n'),
        "{text}"
    );
    // `fifo` makes a plan for measuring, without a promise about that wait.
    let fifo = plan(&busy, &hot_path(Strategy::Fifo)).unwrap();
    assert_eq!(fifo.promises.worst_ms, Ms(ms(20.0)));
    assumption(
        &fifo,
        "may wait for other callbacks for a whole cycle or longer",
    );
}

#[test]
fn with_one_executor_per_node_a_server_contains_only_callbacks_of_the_chains_nodes() {
    let m = reference(Form::PerNode);
    let made = plan(&m, &hot_path(Strategy::Bands(1))).unwrap();
    let adopted: Vec<&str> = made.callbacks.iter().map(|r| r.id.as_str()).collect();
    assert_eq!(
        adopted,
        [
            "/EuclideanClusterDetector:subscription(/EuclideanClusterSettings)",
            "/PointCloudFusion:subscription(/PointsTransformerRear)",
        ]
    );
    assert_eq!(slots(server(&made, "gamma")), [(0.0, 100.0)]);
    // The hot path's other threads share one CPU now: 2 ms each within 24 ms, and one of them
    // before the first callback starts.
    assert_eq!(slots(server(&made, "delta")), [(27.0, 28.0)]);
    assert!(assumption(&made, "on the threads of server gamma").contains("2 callbacks"));
}

#[test]
fn an_executor_gets_the_slots_of_all_its_callbacks_and_time_for_callbacks_outside_of_the_chain() {
    let m = reference(Form::PerNode);
    let alone =
        |id: &str| !id.starts_with("/EuclideanCluster") && !id.starts_with("/PointCloudFusion");
    let made = plan(&m, &hot_path(Strategy::ServerPerCallback)).unwrap();
    let of = |id: &str| {
        made.servers
            .iter()
            .find(|s| s.callbacks.iter().any(|c| c == id))
            .unwrap()
    };
    for id in HOT {
        let length: f64 = slots(of(id)).iter().map(|s| s.1 - s.0).sum();
        match alone(id) {
            true => assert!((length - 3.0).abs() < 1e-6, "{id} {length}"),
            false => assert!(length > 6.0, "{id} {length}"),
        }
    }
    let text = assumption(
        &made,
        "these callbacks run only in the slots of this server",
    );
    assert!(
        text.contains("may lose messages or a timer's calls"),
        "{text}"
    );
    // Two callbacks of one executor get one server with both slots.
    let mut two = common::synthetic();
    let (first, third) = (two.callbacks[0].id.clone(), two.callbacks[2].id.clone());
    two.executors
        .retain(|e| !e.callbacks.contains(&first) && !e.callbacks.contains(&third));
    two.executors.push(Executor {
        callbacks: vec![first.clone(), third],
        threads: 1,
    });
    let request = Request {
        strategy: Strategy::ServerPerCallback,
        outputs: OutputRequest {
            epsilon_ns: Some(ms(1.0)),
            ..OutputRequest::default()
        },
        ..Request::default()
    };
    let made = plan(&two, &request).unwrap();
    let both = made
        .servers
        .iter()
        .find(|s| s.callbacks.contains(&first))
        .unwrap();
    assert_eq!(slots(both), [(0.0, 16.0), (32.0, 48.0)]);
    assert_eq!(made.servers.len(), 4);
}

#[test]
fn an_executor_cannot_be_on_two_cpus_or_in_two_servers() {
    let refused = |m: &Model, r: &Request| {
        let text = plan(m, r).unwrap_err().to_string();
        assert!(!text.contains('\n') && text.len() < 400, "{text}");
        text
    };
    let m = reference(Form::Single);
    let mut request = hot_path(Strategy::Bands(1));
    request.cpus.of = vec![("/RayGroundFilter".into(), 0)];
    let text = refused(&m, &request);
    assert!(
        text.contains("/RayGroundFilter")
            && text.contains("CPU 0")
            && text.contains("executor of its own"),
        "{text}"
    );
    // The same callbacks in separate executors can be on two CPUs.
    assert!(plan(&reference(Form::PerNode), &request).is_ok());
    let mut request = hot_path(Strategy::Bands(1));
    request.background = vec!["/Visualizer".into()];
    assert!(refused(&m, &request).contains("executor"));
    assert!(plan(&reference(Form::PerNode), &request).is_ok());
    // A feeder shares its executor with a background callback.
    let mut shared = reference(Form::PerNode);
    shared.junctions = vec![onbeat_document::schema::Junction {
        callback: HOT[2].into(),
        kind: onbeat_document::schema::JunctionKind::And,
        inputs: vec![
            "/PointsTransformerRear:subscription(/RearLidarDriver)".into(),
            HOT[2].into(),
        ],
        criterion: "data_flow".into(),
        confidence: 1.0,
        state: onbeat_document::schema::JunctionState::Decided,
        matching: onbeat_document::schema::Matching::InTurn,
        readings: Vec::new(),
        settle: String::new(),
    }];
    let (rear, visualizer) = (
        "/PointsTransformerRear:subscription(/RearLidarDriver)",
        "/Visualizer:timer(60ms)",
    );
    assert!(plan(&shared, &request).is_ok());
    shared
        .executors
        .retain(|e| !e.callbacks.iter().any(|c| c == rear || c == visualizer));
    shared.executors.push(Executor {
        callbacks: vec![rear.into(), visualizer.into()],
        threads: 1,
    });
    let text = refused(&shared, &request);
    assert!(
        text.contains("'feeders'") && text.contains("'background'"),
        "{text}"
    );
}

/// Simulates executors that run in their slots and are never idle while they have work. Returns the
/// times in ns at which the chain ends. The chain begins at the start of each cycle. `chain` has
/// pairs of executor and execution time. `others` has callbacks as (executor, phase, period,
/// execution time). `picks` decides which of several waiting callbacks runs first.
fn ends(
    plan: &Plan,
    chain: &[(usize, u64)],
    others: &[(usize, u64, u64, u64)],
    picks: &[u8],
) -> Vec<u64> {
    const STEP: u64 = 100_000;
    let cycle = plan.cycle_ms.0;
    let open = |executor: usize, now: u64| {
        let name = format!("/n{executor}:");
        let server = plan
            .servers
            .iter()
            .find(|s| s.callbacks.iter().any(|c| c.starts_with(&name)))
            .unwrap();
        let at = now % cycle;
        server.slots_ms.is_empty() || server.slots_ms.iter().any(|s| s.0 .0 <= at && at < s.1 .0)
    };
    // The queue of each executor in order of execution. The chain's work has no number.
    let mut queues: Vec<Vec<(Option<usize>, u64)>> = vec![Vec::new(); 8];
    let (mut ends, mut step, mut turn, mut running) = (Vec::new(), 0, 0, None);
    for now in (0..12 * cycle).step_by(STEP as usize) {
        if now.is_multiple_of(cycle) {
            step = 0;
            queues[chain[0].0].push((None, chain[0].1));
        }
        for (i, &(executor, phase, period, time)) in others.iter().enumerate() {
            if now >= phase && (now - phase) % period < STEP {
                queues[executor].push((Some(i), time));
            }
        }
        // The running executor goes on while it may. Then any executor with work runs.
        let ready: Vec<usize> = (0..8)
            .filter(|&e| !queues[e].is_empty() && open(e, now))
            .collect();
        if ready.is_empty() {
            continue;
        }
        let executor = match running {
            Some(executor) if ready.contains(&executor) => executor,
            _ => {
                turn += 1;
                let executor = ready[picks[turn % picks.len()] as usize % ready.len()];
                let length = queues[executor].len();
                if usize::is_multiple_of(turn, 2) && length > 1 {
                    queues[executor].rotate_left(picks[turn % picks.len()] as usize % length);
                }
                executor
            }
        };
        running = Some(executor);
        let (of, left) = &mut queues[executor][0];
        *left -= STEP.min(*left);
        if *left == 0 {
            let of = *of;
            queues[executor].remove(0);
            running = None;
            if of.is_none() {
                step += 1;
                match chain.get(step) {
                    Some(&(next, time)) => queues[next].push((None, time)),
                    None => ends.push(now % cycle + STEP),
                }
            }
        }
    }
    ends
}

fn mixed(chain_of: &[(usize, u64)], others: &[(usize, u64, u64, u64)]) -> Model {
    let mut callbacks = Vec::new();
    let (mut ids, mut topics) = (Vec::new(), Vec::new());
    for (i, &(executor, time)) in chain_of.iter().enumerate() {
        let (id, kind) = match i {
            0 => (format!("/n{executor}:timer(100ms)"), CallbackType::Timer),
            _ => (
                format!("/n{executor}:subscription(/t{})", i - 1),
                CallbackType::Subscription,
            ),
        };
        let topic = format!("/t{i}");
        callbacks.push(callback(&id, kind, &[time as f64 / 1e6], &[&topic]));
        ids.push(id);
        topics.push(topic);
    }
    for (i, &(executor, _, period, time)) in others.iter().enumerate() {
        let id = format!("/n{executor}:subscription(/x{i})");
        let mut other = callback(&id, CallbackType::Subscription, &[time as f64 / 1e6], &[]);
        other.period_ns = Some(period);
        other.figures.load = time as f64 / period as f64;
        other.threads[0].policy = "other".into();
        callbacks.push(other);
    }
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
    let alone = chain_of.iter().map(|c| c.1).sum::<u64>() as f64 / 1e6;
    let mut m = model(callbacks, vec![chain("chain-1", &ids, &topics, &[alone])]);
    m.edges.clear();
    m
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_simulated_run_keeps_the_promises_of_its_plan(
        chain_of in prop::collection::vec((0usize..4, 5u64..60), 2..6),
        others in prop::collection::vec((0usize..4, 0u64..1000, 100u64..1500, 1u64..40), 0..5),
        picks in prop::collection::vec(any::<u8>(), 1..20),
        per_callback in any::<bool>(),
    ) {
        let tenth = 100_000;
        let chain_of: Vec<_> = chain_of.into_iter().map(|(e, t)| (e, t * tenth)).collect();
        let others: Vec<_> = others.into_iter().map(|(e, p, g, t)| (e, p * tenth, g * tenth, t * tenth)).collect();
        // Threads of other executors have no real-time priority, so only the chain's executors
        // count.
        let is_planned = |o: &(usize, u64, u64, u64)| chain_of.iter().any(|c| c.0 == o.0);
        let others: Vec<_> = others.into_iter().filter(is_planned).collect();
        let mut m = mixed(&chain_of, &others);
        // The measurement of a chain alone on one thread would contain its waits, so it gets two
        // threads.
        if m.executors.len() == 1 {
            m.executors[0].threads = 2;
        }
        let strategies = match per_callback {
            true => [Strategy::ServerPerCallback, Strategy::ServerPerChain],
            false => [Strategy::Bands(1), Strategy::Fifo],
        };
        for strategy in strategies {
            let request = Request {
strategy, outputs: OutputRequest { epsilon_ns: Some(0), slot_ns: Some(tenth),  ..OutputRequest::default() }, cpus: CpuRequest { default: Some(1), middleware: Some(0),  ..CpuRequest::default() }, ..Request::default()};
            let made = match plan(&m, &request) {
                Ok(made) => made,
                Err(refused) => {
                    prop_assert!(!refused.to_string().contains('\n'), "{}", refused);
                    continue;
                }
            };
            prop_assert_eq!(validate(&made), Ok(()));
            let gates = made.servers.iter().filter(|s| s.name != "delta");
            for server in gates.clone() {
                // Every thread is in one server only.
                for executor in &m.executors {
                    let inside = executor.callbacks.iter().filter(|c| server.callbacks.contains(c)).count();
                    prop_assert!(inside == 0 || inside == executor.callbacks.len());
                }
            }
            let mut spans: Vec<_> = gates.flat_map(|s| s.slots_ms.iter().map(|s| (s.0, s.1))).collect();
            spans.sort_unstable();
            prop_assert!(spans.windows(2).all(|w| w[0].1 <= w[1].0), "slots overlap: {:?}", spans);
            let ends = ends(&made, &chain_of, &others, &picks);
            let worst = made.promises.worst_ms.0;
            prop_assert!(ends.len() >= 11 || ends.is_empty() && worst == 0, "{} of 12 cycles", ends.len());
            for end in ends {
                prop_assert!(end <= worst, "{} ms of {} ms with {:?}: {:#?}", end as f64 / 1e6, worst as f64 / 1e6, strategy, made);
            }
        }
    }
}
