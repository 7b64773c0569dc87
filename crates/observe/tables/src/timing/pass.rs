//! Reads the events of a recording once and makes rows of numbers from them.

use super::columns::Table;
use super::system::{Stay, Thread};
use arrow_schema::ArrowError;
use onbeat_synth::detail::{Ended, ExecutionSeen, Fate, ItemSeen};
use onbeat_synth::followed::{each, Asked, ChainEnd, ChainStep, Held, Joined, Shaped};
use onbeat_synth::named::Named;
use onbeat_synth::{Synth, SynthOptions};
use onbeat_trace::Event;
use onbeat_why::every::{CulpritId, Cut, News, Watch};
use onbeat_why::{Kind, Reason};
use rustc_hash::{FxHashMap, FxHashSet};

pub(crate) const CULPRITS: &[&str] = &[
    "callback", "thread", "mutex_of", "woken_by", "call", "socket",
];

pub(crate) const CALLBACK: usize = 0;
pub(crate) const CALL: usize = 4;
pub(crate) const SOCKET: usize = 5;

fn culprit(id: CulpritId) -> i64 {
    let (kind, number) = match id {
        CulpritId::Callback(n) => (0, n),
        CulpritId::Thread(n) => (1, n),
        CulpritId::MutexOf(n) => (2, n),
        CulpritId::WokenBy(n) => (3, n),
        CulpritId::Call(call) => (CALL as i64, call as u32),
        CulpritId::Socket(port) => (SOCKET as i64, port.into()),
    };
    (kind << 32) | i64::from(number)
}

pub(crate) fn culprit_of(number: i64) -> Option<(usize, u32)> {
    let kind = usize::try_from(number >> 32).ok()?;
    Some((kind, (number & i64::from(u32::MAX)) as u32))
}

/// An item that was reported as lost or overwritten, and was taken later: publisher, subscription,
/// topic, time of the publication and fate.
pub(crate) type Recovered = (i64, i64, i64, i64, i64);

/// The number of a chain's path, and the number of one execution of the chain.
pub(crate) type OfChain = (i64, i64);

pub(crate) trait Take {
    fn row(&mut self, table: Table, row: &[Option<i64>]);
    /// Returns the error that an earlier call of `row` has met, and forgets it.
    fn failed(&mut self) -> Option<ArrowError>;
}

/// Ignores all rows.
impl Take for () {
    fn row(&mut self, _: Table, _: &[Option<i64>]) {}

    fn failed(&mut self) -> Option<ArrowError> {
        None
    }
}

/// A result of the synthesis that is passed to the thread that divides executions of chains into
/// stretches.
#[derive(Clone)]
pub(crate) enum Report {
    Named(Named),
    Held(Held),
    Joined(Joined),
    Asked(Asked),
    Shaped(Shaped),
    Ran(ExecutionSeen),
    Ended(ChainEnd),
}

/// Consecutive events, and the reports of the synthesis about them.
pub(crate) struct Batch {
    pub(crate) events: Vec<Event>,
    /// The reports, each with the index (in `events`) of the event that led to it.
    pub(crate) reports: Vec<(usize, Report)>,
    pub(crate) news: News,
}

/// Makes rows of the executions and items of a trace. It passes the events to a synthesis.
pub(crate) struct Pass {
    pub(crate) synth: Synth,
    with_stretches: bool,
    watch: Watch,
    reports: Vec<(usize, Report)>,
    /// The number of events since the last batch.
    events: usize,
    held: Vec<Held>,
    pub(crate) topics: FxHashSet<u32>,
    pub(crate) recovered: FxHashMap<Recovered, u64>,
}

fn int(value: u64) -> Option<i64> {
    i64::try_from(value).ok()
}

fn flag(value: bool) -> Option<i64> {
    Some(value.into())
}

impl Pass {
    pub(crate) fn new(options: SynthOptions, with_stretches: bool) -> Pass {
        let mut synth = Synth::new(options);
        synth.detail();
        synth.keep_named();
        Pass {
            synth,
            with_stretches,
            watch: Watch::default(),
            reports: Vec::new(),
            events: 0,
            held: Vec::new(),
            topics: FxHashSet::default(),
            recovered: FxHashMap::default(),
        }
    }

    pub(crate) fn push(&mut self, event: &Event, rows: &mut impl Take) {
        self.synth.push(event);
        if self.synth.has_followed() {
            self.take(rows);
        }
        self.events += 1;
    }

    pub(crate) fn finish(&mut self, rows: &mut impl Take) {
        self.synth.end_of_events();
        self.take(rows);
    }

