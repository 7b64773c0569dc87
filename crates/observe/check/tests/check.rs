//! Tests of requirements on a small model. Each kind of rule is kept, broken and undecided once.

use onbeat_check::{check, initial, json, junit, read, sarif, verdict, Finding, Limits, Verdict};
use onbeat_document::schema::{
    Bracket, Callback, CallbackFigures, CallbackType, Chain, ChainFigures, Edge, EdgeFigures,
    EndToEnd, EndToEndFigures, Model, Run, ThreadUse, SCHEMA,
};
use onbeat_document::titles::titles;
use onbeat_document::Dist;
use proptest::prelude::*;
use std::collections::BTreeMap;

const MS: u64 = 1_000_000;

fn dist(count: u64, ns: u64) -> Dist {
    let mut dist = Dist::new();
    // Values differ by up to 2 %, so the distribution has more than one bucket.
    (0..count).for_each(|i| dist.record(ns + ns / 100 * (i % 3)));
    dist
}

fn callback(node: &str, input: &str, outputs: &[&str], exec_ms: u64, count: u64) -> Callback {
    let kind = match input {
        "" => CallbackType::Timer,
        _ => CallbackType::Subscription,
    };
    let id = match input {
        "" => format!("{node}:timer(100ms)"),
        _ => format!("{node}:subscription({input})"),
    };
    Callback {
        id,
        node: node.into(),
        kind,
        input: input.into(),
        caller: None,
        period_ns: Some(100 * MS),
        outputs: outputs.iter().map(|o| o.to_string()).collect(),
        bracket: Bracket::Exact,
        identity: Default::default(),
        symbol: None,
        figures: CallbackFigures {
            exec_ns: dist(count, exec_ms * MS),
            interarrival_ns: dist(count, 100 * MS),
            load: exec_ms as f64 / 100.0,
            observed_ns: count * 100 * MS,
            ..CallbackFigures::default()
        },
        modes: BTreeMap::new(),
        threads: vec![ThreadUse {
            comm: "node".into(),
            policy: "fifo".into(),
            priority: 19,
            cpus: vec![1],
        }],
        per_run: BTreeMap::new(),
    }
}

fn chain(id: &str, callbacks: &[&str], topics: &[&str], ms: u64, count: u64) -> Chain {
    Chain {
        id: format!("chain-{id}"),
        callbacks: callbacks.iter().map(|c| c.to_string()).collect(),
        topics: topics.iter().map(|t| t.to_string()).collect(),
        assumed: false,
        ambiguous: false,
        from_input: false,
        cut: false,
        figures: ChainFigures {
            executions: count,
            latency_ns: dist(count, ms * MS),
            jitter_ns: MS,
            ..ChainFigures::default()
        },
        modes: BTreeMap::new(),
        per_run: BTreeMap::new(),
    }
}

fn edge(from: &str, to: &str, topic: &str, count: u64, lost: u64) -> Edge {
    Edge {
        from: from.into(),
        to: to.into(),
        topic: topic.into(),
        assumed: None,
        intra_process: false,
        figures: EdgeFigures {
            latency_ns: dist(count, MS),
            published: count,
            taken: count - lost,
            lost,
            ..EdgeFigures::default()
        },
        modes: BTreeMap::new(),
    }
}

