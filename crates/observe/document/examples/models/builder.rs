//! Builds example models. Figures come from a fixed pseudo-random sequence, so every call returns
//! the same model.

use onbeat_document::schema::*;
use onbeat_document::Dist;
use std::collections::{BTreeMap, BTreeSet};

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
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }
}

/// Returns a random time in ns around `mean_ms`. `spread` is relative to the mean. A fraction
/// `tail` of the values is up to three times as long as the others.
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

pub struct Builder {
    pub model: Model,
    random: Random,
    count: usize,
}

impl Builder {
    pub fn new(seed: u64, runs: usize, per_run: usize) -> Self {
        let runs = (0..runs)
            .map(|i| Run {
                host: String::new(),
                boot: String::new(),
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
                actions: Vec::new(),
                executors: Vec::new(),
                endpoints: Vec::new(),
                end_to_end: Vec::new(),
                helpers: Vec::new(),
                assumptions: vec![],
                coverage: vec![],
                evidence: serde_json::Value::Null,
            },
            random: Random::new(seed),
            count: per_run,
        }
    }

    pub fn callback(
        &mut self,
        node: &str,
        kind: CallbackType,
        input: &str,
        period_ms: Option<u64>,
        mean_ms: f64,
        outputs: &[&str],
    ) -> String {
        let id = self.new_id(&match kind {
            CallbackType::Timer => format!("{node}:timer({}ms)", period_ms.unwrap_or(100)),
            CallbackType::Subscription => format!("{node}:subscription({input})"),
            CallbackType::Service => format!("{node}:service({input})"),
            CallbackType::Client => format!("{node}:client({input})"),
            CallbackType::Task => format!("{node}:task({input})"),
            CallbackType::Sync => format!("{node}:sync({})", outputs.first().unwrap_or(&"")),
            CallbackType::Thread => format!("{node}:thread({})", outputs.first().unwrap_or(&"")),
        });
        let period = period_ms.unwrap_or(100);
        let (per_run, exec) = self.execution_times(mean_ms);
        let mut outputs: Vec<String> = outputs.iter().map(|s| s.to_string()).collect();
        outputs.sort();
        let callback = Callback {
            id: id.clone(),
            node: node.into(),
            kind,
            input: match kind {
                CallbackType::Timer => String::new(),
                _ => input.into(),
            },
            caller: None,
            period_ns: Some(period * 1_000_000),
            outputs,
            bracket: Bracket::Inferred,
            identity: Default::default(),
            symbol: None,
            figures: self.callback_figures(kind, period, mean_ms, exec),
            modes: BTreeMap::new(),
            threads: vec![ThreadUse {
                comm: "python3".into(),
                policy: "other".into(),
                priority: 120,
                cpus: vec![0, 1],
            }],
            per_run,
        };
        self.model.callbacks.push(callback);
        id
    }

    fn new_id(&self, base: &str) -> String {
        let free = |id: &String| self.model.callbacks.iter().all(|c| &c.id != id);
        let numbered = (2..).map(|n| format!("{base}#{n}"));
        let mut ids = std::iter::once(base.to_string()).chain(numbered);
        ids.find(free).unwrap()
    }

    fn execution_times(&mut self, mean_ms: f64) -> (BTreeMap<String, RunExtremes>, Dist) {
        let mut per_run = BTreeMap::new();
        let mut exec = Dist::new();
        for run in &self.model.runs {
            let d = dist(&mut self.random, self.count, mean_ms, 0.12, 0.01);
            let extremes = RunExtremes {
                start: run.start,
                count: d.count(),
                min_ns: d.min(),
                mean_ns: d.mean(),
                max_ns: d.max(),
                typical: None,
            };
            per_run.insert(run.id.clone(), extremes);
            exec.merge(&d);
        }
        (per_run, exec)
    }