    /// Returns the events since the last call together with the reports about them. `events` are
    /// these events, and `spare` is a list whose memory the next reports use.
    pub(crate) fn batch(&mut self, events: Vec<Event>, spare: Vec<(usize, Report)>) -> Batch {
        let count = std::mem::take(&mut self.events);
        Batch {
            events,
            reports: std::mem::replace(&mut self.reports, spare),
            news: self.watch.news(&self.synth, count),
        }
    }

    /// Empties a list of reports. The synthesis uses the memory of their steps again.
    pub(crate) fn empty(&mut self, reports: &mut Vec<(usize, Report)>) {
        each(reports.drain(..), |(_, report)| match report {
            Report::Ended(end) => self.synth.take_back(end.steps),
            Report::Joined(joined) => self.synth.take_back(joined.steps),
            Report::Named(_)
            | Report::Held(_)
            | Report::Asked(_)
            | Report::Shaped(_)
            | Report::Ran(_) => {}
        });
    }

    fn take(&mut self, rows: &mut impl Take) {
        self.take_followed();
        let at = self.events;
        each(self.synth.drain_executions(), |seen| {
            if self.with_stretches {
                self.reports.push((at, Report::Ran(seen)));
            }
            self.topics.extend(seen.input.map(|i| i.name));
            rows.row(Table::Executions, &execution_row(&seen));
        });
        each(self.synth.drain_items(), |item| {
            self.topics.insert(item.name);
            match fate(item.fate) {
                Some(fate) => rows.row(Table::Items, &item_row(&item, fate)),
                None => *self.recovered.entry(recovered(&item)).or_default() += 1,
            }
        });
        let reports = &mut self.reports;
        each(self.synth.drain_chain_ends(), |end| {
            reports.push((at, Report::Ended(end)));
        });
    }

    fn take_followed(&mut self) {
        let (at, synth, reports) = (self.events, &mut self.synth, &mut self.reports);
        if self.with_stretches {
            each(synth.drain_named(), |named| {
                reports.push((at, Report::Named(named)));
            });
            // The parts of one wait are reported latest first, and the history takes parts in order faster.
            each(synth.drain_held(), |held| self.held.push(held));
            self.held.sort_by_key(|held| held.begin_ns);
            each(self.held.drain(..), |held| {
                reports.push((at, Report::Held(held)));
            });
            each(synth.drain_joins(), |joined| {
                reports.push((at, Report::Joined(joined)));
            });
            each(synth.drain_asked(), |asked| {
                reports.push((at, Report::Asked(asked)));
            });
            each(synth.drain_shaped(), |shaped| {
                reports.push((at, Report::Shaped(shaped)));
            });
        } else {
            synth.drain_named();
            synth.drain_held();
            synth.drain_joins();
            synth.drain_asked();
            synth.drain_shaped();
        }
        synth.drain_arrivals();
    }
}

pub(crate) fn take_stays(stays: &mut Vec<Stay>, rows: &mut impl Take) -> Result<(), ArrowError> {
    for stay in stays.drain(..) {
        rows.row(Table::Switches, &switch_row(&stay));
    }
    rows.failed().map_or(Ok(()), Err)
}

pub(crate) fn take_threads(threads: &[Thread], rows: &mut impl Take) {
    for thread in threads {
        rows.row(Table::Threads, &thread_row(thread));
    }
}

fn execution_row(seen: &ExecutionSeen) -> [Option<i64>; 19] {
    let timed = seen.ended.is_timed();
    let ended = timed || seen.ended == Ended::Shared;
    let spent = seen.spent.filter(|_| timed);
    let reason = match seen.ended {
        Ended::Exact | Ended::Inferred => None,
        Ended::Shared => Some(0),
        Ended::Unshown => Some(1),
        Ended::Aborted => Some(2),
        Ended::CutOff => Some(3),
        Ended::Unfinished => Some(4),
    };
    let untimed = spent.is_none().then_some(5);
    // Without scheduler events, the execution time includes preemption, as in the model.
    let split = spent.filter(|_| seen.scheduled);
    let ready = seen.ready_ns.map(|ready| ready.min(seen.start_ns));
    let queued = ready.and_then(|ready| int(seen.start_ns - ready));
    [
        Some(seen.callback.into()),
        int(seen.start_ns),
        int(seen.end_ns).filter(|_| ended),
        spent.and_then(|s| int(s.exec_ns)),
        split.and_then(|s| int(s.preempted_ns)),
        split.and_then(|s| int(s.blocked_ns)),
        queued,
        reason.or(untimed),
        flag(seen.ended == Ended::Inferred).filter(|_| ended),
        flag(seen.scheduled),
        Some(seen.preemptions.into()).filter(|_| split.is_some()),
        Some(seen.blockings.into()).filter(|_| split.is_some()),
        Some(seen.pid.into()),
        Some(seen.tid.into()),
        seen.cpu.map(i64::from),
        Some(seen.cpus.into()).filter(|cpus| *cpus > 0),
        seen.input.map(|i| i.name.into()),
        seen.input.and_then(|i| int(i.published_ns)),
        Some(seen.outputs.into()),
    ]
}

