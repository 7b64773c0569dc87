//! Rows for a screen or for scripts: the figures of a [`Live`] at one instant, without the state
//! behind them.

use crate::late::CauseRow;
use crate::structure::{places, KnownChain};
use crate::tally::{sum, Add, CallbackTally, ChainTally, EdgeTally};
use crate::window::{Span, Windows};
use crate::{EdgeNumbers, Live, Path};
use onbeat_document::dist::Dist;
use onbeat_document::schema::CallbackType;
use rustc_hash::FxHashSet;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// A value for each span of time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct PerSpan<T> {
    /// The value over the last ten seconds.
    pub last_10s: T,
    /// The value over the last minute.
    pub last_60s: T,
    /// The value since the start.
    pub start: T,
}

impl<T> PerSpan<T> {
    fn of(mut value: impl FnMut(Span) -> T) -> PerSpan<T> {
        PerSpan {
            last_10s: value(Span::TenSeconds),
            last_60s: value(Span::Minute),
            start: value(Span::Start),
        }
    }

    fn map<U>(&self, mut of: impl FnMut(&T) -> U) -> PerSpan<U> {
        PerSpan {
            last_10s: of(&self.last_10s),
            last_60s: of(&self.last_60s),
            start: of(&self.start),
        }
    }

    /// Returns the value of a span.
    pub fn get(&self, span: Span) -> &T {
        match span {
            Span::TenSeconds => &self.last_10s,
            Span::Minute => &self.last_60s,
            Span::Start => &self.start,
        }
    }
}

/// The summary of a distribution of times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Times {
    /// The number of values.
    pub count: u64,
    /// The mean.
    pub mean_ns: u64,
    /// The median.
    pub p50_ns: u64,
    /// The 99th percentile.
    pub p99_ns: u64,
    /// The largest value.
    pub max_ns: u64,
}

impl Times {
    fn of(dist: &Dist) -> Times {
        Times {
            count: dist.count(),
            mean_ns: dist.mean() as u64,
            p50_ns: dist.quantile(0.5),
            p99_ns: dist.quantile(0.99),
            max_ns: dist.max(),
        }
    }
}

/// A callback's or an edge's part of a chain's latency, over the last ten seconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Part {
    /// The callback's id, or the topic of an edge.
    pub name: String,
    /// The part is that of an edge: the time from the publication to the start of the next callback.
    pub is_edge: bool,
    /// The mean per execution.
    pub mean_ns: u64,
}

/// A chain.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChainRow {
    /// The id, as in the model.
    pub id: String,
    /// The readable name.
    pub title: String,
    /// The ids of the callbacks, first to last.
    pub callbacks: Vec<String>,
    /// The topics between them, then the output.
    pub topics: Vec<String>,
    /// At least one edge is assumed.
    pub assumed: bool,
    /// The latency of the latest execution, or `None` if it ended more than a minute ago.
    pub latest_ns: Option<u64>,
    /// The latency.
    pub latency: PerSpan<Times>,
    /// The number of items on the chain's edges that were never taken.
    pub lost: PerSpan<u64>,
    /// The largest latency that the requirements allow.
    pub deadline_ns: Option<u64>,
    /// The number of executions that took longer than the deadline.
    pub late: Option<PerSpan<u64>>,
    /// The largest latency of each of the last 60 seconds, oldest first.
    pub history_ns: Vec<Option<u64>>,
    /// The parts of the latency, in order.
    pub parts: Vec<Part>,
    /// The latest execution that was late, with its causes.
    pub late_execution: Option<LateRow>,
}

/// The latest late execution of a chain: one beyond the deadline. Without a deadline, one of the
/// longest 1 % to 5 %.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LateRow {
    /// The time since its end.
    pub ago_ns: u64,
    /// The latency.
    pub latency_ns: u64,
    /// The causes that took longer than usual, the largest excess first.
    pub causes: Vec<CauseRow>,
}

