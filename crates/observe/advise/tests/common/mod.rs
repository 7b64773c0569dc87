//! Builds parts of small models.

use onbeat_document::schema::{
    Bracket, Callback, CallbackFigures, CallbackType, Edge, EdgeFigures, Executor, Share, ThreadUse,
};
use onbeat_document::Dist;
use std::collections::BTreeMap;

pub const MS: u64 = 1_000_000;
pub const COUNT: u64 = 200;

pub fn dist(ns: u64) -> Dist {
    let mut dist = Dist::new();
    (0..COUNT).for_each(|_| dist.record(ns));
    dist
}

pub fn callback(node: &str, input: &str, output: &str) -> Callback {
    let (kind, id) = match input {
        "" => (CallbackType::Timer, format!("{node}:timer(100ms)")),
        _ => (
            CallbackType::Subscription,
            format!("{node}:subscription({input})"),
        ),
    };
    Callback {
        id,
        node: node.into(),
        identity: Default::default(),
        kind,
        input: input.into(),
        caller: None,
        period_ns: Some(100 * MS),
        outputs: vec![output.into()],
        bracket: Bracket::Exact,
        symbol: None,
        figures: CallbackFigures {
            exec_ns: dist(5 * MS),
            interarrival_ns: dist(100 * MS),
            preempted_ns: dist(0),
            blocked_ns: dist(0),
            release_jitter_ns: dist(0),
            load: 0.05,
            observed_ns: COUNT * 100 * MS,
            ..CallbackFigures::default()
        },
        modes: BTreeMap::new(),
        threads: vec![thread(Some(10), &[1])],
        per_run: BTreeMap::new(),
    }
}

pub fn thread(priority: Option<u8>, cpus: &[u16]) -> ThreadUse {
    ThreadUse {
        comm: "node".into(),
        policy: if priority.is_some() { "fifo" } else { "other" }.into(),
        priority: priority.map_or(120, |p| 99 - p),
        cpus: cpus.to_vec(),
    }
}

pub fn edge(from: &str, to: &str, topic: &str) -> Edge {
    Edge {
        from: from.into(),
        to: to.into(),
        topic: topic.into(),
        assumed: None,
        intra_process: false,
        figures: EdgeFigures {
            latency_ns: dist(MS / 10),
            transport_ns: dist(MS / 10),
            waiting_ns: dist(0),
            published: COUNT,
            taken: COUNT,
            ..EdgeFigures::default()
        },
        modes: BTreeMap::new(),
    }
}

pub fn share(element: &str, name: &str, mean_ns: u64, of: u64) -> Share {
    Share {
        element: element.into(),
        name: name.into(),
        sum_ns: (mean_ns * COUNT).to_string(),
        mean_ns: mean_ns as f64,
        fraction: mean_ns as f64 / of as f64,
    }
}

pub fn alone(id: &str) -> Executor {
    Executor {
        callbacks: vec![id.into()],
        threads: 1,
    }
}
