//! Models made by hand, for tests, pictures and trying out reports: figures are drawn from a fixed
//! pseudo-random sequence, so every call gives the same.
#![allow(dead_code)] // Each user takes another part.

use onbeat_model::schema::*;
use onbeat_model::Dist;
use std::collections::{BTreeMap, BTreeSet};

/// A fixed pseudo-random sequence (xorshift64*).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
    /// 0 to 1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
    /// About normal: mean 0, deviation 1.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }
}

/// `mean` ms, spread as a share of it, `tail`: share of values that are up to three times as long.
fn sample(random: &mut Random, mean_ms: f64, spread: f64, tail: f64) -> u64 {
    let mut v = mean_ms * (spread * random.normal()).exp();
    if random.unit() < tail {
        v *= 1.0 + 2.0 * random.unit();
    }
    (v * 1e6) as u64
}

fn dist(random: &mut Random, count: usize, mean_ms: f64, spread: f64, tail: f64) -> Dist {
    let mut d = Dist::new();
    for _ in 0..count {
        d.record(sample(random, mean_ms, spread, tail));
    }
    d
}

/// Puts a model together.
pub struct Builder {
    pub model: Model,
    random: Random,
    count: usize,
}

impl Builder {
    pub fn new(seed: u64, runs: usize, per_run: usize) -> Self {
        let runs = (0..runs)
            .map(|i| Run {
                id: format!("20261121-2{i:02}000-{:04x}", 7919 * (i + 1)),
                mode: DEFAULT_MODE.into(),
                distribution: vec!["kilted".into()],
                start: 1_795_000_000_000_000_000 + i as u64 * 90_000_000_000,
                duration_ns: per_run as u64 * 100_000_000,
                lost: if i == 1 {
                    BTreeMap::from([("sched_switch".to_string(), 12u64)])
                } else {
                    BTreeMap::new()
                },
                events: 40_000,
            })
            .collect();
        Builder {
            model: Model {
                schema: SCHEMA.into(),
                runs,
                callbacks: vec![],
                edges: vec![],
                junctions: vec![],
                chains: vec![],
                assumptions: vec![],
                coverage: vec![],
                evidence: serde_json::Value::Null,
            },
            random: Random::new(seed),
            count: per_run,
        }
    }

    /// Adds a callback; gives its id.
    pub fn callback(
        &mut self,
        node: &str,
        kind: CallbackType,
        input: &str,
        period_ms: Option<u64>,
        mean_ms: f64,
        outputs: &[&str],
    ) -> String {
        let base = match kind {
            CallbackType::Timer => format!("{node}:timer({}ms)", period_ms.unwrap_or(100)),
            CallbackType::Subscription => format!("{node}:subscription({input})"),
            CallbackType::Service => format!("{node}:service({input})"),
            CallbackType::Client => format!("{node}:client({input})"),
            CallbackType::Sync => format!("{node}:sync({})", outputs.first().unwrap_or(&"")),
        };
        let mut id = base.clone();
        let mut n = 2;
        while self.model.callbacks.iter().any(|c| c.id == id) {
            id = format!("{base}#{n}");
            n += 1;
        }
        let r = &mut self.random;
        let period = period_ms.unwrap_or(100);
        let mut per_run = BTreeMap::new();
        let mut exec = Dist::new();
        for run in &self.model.runs {
            let d = dist(r, self.count, mean_ms, 0.12, 0.01);
            per_run.insert(
                run.id.clone(),
                RunExtremes {
                    start: run.start,
                    count: d.count(),
                    min_ns: d.min(),
                    mean_ns: d.mean(),
                    max_ns: d.max(),
                },
            );
            exec.merge(&d);
        }
        let observed: u64 = self.model.runs.iter().map(|r| r.duration_ns).sum();
        let all = self.count * self.model.runs.len();
        let figures = CallbackFigures {
            load: exec.sum() as f64 / observed.max(1) as f64,
            response_ns: dist(r, all, mean_ms * 1.1 + 0.1, 0.15, 0.02),
            interarrival_ns: dist(r, all, period as f64, 0.004, 0.0),
            release_jitter_ns: if kind == CallbackType::Timer {
                dist(r, all, 0.06, 0.5, 0.01)
            } else {
                Dist::new()
            },
            preempted_ns: dist(r, all, 0.02, 0.8, 0.05),
            blocked_ns: Dist::new(),
            preemptions: (all / 7) as u64,
            blockings: 0,
            exec_ns: exec,
            observed_ns: observed,
        };
        let mut outputs: Vec<String> = outputs.iter().map(|s| s.to_string()).collect();
        outputs.sort();
        self.model.callbacks.push(Callback {
            id: id.clone(),
            node: node.into(),
            kind,
            input: if kind == CallbackType::Timer {
                String::new()
            } else {
                input.into()
            },
            caller: None,
            period_ns: Some(period * 1_000_000),
            outputs,
            bracket: Bracket::Inferred,
            symbol: None,
            figures,
            modes: BTreeMap::new(),
            threads: vec![ThreadUse {
                comm: "python3".into(),
                policy: "other".into(),
                priority: 120,
                cpus: vec![0, 1],
            }],
            per_run,
        });
        id
    }