/// A callback.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CallbackRow {
    /// The id, as in the model.
    pub id: String,
    /// The node's full name.
    pub node: String,
    /// The type of event that triggers the callback.
    #[serde(rename = "type")]
    pub kind: CallbackType,
    /// The period of a timer, or the steady period of another callback.
    pub period_ns: Option<u64>,
    /// The number of executions per second.
    pub rate_hz: PerSpan<f64>,
    /// The time on the CPU.
    pub exec: PerSpan<Times>,
    /// The time from when an execution could run to its end.
    pub response: PerSpan<Times>,
    /// The time from when an execution could run to its start.
    pub waiting: PerSpan<Times>,
    /// The time per execution in which the callback was ready but not running.
    pub preempted: PerSpan<Times>,
    /// The share of one CPU.
    pub load: PerSpan<f64>,
}

/// A topic, or a service's requests or responses, over all its subscribers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TopicRow {
    /// The name.
    pub name: String,
    /// The ids of the callbacks that publish, sorted.
    pub publishers: Vec<String>,
    /// The ids of the callbacks that take the items, sorted.
    pub subscribers: Vec<String>,
    /// The number of publications by callbacks per second. `None` if only others publish.
    pub rate_hz: Option<PerSpan<f64>>,
    /// The number of items that were taken.
    pub taken: PerSpan<u64>,
    /// The time from the publication until the item woke up its taker.
    pub transport: PerSpan<Times>,
    /// The time from the publication to the start of the callback that took the item.
    pub latency: PerSpan<Times>,
    /// The number of items that were never taken for an unknown reason.
    pub lost: PerSpan<u64>,
    /// The number of items that later ones pushed out of a queue.
    pub overwritten: PerSpan<u64>,
}

/// A CPU on which observed threads ran.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CpuRow {
    /// The number of the CPU.
    pub cpu: u16,
    /// The share of its time that observed threads used.
    pub load: PerSpan<f64>,
}

/// An observed thread.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ThreadRow {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The thread's name.
    pub name: String,
    /// The CPU on which the thread was last seen.
    pub cpu: Option<u16>,
    /// The ids of the callbacks that the thread ran.
    pub callbacks: Vec<String>,
    /// The share of one CPU.
    pub load: PerSpan<f64>,
    /// The share of the time in which the thread was ready and another one had the CPU.
    pub waiting: PerSpan<f64>,
    /// The thread has ended.
    pub ended: bool,
}

/// A program that had a CPU while an observed thread waited for it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HolderRow {
    /// The component in words, as in the model's causes.
    pub name: String,
    /// The time for which observed threads waited for it, as a share of the span.
    pub held: PerSpan<f64>,
}

/// The parts of a [`View`] that are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// The chains are wanted.
    pub chains: bool,
    /// The callbacks are wanted.
    pub callbacks: bool,
    /// The topics are wanted.
    pub topics: bool,
    /// CPUs, threads and holders of CPUs are wanted.
    pub machine: bool,
}

impl Wanted {
    /// Every part.
    pub const ALL: Wanted = Wanted {
        chains: true,
        callbacks: true,
        topics: true,
        machine: true,
    };
}

/// The figures of a live model at one instant.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct View {
    /// The time of the latest event, CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// The time since the first event.
    pub elapsed_ns: u64,
    /// The number of events.
    pub events: PerSpan<u64>,
    /// The number of events that the recorder lost.
    pub lost_events: PerSpan<u64>,
    /// The number of entries that were forgotten because they had not been seen for long.
    pub forgotten: u64,
    /// How often something was not counted because too many entries exist.
    pub left_out: u64,
    /// The chains.
    pub chains: Vec<ChainRow>,
    /// The callbacks.
    pub callbacks: Vec<CallbackRow>,
    /// The topics.
    pub topics: Vec<TopicRow>,
    /// The CPUs.
    pub cpus: Vec<CpuRow>,
    /// The observed threads.
    pub threads: Vec<ThreadRow>,
    /// The programs that had a CPU while observed threads waited for it, most first.
    pub holders: Vec<HolderRow>,
}

fn per_span<T: Add>(windows: &Windows<T>, now_ns: u64) -> PerSpan<T> {
    PerSpan::of(|span| sum(windows.parts(span, now_ns)))
}

/// Adds up windows of several entries.
fn together<'a, T: Add + 'a>(
    all: impl Iterator<Item = &'a Windows<T>> + Clone,
    now_ns: u64,
) -> PerSpan<T> {
    PerSpan::of(|span| sum(all.clone().flat_map(|w| w.parts(span, now_ns)).collect()))
}

