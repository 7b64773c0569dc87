//! Executors: which callbacks share threads, so that no plan can tear them apart, and what else runs on
//! the threads of a plan's callbacks.

use onbeat_document::schema::{Callback, CallbackType};
use onbeat_document::Model;
use std::collections::{BTreeMap, BTreeSet};

/// Callbacks that share threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Group<'m> {
    /// Those of an executor, by its place in the model.
    Executor(usize),
    /// Those of a node, where the model does not say which executor runs them.
    Node(&'m str),
}

/// A callback of the chains, and its CPU.
pub(crate) type Placed<'m> = (&'m Callback, u16);

/// The executors of a model.
#[derive(Debug)]
pub(crate) struct Executors<'m> {
    model: &'m Model,
    of: BTreeMap<&'m str, usize>,
}

/// A callback of no planned chain on the threads of one that is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Other<'m> {
    pub(crate) callback: &'m Callback,
    pub(crate) group: Group<'m>,
    /// CPU of that executor's callbacks.
    pub(crate) cpu: u16,
}

impl Other<'_> {
    /// The time in which 99 of 100 of its executions ended, ns.
    fn usual_ns(&self) -> u64 {
        self.callback.figures.exec_ns.quantile(0.99)
    }

    /// The longest time that it ran for on a CPU, ns.
    fn worst_ns(&self) -> u64 {
        self.callback.figures.exec_ns.max()
    }

    /// Typical time between two of its starts, ns. `None` if it ran once.
    fn gap_ns(&self) -> Option<u64> {
        let between = &self.callback.figures.interarrival_ns;
        let typical = || (between.count() > 0).then(|| between.quantile(0.5));
        let gap = self.callback.period_ns.or_else(typical);
        gap.filter(|&gap| gap > 0)
    }

    /// The most time that it takes of a slot that opens once in a cycle: all that came since its
    /// last end, and one that was left over then.
    pub(crate) fn in_cycle_ns(&self, cycle_ns: u64) -> u64 {
        let times = self.gap_ns().map_or(1, |gap| cycle_ns.div_ceil(gap) + 1);
        self.worst_ns().saturating_mul(times)
    }

    /// The most time that it takes within so long a time, whenever that begins (the request bound
    /// of periodic work).
    pub(crate) fn within_ns(&self, length_ns: u64) -> u64 {
        let times = self.gap_ns().map_or(1, |gap| length_ns / gap + 1);
        self.worst_ns().saturating_mul(times)
    }

    /// Whether all its threads were measured at a real-time priority on this CPU alone.
    fn was_alone_on(&self, cpu: u16) -> bool {
        is_alone_on(self.callback, cpu)
    }
}

/// Whether all threads of a callback were measured at a real-time priority on one CPU alone.
fn is_alone_on(callback: &Callback, cpu: u16) -> bool {
    let threads = &callback.threads;
    let alone = |t: &onbeat_document::schema::ThreadUse| {
        matches!(t.policy.as_str(), "fifo" | "rr") && t.cpus == [cpu]
    };
    !threads.is_empty() && threads.iter().all(alone)
}

impl<'m> Executors<'m> {
    /// Those of a model.
    pub(crate) fn new(model: &'m Model) -> Self {
        let all = model.executors.iter().enumerate();
        let of = all.flat_map(|(i, e)| e.callbacks.iter().map(move |id| (id.as_str(), i)));
        Executors {
            model,
            of: of.collect(),
        }
    }

    /// The callbacks that a callback shares its threads with.
    pub(crate) fn of(&self, callback: &'m Callback) -> Group<'m> {
        match self.of.get(callback.id.as_str()) {
            Some(&executor) => Group::Executor(executor),
            None => Group::Node(&callback.node),
        }
    }

    /// How many threads run the callbacks of a group.
    pub(crate) fn threads(&self, group: Group<'m>) -> usize {
        match group {
            Group::Executor(i) => self.model.executors[i].threads,
            Group::Node(_) => 1,
        }
    }

    /// Whether the model says which callbacks share threads.
    pub(crate) fn are_known(&self) -> bool {
        !self.of.is_empty() || self.model.callbacks.is_empty()
    }

    /// The callbacks of executors that the model knows, without those that run within others and
    /// those on threads of the application's own.
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

    /// What else runs on the threads of these callbacks of chains.
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

    /// How much longer the chains wait for others than when they were measured, ns: under the plan all
    /// of a CPU's threads have one CPU and one priority, so that what ran beside the chain then runs
    /// before it now. `None` if there is no bound below a cycle.
    ///
    /// On the threads of a single-threaded executor that is alone on its CPU the chain waited for
    /// them then as well; so did it if all was measured at a real-time priority on this CPU.
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

    /// How late the chains' first callback starts behind its release at the worst, ns, if others run on its
    /// threads, or at its priority on its CPU: executions count from its start, the cycle from its release.
    /// `None`: there are no others.
    ///
    /// It is what was measured, and the longest of the others once more (as long as 99 of 100 of its
    /// executions): between timers the phase is another one in each start of the application, and a
    /// callback of these that was just behind the release may then be just before it. Delays of a cycle are releases that were left out, as at the
    /// program's start.
    pub(crate) fn start_delay_ns(
        &self,
        (origin, cpu): Placed<'m>,
        others: &[Other<'m>],
        cycle_ns: u64,
    ) -> Option<u64> {
        let group = self.of(origin);
        let before = others.iter().filter(|o| o.group == group || o.cpu == cpu);
        let longest = before.map(Other::usual_ns).max()?;
        let figures = &origin.figures;
        // Late attach does not see releases: a start by so much later than a period after the one before
        // is at least as late.
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

    /// Whether the measured latencies hold what a CPU's threads make one another wait.
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

/// The time that others take of each cycle in slots that they share with a chain, ns.
pub(crate) fn room_ns<'o, 'm: 'o>(
    others: impl Iterator<Item = &'o Other<'m>>,
    cycle_ns: u64,
) -> u64 {
    let each = others.map(|o| o.in_cycle_ns(cycle_ns));
    each.fold(0, u64::saturating_add)
}