    /// Adds an edge.
    pub fn edge(&mut self, from: &str, to: &str, topic: &str) {
        let all = (self.count * self.model.runs.len()) as u64;
        let r = &mut self.random;
        let lost = if r.unit() < 0.2 { all / 50 } else { 0 };
        let figures = EdgeFigures {
            latency_ns: dist(r, all as usize, 0.6, 0.3, 0.02),
            transport_ns: dist(r, all as usize, 0.25, 0.2, 0.02),
            waiting_ns: dist(r, all as usize, 0.3, 0.4, 0.02),
            published: all,
            taken: all - lost,
            lost,
            overwritten: lost / 2,
        };
        self.model.edges.push(Edge {
            from: from.into(),
            to: to.into(),
            topic: topic.into(),
            assumed: false,
            intra_process: false,
            figures,
            modes: BTreeMap::new(),
        });
    }

    /// Adds every path from a source to a sink as a chain, at most `limit`.
    pub fn chains(&mut self, limit: usize) {
        let targets: BTreeSet<_> = self.model.edges.iter().map(|e| e.to.clone()).collect();
        let mut stack: Vec<(Vec<String>, Vec<String>)> = self
            .model
            .callbacks
            .iter()
            .filter(|c| !targets.contains(&c.id))
            .map(|c| (vec![c.id.clone()], vec![]))
            .collect();
        stack.reverse();
        while let Some((path, topics)) = stack.pop() {
            let last = path.last().unwrap().clone();
            let mut next: Vec<_> = self
                .model
                .edges
                .iter()
                .filter(|e| e.from == last && !path.contains(&e.to))
                .map(|e| (e.to.clone(), e.topic.clone()))
                .collect();
            next.reverse();
            if next.is_empty() {
                if path.len() > 1 && self.model.chains.len() < limit {
                    self.chain(path, topics);
                }
                continue;
            }
            for (to, topic) in next {
                let (mut p, mut t) = (path.clone(), topics.clone());
                p.push(to);
                t.push(topic);
                stack.push((p, t));
            }
        }
    }