fn count(n: i64) -> u64 {
    n.max(0).unsigned_abs()
}

impl Live {
    /// Returns the figures at the time of the latest event. Chains and names are those of the last
    /// [`Live::refresh`].
    pub fn view(&mut self, wanted: Wanted) -> View {
        let now = self.now_ns();
        self.machine.count_running(now);
        let mut view = View {
            time_ns: now,
            elapsed_ns: now - self.start_ns(),
            events: per_span(&self.events, now),
            lost_events: per_span(&self.lost_events, now),
            forgotten: self.forgotten(),
            left_out: self.left_out(),
            ..View::default()
        };
        if wanted.chains {
            self.set_limits();
            view.chains = self.chain_rows();
        }
        if wanted.callbacks {
            view.callbacks = self.callback_rows();
        }
        if wanted.topics {
            view.topics = self.topic_rows();
        }
        if wanted.machine {
            view.cpus = self.cpu_rows();
            view.threads = self.thread_rows();
            view.holders = self.holder_rows();
        }
        view
    }

    /// Returns the length of each span, s.
    fn seconds(&self) -> PerSpan<f64> {
        let (start, now) = (self.start_ns(), self.now_ns());
        PerSpan::of(|span| (now.saturating_sub(span.since_ns(start, now)) as f64 / 1e9).max(1e-9))
    }

    /// Returns the time in each span since the first value of `windows`, at least a second, s.
    fn seconds_of<T: Default>(&self, windows: &Windows<T>) -> PerSpan<f64> {
        let (start, now) = (self.start_ns(), self.now_ns());
        let first = windows.first_ns().unwrap_or(start);
        PerSpan::of(|span| {
            let since = span.since_ns(start, now).max(first);
            (now.saturating_sub(since) as f64 / 1e9).max(1.0)
        })
    }

    fn share(&self, windows: &Windows<u64>) -> PerSpan<f64> {
        let (now, seconds) = (self.now_ns(), self.seconds());
        PerSpan::of(|span| {
            let ns: u64 = sum(windows.parts(span, now));
            ns as f64 / 1e9 / seconds.get(span)
        })
    }

    fn id(&self, number: u32) -> Option<&String> {
        self.structure.ids.get(number as usize)?.as_ref()
    }

    fn chain_rows(&self) -> Vec<ChainRow> {
        let mut paths: Vec<Vec<&Path>> = vec![Vec::new(); self.structure.chains.len()];
        for (number, path) in self.paths.iter() {
            if let Some(&at) = self.structure.chain_of.get(number) {
                paths[at].push(path);
            }
        }
        let chains = self.structure.chains.iter().zip(paths);
        let seen = chains.filter(|(_, paths)| !paths.is_empty());
        seen.map(|(chain, paths)| self.chain_row(chain, &paths))
            .collect()
    }

    fn chain_row(&self, chain: &KnownChain, paths: &[&Path]) -> ChainRow {
        let now = self.now_ns();
        let latency = PerSpan::of(|span| {
            let mut all = Dist::new();
            let parts = paths.iter().flat_map(|p| p.tally.parts(span, now));
            parts.for_each(|part| all.merge(&part.latency_ns));
            all
        });
        let latest = paths.iter().map(|p| p.latest).max_by_key(|latest| latest.0);
        let minute = Span::Minute.since_ns(self.start_ns(), now);
        let deadline_ns = self.deadlines.ns.get(&chain.id).copied();
        let above = |dist: &Dist, limit: u64| {
            let over = dist.buckets().filter(|(low, ..)| *low > limit);
            over.map(|(.., n)| n).sum()
        };
        ChainRow {
            id: chain.id.clone(),
            title: chain.title.clone(),
            callbacks: chain.callbacks.clone(),
            topics: chain.topics.clone(),
            assumed: chain.is_assumed,
            latest_ns: latest.filter(|at| at.0 >= minute).map(|at| at.1),
            latency: latency.map(Times::of),
            lost: self.lost_on(paths),
            deadline_ns,
            late: deadline_ns.map(|limit| latency.map(|dist| above(dist, limit))),
            history_ns: history(paths, now),
            parts: self.parts(chain, paths),
            late_execution: self.late_execution(paths),
        }
    }

