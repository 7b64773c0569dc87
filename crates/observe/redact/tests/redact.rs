//! Tests that a redacted model gives the same answers about its interface, and contains no byte of
//! a hidden name.
#[path = "../../document/examples/models/generate.rs"]
mod generate;

use generate::Random;
use onbeat_check::check;
use onbeat_document::schema::{
    CallbackType, Cause, Component, ComponentKind, Endpoint, EndpointKind, Helper, Model,
};
use onbeat_redact::{cuts, read, redact, Key, Policy, Visible};
use std::collections::BTreeSet;

fn key(text: &str) -> Key {
    Key::new(text.as_bytes()).expect("long enough")
}

const PARKING: &str = "\
visible:
  nodes: [/lidar_front, /lidar_rear]
  topics: [/lidars/front/points, /lidars/rear/points, /localization/ndt_pose]
  hosts: [robot]
";

const PARKING_LIMITS: &str = "\
chains:
  - {from: /lidar_front, to: /localization/ndt_pose, latency: {p50: 90ms, p90: 120ms, max: 1s}, jitter: 60ms, loss: 1%}
  - {from: /lidar_rear, to: /localization/ndt_pose, latency: {mean: 50ms, min: 1ms}, reaction: {p90: 300ms}}
callbacks:
  - {node: /lidar_front, execution: {p90: 5ms, max: 1ms}, period: {mean: 90ms..110ms}, load: 10%, threads: {policy: other}}
topics:
  - {topic: /lidars/front/points, rate: 9Hz..11Hz, latency: {p90: 5ms}, waiting: {p50: 1ns}, loss: 0%}
  - {topic: /lidars/rear/points, rate: 20Hz.., overwritten: 5%}
structure:
  paths: [[/lidar_front, /localization/ndt_pose], [/lidars/rear/points, /localization/ndt_pose]]
  no_paths: [[/lidar_rear, /lidar_front]]
  writers: {/lidars/front/points: [/lidar_front], /lidars/rear/points: [/lidar_front]}
";

fn answers(model: &Model, limits: &str) -> Vec<(String, String, String, String)> {
    let wanted = onbeat_check::read(limits.as_bytes()).expect(limits);
    let found = check(model, &wanted).into_iter();
    let mut all: Vec<_> = found
        .map(|f| {
            (
                f.requirement,
                f.limit,
                f.measured,
                format!("{:?}", f.verdict),
            )
        })
        .collect();
    all.sort();
    all
}

#[test]
fn a_redacted_model_gives_the_same_answers_about_its_interface_as_the_original() {
    let model = generate::parking(3);
    let policy = read(PARKING.as_bytes()).unwrap();
    let redacted = redact(&model, &policy, &key("a supplier's key")).unwrap();
    assert_eq!(redacted.unknown, ["robot"], "a slip, or another build's");
    let answered = answers(&model, PARKING_LIMITS);
    assert_eq!(answers(&redacted.model, PARKING_LIMITS), answered);
    for verdict in ["Passed", "Violated"] {
        assert!(answered.iter().any(|a| a.3 == verdict), "{answered:?}");
    }
    // Two lidars, a filter and an input of the synchroniser after each, and one part after that.
    let m = &redacted.model;
    assert_eq!((m.callbacks.len(), redacted.parts), (7, 1));
    assert_eq!(m.junctions.len(), 1);
    let bytes = serde_json::to_vec(m).unwrap();
    let read = onbeat_document::file::read(&bytes).expect("a model");
    let refused = onbeat_document::merge(vec![read]).expect_err("nothing to add to");
    assert!(refused.to_string().contains("merge the whole models"));
}

