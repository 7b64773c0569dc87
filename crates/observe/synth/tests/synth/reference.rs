//! A simulation of Autoware's reference system: five nodes that fuse two inputs each, at 60 to 120
//! ms.

use super::structure::System;
use super::*;
use std::collections::{BTreeMap, HashMap};

#[derive(Clone, Copy)]
enum Behaviour {
    /// A sensor, which publishes with this period in ms.
    Sense(u64),
    Pass,
    /// A node that stores its two inputs. It publishes when both are there, and then clears them.
    Fuse,
    /// A node that stores its inputs and publishes with this period in ms.
    Plan(u64),
}

/// A node, its behaviour and its inputs. It publishes a topic of its own name.
type Node = (&'static str, Behaviour, &'static [&'static str]);

use Behaviour::{Fuse, Pass, Plan, Sense};
const NODES: &[Node] = &[
    ("front_lidar", Sense(100), &[]),
    ("rear_lidar", Sense(100), &[]),
    ("cloud_map", Sense(120), &[]),
    ("visualizer", Sense(60), &[]),
    ("lanelet_map", Sense(100), &[]),
    ("cluster_settings", Sense(25), &[]),
    ("front_points", Pass, &["front_lidar"]),
    ("rear_points", Pass, &["rear_lidar"]),
    ("map_loader", Pass, &["cloud_map"]),
    ("cloud_fusion", Fuse, &["front_points", "rear_points"]),
    ("ray_ground", Pass, &["cloud_fusion"]),
    ("voxel_grid", Pass, &["cloud_fusion"]),
    ("localizer", Fuse, &["voxel_grid", "map_loader"]),
    ("global_planner", Fuse, &["visualizer", "localizer"]),
    ("lanelet_loader", Fuse, &["lanelet_map", "global_planner"]),
    ("cluster", Pass, &["ray_ground"]),
    ("collision", Pass, &["cluster"]),
    ("parking", Pass, &["lanelet_loader"]),
    ("lane", Pass, &["lanelet_loader"]),
    (
        "behavior",
        Plan(100),
        &[
            "collision",
            "localizer",
            "global_planner",
            "lanelet_loader",
            "parking",
            "lane",
        ],
    ),
    ("mpc", Pass, &["behavior"]),
    ("vehicle", Fuse, &["mpc", "behavior"]),
    ("dbw", Pass, &["vehicle"]),
];

/// The queue of executions. The key is (time in us, number), the value is (node, input and its time
/// stamp).
type Due = BTreeMap<(u64, u64), (usize, Option<(usize, u64)>)>;

#[derive(Clone, Copy, PartialEq)]
enum Form {
    Processes,
    /// One process per node, like [`Form::Processes`], but times differ between executions.
    Varying,
    Executor(u32),
    PerNode,
}

/// Simulates all of [`NODES`] for `seconds` s. Transport takes 100 us, and a callback 1 ms.
pub fn reference(seconds: u64) -> System {
    simulate(seconds, NODES, Form::Processes)
}

pub fn reference_until(seconds: u64, last: &str) -> System {
    let end = NODES.iter().position(|n| n.0 == last).unwrap();
    simulate(seconds, &NODES[..=end], Form::Processes)
}

fn simulate(seconds: u64, nodes: &[Node], form: Form) -> System {
    let mut s = match form {
        Form::Processes | Form::Varying => System::new(),
        Form::Executor(_) | Form::PerNode => System::in_one_process(),
    };
    let topics: Vec<String> = nodes.iter().map(|n| format!("/{}", n.0)).collect();
    let place: HashMap<&str, usize> = nodes.iter().enumerate().map(|(i, n)| (n.0, i)).collect();
    let mut due = Due::new();
    let mut number = 0;
    let mut add = |due: &mut Due, t: u64, what| {
        number += 1;
        due.insert((t, number), what);
    };
    for (i, (name, does, inputs)) in nodes.iter().enumerate() {
        let inputs: Vec<&str> = inputs.iter().map(|n| topics[place[n]].as_str()).collect();
        let timers: &[u64] = match does {
            Sense(ms) | Plan(ms) => &[*ms],
            Pass | Fuse => &[],
        };
        s.node(name, timers, &inputs, &[&topics[i]]);
        for ms in timers {
            let phase = 1_000 + 1_700 * i as u64;
            let times = (0..).map(|k| phase + 1_000 * ms * k);
            for t in times.take_while(|t| *t < 1_000_000 * seconds) {
                add(&mut due, 1_000_000 + t, (i, None));
            }
        }
    }
    let mut count = 0;
    let mut free = vec![0; nodes.len()];
    let mut threads = match form {
        Form::Executor(threads) => vec![0; threads as usize],
        Form::Processes | Form::Varying | Form::PerNode => vec![0; nodes.len()],
    };
    let mut stored = vec![[false; 2]; nodes.len()];
    while let Some(((due_at, _), (i, input))) = due.pop_first() {
        // The thread that is free first. No node runs on two threads at once.
        let thread = match form {
            Form::Executor(_) => (0..threads.len()).min_by_key(|&n| threads[n]).unwrap(),
            Form::Processes | Form::Varying | Form::PerNode => i,
        };
        s.on(i, thread as u32);
        let t = due_at.max(free[i]).max(threads[thread]);
        count += 1;
        let more = match form {
            Form::Varying => count * 2_654_435_761 % 700,
            _ => 0,
        };
        let run = 1_000 + more;
        (free[i], threads[thread]) = (t + run + 100, t + run + 100);
        let publishes = match (nodes[i].1, input) {
            (Plan(_), Some(_)) => false,
            (Fuse, Some((k, _))) => {
                stored[i][k] = true;
                let both = stored[i] == [true, true];
                if both {
                    stored[i] = [false; 2];
                }
                both
            }
            _ => true,
        };
        let outputs: &[usize] = if publishes { &[0] } else { &[] };
        match input {
            None => s.timer(t, i, 0, outputs, run),
            Some((k, stamp)) => s.take(t, i, k, stamp, outputs, run),
        }
        if publishes {
            for (j, node) in nodes.iter().enumerate() {
                if let Some(k) = node.2.iter().position(|n| *n == nodes[i].0) {
                    add(
                        &mut due,
                        t + 600 + more / 2,
                        (j, Some((k, System::stamp(t, 0)))),
                    );
                }
            }
        }
    }
    s
}

const FUSIONS: [&str; 5] = [
    "cloud_fusion",
    "localizer",
    "global_planner",
    "lanelet_loader",
    "vehicle",
];

fn check_none_dropped(m: &Model) {
    assert!(m.chains.iter().all(|c| c.figures.dropped == 0));
    let said = |c: &&String| c.contains("were dropped");
    assert_eq!(m.coverage.iter().find(said), None);
}

#[test]
fn in_the_reference_system_no_lineage_is_lost_and_no_wrong_junction_is_decided() {
    let m = reference(20).model();
    check_none_dropped(&m);
    for node in FUSIONS {
        let of = |j: &&Junction| j.callback.starts_with(&format!("/{node}:"));
        let found: Vec<_> = m.junctions.iter().filter(of).collect();
        assert_eq!(found.len(), 1, "{node}: {:#?}", m.junctions);
        let both = |kind, inputs: &[String]| kind == JunctionKind::And && inputs.len() == 2;
        let open = |j: &Junction| j.readings.iter().any(|r| both(r.kind, &r.inputs));
        let (found, decided) = (found[0], JunctionState::Decided);
        let known = found.state == decided && both(found.kind, &found.inputs);
        assert!(known || open(found), "{node}: {found:#?}");
    }
    // If the junctions are stated, all fusions are followed, and still no lineage is dropped.
    let mut options = SynthOptions::new(run("r1", DEFAULT_MODE));
    let and = |node| format!("/{node} -> /{node} = and").parse().unwrap();
    options.junctions = FUSIONS.map(and).into();
    let settled = model_of(&reference(6).trace(), options);
    check_none_dropped(&settled);
    for node in FUSIONS {
        let sync = format!("/{node}:sync(/{node})");
        let of = |j: &&Junction| j.callback == sync;
        let j = settled.junctions.iter().find(of).unwrap();
        assert_eq!((j.state, j.inputs.len()), (JunctionState::Stated, 2));
    }
    assert!(settled.chains.iter().all(|c| !c.ambiguous));
}

#[test]
fn the_model_file_of_the_reference_system_is_small() {
    let m = simulate(60, NODES, Form::Varying).model();
    let exec = &callback(&m, "/front_lidar:timer(100ms)").figures.exec_ns;
    assert!(exec.buckets().count() > 300, "times vary");
    let mut file = Vec::new();
    onbeat_document::file::write(&mut file, &m).unwrap();
    println!("{} bytes", file.len());
    assert!(file.len() < 700_000, "{} bytes", file.len());
}

fn executors(m: &Model) -> Vec<(usize, usize)> {
    let executor = |e: &Executor| (e.callbacks.len(), e.threads);
    m.executors.iter().map(executor).collect()
}

#[test]
fn callbacks_that_share_threads_belong_to_one_executor() {
    let of = |form| simulate(6, NODES, form).model();
    // Synchronisers run within other callbacks.
    let ran = |m: &Model| {
        let runs = |c: &&Callback| c.kind != CallbackType::Sync;
        m.callbacks.iter().filter(runs).count()
    };
    let one = of(Form::Executor(1));
    assert_eq!(executors(&one), [(ran(&one), 1)]);
    let pool = of(Form::Executor(3));
    assert_eq!(executors(&pool), [(ran(&pool), 3)]);
    for m in [of(Form::PerNode), of(Form::Processes)] {
        assert_eq!(m.executors.len(), NODES.len());
        for executor in &m.executors {
            let node = |id: &String| id.split(':').next().unwrap().to_string();
            let nodes: std::collections::BTreeSet<_> =
                executor.callbacks.iter().map(node).collect();
            assert_eq!((nodes.len(), executor.threads), (1, 1), "{executor:?}");
        }
        let listed: usize = executors(&m).iter().map(|e| e.0).sum();
        assert_eq!(listed, ran(&m), "each callback is in one executor");
    }
}

#[test]
fn executors_of_several_runs_are_united_in_any_order() {
    let named = |form, id: &str| {
        let mut m = simulate(2, NODES, form).model();
        let evidence = serde_json::to_string(&m.evidence).unwrap();
        m.evidence =
            serde_json::from_str(&evidence.replace("\"r1\"", &format!("\"{id}\""))).unwrap();
        m.runs[0].id = id.into();
        for callback in &mut m.callbacks {
            let extremes = std::mem::take(&mut callback.per_run).into_values();
            callback.per_run = extremes.map(|e| (id.to_string(), e)).collect();
        }
        m
    };
    let all = [
        named(Form::PerNode, "a"),
        named(Form::Executor(2), "b"),
        named(Form::Executor(1), "c"),
    ];
    let merged = |order: [usize; 3]| {
        let models = order.iter().map(|&i| all[i].clone()).collect();
        onbeat_document::merge(models).unwrap()
    };
    let m = merged([0, 1, 2]);
    // In the first run, all threads of the process run these callbacks.
    assert_eq!(
        executors(&m),
        [(all[1].executors[0].callbacks.len(), NODES.len())]
    );
    for order in [[2, 1, 0], [1, 0, 2], [0, 2, 1]] {
        assert_eq!(merged(order).executors, m.executors);
    }
    let twice = onbeat_document::merge(vec![
        onbeat_document::merge(vec![all[0].clone(), all[2].clone()]).unwrap(),
        all[1].clone(),
    ]);
    assert_eq!(twice.unwrap().executors, m.executors);
}
