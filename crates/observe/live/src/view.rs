//! Rows for a screen or for scripts: the figures of a [`Live`] at one instant, without the state
//! behind them.

use crate::late::CauseRow;
use crate::machine::Machine;
use crate::structure::{places, KnownChain};
use crate::tally::{dist, Add, CallbackTally, ChainTally, EdgeTally};
use crate::window::{Span, Windows};
use crate::{EdgeNumbers, Live, Path};
use onbeat_document::dist::Dist;
use onbeat_document::schema::CallbackType;
use rustc_hash::FxHashSet;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// A figure over each of the three spans that `onbeat top` shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct PerSpan<T> {
    /// The figure over the last 9 to 10 s: the current second, which is not over yet, and the nine
    /// seconds before it.
    pub last_10s: T,
    /// The figure over the last 50 to 60 s: the current ten seconds and the fifty seconds before
    /// them.
    pub last_60s: T,
    /// The figure since the first event.
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

    /// Returns the figure over one of the spans.
    pub fn get(&self, span: Span) -> &T {
        match span {
            Span::TenSeconds => &self.last_10s,
            Span::Minute => &self.last_60s,
            Span::Start => &self.start,
        }
    }
}

/// The summary of a distribution of times: number, mean, median, 99th percentile and largest.
/// Without values, all fields are 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct Times {
    pub count: u64,
    #[serde(skip)]
    pub sum_ns: u128,
    pub mean_ns: u64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
}

impl Times {
    fn of(dist: &Dist) -> Times {
        let [p50_ns, p99_ns] = dist.quantiles([0.5, 0.99]);
        Times {
            count: dist.count(),
            sum_ns: dist.sum(),
            mean_ns: dist.mean() as u64,
            p50_ns,
            p99_ns,
            max_ns: dist.max(),
        }
    }
}

/// A callback's or an edge's part of a chain's latency, over the last ten seconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Part {
    /// The callback's id, or the topic of an edge.
    pub name: String,
    /// Whether the part belongs to an edge. The part then lasts from a publication to the start of
    /// the next callback.
    pub is_edge: bool,
    /// The mean length of the part per execution of the chain.
    pub mean_ns: u64,
}

/// The figures of a chain, over all paths that belong to it.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChainRow {
    /// The id of the chain in the model, for example `chain-664e64ef4c8d`.
    pub id: String,
    /// The readable name of the chain, for example `lidar -> planner via filter`.
    pub title: String,
    pub callbacks: Vec<String>,
    /// The topics between the callbacks, followed by the topic of the output.
    pub topics: Vec<String>,
    /// Whether at least one edge of the chain is assumed, not observed.
    pub assumed: bool,
    /// The latency of the chain's latest execution, or `None` if this execution ended more than a
    /// minute ago.
    pub latest_ns: Option<u64>,
    /// The time from the start of the first callback to the output.
    pub latency: PerSpan<Times>,
    /// The number of items on the chain's edges that were lost or overwritten.
    pub lost: PerSpan<u64>,
    /// The largest latency that the requirements allow, or `None` if they set no limit.
    pub deadline_ns: Option<u64>,
    /// The number of executions that missed the deadline. `None` without a deadline.
    pub late: Option<PerSpan<u64>>,
    /// The largest latency of each of the last 60 seconds, oldest first. `None` marks a second
    /// without an execution.
    pub history_ns: Vec<Option<u64>>,
    /// The parts of the latency, alternately of a callback and of an edge, from the first callback
    /// on.
    pub parts: Vec<Part>,
    /// The latest late execution and its causes. `None` if no execution was late, or if
    /// [`LiveOptions::follows_machine`](crate::LiveOptions::follows_machine) is false.
    pub late_execution: Option<LateRow>,
}

/// The latest late execution of a chain: an execution that missed the deadline. Without a deadline,
/// the longest executions of a path count as late: 1 % of at least 1000 executions, up to 5 % of
/// fewer executions.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct LateRow {
    /// The time from the end of the execution to the latest event.
    pub ago_ns: u64,
    pub latency_ns: u64,
    /// The causes that took longer than usual, the largest excess first.
    pub causes: Vec<CauseRow>,
}