    fn chain(&mut self, callbacks: Vec<String>, mut topics: Vec<String>) {
        let executions = (self.count * self.model.runs.len()) as u64;
        let mut means = Vec::new();
        for (i, id) in callbacks.iter().enumerate() {
            let c = self.model.callbacks.iter().find(|c| &c.id == id).unwrap();
            means.push((
                "callback",
                id.clone(),
                c.figures.response_ns.mean().max(1e3),
            ));
            if let Some(topic) = topics.get(i) {
                let e = self
                    .model
                    .edges
                    .iter()
                    .find(|e| &e.from == id && &e.topic == topic)
                    .unwrap();
                means.push(("edge", topic.clone(), e.figures.latency_ns.mean()));
            }
        }
        let total: f64 = means.iter().map(|m| m.2).sum();
        let latency = dist(
            &mut self.random,
            executions as usize,
            total / 1e6,
            0.12,
            0.03,
        );
        let hash = callbacks
            .iter()
            .flat_map(|c| c.bytes())
            .fold(0xcbf2_9ce4_8422_2325u64, |h, b| {
                (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3)
            });
        if let Some(o) = self
            .model
            .callbacks
            .iter()
            .find(|c| Some(&c.id) == callbacks.last())
            .and_then(|c| c.outputs.first())
        {
            topics.push(o.clone());
        }
        self.model.chains.push(Chain {
            id: format!("chain-{:08x}", hash >> 32),
            callbacks,
            topics,
            assumed: false,
            from_input: false,
            figures: ChainFigures {
                executions,
                jitter_ns: (latency.max() - latency.min()) / 2,
                lost: executions / 100,
                shares: means
                    .into_iter()
                    .map(|(element, name, mean)| Share {
                        element: element.into(),
                        name,
                        sum_ns: format!("{}", (mean * executions as f64) as u128),
                        mean_ns: mean,
                        fraction: mean / total,
                    })
                    .collect(),
                latency_ns: latency,
            },
            modes: BTreeMap::new(),
        });
    }

    /// Sorted as the schema says.
    pub fn finish(mut self) -> Model {
        let m = &mut self.model;
        m.callbacks.sort_by(|a, b| a.id.cmp(&b.id));
        m.edges
            .sort_by(|a, b| (&a.from, &a.to, &a.topic).cmp(&(&b.from, &b.to, &b.topic)));
        m.junctions.sort_by(|a, b| a.callback.cmp(&b.callback));
        m.chains.sort_by(|a, b| a.id.cmp(&b.id));
        self.model
    }
}

use CallbackType::{Client, Service, Subscription, Sync, Timer};

/// The localisation part of autonomous valet parking (Figure 3.8b), merged over `runs` runs.
pub fn parking(runs: usize) -> Model {
    let mut b = Builder::new(1, runs, 120);
    let front = b.callback(
        "/lidar_front",
        Timer,
        "",
        Some(100),
        4.1,
        &["/lidars/front/points"],
    );
    let rear = b.callback(
        "/lidar_rear",
        Timer,
        "",
        Some(100),
        3.4,
        &["/lidars/rear/points"],
    );
    let filter_front = b.callback(
        "/filter_transform_front",
        Subscription,
        "/lidars/front/points",
        None,
        27.1,
        &["/lidars/front/points_filtered"],
    );
    let filter_rear = b.callback(
        "/filter_transform_rear",
        Subscription,
        "/lidars/rear/points",
        None,
        17.1,
        &["/lidars/rear/points_filtered"],
    );
    let sub = |side: &str| format!("/lidars/{side}/points_filtered");
    let fusion_front = b.callback(
        "/point_cloud_fusion",
        Subscription,
        &sub("front"),
        None,
        3.1,
        &["/lidars/points_fused"],
    );
    let fusion_rear = b.callback(
        "/point_cloud_fusion",
        Subscription,
        &sub("rear"),
        None,
        0.62,
        &["/lidars/points_fused"],
    );
    let fusion = b.callback(
        "/point_cloud_fusion",
        Sync,
        "",
        None,
        0.001,
        &["/lidars/points_fused"],
    );
    if let Some(c) = b.model.callbacks.last_mut() {
        c.figures = CallbackFigures::default();
        c.period_ns = None;
        c.per_run.clear();
    }
    let voxel = b.callback(
        "/voxel_grid",
        Subscription,
        "/lidars/points_fused",
        None,
        8.47,
        &["/lidars/points_downsampled"],
    );
    let localiser = b.callback(
        "/ndt_localizer",
        Subscription,
        "/lidars/points_downsampled",
        None,
        25.6,
        &["/localization/ndt_pose"],
    );
    b.edge(&front, &filter_front, "/lidars/front/points");
    b.edge(&rear, &filter_rear, "/lidars/rear/points");
    b.edge(&filter_front, &fusion_front, &sub("front"));
    b.edge(&filter_rear, &fusion_rear, &sub("rear"));
    b.edge(&fusion_front, &fusion, &sub("front"));
    b.edge(&fusion_rear, &fusion, &sub("rear"));
    b.edge(&fusion, &voxel, "/lidars/points_fused");
    b.edge(&voxel, &localiser, "/lidars/points_downsampled");
    let mut inputs = vec![fusion_front, fusion_rear];
    inputs.sort();
    b.model.junctions.push(Junction {
        callback: fusion,
        kind: JunctionKind::And,
        inputs,
        criterion: "data_flow".into(),
        confidence: 0.99,
    });
    b.model.coverage.push("Callbacks of rclpy have no start and end tracepoints: their brackets are inferred from the executor's calls.".into());
    b.chains(20);
    b.finish()
}

