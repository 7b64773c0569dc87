//! A model that follows a running system.
//!
//! [`Live`] takes the events of a recording while they come, and passes them to the same synthesis
//! as `onbeat model`. So its figures since the start equal those of the model of the events so far
//! (`tests/equal.rs`). It also keeps the figures of the last ten seconds and of the last minute
//! ([`window`]). [`view`] makes rows of them for a screen or for scripts.
//!
//! Memory is bounded: a window has a fixed number of slots, distributions have a fixed number of
//! buckets, and there is a limit for the entries. A live model forgets figures that have not been
//! seen for [`LiveOptions::forget_after_ns`], and counts them. It forgets nodes, endpoints and timers
//! some time after their end ([`forget`]).

mod forget;
mod kept;
pub mod late;
mod machine;
mod span;
mod structure;
pub mod tally;
pub mod view;
pub mod window;

use forget::Forgetting;
use kept::Kept;
use late::Causes;
use machine::Machine;
use onbeat_document::Model;
use onbeat_synth::detail::ItemSeen;
use onbeat_synth::followed::{ChainEnd, ChainStep};
use onbeat_synth::observe::Observation;
use onbeat_synth::{Synth, SynthOptions};
use onbeat_trace::{Event, EventKind};
use onbeat_why::compare::late_limit;
use std::collections::BTreeMap;
use structure::Structure;
use tally::{CallbackTally, ChainTally, EdgeTally};
use window::{Ring, Windows, SECOND_NS};

/// The largest number of callbacks that a live model follows. The same limit applies to paths, to
/// edges, to topics and to threads.
const ENTRIES_MAX: usize = 4096;

/// The largest number of characters of a thread's name that is stored. The rest is cut off.
const NAME_MAX: usize = 64;

const HISTORY: u64 = 60;

/// The maximum number of late executions that are stored until [`Live::drain_late`] returns them.
const LATE_MAX: usize = 4096;

/// The options of a live model.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone)]
pub struct LiveOptions {
    pub synth: SynthOptions,
    /// The time without an event after which onbeat forgets the figures of a callback, path, edge,
    /// topic or thread.
    pub forget_after_ns: u64,
    /// The time from the end of a node until onbeat forgets the node and everything that belongs to
    /// it. A node ends when it is destroyed, or when its process ends. Callbacks whose endpoint or
    /// timer ended are forgotten after the same time.
    pub forget_nodes_after_ns: u64,
    /// If true, the model follows threads and CPUs, and finds the causes of late executions. This
    /// takes most of the time and memory. If false, `cpus`, `threads`, `holders` and
    /// `late_execution` of a [`view::View`] stay empty.
    pub follows_machine: bool,
}

/// The number of names and callbacks that a process may create, see [`SynthOptions::created_max`].
const CREATED_MAX: u32 = 10_000;

impl LiveOptions {
    /// Returns the default options with `synth` as the options of the synthesis. Figures are
    /// forgotten after ten minutes without an event. Nodes are forgotten an hour after their
    /// destruction or the end of their process. A process may create 10,000 names and callbacks.
    pub fn new(synth: SynthOptions) -> LiveOptions {
        LiveOptions {
            synth: SynthOptions {
                created_max: CREATED_MAX,
                ..synth
            },
            forget_after_ns: 600 * SECOND_NS,
            forget_nodes_after_ns: 3600 * SECOND_NS,
            follows_machine: true,
        }
    }
}

#[derive(Debug, Clone)]
struct Path {
    /// The steps of the path's first execution. Only their callbacks and topics are used.
    steps: Vec<ChainStep>,
    cut: bool,
    tally: Windows<ChainTally>,
    /// The end of the path's latest execution (CLOCK_MONOTONIC), and the latency of this execution,
    /// in ns.
    latest: (u64, u64),
    /// The largest latency of the path's executions since the last [`Live::drain_longest`].
    longest_ns: Option<u64>,
    /// The largest latency of the path in each second, in ns.
    history: Ring<u64>,
    causes: Causes,
    /// The latest start of the path's first callback on which any output of the path has depended,
    /// in ns of CLOCK_MONOTONIC.
    origin_ns: Option<u64>,
    deadline_ns: Option<u64>,
}

/// An execution of a chain that took longer than its deadline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LateSeen {
    /// The chain's id, as it was at the last [`Live::refresh`].
    pub chain: String,
    /// The time at which the output was published (CLOCK_MONOTONIC).
    pub end_ns: u64,
    /// The time from the start of the first callback to the output.
    pub latency_ns: u64,
}

/// The key of an edge: the numbers of the publishing callback, of the callback that takes the
/// items, and of the topic.
type EdgeNumbers = (Option<u32>, u32, u32);

