//! Hand-made models for tests, pictures and trying out reports.
#![allow(dead_code, unused_imports)] // Each user takes another part.

mod builder;

pub use builder::{Builder, Random};

use onbeat_document::schema::{Assumed, CallbackFigures, CallbackType, Junction, JunctionKind};
use onbeat_document::Model;
use CallbackType::{Client, Service, Subscription, Sync, Timer};

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

/// Builds the localisation part of autonomous valet parking (thesis Figure 3.8b), merged over
/// `runs` runs.
pub fn parking(runs: usize) -> Model {
    let mut b = Builder::new(1, runs, 120);
    let (raw, filtered) = ("/lidars/front/points", "/lidars/front/points_filtered");
    let (raw_rear, filtered_rear) = ("/lidars/rear/points", "/lidars/rear/points_filtered");
    let (fused, downsampled) = ("/lidars/points_fused", "/lidars/points_downsampled");
    let mut timer = |node, mean, topic| b.callback(node, Timer, "", Some(100), mean, &[topic]);
    let front = timer("/lidar_front", 4.1, raw);
    let rear = timer("/lidar_rear", 3.4, raw_rear);
    let mut takes =
        |node, input, mean, topic| b.callback(node, Subscription, input, None, mean, &[topic]);
    let filter_front = takes("/filter_transform_front", raw, 27.1, filtered);
    let filter_rear = takes("/filter_transform_rear", raw_rear, 17.1, filtered_rear);
    let fusion_front = takes("/point_cloud_fusion", filtered, 3.1, fused);
    let fusion_rear = takes("/point_cloud_fusion", filtered_rear, 0.62, fused);
    let fusion = b.callback("/point_cloud_fusion", Sync, "", None, 0.001, &[fused]);
    if let Some(c) = b.model.callbacks.last_mut() {
        c.figures = CallbackFigures::default();
        c.period_ns = None;
        c.per_run.clear();
    }
    let mut takes =
        |node, input, mean, topic| b.callback(node, Subscription, input, None, mean, &[topic]);
    let voxel = takes("/voxel_grid", fused, 8.47, downsampled);
    let localiser = takes(
        "/ndt_localizer",
        downsampled,
        25.6,
        "/localization/ndt_pose",
    );
    for (from, to, topic) in [
        (&front, &filter_front, raw),
        (&rear, &filter_rear, raw_rear),
        (&filter_front, &fusion_front, filtered),
        (&filter_rear, &fusion_rear, filtered_rear),
        (&fusion_front, &fusion, filtered),
        (&fusion_rear, &fusion, filtered_rear),
        (&fusion, &voxel, fused),
        (&voxel, &localiser, downsampled),
    ] {
        b.edge(from, to, topic);
    }
    let mut inputs = vec![fusion_front, fusion_rear];
    inputs.sort();
    b.model.junctions.push(Junction {
        callback: fusion,
        kind: JunctionKind::And,
        inputs,
        criterion: "data_flow".into(),
        confidence: 0.99,
        state: onbeat_document::schema::JunctionState::Decided,
        matching: onbeat_document::schema::Matching::InTurn,
        readings: Vec::new(),
        settle: String::new(),
    });
    b.model.coverage.push("Callbacks of rclpy have no start and end tracepoints: their brackets are inferred from the executor's calls.".into());
    b.chains(20);
    b.finish()
}

/// Builds the model of an automated car with 20 nodes and 60 callbacks. Its random edges lead
/// forwards, except for one loop. The model has services, synchronisers and OR junctions.
pub fn sixty() -> Model {
    let mut b = Builder::new(60, 3, 60);
    let offers = stages(&mut b);
    service(&mut b);
    fill_up(&mut b, &offers);
    let or = or_junction(&mut b, &offers);
    feed_back(&mut b, &or, &offers);
    b.model
        .assumptions
        .push("The link /planning/hold stands on an annotation, not on the trace.".into());
    b.chains(24);
    b.finish()
}

type Offer = (String, String, usize);

fn stages(b: &mut Builder) -> Vec<Offer> {
    let mut r = Random::new(5);
    let mut offers: Vec<Offer> = Vec::new();
    let topic = |node: &str, r: &mut Random, n: usize| {
        let number = if n > 0 { n.to_string() } else { String::new() };
        format!("{node}/{}{number}", WORDS[r.below(12)])
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
    offers
}

fn service(b: &mut Builder) {
    for (caller, at) in [
        ("/planning/mission_planner", 12),
        ("/planning/behavior_path_planner", 13),
    ] {
        let mut callbacks = b.model.callbacks.iter();
        let asks = callbacks.find(|c| c.node == NODES[at] && c.kind != Client);
        let asks = asks.unwrap().id.clone();
        b.callback(
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
        let answer = b.callback(caller, Client, "/map/get_lanelets", None, 0.4, &[]);
        b.edge(&asks, &renamed, "/map/get_lanelets/request");
        b.edge(&renamed, &answer, "/map/get_lanelets/response");
    }
}

fn fill_up(b: &mut Builder, offers: &[Offer]) {
    let mut k = 0;
    while b.model.callbacks.len() < 58 {
        let (from, t, _) = offers[(k * 7) % offers.len()].clone();
        let node = NODES[18 + k % 2];
        let id = b.callback(node, Subscription, &t, None, 0.04, &[]);
        b.edge(&from, &id, &t);
        k += 1;
    }
}

fn or_junction(b: &mut Builder, offers: &[Offer]) -> String {
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
        state: onbeat_document::schema::JunctionState::Decided,
        matching: onbeat_document::schema::Matching::InTurn,
        readings: Vec::new(),
        settle: String::new(),
    });
    or
}

fn feed_back(b: &mut Builder, or: &str, offers: &[Offer]) {
    let planner = b.callback(
        NODES[13],
        Subscription,
        "/system/emergency",
        None,
        0.2,
        &["/planning/hold"],
    );
    b.edge(or, &planner, "/system/emergency");
    let to = offers
        .iter()
        .find(|o| o.2 == 14)
        .or(offers.last())
        .unwrap()
        .0
        .clone();
    b.edge(&planner, &to, "/planning/hold");
    if let Some(first) = b.model.edges.last_mut() {
        first.assumed = Some(Assumed::Stated);
    }
}

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

pub fn empty() -> Model {
    Builder::new(4, 1, 10).finish()
}

pub fn all() -> Vec<(&'static str, Model)> {
    vec![
        ("parking", parking(12)),
        ("sixty", sixty()),
        ("hostile", hostile()),
        ("empty", empty()),
    ]
}