    fn callback_figures(
        &mut self,
        kind: CallbackType,
        period_ms: u64,
        mean_ms: f64,
        exec: Dist,
    ) -> CallbackFigures {
        let observed: u64 = self.model.runs.iter().map(|r| r.duration_ns).sum();
        let all = self.count * self.model.runs.len();
        let r = &mut self.random;
        CallbackFigures {
            load: exec.sum() as f64 / observed.max(1) as f64,
            response_ns: dist(r, all, mean_ms * 1.1 + 0.1, 0.15, 0.02),
            interarrival_ns: dist(r, all, period_ms as f64, 0.004, 0.0),
            release_jitter_ns: match kind {
                CallbackType::Timer => dist(r, all, 0.06, 0.5, 0.01),
                _ => Dist::new(),
            },
            preempted_ns: dist(r, all, 0.02, 0.8, 0.05),
            blocked_ns: Dist::new(),
            preemptions: (all / 7) as u64,
            causes: Vec::new(),
            blockings: 0,
            untimed: 0,
            exec_ns: exec,
            observed_ns: observed,
        }
    }

    pub fn edge(&mut self, from: &str, to: &str, topic: &str) {
        let all = (self.count * self.model.runs.len()) as u64;
        let r = &mut self.random;
        let lost = if r.unit() < 0.2 { all / 50 } else { 0 };
        let figures = EdgeFigures {
            latency_ns: dist(r, all as usize, 0.6, 0.3, 0.02),
            transport_ns: dist(r, all as usize, 0.25, 0.2, 0.02),
            waiting_ns: dist(r, all as usize, 0.3, 0.4, 0.02),
            published: all,
            taken: all - lost - lost / 2,
            lost,
            overwritten: lost / 2,
            unselected: 0,
        };
        self.model.edges.push(Edge {
            from: from.into(),
            to: to.into(),
            topic: topic.into(),
            assumed: None,
            intra_process: false,
            figures,
            modes: BTreeMap::new(),
        });
    }

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
        let means = self.means(&callbacks, &topics);
        let total: f64 = means.iter().map(|m| m.2).sum();
        let mean_ms = total / 1e6;
        let latency = dist(&mut self.random, executions as usize, mean_ms, 0.12, 0.03);
        let last = self.callback_of(callbacks.last().unwrap());
        topics.extend(last.outputs.first().cloned());
        let share = |(element, name, mean): (&str, String, f64)| Share {
            element: element.into(),
            name,
            sum_ns: format!("{}", (mean * executions as f64) as u128),
            mean_ns: mean,
            fraction: mean / total,
        };
        self.model.chains.push(Chain {
            id: chain_id(&callbacks),
            callbacks,
            topics,
            assumed: false,
            ambiguous: false,
            from_input: false,
            cut: false,
            figures: ChainFigures {
                executions,
                jitter_ns: (latency.max() - latency.min()) / 2,
                lost: executions / 100,
                dropped: 0,
                shares: means.into_iter().map(share).collect(),
                latency_ns: latency,
                ..ChainFigures::default()
            },
            per_run: BTreeMap::new(),
            modes: BTreeMap::new(),
        });
    }

    fn callback_of(&self, id: &str) -> &Callback {
        self.model.callbacks.iter().find(|c| c.id == id).unwrap()
    }

    fn means(&self, callbacks: &[String], topics: &[String]) -> Vec<(&'static str, String, f64)> {
        let mut means = Vec::new();
        for (i, id) in callbacks.iter().enumerate() {
            let response = self.callback_of(id).figures.response_ns.mean();
            means.push(("callback", id.clone(), response.max(1e3)));
            if let Some(topic) = topics.get(i) {
                let edge = |e: &&Edge| &e.from == id && &e.topic == topic;
                let edge = self.model.edges.iter().find(edge).unwrap();
                means.push(("edge", topic.clone(), edge.figures.latency_ns.mean()));
            }
        }
        means
    }

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

fn chain_id(callbacks: &[String]) -> String {
    let bytes = callbacks.iter().flat_map(|c| c.bytes());
    let step = |h: u64, b: u8| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3);
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325, step);
    format!("chain-{:08x}", hash >> 32)
}
