//! The figures that are kept per callback, chain and edge. They add up over slots of time.

use onbeat_document::dist::Dist;
use onbeat_synth::detail::{ExecutionSeen, Fate, ItemSeen};
use onbeat_synth::followed::ChainEnd;

/// Figures that are summed over slots of time.
pub trait Add: Default {
    #[allow(missing_docs)]
    fn add(&mut self, other: &Self);
}

/// Returns the sum of `parts`, the figures in the slots of a span of time.
pub fn sum<T: Add>(parts: Vec<&T>) -> T {
    let mut all = T::default();
    parts.into_iter().for_each(|part| all.add(part));
    all
}

/// The figures of a callback, as in [`onbeat_document::schema::CallbackFigures`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CallbackTally {
    /// The number of executions, including those without known times.
    pub executions: u64,
    /// The CPU time of an execution.
    pub exec_ns: Dist,
    /// The time from an execution's release to its end.
    pub response_ns: Dist,
    /// The time from an execution's release to its start.
    pub queued_ns: Dist,
    /// The time from one start to the next.
    pub interarrival_ns: Dist,
    /// The time per execution in which the thread was ready and had no CPU.
    pub preempted_ns: Dist,
    /// The time per execution in which the thread slept.
    pub blocked_ns: Dist,
    /// The number of executions whose CPU time is unknown.
    pub untimed: u64,
    /// The number of times that the thread lost its CPU while it was ready.
    pub preemptions: u64,
    /// The number of times that the thread slept within an execution.
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
    fn add(&mut self, other: &Self) {
        self.executions += other.executions;
        self.exec_ns.merge(&other.exec_ns);
        self.response_ns.merge(&other.response_ns);
        self.queued_ns.merge(&other.queued_ns);
        self.interarrival_ns.merge(&other.interarrival_ns);
        self.preempted_ns.merge(&other.preempted_ns);
        self.blocked_ns.merge(&other.blocked_ns);
        self.untimed += other.untimed;
        self.preemptions += other.preemptions;
        self.blockings += other.blockings;
    }
}

/// The figures of the executions of a chain on one path.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ChainTally {
    /// The time from the start of the first callback to the output.
    pub latency_ns: Dist,
    /// The reaction time, see [`onbeat_document::schema::ChainFigures::reaction_ns`].
    pub reaction_ns: Dist,
    /// The ages of data that was read again. They count in the data age only.
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
    fn add(&mut self, other: &Self) {
        self.latency_ns.merge(&other.latency_ns);
        self.reaction_ns.merge(&other.reaction_ns);
        self.reread_ns.merge(&other.reread_ns);
        if self.parts_ns.len() < other.parts_ns.len() {
            self.parts_ns.resize(other.parts_ns.len(), 0);
        }
        for (sum, part) in self.parts_ns.iter_mut().zip(&other.parts_ns) {
            *sum += part;
        }
    }
}

/// The figures of an edge, as in [`onbeat_document::schema::EdgeFigures`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EdgeTally {
    /// The number of items that the receiving callback took.
    pub taken: u64,
    /// The number of items that were never taken for an unknown reason. A slot's count is negative
    /// if items that had been reported as lost were taken after all.
    pub lost: i64,
    /// The number of items that later ones pushed out of the queue.
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
    fn add(&mut self, other: &Self) {
        self.taken += other.taken;
        self.lost += other.lost;
        self.overwritten += other.overwritten;
        self.latency_ns.merge(&other.latency_ns);
        self.transport_ns.merge(&other.transport_ns);
    }
}

impl Add for u64 {
    fn add(&mut self, other: &Self) {
        *self += other;
    }
}
