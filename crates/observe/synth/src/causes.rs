//! Finds which thread had the CPU while an observed thread waited for it, and which thread woke it
//! up (thesis section 3.8).
//!
//! Each CPU keeps its latest switches. When a thread gets its CPU, these switches show which
//! threads had it meanwhile, as far as the recording has no gap. Memory holds 512 switches per CPU
//! and a name for each thread that took part.

use super::ids::InstanceId;
use crate::followed::Held;
use crate::index::NameId;
use crate::marks::Marks;
use crate::named::{CauseThread, Named, ThreadNames, CAUSES_MAX};
use onbeat_document::schema::{Cause, Component, ComponentKind};
use onbeat_trace::UNTOLD;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// The number of scheduler switches kept per CPU. For a wait of 100 ms, the recorder writes at most
/// 432 switches of unobserved threads. The remaining entries are for switches of observed threads.
const SWITCHES: usize = 512;

/// The maximum number of thread names that are kept for running and ended threads. If there are
/// more, the names of ended threads are forgotten, even if their process is still kept.
const ENDED_NAMES_MAX: usize = 4096;

/// The maximum number of causes that are kept per callback in one run. Further causes are left out
/// before the figures of several runs are merged, so that the order of merging does not matter.
const CAUSES_PER_CALLBACK_MAX: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wait {
    pub(super) begin: u64,
    pub(super) end: u64,
    /// The thread that had the CPU or that woke up the waiting thread. The value is a thread id, 0
    /// (no thread), [`UNTOLD`] (unknown) or [`HOST`](crate::named::HOST).
    pub(super) by: u32,
    pub(super) asleep: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Move {
    time: u64,
    from: u16,
    /// The thread that ran on CPU `from` at `time`, when the waiting thread moved from the queue of
    /// `from` to another CPU.
    holder: u32,
}

#[derive(Debug, Clone, Copy, Default)]
struct Switch {
    time: u64,
    prev: u32,
    next: u32,
}

#[derive(Debug, Clone)]
struct Cpu {
    switches: [Switch; SWITCHES],
    made: usize,
    unrecorded_wait_of: u32,
}

impl Cpu {
    fn push(&mut self, switch: Switch) {
        self.switches[self.made % SWITCHES] = switch;
        self.made += 1;
    }

    fn latest_first(&self) -> impl Iterator<Item = &Switch> {
        let kept = self.made.min(SWITCHES);
        (1..=kept).map(|i| &self.switches[(self.made - i) % SWITCHES])
    }

    /// Reports which threads had the CPU from `begin` to `end`, latest first. `last` is the thread
    /// that had it at `end`.
    fn holders(&self, begin: u64, end: u64, last: u32, mut report: impl FnMut(Wait)) {
        let (mut until, mut holder) = (end, last);
        let mut wait = |begin: u64, end: u64, by: u32| {
            if begin < end {
                let asleep = false;
                report(Wait {
                    begin,
                    end,
                    by,
                    asleep,
                });
            }
        };
        for switch in self.latest_first() {
            // This switch ends the wait.
            if switch.time >= until {
                continue;
            }
            // Switches between other threads are recorded only while an observed thread waits.
            let begins_before = switch.time < begin;
            let certain = begins_before || switch.next == holder;
            let by = if certain { holder } else { UNTOLD };
            wait(switch.time.max(begin), until, by);
            if switch.time <= begin {
                return;
            }
            (until, holder) = (switch.time, switch.prev);
        }
        // The rest lies before the oldest switch that is kept.
        let by = if self.made <= SWITCHES {
            holder
        } else {
            UNTOLD
        };
        wait(begin, until, by);
    }
}

impl CauseThread {
    fn component(
        &self,
        nodes: &impl Fn(u32) -> Vec<String>,
        name: &impl Fn(NameId) -> String,
    ) -> Component {
        Component {
            kind: self.kind,
            nodes: match self.pid {
                0 => Vec::new(),
                pid => nodes(pid),
            },
            process: self.process.map_or_else(String::new, name),
            thread: self
                .thread
                .map_or_else(String::new, |n| without_cpu(&name(n))),
        }
    }
}

/// Returns the component of each thread in `list`. `nodes` returns the node names of a process that
/// are known so far, and `name` returns the text of a name.
pub(super) fn components(
    list: &[CauseThread],
    nodes: impl Fn(u32) -> Vec<String>,
    name: impl Fn(NameId) -> String,
) -> Vec<Component> {
    let all = list.iter();
    all.map(|who| who.component(&nodes, &name)).collect()
}

#[derive(Debug, Clone, Copy, Default)]
struct WaitTimes {
    preempted: (u64, u64),
    delayed: (u64, u64),
    blocked: (u64, u64),
}

#[derive(Debug, Clone, Default)]
pub(super) struct Waits(FxHashMap<usize, WaitTimes>);

impl Waits {
    fn unite(&mut self, united: &BTreeMap<usize, usize>) {
        for (from, to) in united {
            let Some(times) = self.0.remove(from) else {
                continue;
            };
            let all = self.0.entry(*to).or_default();
            for (sum, more) in [
                (&mut all.preempted, times.preempted),
                (&mut all.delayed, times.delayed),
                (&mut all.blocked, times.blocked),
            ] {
                *sum = (sum.0.saturating_add(more.0), sum.1 + more.1);
            }
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct Causes {
    /// The recording names bystanders: threads that are not observed, but had a CPU for which an
    /// observed thread waited. Older recordings do not name them.
    has_bystanders: bool,
    cpus: Vec<Option<Box<Cpu>>>,
    names: ThreadNames,
    numbers: FxHashMap<CauseThread, usize>,
    list: Vec<CauseThread>,
    free: Vec<usize>,
    pending_waits: FxHashMap<InstanceId, Vec<Wait>>,
    /// The waits of all threads for a CPU, until the caller of the synthesis drains them. `None` if
    /// the caller has not asked for them.
    pub(super) held: Option<Vec<Held>>,
    /// The names of threads in order of time, kept until the caller of the synthesis drains them.
    /// `None` if the caller has not asked for them.
    pub(super) named: Option<Vec<Named>>,
}

impl Causes {
    fn cpu(&mut self, cpu: u16) -> &mut Cpu {
        let at = usize::from(cpu);
        if self.cpus.len() <= at {
            self.cpus.resize(at + 1, None);
        }
        self.cpus[at].get_or_insert_with(|| {
            Box::new(Cpu {
                switches: [Switch::default(); SWITCHES],
                made: 0,
                unrecorded_wait_of: 0,
            })
        })
    }

    pub(super) fn record_switch(&mut self, cpu: u16, time: u64, prev: u32, next: u32) {
        self.cpu(cpu).push(Switch { time, prev, next });
    }

    pub(super) fn mark_unrecorded(&mut self, cpu: u16, tid: u32) {
        self.cpu(cpu).unrecorded_wait_of = tid;
    }

    pub(super) fn moves(&self, from: u16, time: u64) -> Move {
        let cpu = self.cpus.get(usize::from(from)).and_then(Option::as_ref);
        let latest = cpu.and_then(|cpu| cpu.latest_first().next());
        let holder = latest.map_or(UNTOLD, |switch| switch.next);
        Move { time, from, holder }
    }

    /// Reports which threads had the CPU while a preempted or woken thread (`tid`) waited for it.
    ///
    /// The wait ends at `end`, when `tid` gets `cpu` from the thread `prev`. `on` is the CPU on
    /// which `tid` was preempted. `moves` lists the moves of `tid` to other CPUs during the wait.
    /// Call this before [`Causes::record_switch`] for the switch at `end`.
    pub(super) fn waited(
        &mut self,
        (begin, on, moves): (u64, Option<u16>, &[Move]),
        (end, cpu, tid): (u64, u16, u32),
        prev: u32,
        mut report: impl FnMut(Wait),
    ) {
        if !self.has_bystanders {
            return;
        }
        let mut held = self.held.take();
        let mut report = |wait: Wait| {
            if let Some(held) = &mut held {
                held.push(Held {
                    tid,
                    begin_ns: wait.begin,
                    end_ns: wait.end,
                    by_tid: wait.by,
                });
            }
            report(wait);
        };
        let (mut begin, mut on) = (begin, on);
        for it in moves {
            self.cpu(it.from)
                .holders(begin, it.time.min(end), it.holder, &mut report);
            (begin, on) = (begin.max(it.time), None);
        }
        let here = self.cpu(cpu);
        let unrecorded = std::mem::take(&mut here.unrecorded_wait_of) == tid;
        match on {
            // The thread moved to another CPU. Until then it waited for this one.
            Some(on) if on != cpu => {
                let there = self.cpu(on);
                let last = there.latest_first().next().map_or(UNTOLD, |s| s.next);
                there.holders(begin, end, last, report);
            }
            None if unrecorded => here.holders(begin, end, UNTOLD, report),
            _ => here.holders(begin, end, prev, report),
        }
        self.held = held;
    }

    /// Returns the number of the component to which the thread `by` belongs. `by` is a thread id, 0
    /// for an idle CPU, or [`UNTOLD`] for an unknown thread.
    pub(super) fn component_number(&mut self, by: u32) -> u32 {
        self.number(by) as u32
    }

    /// Returns the number of the component to which the thread `by` belongs according to `names`.
    /// `by` has the same values as in [`Causes::component_number`].
    pub(super) fn component_number_in(&mut self, names: &ThreadNames, by: u32) -> u32 {
        self.number_of(names.who(by)) as u32
    }

    pub(super) fn list(&self) -> &[CauseThread] {
        &self.list
    }

    pub(super) fn name_observed(&mut self, (pid, tid): (u32, u32), thread: NameId) {
        let who = CauseThread {
            kind: ComponentKind::Thread,
            pid,
            process: None,
            thread: Some(thread),
        };
        self.name(Named {
            tid,
            who,
            bystander: false,
        });
    }

    fn name(&mut self, named: Named) {
        self.names.set(&named);
        if let Some(list) = &mut self.named {
            list.push(named);
        }
    }

    /// Sets the names of an unobserved thread and of its process. `known` is set if the process
    /// belongs to the recording.
    pub(super) fn name_bystander(
        &mut self,
        (pid, tid): (u32, u32),
        (process, thread): (NameId, NameId),
        (kernel, known): (bool, bool),
    ) {
        self.has_bystanders = true;
        let kind = match kernel {
            true => ComponentKind::Kernel,
            false => ComponentKind::Thread,
        };
        let who = CauseThread {
            kind,
            pid: if known { pid } else { 0 },
            process: (!kernel && !known).then_some(process),
            thread: Some(thread),
        };
        self.name(Named {
            tid,
            who,
            bystander: true,
        });
    }

    pub(super) fn keep_waits(&mut self, instance: InstanceId, waits: Vec<Wait>) {
        self.pending_waits.insert(instance, waits);
    }

    fn number(&mut self, by: u32) -> usize {
        self.number_of(self.names.who(by))
    }

    fn number_of(&mut self, who: CauseThread) -> usize {
        if let Some(&number) = self.numbers.get(&who) {
            return number;
        }
        let who = match self.list.len() - self.free.len() < CAUSES_MAX {
            true => who,
            false => CauseThread::nobody(ComponentKind::Others),
        };
        if let Some(&number) = self.numbers.get(&who) {
            return number;
        }
        let number = match self.free.pop() {
            Some(number) => {
                self.list[number] = who;
                number
            }
            None => {
                self.list.push(who);
                self.list.len() - 1
            }
        };
        self.numbers.insert(who, number);
        number
    }

    /// Forgets the processes that are keys of `gone`. The value of a key is the process that
    /// continues it, if there is one. Returns the numbers of the components that were merged into
    /// others.
    ///
    /// The time that threads of a forgotten process took from other threads still counts: for the
    /// process that continues the forgotten one or, without such a process, for all programs that
    /// have threads of the same name.
    pub(super) fn forget<'a>(
        &mut self,
        gone: &BTreeMap<u32, Option<u32>>,
        is_alive: impl Fn(u32) -> bool,
        waits: impl Iterator<Item = &'a mut Waits>,
    ) -> Vec<u32> {
        let too_many = self.names.len() > ENDED_NAMES_MAX;
        self.names.retain(|tid, who| {
            let is_gone = gone.contains_key(&who.pid) || too_many && !is_alive(tid);
            who.pid == 0 || !is_gone
        });
        let mut united = BTreeMap::new();
        for number in 0..self.list.len() {
            let who = self.list[number];
            let Some(continued) = gone.get(&who.pid).filter(|_| who.pid != 0) else {
                continue;
            };
            if self.numbers.get(&who) != Some(&number) {
                continue;
            }
            self.numbers.remove(&who);
            let by = match continued {
                Some(pid) => CauseThread { pid: *pid, ..who },
                None => CauseThread {
                    pid: 0,
                    process: who.process.or(who.thread),
                    ..who
                },
            };
            match self.numbers.get(&by) {
                Some(&other) => {
                    united.insert(number, other);
                    self.free.push(number);
                }
                None => {
                    self.list[number] = by;
                    self.numbers.insert(by, number);
                }
            }
        }
        if !united.is_empty() {
            waits.for_each(|waits| waits.unite(&united));
        }
        united.into_keys().map(|number| number as u32).collect()
    }

    pub(super) fn mark_names(&self, names: &mut Marks) {
        let components = self.numbers.keys().chain(self.names.values());
        for who in components {
            for name in who.process.iter().chain(&who.thread) {
                names.add(name.index());
            }
        }
    }

    /// Adds the waits of an instance to `to`, the waits of its callback. Counts the waits within
    /// the instance and the waits right before its start.
    pub(super) fn add(&mut self, instance: InstanceId, start: Option<u64>, to: &mut Waits) {
        if self.pending_waits.is_empty() {
            return;
        }
        let (Some(waits), Some(start)) = (self.pending_waits.remove(&instance), start) else {
            return;
        };
        for wait in waits {
            let times = to.0.entry(self.number(wait.by)).or_default();
            let (ns, n) = match (wait.begin >= start, wait.asleep) {
                (true, true) => &mut times.blocked,
                (true, false) => &mut times.preempted,
                (false, false) => &mut times.delayed,
                // The thread waited for work, which is not a delay.
                (false, true) => continue,
            };
            *ns = ns.saturating_add(wait.end - wait.begin);
            *n += 1;
        }
    }

    pub(super) fn causes_of(
        &self,
        waits: &Waits,
        nodes: impl Fn(u32) -> Vec<String>,
        name: impl Fn(NameId) -> String,
    ) -> Vec<Cause> {
        let cause = |(&number, times): (&usize, &WaitTimes)| Cause {
            by: self.list[number].component(&nodes, &name),
            preempted_ns: times.preempted.0,
            preempted: times.preempted.1,
            delayed_ns: times.delayed.0,
            delayed: times.delayed.1,
            blocked_ns: times.blocked.0,
            blocked: times.blocked.1,
        };
        let mut all = Vec::new();
        onbeat_document::evidence::add_causes(&mut all, waits.0.iter().map(cause));
        if all.len() > CAUSES_PER_CALLBACK_MAX {
            // The largest causes stay. Equal ones are ordered by name, so that the same run always
            // gives the same model.
            all.sort_by(|a, b| (b.total_ns(), &a.by).cmp(&(a.total_ns(), &b.by)));
            let mut others = all.split_off(CAUSES_PER_CALLBACK_MAX);
            for cause in &mut others {
                cause.by = Component::of(ComponentKind::Others);
            }
            let kept = std::mem::take(&mut all);
            onbeat_document::evidence::add_causes(&mut all, kept.into_iter().chain(others));
        }
        all
    }
}

fn without_cpu(name: &str) -> String {
    let known = [
        "kworker",
        "ksoftirqd",
        "migration",
        "cpuhp",
        "rcuc",
        "rcuog",
        "rcuop",
        "idle_inject",
    ];
    match name.split_once('/') {
        Some((base, _)) if known.contains(&base) => base.into(),
        _ => name.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waited(
        causes: &mut Causes,
        from: (u64, Option<u16>),
        to: (u64, u16, u32),
        prev: u32,
    ) -> Vec<(u32, u64)> {
        let mut all = Vec::new();
        let from = (from.0, from.1, &[][..]);
        causes.waited(from, to, prev, |w| all.push((w.by, w.end - w.begin)));
        all
    }

    fn with_bystanders() -> Causes {
        Causes {
            has_bystanders: true,
            ..Causes::default()
        }
    }

    #[test]
    fn each_thread_that_had_the_cpu_is_reported_with_its_time() {
        let mut causes = with_bystanders();
        causes.record_switch(0, 100, 7, 20);
        causes.record_switch(0, 130, 20, 30);
        causes.record_switch(0, 190, 30, 20);
        let all = waited(&mut causes, (100, Some(0)), (200, 0, 7), 20);
        assert_eq!(all, [(20, 10), (30, 60), (20, 30)]);
    }

    #[test]
    fn the_holder_of_the_cpu_is_unknown_in_a_gap_of_the_recording() {
        let mut causes = with_bystanders();
        causes.record_switch(0, 100, 7, 20);
        // The switch from 20 to 30 is missing in the recording.
        causes.record_switch(0, 160, 30, 40);
        let all = waited(&mut causes, (100, Some(0)), (200, 0, 7), 40);
        assert_eq!(all, [(40, 40), (UNTOLD, 60)]);
        causes.mark_unrecorded(0, 7);
        let all = waited(&mut causes, (170, None), (200, 0, 7), 40);
        assert_eq!(all, [(UNTOLD, 30)]);
    }

    #[test]
    fn switches_before_a_wait_do_not_need_to_be_recorded() {
        let mut causes = with_bystanders();
        causes.record_switch(0, 100, 7, 20);
        // The thread sleeps until 150, so the switch away from 20 does not matter.
        let all = waited(&mut causes, (150, None), (200, 0, 7), 30);
        assert_eq!(all, [(30, 50)]);
    }

    #[test]
    fn a_thread_that_moved_to_another_cpu_waited_for_its_first_cpu() {
        let mut causes = with_bystanders();
        causes.record_switch(0, 100, 7, 20);
        causes.record_switch(1, 120, 8, 0);
        let all = waited(&mut causes, (100, Some(0)), (180, 1, 7), 0);
        assert_eq!(all, [(20, 80)]);
    }

    #[test]
    fn the_holder_of_the_cpu_is_unknown_before_the_oldest_kept_switch() {
        let mut causes = with_bystanders();
        for i in 0..SWITCHES as u32 + 10 {
            causes.record_switch(0, 100 + u64::from(i), i, i + 1);
        }
        let last = SWITCHES as u32 + 10;
        let all = waited(&mut causes, (50, Some(0)), (200, 0, 7), last);
        assert_eq!(all.iter().map(|(_, ns)| ns).sum::<u64>(), 150);
        assert_eq!(all.last().map(|(by, _)| *by), Some(UNTOLD));
        // An older recording does not contain the names of bystanders.
        causes.has_bystanders = false;
        assert_eq!(waited(&mut causes, (50, Some(0)), (200, 0, 7), last), []);
    }

    #[test]
    fn causes_beyond_the_limit_are_summed_up_as_others() {
        let mut causes = with_bystanders();
        let mut waits = Waits::default();
        let mut names = Vec::new();
        for tid in 1..=100u32 {
            let name = NameId::new(tid as usize);
            names.push(tid);
            causes.name_bystander((tid, tid), (name, name), (false, false));
            let wait = |ns: u64| Wait {
                begin: 10,
                end: 10 + ns,
                by: tid,
                asleep: false,
            };
            causes.keep_waits(InstanceId::new(0), vec![wait(u64::from(tid))]);
            causes.add(InstanceId::new(0), Some(10), &mut waits);
        }
        let all = causes.causes_of(&waits, |_| Vec::new(), |n| format!("{:03}", n.index()));
        assert_eq!(all.len(), CAUSES_PER_CALLBACK_MAX + 1);
        assert_eq!(all.iter().map(|c| c.preempted_ns).sum::<u64>(), 5050);
        let others = all.iter().find(|c| c.by.kind == ComponentKind::Others);
        assert_eq!(
            others.map(|c| (c.preempted_ns, c.preempted)),
            Some((666, 36))
        );
    }
}
