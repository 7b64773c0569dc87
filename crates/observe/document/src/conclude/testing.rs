//! Hand-made evidence for tests.

use crate::dist::Dist;
use crate::evidence::{EdgeKey, Evidence, PathEvidence, PathFigures, PathKey};
use crate::evidence::{MemberEvidence, SyncEvidence};
use crate::schema::{
    Bracket, ByMode, Callback, CallbackFigures, CallbackType, Edge, EdgeFigures, Run,
};
use std::collections::BTreeMap;

pub(crate) const MODE: &str = "urban";

pub(crate) fn times(n: u64, ns: u64) -> Dist {
    let mut dist = Dist::new();
    (0..n).for_each(|_| dist.record(ns));
    dist
}

pub(crate) fn run(id: &str) -> Evidence {
    let run = Run {
        host: String::new(),
        boot: String::new(),
        id: id.into(),
        mode: MODE.into(),
        distribution: vec!["jazzy".into()],
        start: 1,
        duration_ns: 1000,
        lost: BTreeMap::new(),
        events: 10,
    };
    Evidence {
        runs: BTreeMap::from([(id.into(), run)]),
        ..Evidence::default()
    }
}

impl Evidence {
    pub(crate) fn with_callback(mut self, id: &str, n: u64) -> Self {
        let (node, rest) = id.split_once(':').unwrap();
        let (kind, input) = rest.trim_end_matches(')').split_once('(').unwrap();
        let kind = match kind {
            "timer" => CallbackType::Timer,
            "sync" => CallbackType::Sync,
            _ => CallbackType::Subscription,
        };
        let subscription = kind == CallbackType::Subscription;
        let figures = CallbackFigures {
            exec_ns: times(n, 7),
            observed_ns: 1000,
            load: 7.0 * n as f64 / 1000.0,
            ..CallbackFigures::default()
        };
        let callback = Callback {
            id: id.into(),
            node: node.into(),
            kind,
            input: input.to_string().repeat(usize::from(subscription)),
            caller: None,
            period_ns: (kind == CallbackType::Timer).then_some(10),
            outputs: Vec::new(),
            bracket: Bracket::Exact,
            identity: Default::default(),
            symbol: None,
            figures: CallbackFigures::default(),
            modes: ByMode::from([(MODE.into(), Box::new(figures))]),
            threads: Vec::new(),
            per_run: BTreeMap::new(),
        };
        self.callbacks.insert(id.into(), callback);
        self
    }

    pub(crate) fn with_edge(mut self, from: &str, to: &str, topic: &str, taken: u64) -> Self {
        let figures = EdgeFigures {
            latency_ns: times(taken, 3),
            published: taken,
            taken,
            ..EdgeFigures::default()
        };
        let edge = Edge {
            from: from.into(),
            to: to.into(),
            topic: topic.into(),
            assumed: None,
            intra_process: false,
            figures: EdgeFigures::default(),
            modes: ByMode::from([(MODE.into(), Box::new(figures))]),
        };
        self.edges.insert(EdgeKey::of(&edge), edge);
        self
    }

    /// Adds a path on which `n` executions ended, written as `callback topic callback ...`.
    pub(crate) fn with_path(mut self, path: &str, n: u64) -> Self {
        let key = key(path);
        let parts = 2 * key.callbacks.len() - 1;
        let figures = PathFigures {
            latency_ns: times(n, parts as u64),
            sums: vec![u128::from(n); parts],
            ..PathFigures::default()
        };
        let path = PathEvidence {
            outputs: BTreeMap::from([(String::new(), n)]),
            per_run: self
                .runs
                .keys()
                .map(|id| (id.clone(), figures.latency_ns.clone()))
                .collect(),
            modes: ByMode::from([(MODE.into(), Box::new(figures))]),
        };
        self.paths.insert(key, path);
        self
    }

    pub(crate) fn with_sync(mut self, sync: SyncEvidence) -> Self {
        self.syncs.insert("/f:sync(/out)".into(), sync);
        self
    }
}

/// Parses a path's key, written as `callback topic callback ...`. The mark `=` stands before a sync
/// vertex to which the path leads from the callback that publishes the synchroniser's output.
pub(crate) fn key(path: &str) -> PathKey {
    let words: Vec<&str> = path.split(' ').collect();
    let callbacks = || words.iter().step_by(2);
    let own = callbacks().enumerate().filter(|c| c.1.starts_with('='));
    PathKey {
        callbacks: callbacks().map(|c| c.replace('=', "")).collect(),
        topics: words
            .iter()
            .skip(1)
            .step_by(2)
            .map(|t| t.to_string())
            .collect(),
        own: own.map(|(i, _)| i).collect(),
    }
}

/// Returns evidence of 20 outputs on `/out`. Before each output, `/f:subscription(/a)` and
/// `/f:subscription(/b)` had one new input each. `/f:subscription(/b)` published all outputs.
pub(crate) fn synchronised() -> SyncEvidence {
    let member = |published| MemberEvidence {
        instances: 20,
        productive: published,
        published,
        fresh: 20,
        once: 20,
        ..MemberEvidence::default()
    };
    SyncEvidence {
        node: "/f".into(),
        topic: "/out".into(),
        outputs: 20,
        foreign: 0,
        nearest: false,
        chosen: 0,
        approximate: false,
        predicted: 0,
        missing: 0,
        held: 0,
        members: BTreeMap::from([
            ("/f:subscription(/a)".into(), member(0)),
            ("/f:subscription(/b)".into(), member(20)),
        ]),
    }
}
