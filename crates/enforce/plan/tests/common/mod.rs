//! Builds small models by hand.
#![allow(dead_code)]

use onbeat_document::schema::{
    Bracket, Callback, CallbackFigures, CallbackType, Chain, ChainFigures, Edge, EdgeFigures,
    Executor, Junction, JunctionKind, JunctionState, Matching, Model, Run, ThreadUse, SCHEMA,
};
use onbeat_document::Dist;
use std::collections::BTreeMap;

pub fn ms(ms: f64) -> u64 {
    (ms * 1e6).round() as u64
}

pub fn dist(values: &[f64]) -> Dist {
    let mut dist = Dist::new();
    values.iter().for_each(|&v| dist.record(ms(v)));
    dist
}

pub fn callback(id: &str, kind: CallbackType, exec_ms: &[f64], outputs: &[&str]) -> Callback {
    let (node, rest) = id.split_once(':').unwrap();
    let input = rest
        .split_once('(')
        .map_or("", |(_, i)| i.trim_end_matches(')'));
    let timer = kind == CallbackType::Timer;
    Callback {
        id: id.into(),
        node: node.into(),
        kind,
        input: if timer { String::new() } else { input.into() },
        caller: None,
        period_ns: timer.then_some(ms(100.0)),
        outputs: outputs.iter().map(|o| o.to_string()).collect(),
        bracket: Bracket::Exact,
        identity: Default::default(),
        symbol: None,
        figures: CallbackFigures {
            exec_ns: dist(exec_ms),
            interarrival_ns: dist(&[100.0, 100.0, 100.0]),
            load: exec_ms.iter().sum::<f64>() / exec_ms.len().max(1) as f64 / 100.0,
            ..CallbackFigures::default()
        },
        modes: BTreeMap::new(),
        threads: vec![ThreadUse {
            comm: "node".into(),
            policy: "fifo".into(),
            priority: 80,
            cpus: vec![0, 1],
        }],
        per_run: BTreeMap::new(),
    }
}

pub fn chain(id: &str, callbacks: &[&str], topics: &[&str], latency_ms: &[f64]) -> Chain {
    let latency_ns = dist(latency_ms);
    Chain {
        id: id.into(),
        callbacks: callbacks.iter().map(|c| c.to_string()).collect(),
        topics: topics.iter().map(|t| t.to_string()).collect(),
        assumed: false,
        ambiguous: false,
        from_input: false,
        cut: false,
        figures: ChainFigures {
            executions: latency_ms.len() as u64,
            jitter_ns: (latency_ns.max() - latency_ns.min()) / 2,
            latency_ns,
            ..ChainFigures::default()
        },
        per_run: BTreeMap::new(),
        modes: BTreeMap::new(),
    }
}

pub fn and(callback: &str, inputs: Vec<String>) -> Junction {
    Junction {
        callback: callback.into(),
        kind: JunctionKind::And,
        inputs,
        criterion: "data_flow".into(),
        confidence: 1.0,
        state: JunctionState::Decided,
        matching: Matching::InTurn,
        readings: Vec::new(),
        settle: String::new(),
    }
}

pub fn model(callbacks: Vec<Callback>, chains: Vec<Chain>) -> Model {
    let mut edges: Vec<Edge> = Vec::new();
    for chain in &chains {
        for (pair, topic) in chain.callbacks.windows(2).zip(&chain.topics) {
            edges.push(Edge {
                from: pair[0].clone(),
                to: pair[1].clone(),
                topic: topic.clone(),
                assumed: None,
                intra_process: false,
                figures: EdgeFigures {
                    transport_ns: dist(&[0.3, 0.74]),
                    ..EdgeFigures::default()
                },
                modes: BTreeMap::new(),
            });
        }
    }
    // Every node gets an executor of its own.
    let mut nodes: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for callback in callbacks.iter().filter(|c| c.kind != CallbackType::Sync) {
        let node = nodes.entry(callback.node.clone()).or_default();
        node.push(callback.id.clone());
    }
    let executor = |callbacks| Executor {
        callbacks,
        threads: 1,
    };
    Model {
        schema: SCHEMA.into(),
        runs: vec![Run {
            host: String::new(),
            boot: String::new(),
            id: "run".into(),
            mode: "default".into(),
            distribution: vec!["kilted".into()],
            start: 0,
            duration_ns: ms(1000.0),
            lost: BTreeMap::new(),
            events: 1,
        }],
        callbacks,
        edges,
        junctions: vec![],
        chains,
        actions: Vec::new(),
        executors: nodes.into_values().map(executor).collect(),
        endpoints: Vec::new(),
        end_to_end: Vec::new(),
        helpers: Vec::new(),
        assumptions: vec![],
        coverage: vec![],
        evidence: serde_json_null(),
    }
}

fn serde_json_null() -> serde_json::Value {
    serde_json::Value::Null
}

/// Makes the thesis's synthetic chain (section 4.1.2): five callbacks of 5 to 15 ms, every 100 ms.
/// Its latencies lie in three groups.
pub fn synthetic() -> Model {
    let ids: Vec<String> = (1..=5)
        .map(|i| match i {
            1 => "/n1:timer(100ms)".to_string(),
            i => format!("/n{i}:subscription(/t{})", i - 1),
        })
        .collect();
    let topics: Vec<String> = (1..=5).map(|i| format!("/t{i}")).collect();
    let callbacks = ids
        .iter()
        .zip(&topics)
        .map(|(id, topic)| {
            let kind = match id.contains("timer") {
                true => CallbackType::Timer,
                false => CallbackType::Subscription,
            };
            callback(id, kind, &[5.0, 10.0, 15.0], &[topic])
        })
        .collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
    let latencies = [30.0, 30.5, 31.0, 31.0, 44.0, 45.0, 58.5];
    model(
        callbacks,
        vec![chain("chain-0123456789ab", &ids, &topics, &latencies)],
    )
}