/// The number of a path, and whether the path ends at a cut: a publication that the user named as
/// the end of a part of a chain.
type PathNumber = (u32, bool);

/// A timing model of a running system, with figures over the last 10 s, over the last minute and
/// since the first event. The caller pushes events in the order of their times.
#[derive(Debug, Clone)]
pub struct Live {
    synth: Synth,
    forgetting: Forgetting,
    /// The times of the first and of the latest event, in ns of CLOCK_MONOTONIC.
    span: Option<(u64, u64)>,
    events: Windows<u64>,
    lost_events: Windows<u64>,
    /// The latest known difference CLOCK_REALTIME minus CLOCK_MONOTONIC, in ns.
    clock_offset_ns: Option<i64>,
    callbacks: Kept<u32, Windows<CallbackTally>>,
    /// The time of the latest start of each callback, in ns of CLOCK_MONOTONIC, by the callback's
    /// number.
    starts: Kept<u32, u64>,
    paths: Kept<PathNumber, Path>,
    edges: Kept<EdgeNumbers, Windows<EdgeTally>>,
    /// The number of publications on each topic, by the topic's number.
    published: Kept<u32, Windows<u64>>,
    /// The figures of threads and CPUs. `None` if the options exclude them.
    machine: Option<Machine>,
    structure: Structure,
    deadlines: Deadlines,
    is_stale: bool,
}

/// The deadlines of chains (the largest latency that each chain may have, by chain id), and the
/// executions that missed their deadlines.
#[derive(Debug, Clone, Default)]
struct Deadlines {
    ns: BTreeMap<String, u64>,
    late: Vec<LateSeen>,
}

impl Live {
    /// Creates a live model that has seen no events yet.
    pub fn new(options: LiveOptions) -> Live {
        let cut_to = options.synth.cuts.iter().filter_map(|c| c.to.clone());
        let structure = Structure::new(cut_to.collect());
        let mut synth = Synth::new(options.synth);
        synth.observe();
        synth.detail();
        Live {
            synth,
            forgetting: Forgetting::new(options.forget_after_ns, options.forget_nodes_after_ns),
            span: None,
            events: Windows::default(),
            lost_events: Windows::default(),
            clock_offset_ns: None,
            callbacks: Kept::new(ENTRIES_MAX),
            starts: Kept::new(ENTRIES_MAX),
            paths: Kept::new(ENTRIES_MAX),
            edges: Kept::new(ENTRIES_MAX),
            published: Kept::new(ENTRIES_MAX),
            machine: options.follows_machine.then(Machine::new),
            structure,
            deadlines: Deadlines::default(),
            is_stale: true,
        }
    }

    /// Sets the deadlines of chains by chain id: the largest latency that each chain may have, in
    /// ns. Longer executions count as late.
    pub fn set_deadlines(&mut self, deadlines: BTreeMap<String, u64>) {
        self.deadlines.ns = deadlines;
        self.set_limits();
    }

    /// Returns the largest latency of each chain's executions since the last call, by chain id. A
    /// chain without an execution since then is left out.
    pub fn drain_longest(&mut self) -> BTreeMap<String, u64> {
        let mut longest = BTreeMap::new();
        for (number, path) in self.paths.iter_mut() {
            let chain = self.structure.chain_of.get(number);
            let chain = chain.and_then(|&at| self.structure.chains.get(at));
            let Some((chain, ns)) = chain.zip(path.longest_ns) else {
                continue;
            };
            path.longest_ns = None;
            let of_chain: &mut u64 = longest.entry(chain.id.clone()).or_default();
            *of_chain = ns.max(*of_chain);
        }
        longest
    }

    /// Returns the executions that missed their deadlines since the last call, in the order in
    /// which onbeat found that they had ended. At most 4096 are returned.
    pub fn drain_late(&mut self) -> Vec<LateSeen> {
        std::mem::take(&mut self.deadlines.late)
    }

    /// Processes the next events, which must not be earlier than the events of previous calls.
    pub fn push(&mut self, events: &[Event]) {
        for event in events {
            self.push_one(event);
        }
        self.take();
    }