fn model(count: u64) -> Model {
    let lidar = "/lidar:timer(100ms)";
    let (filter, map) = (
        "/filter:subscription(/scan)",
        "/maps/map:subscription(/scan)",
    );
    let (of_filter, of_map) = (
        "/planner:subscription(/points)",
        "/planner:subscription(/grid)",
    );
    Model {
        schema: SCHEMA.into(),
        runs: vec![Run {
            id: "r".into(),
            host: String::new(),
            boot: String::new(),
            mode: "urban".into(),
            distribution: vec![],
            start: 1,
            duration_ns: count * 100 * MS,
            lost: BTreeMap::new(),
            events: 10,
        }],
        callbacks: vec![
            callback("/filter", "/scan", &["/points"], 20, count),
            callback("/lidar", "", &["/scan"], 5, count),
            callback("/maps/map", "/scan", &["/grid"], 8, count),
            callback("/planner", "/grid", &["/cmd"], 2, count),
            callback("/planner", "/points", &["/cmd"], 3, count),
        ],
        edges: vec![
            edge(filter, of_filter, "/points", count, 0),
            edge(lidar, filter, "/scan", count, 0),
            edge(lidar, map, "/scan", count, count / 20),
            edge(map, of_map, "/grid", count, 0),
        ],
        junctions: vec![],
        chains: vec![
            chain(
                "aa01",
                &[lidar, filter, of_filter],
                &["/scan", "/points", "/cmd"],
                40,
                count,
            ),
            chain(
                "bb02",
                &[lidar, map, of_map],
                &["/scan", "/grid", "/cmd"],
                30,
                count,
            ),
        ],
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

fn findings(count: u64, yaml: &str) -> Vec<Finding> {
    check(&model(count), &read(yaml.as_bytes()).expect(yaml))
}

fn verdicts(count: u64, yaml: &str) -> Vec<Verdict> {
    findings(count, yaml).iter().map(|f| f.verdict).collect()
}

#[test]
fn chains_with_the_same_ends_get_different_titles() {
    let mut model = model(10);
    assert_eq!(
        titles(&model),
        ["lidar -> planner via filter", "lidar -> planner via map"]
    );
    model.chains.truncate(1);
    assert_eq!(titles(&model), ["lidar -> planner"]);
}

#[test]
fn each_kind_of_requirement_can_pass_be_violated_or_stay_undecided() {
    use Verdict::{NotKnown as Open, Passed as Kept, Violated as Broken};
    for (yaml, expected) in [
        ("chains: [{chain: aa, latency: {max: 50ms, p99: 41ms, mean: 39ms}}]", &[Broken, Kept, Kept][..]),
        ("chains: [{from: lidar, to: planner, latency: {max: 39ms}}]", &[Broken, Kept]),
        ("chains: [{from: lidar, through: [/map], latency: {min: 20ms}}]", &[Kept]),
        ("chains: [{from: lidar, to: filter, latency: {max: 1s}}]", &[Open]),
        ("chains: [{chain: cc, latency: {max: 1s}}]", &[Open]),
        ("chains: [{from: /nowhere, latency: {max: 1s}}]", &[Open]),
        ("chains: [{chain: aa, jitter: 2ms, loss: 0%, let: 1ms}]", &[Kept, Kept, Broken]),
        ("chains: [{chain: aa, age: {p99: 50ms}, reaction: {p99: 1s}}]", &[Kept, Open]),
        ("callbacks: [{node: planner, execution: {max: 2.5ms}}]", &[Kept, Broken]),
        ("callbacks: [{callback: '/filter:subscription(/scan)', load: 30%, period: {p50: 90ms..110ms}}]", &[Kept, Kept]),
        ("callbacks: [{node: /filter, load: ..10%, response: {max: 1s}}]", &[Open, Broken]),
        ("callbacks: [{node: /gone, load: 30%}]", &[Open]),
        ("callbacks: [{node: /lidar, threads: {policy: fifo, priority: 80.., cpus: [1]}}]", &[Kept, Kept, Kept]),
        ("callbacks: [{node: /lidar, threads: {policy: other, priority: 81.., cpus: [0]}}]", &[Broken, Broken, Broken]),
        ("topics: [{topic: /scan, rate: 9Hz..11Hz, latency: {p95: 2ms}, loss: 1%}]", &[Kept, Kept, Kept, Broken]),
        ("topics: [{topic: /scan, to: /filter, loss: 0%, overwritten: 0%}]", &[Kept, Kept]),
        ("topics: [{topic: /nothing, rate: 9Hz..}]", &[Open]),
        ("cpus: [{cpu: 1, load: 40%}, {cpu: 1, load: 30%}, {cpu: 7, load: 1%}]", &[Kept, Broken, Open]),
        ("structure: {paths: [[lidar, /scan, map, planner], [planner, lidar]]}", &[Kept, Broken]),
        ("structure: {no_paths: [[map, filter], [/lidar, /cmd], [/secret]]}", &[Kept, Broken, Kept]),
        ("structure: {readers: {/scan: [/filter, map], /points: [], /x: [/a]}}", &[Broken, Kept, Open]),
        ("structure: {writers: {/cmd: [planner], /scan: [/filter]}}", &[Kept, Broken]),
        ("mode: urban\nchains: [{chain: aa, latency: {p50: 50ms}}]", &[Kept]),
    ] {
        let mut found = verdicts(1000, yaml);
        found.sort();
        let mut expected = expected.to_vec();
        expected.sort();
        assert_eq!(found, expected, "{yaml}: {:#?}", findings(1000, yaml));
    }
}

#[test]
fn all_paths_between_two_ends_are_judged_where_no_chain_has_these_ends() {
    use Verdict::{NotKnown as Open, Passed as Kept, Violated as Broken};
    let mut model = model(1000);
    model.end_to_end = vec![EndToEnd {
        from: "/lidar:timer(100ms)".into(),
        to: "/filter:subscription(/scan)".into(),
        topic: "/points".into(),
        ambiguous: false,
        from_input: false,
        cut: true,
        paths: Some(1_000_000),
        listed: 0,
        figures: EndToEndFigures {
            outputs: 1000,
            latency_ns: dist(1000, 20 * MS),
            age_ns: Some(dist(1000, 400 * MS)),
            ..EndToEndFigures::default()
        },
        modes: BTreeMap::new(),
    }];
    for (limits, expected) in [
        ("latency: {max: 21ms}", Kept),
        ("age: {max: 21ms}", Broken),
        ("reaction: {max: 1s}", Open),
        ("jitter: 1s", Open),
    ] {
        let yaml = format!("chains: [{{from: lidar, to: filter, {limits}}}]");
        let found = check(&model, &read(yaml.as_bytes()).unwrap());
        let verdicts: Vec<Verdict> = found.iter().map(|f| f.verdict).collect();
        assert_eq!(verdicts, [expected], "{yaml}: {found:#?}");
    }
}

#[test]
fn a_requirement_with_too_little_data_is_not_decided() {
    let yaml = "chains: [{chain: aa, latency: {max: 50ms}}]";
    assert_eq!(verdicts(298, yaml), [Verdict::NotKnown]);
    assert_eq!(verdicts(299, yaml), [Verdict::Passed]);
    let said = &findings(298, yaml)[0];
    assert!(said.why.contains("299"), "{}", said.why);
    assert_eq!(
        verdicts(90, "callbacks: [{node: /lidar, load: 50%}]"),
        [Verdict::NotKnown]
    );
    // A violated limit is violated even by two executions.
    assert_eq!(
        verdicts(2, "chains: [{chain: aa, latency: {max: 5ms}}]"),
        [Verdict::Violated]
    );
    let stricter = format!("miss: 0.1%\n{yaml}");
    assert_eq!(verdicts(1000, &stricter), [Verdict::NotKnown]);
}

#[test]
fn json_junit_and_sarif_contain_every_finding() {
    let all = findings(
        1000,
        "chains: [{chain: aa, latency: {max: 1s}}, {chain: bb, latency: {max: 5ms}}, {chain: cc, jitter: 1s}]",
    );
    assert_eq!(verdict(&all), Verdict::Violated);
    let value = json(&all);
    assert_eq!(
        (&value["passed"], &value["not_known"], &value["violated"]),
        (&1.into(), &1.into(), &1.into())
    );
    assert_eq!(value["findings"][1]["requirement"], "chains[1].latency.max");
    let xml = junit(&all, "<model> & \u{1b}");
    assert_eq!(xml.matches("<testcase ").count(), 3);
    assert_eq!(
        (
            xml.matches("<failure ").count(),
            xml.matches("<error ").count()
        ),
        (1, 1)
    );
    assert!(
        xml.contains("tests=\"3\" failures=\"1\" errors=\"1\""),
        "{xml}"
    );
    assert!(
        xml.contains("&lt;model&gt; &amp; ") && !xml.contains('\u{1b}'),
        "{xml}"
    );
    let found = sarif(&all, "requirements.yaml");
    assert_eq!(
        found["runs"][0]["results"].as_array().map(Vec::len),
        Some(2)
    );
}

#[test]
fn a_model_satisfies_the_requirements_written_from_it() {
    for count in [3, 200, 3000] {
        let model = model(count);
        let text = initial(&model, 0.2, Limits::All).expect("written");
        let wanted = read(text.as_bytes()).expect(&text);
        let found = check(&model, &wanted);
        let bad: Vec<_> = found
            .iter()
            .filter(|f| f.verdict != Verdict::Passed)
            .collect();
        assert!(bad.is_empty(), "{bad:#?}\n{text}");
        assert!(found.len() > 1, "{text}");
        assert!(
            text.contains("# lidar -> planner via map") || count < 200,
            "{text}"
        );
    }
    // An execution time that is half as long again breaks the generated limits.
    let text = initial(&model(3000), 0.2, Limits::All).expect("written");
    let mut slow = model(3000);
    slow.callbacks[0].figures.exec_ns = dist(3000, 30 * MS);
    let found = check(&slow, &read(text.as_bytes()).expect("its own"));
    let broken: Vec<_> = found
        .iter()
        .filter(|f| f.verdict == Verdict::Violated)
        .collect();
    assert!(!broken.is_empty() && broken.iter().all(|f| f.subject.starts_with("/filter")));
}

#[test]
fn one_more_subscriber_violates_requirements_written_from_a_model() {
    let before = model(3000);
    let text = initial(&before, 0.1, Limits::Medians).expect("written");
    assert!(!text.contains("p99") && text.contains("p50"), "{text}");
    let wanted = read(text.as_bytes()).expect("its own");
    let mut after = model(3000);
    let topic = after.callbacks[0].input.clone();
    after
        .callbacks
        .push(callback("/monitor", &topic, &[], 1, 3000));
    let found = check(&after, &wanted);
    let broken: Vec<_> = found
        .iter()
        .filter(|f| f.verdict == Verdict::Violated)
        .map(|f| (f.requirement.as_str(), f.why.as_str()))
        .collect();
    let readers = format!("structure.readers.{topic}");
    assert_eq!(broken, [(readers.as_str(), "also /monitor")]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_text_is_valid_or_gives_an_error_of_one_line(text in "(chains|callbacks|topics|structure|miss): ?[\\[{a-z:, .0-9%/-]{0,40}") {
        match read(text.as_bytes()) {
            Ok(wanted) => drop(check(&model(5), &wanted)),
            Err(e) => prop_assert_eq!(e.to_string().lines().count(), 1),
        }
    }
}