    fn late_execution(&self, paths: &[&Path]) -> Option<LateRow> {
        let late = paths.iter().filter_map(|path| path.causes.late.as_ref());
        let late = late.max_by_key(|late| late.end_ns)?;
        Some(LateRow {
            ago_ns: self.now_ns().saturating_sub(late.end_ns),
            latency_ns: late.latency_ns,
            causes: late.rows(&self.synth, &self.structure.ids),
        })
    }

    fn lost_on(&self, paths: &[&Path]) -> PerSpan<u64> {
        let steps = paths.iter().flat_map(|path| path.steps.windows(2));
        let key = |pair: &[onbeat_synth::followed::ChainStep]| -> Option<EdgeNumbers> {
            Some((Some(pair[0].callback), pair[1].callback, pair[1].name?))
        };
        let edges: FxHashSet<EdgeNumbers> = steps.filter_map(key).collect();
        let windows = edges.iter().filter_map(|edge| self.edges.get(edge));
        let all = together(windows, self.now_ns());
        all.map(|tally: &EdgeTally| count(tally.lost) + count(tally.overwritten))
    }

    fn parts(&self, chain: &KnownChain, paths: &[&Path]) -> Vec<Part> {
        let now = self.now_ns();
        let mut sums = vec![0u128; 2 * chain.callbacks.len().max(1) - 1];
        let mut executions = 0;
        for path in paths {
            let tally: ChainTally = sum(path.tally.parts(Span::TenSeconds, now));
            executions += tally.latency_ns.count();
            let places = places(&path.steps, &chain.callbacks, &self.structure.ids);
            for (i, ns) in tally.parts_ns.iter().enumerate() {
                let to = places.get(i.div_ceil(2)).copied().unwrap_or(0);
                let from = places.get(i / 2).copied().unwrap_or(0);
                // The edge to a synchroniser that is not in the chain belongs to the callback
                // before it.
                let at = match (i % 2, from == to) {
                    (0, _) | (_, true) => 2 * from,
                    _ => 2 * to - 1,
                };
                if let Some(sum) = sums.get_mut(at) {
                    *sum += ns;
                }
            }
        }
        let name = |i: usize| match i % 2 {
            0 => chain.callbacks.get(i / 2),
            _ => chain.topics.get(i / 2),
        };
        let parts = sums.iter().enumerate().map(|(i, ns)| Part {
            name: name(i).cloned().unwrap_or_default(),
            is_edge: i % 2 == 1,
            mean_ns: (ns / u128::from(executions.max(1))) as u64,
        });
        parts.collect()
    }

    fn callback_rows(&self) -> Vec<CallbackRow> {
        let rows = self.callbacks.iter().filter_map(|(&number, windows)| {
            let id = self.id(number)?;
            Some(self.callback_row(id, windows))
        });
        let mut rows: Vec<CallbackRow> = rows.collect();
        rows.sort_by(|a, b| a.id.cmp(&b.id));
        rows
    }

    fn callback_row(&self, id: &String, windows: &Windows<CallbackTally>) -> CallbackRow {
        let known = self.structure.callbacks.get(id);
        let tallies = per_span(windows, self.now_ns());
        let seconds = self.seconds();
        let running = self.seconds_of(windows);
        CallbackRow {
            id: id.clone(),
            node: known.map_or_else(String::new, |k| k.node.clone()),
            kind: known.map_or(CallbackType::Subscription, |k| k.kind),
            period_ns: known.and_then(|k| k.period_ns),
            rate_hz: PerSpan::of(|span| tallies.get(span).executions as f64 / running.get(span)),
            exec: tallies.map(|t| Times::of(&t.exec_ns)),
            response: tallies.map(|t| Times::of(&t.response_ns)),
            waiting: tallies.map(|t| Times::of(&t.queued_ns)),
            preempted: tallies.map(|t| Times::of(&t.preempted_ns)),
            load: PerSpan::of(|span| {
                tallies.get(span).exec_ns.sum() as f64 / 1e9 / seconds.get(span)
            }),
        }
    }