/// Returns the number that stands for an item's fate in a row. Returns `None` for a fate that
/// revokes an earlier one.
fn fate(fate: Fate) -> Option<i64> {
    match fate {
        Fate::Taken { .. } => Some(0),
        Fate::OnlyTaken { .. } => Some(1),
        Fate::Lost => Some(2),
        Fate::Overwritten => Some(3),
        Fate::NotLost | Fate::NotOverwritten => None,
    }
}

fn recovered(item: &ItemSeen) -> Recovered {
    let fate = match item.fate {
        Fate::NotLost => 2,
        _ => 3,
    };
    (
        item.from.map_or(-1, i64::from),
        item.to.into(),
        item.name.into(),
        item.published_ns.and_then(int).unwrap_or(-1),
        fate,
    )
}

fn item_row(item: &ItemSeen, fate: i64) -> [Option<i64>; 12] {
    let taken = match item.fate {
        Fate::Taken { time_ns, .. } | Fate::OnlyTaken { time_ns } => Some(time_ns),
        _ => None,
    };
    let by = match item.fate {
        Fate::Taken { pid, tid, .. } => Some((pid, tid)),
        _ => None,
    };
    [
        Some(item.name.into()),
        item.from.map(i64::from),
        Some(item.to.into()),
        item.published_ns.and_then(int),
        item.source_ns,
        item.available_ns.and_then(int),
        taken.and_then(int),
        Some(fate),
        flag(fate == 2),
        flag(item.intra_process),
        by.map(|by| by.0.into()),
        by.map(|by| by.1.into()),
    ]
}

pub(crate) fn chain_row(end: &ChainEnd, of: OfChain) -> [Option<i64>; 7] {
    let start = end.steps.first().map_or(end.end_ns, |s| s.start_ns);
    let age = int(end.end_ns.saturating_sub(start));
    [
        Some(of.0),
        Some(of.1),
        Some(of.0),
        int(start),
        int(end.end_ns),
        age.filter(|_| !end.reread),
        age,
    ]
}

pub(crate) fn stretch_row(of: OfChain, cut: &Cut, number: i64) -> [Option<i64>; 12] {
    let by = cut.by.map(culprit);
    let meanwhile = cut.during.and_then(|d| d.1).map(culprit);
    [
        Some(of.0),
        Some(of.1),
        Some(number),
        int(cut.end_ns - cut.begin_ns),
        Some(cut.place.into()),
        Some(kind(cut.kind)),
        by,
        by,
        cut.during.map(|d| kind(d.0)),
        meanwhile,
        meanwhile,
        cut.reason.map(reason),
    ]
}

fn kind(kind: Kind) -> i64 {
    match kind {
        Kind::Runs => 0,
        Kind::Library => 1,
        Kind::Preempted => 2,
        Kind::Queued => 3,
        Kind::Sleeps => 4,
        Kind::Executor => 5,
        Kind::Transport => 6,
        Kind::Inputs => 7,
        Kind::Timer => 8,
        Kind::Stolen => 9,
        Kind::Unknown => 10,
        Kind::Throttled => 11,
        Kind::Held => 12,
    }
}

fn reason(reason: Reason) -> i64 {
    match reason {
        Reason::LostEvents => 0,
        Reason::MissingEvent => 1,
        Reason::NoCpuTime => 2,
        Reason::NoScheduler => 3,
        Reason::NotRecorded => 4,
        Reason::ShortHistory => 5,
    }
}

fn switch_row(stay: &Stay) -> [Option<i64>; 9] {
    [
        Some(stay.cpu.into()),
        Some(stay.pid.into()),
        Some(stay.tid.into()),
        stay.start.and_then(int),
        stay.end.and_then(int),
        stay.waited.and_then(int),
        stay.preempted.map(i64::from),
        stay.prev_tid.map(i64::from),
        stay.next_tid.map(i64::from),
    ]
}

fn thread_row(thread: &Thread) -> [Option<i64>; 10] {
    // Numbers above those of POLICIES are unknown, like number 4.
    let policy = thread.policy.map(|p| if p > 7 { 4 } else { p });
    [
        Some(thread.pid.into()),
        Some(thread.tid.into()),
        thread.comm.map(i64::from),
        flag(thread.observed),
        policy.map(i64::from),
        thread.priority.map(i64::from),
        thread.start.and_then(int),
        thread.end.and_then(int),
        thread.on_cpu.and_then(int),
        int(thread.switches).filter(|_| thread.on_cpu.is_some()),
    ]
}

pub(crate) fn steps(end: &ChainEnd) -> &[ChainStep] {
    &end.steps
}