fn limits(model: &Model, policy: &Policy) -> String {
    use std::fmt::Write;
    let shown = &policy.visible;
    let mut text = String::from("chains:\n");
    for from in shown.nodes.iter().chain(&shown.topics) {
        for to in shown
            .nodes
            .iter()
            .chain(&shown.topics)
            .filter(|to| *to != from)
        {
            let figures = "latency: {p50: 25ms, p90: 90ms, max: 70ms}, jitter: 30ms, loss: 10%";
            let _ = writeln!(text, "  - {{from: '{from}', to: '{to}', {figures}}}");
        }
    }
    text += "topics:\n";
    for topic in &shown.topics {
        let figures = "rate: 15Hz.., latency: {p50: 1ms, max: 20ms}, waiting: {p90: 2ms}, loss: 1%, overwritten: 1%";
        let _ = writeln!(text, "  - {{topic: {topic}, {figures}}}");
    }
    if !shown.nodes.is_empty() {
        text += "callbacks:\n";
    }
    for node in &shown.nodes {
        let figures = "execution: {p90: 5ms}, response: {p90: 9ms}, period: {p50: 50ms}, load: 5%";
        let _ = writeln!(text, "  - {{node: {node}, {figures}}}");
    }
    let mut paths = String::new();
    for chain in &model.chains {
        let node = |id: &String| {
            let mut callbacks = model.callbacks.iter();
            callbacks.find(|c| c.id == *id).map(|c| c.node.clone())
        };
        let nodes = chain.callbacks.iter().filter_map(node);
        let nodes: Vec<String> = nodes.filter(|n| shown.nodes.contains(n)).collect();
        if !nodes.is_empty() {
            let _ = writeln!(paths, "    - [{}]", nodes.join(", "));
        }
    }
    if !paths.is_empty() {
        let _ = write!(text, "structure:\n  paths:\n{paths}");
    }
    text
}

#[test]
fn figures_of_any_interface_are_the_same_after_redaction() {
    let model = generate::sixty();
    let nodes: BTreeSet<&String> = model.callbacks.iter().map(|c| &c.node).collect();
    let topics: BTreeSet<&String> = model.edges.iter().map(|e| &e.topic).collect();
    let (mut parts, mut answered) = (0, BTreeSet::new());
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let mut some = |of: &BTreeSet<&String>, share: f64| -> Vec<String> {
            let kept = of.iter().filter(|_| random.unit() < share);
            kept.map(|n| n.to_string()).collect()
        };
        let share = seed as f64 / 20.0;
        let policy = Policy {
            visible: Visible {
                nodes: some(&nodes, share),
                topics: some(&topics, 0.2),
                ..Visible::default()
            },
            collapse: seed % 5 != 0,
        };
        let redacted = redact(&model, &policy, &key("a supplier's key")).unwrap();
        let limits = limits(&model, &policy);
        let expected = answers(&model, &limits);
        let found = answers(&redacted.model, &limits);
        let off = found.iter().zip(&expected).find(|(f, e)| f != e);
        assert_eq!(off, None, "{seed}");
        assert_eq!(found.len(), expected.len(), "{seed}");
        answered.extend(expected.into_iter().map(|a| a.3));
        parts += redacted.parts;
        let load = |m: &Model| m.callbacks.iter().map(|c| c.figures.load).sum::<f64>();
        assert!(
            (load(&model) - load(&redacted.model)).abs() < 1e-9,
            "no load is lost"
        );
    }
    assert!(parts > 20, "{parts} parts of twenty policies");
    assert_eq!(answered.len(), 3, "all verdicts: {answered:?}");
}

/// Returns the Base64 texts of a word within a longer text, one for each of the three offsets at
/// which the word can begin.
fn base64(word: &str) -> Vec<String> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let at = |before: usize| {
        let bytes = [&vec![0; before][..], word.as_bytes()].concat();
        let bits: Vec<bool> = bytes
            .iter()
            .flat_map(|b| (0..8).rev().map(move |i| b >> i & 1 == 1))
            .collect();
        let digit = |six: &[bool]| six.iter().fold(0, |n, &bit| 2 * n + usize::from(bit));
        let digits: String = bits
            .chunks_exact(6)
            .map(|six| char::from(DIGITS[digit(six)]))
            .collect();
        // The first digits depend on the bytes before the word.
        digits[(before * 8).div_ceil(6)..].to_string()
    };
    (0..3).map(at).collect()
}