/// The figures of one callback in a [`View`].
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct CallbackRow {
    pub id: String,
    pub node: String,
    #[serde(rename = "type")]
    pub kind: CallbackType,
    /// The period of a timer, or the steady period of another callback.
    pub period_ns: Option<u64>,
    pub rate_hz: PerSpan<f64>,
    pub exec: PerSpan<Times>,
    /// The time from when an execution could run until it ended.
    pub response: PerSpan<Times>,
    /// The time from when an execution could run until it started.
    pub waiting: PerSpan<Times>,
    /// The time per execution in which the callback's thread was ready to run and another thread
    /// had the CPU.
    pub preempted: PerSpan<Times>,
    /// The share of one CPU that the callback used, from 0 to 1.
    pub load: PerSpan<f64>,
}

/// The figures of a topic, or of a service's requests or responses, over all subscribers.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct TopicRow {
    pub name: String,
    pub publishers: Vec<String>,
    pub subscribers: Vec<String>,
    /// The number of publications by callbacks per second. `None` if no callback publishes.
    pub rate_hz: Option<PerSpan<f64>>,
    pub taken: PerSpan<u64>,
    /// The time from the publication until the item woke up the thread that takes it.
    pub transport: PerSpan<Times>,
    /// The time from the publication to the start of the callback that took the item.
    pub latency: PerSpan<Times>,
    /// The number of items that were never taken for an unknown reason.
    pub lost: PerSpan<u64>,
    /// The number of items that were not taken, because later items took their places in a queue.
    pub overwritten: PerSpan<u64>,
}

/// A CPU on which observed threads ran.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CpuRow {
    pub cpu: u16,
    /// The share of the CPU's time that observed threads used, from 0 to 1.
    pub load: PerSpan<f64>,
}

/// The figures of an observed thread, with the kernel's ids and name.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct ThreadRow {
    pub pid: u32,
    pub tid: u32,
    pub name: String,
    /// The CPU on which the thread was last seen.
    pub cpu: Option<u16>,
    pub callbacks: Vec<String>,
    /// The share of one CPU that the thread used, from 0 to 1.
    pub load: PerSpan<f64>,
    /// The share of the span in which the thread was ready to run and another thread had the CPU,
    /// from 0 to 1.
    pub waiting: PerSpan<f64>,
    /// Whether the thread has ended. Its figures stay until onbeat forgets them.
    pub ended: bool,
}

/// A program that had a CPU while an observed thread waited for it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HolderRow {
    /// The name of the program for users, as in the causes of a model.
    pub name: String,
    /// The time for which observed threads waited while the program had the CPU they waited for, as
    /// a share of the span.
    pub held: PerSpan<f64>,
}

/// The lists of a [`View`] that the caller needs. Lists that are not needed stay empty, which saves
/// time. `machine` stands for `cpus`, `threads` and `holders`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Wanted {
    pub chains: bool,
    pub callbacks: bool,
    pub topics: bool,
    pub machine: bool,
}

impl Wanted {
    /// Selects every part of a view.
    pub const ALL: Wanted = Wanted {
        chains: true,
        callbacks: true,
        topics: true,
        machine: true,
    };
}

/// The figures of a live model at one instant.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct View {
    /// The time of the latest event, CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// The time since the first event.
    pub elapsed_ns: u64,
    pub events: PerSpan<u64>,
    pub lost_events: PerSpan<u64>,
    /// The number of callbacks, paths, edges, topics and threads that were forgotten because they
    /// had not been seen for [`LiveOptions::forget_after_ns`](crate::LiveOptions::forget_after_ns).
    pub forgotten: u64,
    /// The number of nodes that were forgotten because they ended more than
    /// [`LiveOptions::forget_nodes_after_ns`](crate::LiveOptions::forget_nodes_after_ns) ago.
    pub forgotten_nodes: u64,
    /// The number of callbacks that were forgotten some time after the end of their endpoint or
    /// timer, while their nodes stayed.
    pub forgotten_callbacks: u64,
    /// The number of processes that have created more names and callbacks than the options allow.
    /// The figures leave out later events of these processes.
    pub left_out_processes: u64,
    /// The number of values that were not counted because a table of callbacks, paths, edges,
    /// topics or threads was full.
    pub left_out: u64,
    pub chains: Vec<ChainRow>,
    pub callbacks: Vec<CallbackRow>,
    /// The topics on which an item was published or taken, sorted by name.
    pub topics: Vec<TopicRow>,
    /// The CPUs on which observed threads ran, sorted by number.
    pub cpus: Vec<CpuRow>,
    /// The observed threads, sorted by process and thread.
    pub threads: Vec<ThreadRow>,
    /// The programs that had a CPU while observed threads waited for it. The largest share of the
    /// last minute comes first.
    pub holders: Vec<HolderRow>,
}

