//! The figures that are kept per callback, chain and edge. They add up over slots of time.

use onbeat_document::dist::Dist;
use onbeat_synth::detail::{ExecutionSeen, Fate, ItemSeen};
use onbeat_synth::followed::ChainEnd;

/// Figures whose values can be added up: over slots of time, and over several callbacks, paths or
/// edges.
pub trait Add: Default {
    /// Returns the figures of all parts together: counts are added, and distributions are merged.
    fn sum(parts: &[&Self]) -> Self;
}

/// Returns the distribution of one figure's values, over all parts.
pub fn dist<T>(parts: &[&T], figure: impl Fn(&T) -> &Dist) -> Dist {
    Dist::of_all(parts.iter().map(|part| figure(part)))
}

/// The figures of a callback, as in [`onbeat_document::schema::CallbackFigures`].
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CallbackTally {
    /// The number of executions, including those without known times.
    pub executions: u64,
    pub exec_ns: Dist,
    /// The time from when an execution could run until it ended.
    pub response_ns: Dist,
    /// The time from when an execution could run until it started.
    pub queued_ns: Dist,
    pub interarrival_ns: Dist,
    /// The time per execution in which the callback's thread was ready and had no CPU.
    pub preempted_ns: Dist,
    /// The time per execution in which the callback's thread slept.
    pub blocked_ns: Dist,
    /// The number of executions whose CPU time is unknown.
    pub untimed: u64,
    /// The number of times that the callback's thread lost its CPU while it was ready.
    pub preemptions: u64,
    pub blockings: u64,
}

impl CallbackTally {
    pub(crate) fn record(&mut self, seen: &ExecutionSeen) {
        self.executions += 1;
        if !seen.ended.is_timed() {
            return;
        }
        match seen.spent {
            Some(spent) => {
                self.exec_ns.record(spent.exec_ns);
                self.preempted_ns.record(spent.preempted_ns);
                self.blocked_ns.record(spent.blocked_ns);
            }
            None => self.untimed += 1,
        }
        if let Some(ready) = seen.ready_ns {
            self.response_ns.record(seen.end_ns.saturating_sub(ready));
            self.queued_ns.record(seen.start_ns.saturating_sub(ready));
        }
        self.preemptions += u64::from(seen.preemptions);
        self.blockings += u64::from(seen.blockings);
    }
}

impl Add for CallbackTally {
    fn sum(parts: &[&Self]) -> Self {
        CallbackTally {
            executions: parts.iter().map(|part| part.executions).sum(),
            exec_ns: dist(parts, |part| &part.exec_ns),
            response_ns: dist(parts, |part| &part.response_ns),
            queued_ns: dist(parts, |part| &part.queued_ns),
            interarrival_ns: dist(parts, |part| &part.interarrival_ns),
            preempted_ns: dist(parts, |part| &part.preempted_ns),
            blocked_ns: dist(parts, |part| &part.blocked_ns),
            untimed: parts.iter().map(|part| part.untimed).sum(),
            preemptions: parts.iter().map(|part| part.preemptions).sum(),
            blockings: parts.iter().map(|part| part.blockings).sum(),
        }
    }
}

/// The figures of the executions of a chain on one path.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ChainTally {
    /// The time from the start of the first callback to the output.
    pub latency_ns: Dist,
    /// The reaction time, see [`onbeat_document::schema::ChainFigures::reaction_ns`].
    pub reaction_ns: Dist,
    /// The data ages of the outputs for which stored data were read again. These outputs do not
    /// count in `latency_ns`.
    pub reread_ns: Dist,
    /// The sum over all executions of each part of the latency in ns: first callback, first edge,
    /// second callback and so on.
    pub parts_ns: Vec<u128>,
}

impl ChainTally {
    pub(crate) fn record(&mut self, end: &ChainEnd) {
        let Some(first) = end.steps.first() else {
            return;
        };
        self.latency_ns
            .record(end.end_ns.saturating_sub(first.start_ns));
        self.parts_ns.resize(2 * end.steps.len() - 1, 0);
        let mut out = end.end_ns;
        for (i, step) in end.steps.iter().enumerate().rev() {
            self.parts_ns[2 * i] += u128::from(out.saturating_sub(step.start_ns));
            if i > 0 {
                let on_edge = step.start_ns.saturating_sub(step.published_ns);
                self.parts_ns[2 * i - 1] += u128::from(on_edge);
            }
            out = step.published_ns;
        }
    }
}

impl Add for ChainTally {
    fn sum(parts: &[&Self]) -> Self {
        let mut parts_ns = Vec::new();
        for part in parts {
            parts_ns.resize(part.parts_ns.len().max(parts_ns.len()), 0);
            for (sum, ns) in parts_ns.iter_mut().zip(&part.parts_ns) {
                *sum += ns;
            }
        }
        ChainTally {
            latency_ns: dist(parts, |part| &part.latency_ns),
            reaction_ns: dist(parts, |part| &part.reaction_ns),
            reread_ns: dist(parts, |part| &part.reread_ns),
            parts_ns,
        }
    }
}

/// The figures of an edge, as in [`onbeat_document::schema::EdgeFigures`].
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EdgeTally {
    pub taken: u64,
    /// The number of items that were never taken for an unknown reason. The number for one slot of
    /// time can be negative, if items that were counted as lost in an earlier slot were taken
    /// later.
    pub lost: i64,
    /// The number of items that were not taken, because later items took their places in the queue.
    pub overwritten: i64,
    /// The time from the publication to the start of the callback.
    pub latency_ns: Dist,
    /// The time from the publication until the item woke up the thread that takes it.
    pub transport_ns: Dist,
}

impl EdgeTally {
    pub(crate) fn record(&mut self, item: &ItemSeen) {
        match item.fate {
            Fate::Taken { time_ns, .. } => {
                self.taken += 1;
                if let Some(published) = item.published_ns {
                    self.latency_ns.record(time_ns.saturating_sub(published));
                    let woken = item.available_ns;
                    let transport = woken.map(|at| at.saturating_sub(published));
                    transport
                        .into_iter()
                        .for_each(|t| self.transport_ns.record(t));
                }
            }
            Fate::OnlyTaken { .. } => self.taken += 1,
            Fate::Lost => self.lost += 1,
            Fate::NotLost => self.lost -= 1,
            Fate::Overwritten => self.overwritten += 1,
            Fate::NotOverwritten => self.overwritten -= 1,
        }
    }
}

impl Add for EdgeTally {
    fn sum(parts: &[&Self]) -> Self {
        EdgeTally {
            taken: parts.iter().map(|part| part.taken).sum(),
            lost: parts.iter().map(|part| part.lost).sum(),
            overwritten: parts.iter().map(|part| part.overwritten).sum(),
            latency_ns: dist(parts, |part| &part.latency_ns),
            transport_ns: dist(parts, |part| &part.transport_ns),
        }
    }
}

impl Add for u64 {
    fn sum(parts: &[&Self]) -> Self {
        parts
            .iter()
            .fold(0, |sum: u64, part| sum.saturating_add(**part))
    }
}
