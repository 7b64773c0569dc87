//! Finds which callbacks share threads, and what else runs on the threads of a plan's callbacks.
//!
//! No plan can separate callbacks that share threads.

use onbeat_document::schema::{Callback, CallbackType};
use onbeat_document::Model;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Group<'m> {
    Executor(usize),
    Node(&'m str),
}

pub(crate) type Placed<'m> = (&'m Callback, u16);

#[derive(Debug)]
pub(crate) struct Executors<'m> {
    model: &'m Model,
    of: BTreeMap<&'m str, usize>,
}

/// A callback outside the planned chains that runs on threads of the chains' executors.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Other<'m> {
    pub(crate) callback: &'m Callback,
    pub(crate) group: Group<'m>,
    pub(crate) cpu: u16,
}

impl Other<'_> {
    fn p99_exec_ns(&self) -> u64 {
        self.callback.figures.exec_ns.quantile(0.99)
    }

    fn worst_ns(&self) -> u64 {
        self.callback.figures.exec_ns.max()
    }

    /// Returns the usual time between two starts of the callback, in ns. It is the period if the
    /// callback has one, or else the median of the measured times between starts. Returns `None` if
    /// only one start was measured.
    fn gap_ns(&self) -> Option<u64> {
        let between = &self.callback.figures.interarrival_ns;
        let typical = || (between.count() > 0).then(|| between.quantile(0.5));
        let gap = self.callback.period_ns.or_else(typical);
        gap.filter(|&gap| gap > 0)
    }

    /// Returns the longest time, in ns, that this callback takes in a slot that opens once per
    /// cycle. The slot serves all executions that became ready since the slot's last end, and one
    /// execution that the slot before did not finish.
    pub(crate) fn in_cycle_ns(&self, cycle_ns: u64) -> u64 {
        let times = self.gap_ns().map_or(1, |gap| cycle_ns.div_ceil(gap) + 1);
        self.worst_ns().saturating_mul(times)
    }

    /// Returns the longest time, in ns, that this callback takes within any interval of `length_ns`
    /// (the request bound of periodic work).
    pub(crate) fn within_ns(&self, length_ns: u64) -> u64 {
        let times = self.gap_ns().map_or(1, |gap| length_ns / gap + 1);
        self.worst_ns().saturating_mul(times)
    }

    fn was_alone_on(&self, cpu: u16) -> bool {
        is_alone_on(self.callback, cpu)
    }
}

fn is_alone_on(callback: &Callback, cpu: u16) -> bool {
    let threads = &callback.threads;
    let alone = |t: &onbeat_document::schema::ThreadUse| {
        matches!(t.policy.as_str(), "fifo" | "rr") && t.cpus == [cpu]
    };
    !threads.is_empty() && threads.iter().all(alone)
}

impl<'m> Executors<'m> {
    pub(crate) fn new(model: &'m Model) -> Self {
        let all = model.executors.iter().enumerate();
        let of = all.flat_map(|(i, e)| e.callbacks.iter().map(move |id| (id.as_str(), i)));
        Executors {
            model,
            of: of.collect(),
        }
    }