/// Twenty nodes with sixty callbacks: an automated car as integrators know it, wired at random
/// but forward, with services, synchronisers, OR junctions, divergence, and one loop.
pub fn sixty() -> Model {
    const NODES: [&str; 20] = [
        "/sensing/lidar/top/driver",
        "/sensing/lidar/left/driver",
        "/sensing/camera/front/driver",
        "/sensing/imu/corrector",
        "/sensing/lidar/concatenate_filter",
        "/perception/ground_segmentation",
        "/perception/object_recognition/detection/clustering",
        "/perception/object_recognition/tracking",
        "/perception/traffic_light_classifier",
        "/localization/ndt_scan_matcher",
        "/localization/ekf_localizer",
        "/map/vector_map_loader",
        "/planning/mission_planner",
        "/planning/behavior_path_planner",
        "/planning/motion_velocity_smoother",
        "/control/trajectory_follower",
        "/control/vehicle_cmd_gate",
        "/vehicle/can_interface",
        "/system/diagnostics_aggregator",
        "/system/emergency_handler",
    ];
    const WORDS: [&str; 12] = [
        "points_raw",
        "image",
        "objects",
        "pose",
        "twist",
        "route",
        "trajectory",
        "status",
        "ground_removed_points",
        "lanelets",
        "command",
        "kinematic_state",
    ];
    let mut b = Builder::new(60, 3, 60);
    let mut r = Random::new(5);
    // (id, topic) of what may be subscribed to, in order of the stages.
    let mut offers: Vec<(String, String, usize)> = Vec::new();
    let topic = |node: &str, r: &mut Random, n: usize| {
        format!(
            "{node}/{}{}",
            WORDS[r.below(12)],
            if n > 0 { n.to_string() } else { String::new() }
        )
    };
    for (stage, node) in NODES.iter().enumerate() {
        if stage < 4 || stage % 5 == 0 {
            let t = topic(node, &mut r, 0);
            let ms = [10, 20, 33, 50, 100][r.below(5)];
            let id = b.callback(node, Timer, "", Some(ms), 0.3 + 6.0 * r.unit(), &[&t]);
            offers.push((id, t, stage));
        }
        let mut n = 1;
        while b.model.callbacks.len() < 3 * (stage + 1) - 1 && !offers.is_empty() {
            let recent: Vec<_> = offers.iter().filter(|o| o.2 < stage.max(1)).collect();
            if recent.is_empty() {
                break;
            }
            let back = r.below(recent.len().min(9));
            let (from, input, _) = recent[recent.len() - 1 - back].clone();
            let publishes = r.unit() < 0.75;
            let out = topic(node, &mut r, n);
            let outs: Vec<&str> = if publishes { vec![&out] } else { vec![] };
            let id = b.callback(
                node,
                Subscription,
                &input,
                None,
                0.05 + 20.0 * r.unit() * r.unit(),
                &outs,
            );
            b.edge(&from, &id, &input);
            if publishes {
                offers.push((id, out, stage));
            }
            n += 1;
        }
    }
    // A service with two callers, each vertex with its answer.
    for (caller, at) in [
        ("/planning/mission_planner", 12),
        ("/planning/behavior_path_planner", 13),
    ] {
        let asks = b
            .model
            .callbacks
            .iter()
            .find(|c| c.node == NODES[at] && c.kind != Client)
            .unwrap()
            .id
            .clone();
        let service = b.callback(
            "/map/vector_map_loader",
            Service,
            "/map/get_lanelets",
            None,
            2.5,
            &["/map/get_lanelets/response"],
        );
        let renamed = format!("/map/vector_map_loader:service(/map/get_lanelets)@{caller}");
        let c = b.model.callbacks.last_mut().unwrap();
        c.id = renamed.clone();
        c.caller = Some(caller.into());
        let _ = service;
        let answer = b.callback(caller, Client, "/map/get_lanelets", None, 0.4, &[]);
        b.edge(&asks, &renamed, "/map/get_lanelets/request");
        b.edge(&renamed, &answer, "/map/get_lanelets/response");
    }
    // Fill up to sixty with consumers of what is already there, one of them an OR junction.
    let mut k = 0;
    while b.model.callbacks.len() < 58 {
        let (from, t, _) = offers[(k * 7) % offers.len()].clone();
        let node = NODES[18 + k % 2];
        let id = b.callback(node, Subscription, &t, None, 0.04, &[]);
        b.edge(&from, &id, &t);
        k += 1;
    }
    let two: Vec<_> = offers.iter().rev().take(2).cloned().collect();
    let or = b.callback(
        NODES[19],
        Subscription,
        "/diagnostics",
        None,
        0.3,
        &["/system/emergency"],
    );
    for (from, _, _) in &two {
        b.edge(from, &or, "/diagnostics");
    }
    let mut inputs: Vec<_> = two.iter().map(|o| o.0.clone()).collect();
    inputs.sort();
    b.model.junctions.push(Junction {
        callback: or.clone(),
        kind: JunctionKind::Or,
        inputs,
        criterion: "several_publishers".into(),
        confidence: 1.0,
    });
    // A loop: the emergency state goes back to planning.
    let planner = b.callback(
        NODES[13],
        Subscription,
        "/system/emergency",
        None,
        0.2,
        &["/planning/hold"],
    );
    b.edge(&or, &planner, "/system/emergency");
    let to = offers
        .iter()
        .find(|o| o.2 == 14)
        .or(offers.last())
        .unwrap()
        .0
        .clone();
    b.edge(&planner, &to, "/planning/hold");
    if let Some(first) = b.model.edges.last_mut() {
        first.assumed = true;
    }
    b.model
        .assumptions
        .push("The link /planning/hold stands on an annotation, not on the trace.".into());
    b.chains(24);
    b.finish()
}