    fn push_one(&mut self, event: &Event) {
        let (first, now) = *self.span.get_or_insert((event.time_ns, event.time_ns));
        // An event with an earlier time than the event before it counts at that event's time. The synthesis
        // does the same.
        let time_ns = event.time_ns.max(now);
        if time_ns / SECOND_NS > now / SECOND_NS {
            self.take();
            self.count_running(time_ns);
            self.take_left_out();
            if (time_ns / SECOND_NS).is_multiple_of(10) {
                self.forget(time_ns);
                self.set_limits();
            }
        }
        self.span = Some((first, time_ns));
        self.events.at(time_ns, |n| *n += 1);
        match event.kind {
            EventKind::Lost { count, .. } => {
                let add = |n: &mut u64| *n = n.saturating_add(count);
                self.lost_events.at(time_ns, add);
            }
            EventKind::ClockOffset {
                realtime_minus_monotonic_ns,
            } => self.clock_offset_ns = Some(realtime_minus_monotonic_ns),
            _ => {}
        }
        if let Some(machine) = &mut self.machine {
            machine.push(event, time_ns);
        }
        self.synth.push(event);
    }

    /// Ends all callbacks that still run, as at the end of a recording. The caller must not push
    /// events afterwards.
    pub fn end(&mut self) {
        self.synth.end_of_events();
        self.take();
        self.cut(true);
        self.count_running(self.now_ns());
    }

    fn count_running(&mut self, now_ns: u64) {
        if let Some(machine) = &mut self.machine {
            machine.count_running(now_ns);
        }
    }

    /// Returns the model of the events so far. `onbeat model` makes the same model of a trace of
    /// these events.
    pub fn model(&self) -> Model {
        self.synth.snapshot()
    }

    /// Returns the time of the latest event (ns of CLOCK_MONOTONIC), or 0 before the first event.
    pub fn now_ns(&self) -> u64 {
        self.span.map_or(0, |span| span.1)
    }

    /// Converts a time of CLOCK_MONOTONIC to ns since 1970, by the latest offset between the
    /// clocks. Returns `None` before the first offset.
    pub fn realtime_ns(&self, time_ns: u64) -> Option<u64> {
        let offset_ns = self.clock_offset_ns?;
        Some(time_ns.saturating_add_signed(offset_ns))
    }

    /// Returns the time of the first event (ns of CLOCK_MONOTONIC), or 0 before it.
    pub fn start_ns(&self) -> u64 {
        self.span.map_or(0, |span| span.0)
    }

    /// Returns true if callbacks, topics or paths have appeared since the last [`Live::refresh`].
    pub fn is_stale(&self) -> bool {
        self.is_stale
    }

    /// Adds new chains and names to the live model, and returns the model of the events so far. A
    /// call takes milliseconds, so the caller should call it rarely, and only when
    /// [`Live::is_stale`] returns true.
    pub fn refresh(&mut self) -> Model {
        self.is_stale = false;
        let model = self.synth.snapshot();
        let paths = self.paths.iter();
        let paths = paths.map(|(&number, path)| (number, path.cut, path.steps.as_slice()));
        self.structure.read(&self.synth, &model, paths);
        model
    }

    fn take(&mut self) {
        if !self.synth.has_followed() {
            return;
        }
        for seen in self.synth.drain_observations() {
            if let Observation::Published { name, time_ns, .. } = seen {
                if let Some(of_topic) = self.published.at(name, time_ns, Windows::default) {
                    of_topic.at(time_ns, |n| *n += 1);
                }
            }
        }
        match &mut self.machine {
            Some(machine) => machine.take(&mut self.synth),
            None => {
                self.synth.drain_held();
                self.synth.drain_joins();
                self.synth.drain_asked();
                self.synth.drain_shaped();
                self.synth.drain_arrivals();
            }
        }
        let known = &self.structure;
        for seen in self.synth.drain_executions() {
            self.is_stale |= !known.has_callback(seen.callback);
            if let Some(machine) = &mut self.machine {
                machine.ran(&seen);
            }
            let new = Windows::default;
            let since_ns = self.starts.at(seen.callback, seen.end_ns, || u64::MAX);
            let since_ns = since_ns.map(|at| std::mem::replace(at, seen.start_ns));
            if let Some(windows) = self.callbacks.at(seen.callback, seen.end_ns, new) {
                windows.at(seen.end_ns, |tally| {
                    tally.record(&seen);
                    if let Some(before) = since_ns.filter(|&at| at < u64::MAX) {
                        let interval = seen.start_ns.saturating_sub(before);
                        tally.interarrival_ns.record(interval);
                    }
                });
            }
        }
        let items: Vec<ItemSeen> = self.synth.drain_items().collect();
        items.iter().for_each(|item| self.item(item));
        let ends: Vec<ChainEnd> = self.synth.drain_chain_ends().collect();
        ends.into_iter().for_each(|end| self.chain_ended(end));
        self.cut(false);
    }

    fn item(&mut self, item: &ItemSeen) {
        let now = self.now_ns();
        let key = (item.from, item.to, item.name);
        if let Some(windows) = self.edges.at(key, now, Windows::default) {
            windows.at(now, |tally| tally.record(item));
        }
    }