fn per_span(windows: &Windows<u64>, now_ns: u64) -> PerSpan<u64> {
    PerSpan::of(|span| u64::sum(&windows.parts(span, now_ns)))
}

/// Returns for each span the values that all windows in `all` have within the span. The sum of
/// these values is the value of the span.
fn parts<'a, T: Default + 'a>(
    all: impl Iterator<Item = &'a Windows<T>> + Clone,
    now_ns: u64,
) -> PerSpan<Vec<&'a T>> {
    PerSpan::of(|span| all.clone().flat_map(|w| w.parts(span, now_ns)).collect())
}

/// Returns for each span the summary of one figure over all parts. The function does not copy a
/// distribution if a span has only one part, for example the span since the first event.
fn times<T>(parts: &PerSpan<Vec<&T>>, figure: impl Fn(&T) -> &Dist) -> PerSpan<Times> {
    parts.map(|parts| match parts.as_slice() {
        [one] => Times::of(figure(one)),
        _ => Times::of(&dist(parts, &figure)),
    })
}

fn total<T>(parts: &PerSpan<Vec<&T>>, number: impl Fn(&T) -> i64) -> PerSpan<u64> {
    parts.map(|parts| count(parts.iter().map(|part| number(part)).sum()))
}

pub(crate) fn count(n: i64) -> u64 {
    n.max(0).unsigned_abs()
}