/// Names as an attacker or an accident would choose them.
pub fn hostile() -> Model {
    let mut b = Builder::new(3, 2, 40);
    let evil = "<script>alert(1)</script>";
    let long = format!("/{}", "very_long_name_".repeat(40));
    let a = b.callback(
        "/n\"1'\n\x1b[31m",
        Timer,
        "",
        Some(10),
        1.0,
        &[evil, "=cmd|' /C calc'!A0", "/]]>--><b>&amp;"],
    );
    let c = b.callback(
        &long,
        Subscription,
        evil,
        None,
        2.0,
        &["/\u{202e}gnp.exe\u{0}"],
    );
    let d = b.callback(
        "- key: [1, {",
        Subscription,
        "=cmd|' /C calc'!A0",
        None,
        0.5,
        &[],
    );
    let e = b.callback(
        "\\\"; }digraph{",
        Subscription,
        "/]]>--><b>&amp;",
        None,
        0.5,
        &["x\\"],
    );
    b.edge(&a, &c, evil);
    b.edge(&a, &d, "=cmd|' /C calc'!A0");
    b.edge(&a, &e, "/]]>--><b>&amp;");
    b.edge(&e, &e, "x\\");
    b.model
        .assumptions
        .push("<img src=x onerror=alert(1)>".into());
    b.model.runs[0].mode = "</style><script>alert(2)</script>".into();
    b.model.runs[0].lost.insert("<b>probe</b>".into(), 3);
    b.chains(9);
    b.finish()
}

/// A recording in which nothing happened.
pub fn empty() -> Model {
    Builder::new(4, 1, 10).finish()
}

/// All of them, with their names.
pub fn all() -> Vec<(&'static str, Model)> {
    vec![
        ("parking", parking(12)),
        ("sixty", sixty()),
        ("hostile", hostile()),
        ("empty", empty()),
    ]
}