const HIDDEN: [&str; 26] = [
    "filter_transform",
    "transform",
    "point_cloud",
    "cloud",
    "fusion",
    "voxel",
    "grid",
    "localizer",
    "filtered",
    "fused",
    "downsampled",
    "zeppelin",
    "voxelizer",
    "weltraum",
    "kartoffel",
    "salat",
    "gurkenglas",
    "nusskuchen",
    "autobahn",
    "quarkstrudel",
    "pflaumenmus",
    "apfelstrudel",
    "zimtschnecke",
    "mohnkuchen",
    r"\/voxel",
    r"\u0076oxel",
];

fn model_with_hidden_names_everywhere() -> Model {
    let mut model = generate::parking(2);
    let fused = model
        .callbacks
        .iter_mut()
        .find(|c| c.node == "/voxel_grid")
        .unwrap();
    fused.symbol = Some("zeppelin::Voxelizer<float>::on_cloud".into());
    fused.threads[0].comm = "weltraum".into();
    fused.outputs.push("/kartoffel/salat".into());
    let cause = |nodes: &[&str], process: &str, thread: &str| Cause {
        by: Component {
            nodes: nodes.iter().map(|n| n.to_string()).collect(),
            process: process.into(),
            thread: thread.into(),
            ..Component::of(ComponentKind::Thread)
        },
        preempted_ns: 7,
        preempted: 1,
        delayed_ns: 0,
        delayed: 0,
        blocked_ns: 0,
        blocked: 0,
    };
    let causes = [
        cause(&["/point_cloud_fusion", "/lidar_front"], "", "apfelstrudel"),
        cause(&[], "zimtschnecke", "mohnkuchen"),
    ];
    for c in &mut model.callbacks {
        c.figures.causes = causes.to_vec();
    }
    let run = &mut model.runs[0];
    (run.host, run.boot, run.mode) = (
        "gurkenglas".into(),
        "6f1d-nusskuchen".into(),
        "autobahn".into(),
    );
    let id = std::mem::replace(&mut run.id, "quarkstrudel-1".into());
    for c in &mut model.callbacks {
        let extremes = c.per_run.remove(&id).unwrap_or_default();
        c.per_run.insert("quarkstrudel-1".into(), extremes);
        c.modes
            .insert("autobahn".into(), Box::new(c.figures.clone()));
    }
    model.assumptions.push(
        "The node /voxel_grid is named after its process: its own name was not recorded.".into(),
    );
    model
        .assumptions
        .push("Made by pflaumenmus (process 7).".into());
    model.coverage.push("In run quarkstrudel-1, 3 events of kind take were lost because the buffer was full. Counts, losses and latencies that depend on them are incomplete.".into());
    let endpoint = |node: &str, topic: &str| Endpoint {
        node: node.into(),
        topic: topic.into(),
        kind: EndpointKind::Publisher,
        qos: vec![],
    };
    // Both hidden; a hidden node on a visible topic; both visible.
    model.endpoints = vec![
        endpoint("/voxel_grid", "/kartoffel/salat"),
        endpoint("/ndt_localizer", "/localization/ndt_pose"),
        endpoint("/lidar_front", "/lidars/front/points"),
    ];
    let helper = |nodes: &[&str], name: &str| Helper {
        nodes: nodes.iter().map(|n| n.to_string()).collect(),
        name: name.into(),
        figures: Default::default(),
        threads: vec![],
    };
    // The processes have a hidden node, a hidden and a visible one, or only a visible one.
    model.helpers = vec![
        helper(&["/voxel_grid"], "pflaumenmus"),
        helper(&["/lidar_front", "/voxel_grid"], "pflaumenmus"),
        helper(&["/lidar_front"], "dds.shm"),
    ];
    model.junctions[0].settle = "/point_cloud_fusion -> /lidars/points_fused = and".into();
    model
}