impl Live {
    /// Returns the figures at the time of the latest event. Chains and names are those of the last
    /// [`Live::refresh`].
    pub fn view(&mut self, wanted: Wanted) -> View {
        let now = self.now_ns();
        self.count_running(now);
        let mut view = View {
            time_ns: now,
            elapsed_ns: now - self.start_ns(),
            events: per_span(&self.events, now),
            lost_events: per_span(&self.lost_events, now),
            forgotten: self.forgotten(),
            forgotten_nodes: self.forgotten_nodes(),
            forgotten_callbacks: self.forgotten_callbacks(),
            left_out_processes: self.left_out_processes(),
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
        if let Some(machine) = self.machine.as_ref().filter(|_| wanted.machine) {
            view.cpus = self.cpu_rows(machine);
            view.threads = self.thread_rows(machine);
            view.holders = self.holder_rows(machine);
        }
        view
    }

    fn seconds(&self) -> PerSpan<f64> {
        let (start, now) = (self.start_ns(), self.now_ns());
        PerSpan::of(|span| (now.saturating_sub(span.since_ns(start, now)) as f64 / 1e9).max(1e-9))
    }

    /// Returns for each span the time that `windows` covers, in seconds: from the start of the
    /// span, or from the first value if this is later, until the latest event. The time is at least
    /// 1 s.
    fn seconds_of<T: Default>(&self, windows: &Windows<T>) -> PerSpan<f64> {
        let (start, now) = (self.start_ns(), self.now_ns());
        let first = windows.first_ns().unwrap_or(start);
        PerSpan::of(|span| {
            let since = span.since_ns(start, now).max(first);
            (now.saturating_sub(since) as f64 / 1e9).max(1.0)
        })
    }

    fn share(&self, windows: &Windows<u64>) -> PerSpan<f64> {
        let (ns, seconds) = (per_span(windows, self.now_ns()), self.seconds());
        PerSpan::of(|span| *ns.get(span) as f64 / 1e9 / seconds.get(span))
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
        let latency = parts(paths.iter().map(|path| &path.tally), now);
        let latest = paths.iter().map(|p| p.latest).max_by_key(|latest| latest.0);
        let minute = Span::Minute.since_ns(self.start_ns(), now);
        let deadline_ns = self.deadlines.ns.get(&chain.id).copied();
        let above = |limit: u64| {
            let of_part = |part: &ChainTally| part.latency_ns.count_above(limit);
            latency.map(|parts| parts.iter().map(|part| of_part(part)).sum())
        };
        ChainRow {
            id: chain.id.clone(),
            title: chain.title.clone(),
            callbacks: chain.callbacks.clone(),
            topics: chain.topics.clone(),
            assumed: chain.is_assumed,
            latest_ns: latest.filter(|at| at.0 >= minute).map(|at| at.1),
            latency: times(&latency, |tally| &tally.latency_ns),
            lost: self.lost_on(paths),
            deadline_ns,
            late: deadline_ns.map(above),
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

    /// Returns the number of items that were lost or overwritten on these edges within the span.
    pub(crate) fn lost(&self, edges: &[EdgeNumbers], span: Span) -> u64 {
        let windows = edges.iter().filter_map(|edge| self.edges.get(edge));
        let parts: Vec<&EdgeTally> = windows.flat_map(|w| w.parts(span, self.now_ns())).collect();
        let sum =
            |figure: fn(&EdgeTally) -> i64| count(parts.iter().map(|part| figure(part)).sum());
        sum(|tally| tally.lost) + sum(|tally| tally.overwritten)
    }

    fn lost_on(&self, paths: &[&Path]) -> PerSpan<u64> {
        let steps = paths.iter().flat_map(|path| path.steps.windows(2));
        let key = |pair: &[onbeat_synth::followed::ChainStep]| -> Option<EdgeNumbers> {
            Some((Some(pair[0].callback), pair[1].callback, pair[1].name?))
        };
        let edges: FxHashSet<EdgeNumbers> = steps.filter_map(key).collect();
        let edges: Vec<EdgeNumbers> = edges.into_iter().collect();
        PerSpan::of(|span| self.lost(&edges, span))
    }

    fn parts(&self, chain: &KnownChain, paths: &[&Path]) -> Vec<Part> {
        let now = self.now_ns();
        let mut sums = vec![0u128; 2 * chain.callbacks.len().max(1) - 1];
        let mut executions = 0;
        for path in paths {
            let tallies = path.tally.parts(Span::TenSeconds, now);
            let counts = tallies.iter().map(|tally| tally.latency_ns.count());
            executions += counts.sum::<u64>();
            let places = places(&path.steps, &chain.callbacks, &self.structure.ids);
            let all_ns = tallies
                .iter()
                .flat_map(|tally| tally.parts_ns.iter().enumerate());
            for (i, ns) in all_ns {
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
        let tallies = parts(std::iter::once(windows), self.now_ns());
        let exec = times(&tallies, |t| &t.exec_ns);
        let executions = total(&tallies, |t| t.executions as i64);
        let seconds = self.seconds();
        let running = self.seconds_of(windows);
        CallbackRow {
            id: id.clone(),
            node: known.map_or_else(String::new, |k| k.node.clone()),
            kind: known.map_or(CallbackType::Subscription, |k| k.kind),
            period_ns: known.and_then(|k| k.period_ns),
            rate_hz: PerSpan::of(|span| *executions.get(span) as f64 / running.get(span)),
            exec,
            response: times(&tallies, |t| &t.response_ns),
            waiting: times(&tallies, |t| &t.queued_ns),
            preempted: times(&tallies, |t| &t.preempted_ns),
            load: PerSpan::of(|span| exec.get(span).sum_ns as f64 / 1e9 / seconds.get(span)),
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
        let tallies = parts(windows, now);
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
                let published = per_span(windows, now);
                PerSpan::of(|span| *published.get(span) as f64 / seconds.get(span))
            }),
            taken: total(&tallies, |t| t.taken as i64),
            transport: times(&tallies, |t| &t.transport_ns),
            latency: times(&tallies, |t| &t.latency_ns),
            lost: total(&tallies, |t| t.lost),
            overwritten: total(&tallies, |t| t.overwritten),
        }
    }

    fn cpu_rows(&self, machine: &Machine) -> Vec<CpuRow> {
        let cpus = machine.cpus.iter();
        let row = |(&cpu, windows): (&u16, &Windows<u64>)| CpuRow {
            cpu,
            load: self.share(windows),
        };
        let mut rows: Vec<CpuRow> = cpus.map(row).collect();
        rows.sort_by_key(|row| row.cpu);
        rows
    }

    fn thread_rows(&self, machine: &Machine) -> Vec<ThreadRow> {
        let threads = machine.threads.iter().map(|(&tid, thread)| ThreadRow {
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

    fn holder_rows(&self, machine: &Machine) -> Vec<HolderRow> {
        let components = self.synth.components();
        // Threads of different processes can have one name.
        let mut by_name: BTreeMap<String, Vec<&Windows<u64>>> = BTreeMap::new();
        for (&number, windows) in machine.holders.iter() {
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