    fn topic_rows(&self) -> Vec<TopicRow> {
        let mut edges: BTreeMap<u32, Vec<EdgeNumbers>> = BTreeMap::new();
        for (&key, _) in self.edges.iter() {
            edges.entry(key.2).or_default().push(key);
        }
        for (&name, _) in self.published.iter() {
            edges.entry(name).or_default();
        }
        let rows = edges
            .iter()
            .map(|(&name, edges)| self.topic_row(name, edges));
        let mut rows: Vec<TopicRow> = rows.collect();
        rows.sort_by(|a, b| a.name.cmp(&b.name));
        rows
    }

    fn topic_row(&self, name: u32, edges: &[EdgeNumbers]) -> TopicRow {
        let now = self.now_ns();
        let windows = edges.iter().filter_map(|edge| self.edges.get(edge));
        let tallies: PerSpan<EdgeTally> = together(windows, now);
        let published = self.published.get(&name);
        let ids = |numbers: &mut dyn Iterator<Item = u32>| -> Vec<String> {
            let ids: BTreeSet<&String> = numbers.filter_map(|n| self.id(n)).collect();
            ids.into_iter().cloned().collect()
        };
        TopicRow {
            name: self.synth.name(name).to_string(),
            publishers: ids(&mut edges.iter().filter_map(|edge| edge.0)),
            subscribers: ids(&mut edges.iter().map(|edge| edge.1)),
            rate_hz: published.map(|windows| {
                let seconds = self.seconds_of(windows);
                PerSpan::of(|span| {
                    let n: u64 = sum(windows.parts(span, now));
                    n as f64 / seconds.get(span)
                })
            }),
            taken: tallies.map(|t| t.taken),
            transport: tallies.map(|t| Times::of(&t.transport_ns)),
            latency: tallies.map(|t| Times::of(&t.latency_ns)),
            lost: tallies.map(|t| count(t.lost)),
            overwritten: tallies.map(|t| count(t.overwritten)),
        }
    }

    fn cpu_rows(&self) -> Vec<CpuRow> {
        let cpus = self.machine.cpus.iter();
        let row = |(&cpu, windows): (&u16, &Windows<u64>)| CpuRow {
            cpu,
            load: self.share(windows),
        };
        let mut rows: Vec<CpuRow> = cpus.map(row).collect();
        rows.sort_by_key(|row| row.cpu);
        rows
    }

    fn thread_rows(&self) -> Vec<ThreadRow> {
        let threads = self.machine.threads.iter().map(|(&tid, thread)| ThreadRow {
            pid: thread.pid,
            tid,
            name: thread.comm.clone(),
            cpu: thread.cpu,
            callbacks: thread
                .callbacks
                .iter()
                .filter_map(|&n| self.id(n).cloned())
                .collect(),
            load: self.share(&thread.running),
            waiting: self.share(&thread.waiting),
            ended: thread.has_ended,
        });
        let mut rows: Vec<ThreadRow> = threads.collect();
        rows.sort_by_key(|row| (row.pid, row.tid));
        rows
    }

    fn holder_rows(&self) -> Vec<HolderRow> {
        let components = self.synth.components();
        // Threads of different processes can have one name.
        let mut by_name: BTreeMap<String, Vec<&Windows<u64>>> = BTreeMap::new();
        for (&number, windows) in self.machine.holders.iter() {
            if let Some(component) = components.get(number as usize) {
                by_name.entry(component.title()).or_default().push(windows);
            }
        }
        let row = |(name, windows): (String, Vec<&Windows<u64>>)| {
            let shares: Vec<PerSpan<f64>> = windows.iter().map(|w| self.share(w)).collect();
            HolderRow {
                name,
                held: PerSpan::of(|span| shares.iter().map(|share| share.get(span)).sum()),
            }
        };
        let mut rows: Vec<HolderRow> = by_name.into_iter().map(row).collect();
        rows.sort_by(|a, b| b.held.last_60s.total_cmp(&a.held.last_60s));
        rows
    }
}

fn history(paths: &[&Path], now_ns: u64) -> Vec<Option<u64>> {
    let mut all: Vec<Option<u64>> = Vec::new();
    for path in paths {
        let series = path.history.series(now_ns);
        all.resize(series.len(), None);
        for (most, value) in all.iter_mut().zip(series) {
            *most = (*most).max(value.copied());
        }
    }
    all
}