#[test]
fn no_hidden_name_remains_in_a_redacted_model() {
    let model = model_with_hidden_names_everywhere();
    for collapse in [true, false] {
        let policy = Policy {
            collapse,
            ..read(PARKING.as_bytes()).unwrap()
        };
        let redacted = redact(&model, &policy, &key("a supplier's key")).unwrap();
        let text = serde_json::to_string(&redacted.model)
            .unwrap()
            .to_lowercase();
        let exact = serde_json::to_string(&redacted.model).unwrap();
        for word in HIDDEN {
            assert!(!text.contains(word), "{word}");
            for part in base64(word) {
                assert!(!exact.contains(&part), "{word} as {part}");
            }
        }
        let endpoints = &redacted.model.endpoints;
        assert_eq!(endpoints.len(), if collapse { 2 } else { 3 });
        let pose = endpoints
            .iter()
            .find(|e| e.topic == "/localization/ndt_pose");
        let pose = pose.expect("a topic of the interface");
        // The nodes inside a part have no names, so the publisher is the part itself.
        let nodes = redacted.model.callbacks.iter().map(|c| &c.node);
        assert!(
            !collapse || nodes.clone().any(|node| *node == pose.node),
            "{pose:?}"
        );
        assert!(endpoints.contains(&model.endpoints[2]));
        let helpers = redacted.model.helpers.iter().map(|h| &h.nodes[..]);
        assert_eq!(helpers.collect::<Vec<_>>(), [["/lidar_front".to_owned()]]);
        let front = redacted.model.callbacks.iter();
        let front = front.clone().find(|c| c.node == "/lidar_front").unwrap();
        let kept = &front.figures.causes;
        assert_eq!(kept.iter().map(|c| c.preempted_ns).sum::<u64>(), 14);
        assert!(kept
            .iter()
            .any(|c| c.by.nodes.contains(&"/lidar_front".to_string())));
        // The ids of chains are hashes without a key, so they would confirm a guessed name.
        let known: BTreeSet<&String> = model.chains.iter().map(|c| &c.id).collect();
        assert!(redacted.model.chains.iter().all(|c| !known.contains(&c.id)));
        let said = |m: &Model, what: &str| m.coverage.iter().any(|c| c.contains(what));
        assert!(
            said(&redacted.model, "3 events of kind take were lost"),
            "{:?}",
            redacted.model.coverage
        );
        assert!(
            said(&redacted.model, "1 sentences about assumptions and"),
            "{:?}",
            redacted.model.coverage
        );
        assert!(said(
            &redacted.model,
            &format!("{} of 9 callbacks are hidden", redacted.hidden)
        ));
    }
}

#[test]
fn equal_keys_give_equal_pseudonyms_and_different_keys_different_ones() {
    let policy = Policy {
        collapse: false,
        ..read(PARKING.as_bytes()).unwrap()
    };
    let names = |runs, key_text: &str| -> BTreeSet<String> {
        let redacted = redact(&generate::parking(runs), &policy, &key(key_text)).unwrap();
        redacted.model.callbacks.into_iter().map(|c| c.id).collect()
    };
    assert_eq!(names(1, "a supplier's key"), names(4, "a supplier's key"));
    let others = names(1, "another key here");
    let mut both = names(1, "a supplier's key");
    both.retain(|n| others.contains(n));
    let shown = |n: &String| n.starts_with("/lidar_");
    assert!(both.iter().all(shown), "{both:?}");
    assert_eq!(both.len(), 2);
    assert!(Key::new(b"short").is_err());
}