    pub(crate) fn of(&self, callback: &'m Callback) -> Group<'m> {
        match self.of.get(callback.id.as_str()) {
            Some(&executor) => Group::Executor(executor),
            None => Group::Node(&callback.node),
        }
    }

    pub(crate) fn threads(&self, group: Group<'m>) -> usize {
        match group {
            Group::Executor(i) => self.model.executors[i].threads,
            Group::Node(_) => 1,
        }
    }

    pub(crate) fn threads_are_known(&self) -> bool {
        !self.of.is_empty() || self.model.callbacks.is_empty()
    }

    /// Returns the callbacks of an executor or node. It leaves out synchronisers, which run within
    /// other callbacks, and threads of the application's own.
    pub(crate) fn members(&self, group: Group<'m>) -> Vec<&'m Callback> {
        let is_member = |c: &&Callback| {
            !matches!(c.kind, CallbackType::Sync | CallbackType::Thread) && self.of(c) == group
        };
        match group {
            Group::Executor(_) => {
                let all: &'m [Callback] = &self.model.callbacks;
                all.iter().filter(is_member).collect()
            }
            Group::Node(_) => Vec::new(),
        }
    }

    pub(crate) fn others(&self, placed: &[Placed<'m>]) -> Vec<Other<'m>> {
        let ours: BTreeSet<&str> = placed.iter().map(|p| p.0.id.as_str()).collect();
        let groups: BTreeMap<Group<'m>, u16> = placed.iter().map(|p| (self.of(p.0), p.1)).collect();
        let of_group = |(group, cpu): (Group<'m>, u16)| {
            let members = self.members(group).into_iter();
            members.map(move |callback| Other {
                callback,
                group,
                cpu,
            })
        };
        let all = groups.into_iter().flat_map(of_group);
        all.filter(|o| !ours.contains(o.callback.id.as_str()))
            .collect()
    }

    /// Returns by how many ns the wait of the chains for other callbacks can be longer than it was
    /// in the measurement. Returns `None` if no bound below a cycle exists.
    ///
    /// Under the plan all threads of a CPU have one priority, so callbacks that ran beside the
    /// chain may now run before it. The measured latencies already contain this wait in two cases.
    /// Either a single-threaded executor is alone on its CPU, or all threads were measured at a
    /// real-time priority on this CPU.
    pub(crate) fn wait_ns(
        &self,
        placed: &[Placed<'m>],
        others: &[Other<'m>],
        (worst_ns, cycle_ns): (u64, u64),
    ) -> Option<u64> {
        let new: Vec<&Other> = others
            .iter()
            .filter(|o| !self.was_measured(placed, others, o.cpu))
            .collect();
        let mut waits = 0u64;
        loop {
            let length = worst_ns.saturating_add(waits);
            let all = new.iter().map(|o| o.within_ns(length));
            let next = all.fold(0, u64::saturating_add);
            match next {
                _ if next == waits => return Some(waits),
                _ if next > cycle_ns => return None,
                _ => waits = next,
            }
        }
    }

    /// Returns the longest delay from the release of the chains' first callback to its start, in
    /// ns, or `None` if no other callbacks run before it. Latencies count from the start, but the
    /// cycle counts from the release.
    ///
    /// The result is the measured delay plus an execution time: the longest 99th percentile of the
    /// other callbacks. Timers start with another phase in each start of the application, so a
    /// callback that ran just behind the release may run just before it. Delays of a cycle or more
    /// do not count. In such a delay, for example at the program's start, releases were left out.
    pub(crate) fn start_delay_ns(
        &self,
        (origin, cpu): Placed<'m>,
        others: &[Other<'m>],
        cycle_ns: u64,
    ) -> Option<u64> {
        let group = self.of(origin);
        let before = others.iter().filter(|o| o.group == group || o.cpu == cpu);
        let longest = before.map(Other::p99_exec_ns).max()?;
        let figures = &origin.figures;
        // After a late attach, releases are unknown. A start that comes later than a period after
        // the one before is late by at least the difference.
        let (late, from) = match figures.release_jitter_ns.count() {
            0 => (&figures.interarrival_ns, cycle_ns),
            _ => (&figures.release_jitter_ns, 0),
        };
        let (low, high) = (late.min(), late.max());
        let times = late
            .buckets()
            .map(|(at, width, _)| at.saturating_add(width - 1).clamp(low, high));
        let late = times.map(|ns| ns.saturating_sub(from));
        let measured = late.filter(|&ns| ns < cycle_ns).max().unwrap_or(0);
        Some(measured.saturating_add(longest))
    }

    /// Reports whether the measured latencies already contain the time for which the threads of CPU
    /// `cpu` wait for one another.
    fn was_measured(&self, placed: &[Placed<'m>], others: &[Other<'m>], cpu: u16) -> bool {
        let here = || placed.iter().filter(|p| p.1 == cpu);
        let groups: BTreeSet<Group<'m>> = here().map(|p| self.of(p.0)).collect();
        let threads: usize = groups.iter().map(|&g| self.threads(g)).sum();
        let alone = || {
            let mut others = others.iter().filter(|o| o.cpu == cpu);
            here().all(|p| is_alone_on(p.0, cpu)) && others.all(|o| o.was_alone_on(cpu))
        };
        threads <= 1 || alone()
    }
}

/// Returns the time in ns that other callbacks take per cycle in the slots that they share with a
/// chain.
pub(crate) fn room_ns<'o, 'm: 'o>(
    others: impl Iterator<Item = &'o Other<'m>>,
    cycle_ns: u64,
) -> u64 {
    let each = others.map(|o| o.in_cycle_ns(cycle_ns));
    each.fold(0, u64::saturating_add)
}