    fn chain_ended(&mut self, end: ChainEnd) {
        let Some(origin_ns) = end.steps.first().map(|first| first.start_ns) else {
            return;
        };
        let (time_ns, latency) = (end.end_ns, end.end_ns.saturating_sub(origin_ns));
        let key = (end.path, end.cut);
        // Data that was published before counts in the age of data only.
        if end.reread {
            if let Some(path) = self.paths.get_mut(&key) {
                path.tally
                    .at(time_ns, |tally| tally.reread_ns.record(latency));
            }
            return self.synth.take_back(end.steps);
        }
        self.is_stale |= !self.structure.has_path(key);
        let new = || Path {
            steps: end.steps.clone(),
            cut: end.cut,
            tally: Windows::default(),
            latest: (0, 0),
            longest_ns: None,
            history: Ring::new(SECOND_NS, HISTORY),
            causes: Causes::default(),
            origin_ns: None,
            deadline_ns: None,
        };
        let Some(path) = self.paths.at(key, time_ns, new) else {
            return;
        };
        let before = path.origin_ns.filter(|&before| before < origin_ns);
        path.origin_ns = path.origin_ns.max(Some(origin_ns));
        path.tally.at(time_ns, |tally| {
            tally.record(&end);
            if let Some(before) = before {
                tally.reaction_ns.record(time_ns.saturating_sub(before));
            }
        });
        if path.deadline_ns.is_some_and(|most| latency > most)
            && self.deadlines.late.len() < LATE_MAX
        {
            let chain = self.structure.chain_of.get(&key);
            if let Some(chain) = chain.and_then(|&at| self.structure.chains.get(at)) {
                self.deadlines.late.push(LateSeen {
                    chain: chain.id.clone(),
                    end_ns: time_ns,
                    latency_ns: latency,
                });
            }
        }
        if time_ns >= path.latest.0 {
            path.latest = (time_ns, latency);
        }
        path.longest_ns = path.longest_ns.max(Some(latency));
        if let Some(most) = path.history.at(time_ns) {
            *most = latency.max(*most);
        }
        let chosen = match self.machine {
            Some(_) => path.causes.choose(time_ns, latency),
            None => None,
        };
        match (&mut self.machine, chosen) {
            (Some(machine), Some(chosen)) => machine.ended(end, (key, chosen)),
            _ => self.synth.take_back(end.steps),
        }
    }

    /// Cuts the chosen executions of chains into stretches, and passes the stretches to the causes
    /// of their paths. An execution is cut only when it is so old that no later event can change
    /// its stretches. If `all` is true, every chosen execution counts as old enough.
    fn cut(&mut self, all: bool) {
        let Some(machine) = &mut self.machine else {
            return;
        };
        let paths = &mut self.paths;
        machine.cut(&mut self.synth, all, |(path, chosen), cuts| {
            if let Some(path) = paths.get_mut(&path) {
                path.causes.add(chosen, cuts);
            }
        });
    }

    /// Sets the latency above which the next executions of each path are late.
    fn set_limits(&mut self) {
        let structure = &self.structure;
        let deadlines = &self.deadlines.ns;
        for (number, path) in self.paths.iter_mut() {
            let chain = structure.chain_of.get(number);
            let chain = chain.and_then(|&at| structure.chains.get(at));
            let deadline = chain.and_then(|chain| deadlines.get(&chain.id)).copied();
            let usual = || late_limit(&path.tally.total().latency_ns);
            let known = path.causes.knows_usual();
            path.causes.limit_ns = deadline.or_else(|| known.then(usual));
            path.deadline_ns = deadline;
        }
    }

    /// Returns the figures of a callback since the first event. `callback` is the callback's number
    /// in the synthesis.
    pub fn callback_total(&self, callback: u32) -> Option<&CallbackTally> {
        self.callbacks.get(&callback).map(Windows::total)
    }

    /// Returns the ids of the callbacks at the last [`Live::refresh`]. The index is the callback's
    /// number in the synthesis.
    pub fn callback_ids(&self) -> &[Option<String>] {
        &self.structure.ids
    }

    /// Returns the figures of each edge since the first event, with the ids of its callbacks and
    /// its topic.
    pub fn edge_totals(&self) -> Vec<(Option<&str>, &str, &str, &EdgeTally)> {
        let ids = &self.structure.ids;
        let id = |number: u32| ids.get(number as usize)?.as_deref();
        let edges = self.edges.iter().filter_map(|(&(from, to, name), tally)| {
            let from = from.and_then(id);
            Some((from, id(to)?, self.synth.name(name), tally.total()))
        });
        edges.collect()
    }
}