#[test]
fn a_measured_part_of_a_redacted_model_has_a_latency_distribution() {
    let mut model = generate::parking(2);
    let policy = read(PARKING.as_bytes()).unwrap();
    let wanted = cuts(&model, &policy);
    let shown: Vec<String> = wanted.iter().map(|c| c.to_string()).collect();
    // A synchroniser has no start of its own, so the cut begins at the callback that feeds it.
    assert_eq!(
        shown,
        [
            "/point_cloud_fusion:subscription(/lidars/front/points_filtered) -> /localization/ndt_pose",
            "/point_cloud_fusion:subscription(/lidars/rear/points_filtered) -> /localization/ndt_pose",
        ]
    );
    let before = redact(&model, &policy, &key("a supplier's key")).unwrap();
    assert_eq!(before.unmeasured, 1);
    let whole = model.chains[0].clone();
    let at = whole
        .callbacks
        .iter()
        .position(|c| c.contains("fusion:sub"))
        .unwrap();
    let mut cut = whole.clone();
    cut.id = "chain-part".into();
    cut.cut = true;
    cut.callbacks = whole.callbacks[at..].to_vec();
    cut.topics = whole.topics[at..].to_vec();
    for shares in [&mut cut.figures.shares]
        .into_iter()
        .chain(cut.modes.values_mut().map(|m| &mut m.shares))
    {
        shares.drain(..2 * at);
    }
    model.chains.push(cut.clone());
    let after = redact(&model, &policy, &key("a supplier's key")).unwrap();
    assert_eq!(after.unmeasured, 0);
    let part = after
        .model
        .chains
        .iter()
        .find(|c| c.cut)
        .expect("the part's");
    assert_eq!(part.callbacks.len(), 2);
    assert_eq!(part.figures.latency_ns, cut.figures.latency_ns);
    let names: Vec<&String> = part.figures.shares.iter().map(|s| &s.name).collect();
    assert_eq!(
        names,
        [&part.callbacks[0], &part.topics[0], &part.callbacks[1]]
    );
    let mean: f64 = part.figures.shares.iter().map(|s| s.mean_ns).sum();
    let all: f64 = cut.figures.shares.iter().map(|s| s.mean_ns).sum();
    assert!((mean - all).abs() < 1.0, "{mean} {all}");
    let kinds: BTreeSet<CallbackType> = after.model.callbacks.iter().map(|c| c.kind).collect();
    assert!(kinds.contains(&CallbackType::Sync));
}

#[test]
fn item_counts_of_equal_edges_of_a_redacted_part_are_added_up() {
    let mut model = generate::parking(1);
    let id = |node: &str| {
        let mut callbacks = model.callbacks.iter();
        let of_node = |c: &&onbeat_document::schema::Callback| {
            c.node == node && c.kind == CallbackType::Subscription
        };
        callbacks
            .find(|c| of_node(c))
            .map(|c| c.id.clone())
            .unwrap()
    };
    let (voxel, localiser) = (id("/voxel_grid"), id("/ndt_localizer"));
    let edge = model
        .edges
        .iter()
        .find(|e| e.to == localiser)
        .unwrap()
        .clone();
    for (from, taken) in [(&voxel, 100), (&localiser, 20)] {
        let mut extra = edge.clone();
        (extra.from, extra.to) = (from.clone(), "/lidar_front:timer(100ms)".into());
        extra.topic = "/status".into();
        (extra.figures.published, extra.figures.lost) = (taken, 7);
        model.edges.push(extra);
    }
    let mut policy = read(PARKING.as_bytes()).unwrap();
    policy.visible.topics.push("/status".into());
    let redacted = redact(&model, &policy, &key("a supplier's key")).unwrap();
    let limits = "topics: [{topic: /status, loss: 50%, latency: {p50: 1ns}}]";
    assert_eq!(answers(&redacted.model, limits), answers(&model, limits));
    let edges = redacted.model.edges.iter().filter(|e| e.topic == "/status");
    let figures: Vec<_> = edges
        .map(|e| (e.figures.published, e.figures.lost))
        .collect();
    assert_eq!(figures, [(120, 14)]);
}
