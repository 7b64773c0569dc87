//! Who had the CPU while an observed thread waited for it, and who woke it up (thesis section 3.8).
//!
//! Each CPU keeps its last switches. When a thread gets its CPU, they say who had it meanwhile, as far
//! as the recording shows that without a gap. Memory: 64 switches a CPU, and a name for each thread
//! that took part.

use super::ids::InstanceId;
use crate::index::NameId;
use onbeat_document::schema::{Cause, Component, ComponentKind};
use onbeat_trace::UNTOLD;
use rustc_hash::FxHashMap;

/// In place of a thread id: the hypervisor.
pub(super) const HOST: u32 = UNTOLD - 1;

/// Switches that a CPU keeps: a wait makes 32 at most, and those of observed threads.
const SWITCHES: usize = 64;

/// Names of threads that are kept; those of others come again.
const NAMES_MAX: usize = 1 << 16;

/// Causes of one run that are told apart; more go to *others*.
const CAUSES_MAX: usize = 4096;

/// Causes of one callback in one run. Cut before anything is merged, so that merging keeps its order.
const OF_CALLBACK_MAX: usize = 64;

/// A part of a time in which a thread did not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wait {
    pub(super) begin: u64,
    pub(super) end: u64,
    /// Who had the CPU, or woke it up: a thread id, 0 (nobody), [`UNTOLD`] or [`HOST`].
    pub(super) by: u32,
    /// It was asleep; else it was ready.
    pub(super) asleep: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Switch {
    time: u64,
    prev: u32,
    next: u32,
}

/// The last switches of a CPU.
#[derive(Debug, Clone)]
struct Cpu {
    switches: [Switch; SWITCHES],
    made: usize,
    /// Who had it while this thread waited was not recorded.
    blind: u32,
}

impl Cpu {
    fn push(&mut self, switch: Switch) {
        self.switches[self.made % SWITCHES] = switch;
        self.made += 1;
    }

    /// The switches, latest first.
    fn back(&self) -> impl Iterator<Item = &Switch> {
        let kept = self.made.min(SWITCHES);
        (1..=kept).map(|i| &self.switches[(self.made - i) % SWITCHES])
    }

    /// Who had the CPU from `begin` to `end`, latest first. `last` had it at the end.
    fn holders(&self, begin: u64, end: u64, last: u32, mut tell: impl FnMut(Wait)) {
        let (mut until, mut holder) = (end, last);
        let mut wait = |begin: u64, end: u64, by: u32| {
            if begin < end {
                let asleep = false;
                tell(Wait {
                    begin,
                    end,
                    by,
                    asleep,
                });
            }
        };
        for switch in self.back() {
            // The switch that ends the wait.
            if switch.time >= until {
                continue;
            }
            // Before somebody waited, switches between others were not recorded.
            let begins_before = switch.time < begin;
            let told = begins_before || switch.next == holder;
            let by = if told { holder } else { UNTOLD };
            wait(switch.time.max(begin), until, by);
            if switch.time <= begin {
                return;
            }
            (until, holder) = (switch.time, switch.prev);
        }
        // What is before all that is kept.
        let by = if self.made <= SWITCHES {
            holder
        } else {
            UNTOLD
        };
        wait(begin, until, by);
    }
}

/// A thread that makes others wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Who {
    kind: ComponentKind,
    /// Of a process that may have nodes; else 0.
    pid: u32,
    process: Option<NameId>,
    thread: Option<NameId>,
}

impl Who {
    fn nobody(kind: ComponentKind) -> Who {
        Who {
            kind,
            pid: 0,
            process: None,
            thread: None,
        }
    }
}

/// Times that a cause made a callback wait.
#[derive(Debug, Clone, Copy, Default)]
struct Times {
    preempted: (u64, u64),
    delayed: (u64, u64),
    blocked: (u64, u64),
}

/// What made one callback wait, by the number of the cause.
#[derive(Debug, Clone, Default)]
pub(super) struct Waits(FxHashMap<usize, Times>);

/// Follows CPUs, and names threads.
#[derive(Debug, Clone, Default)]
pub(super) struct Causes {
    /// The recording says who takes CPUs: it has the names of bystanders.
    told: bool,
    cpus: Vec<Option<Box<Cpu>>>,
    names: FxHashMap<u32, Who>,
    numbers: FxHashMap<Who, usize>,
    list: Vec<Who>,
    /// Waits of instances whose end was not processed yet.
    ended: FxHashMap<InstanceId, Vec<Wait>>,
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
                blind: 0,
            })
        })
    }

    /// A CPU goes from one thread to another.
    pub(super) fn switch(&mut self, cpu: u16, time: u64, prev: u32, next: u32) {
        self.cpu(cpu).push(Switch { time, prev, next });
    }

    /// The recording does not say who had the CPU while this thread waited.
    pub(super) fn blind(&mut self, cpu: u16, tid: u32) {
        self.cpu(cpu).blind = tid;
    }

    /// A thread that was preempted, or woken, gets a CPU from another one, `prev`: who had it
    /// meanwhile. `on`: where it was preempted. Call it before [`Causes::switch`] with that switch.
    pub(super) fn waited(
        &mut self,
        (begin, on): (u64, Option<u16>),
        (end, cpu, tid): (u64, u16, u32),
        prev: u32,
        tell: impl FnMut(Wait),
    ) {
        if !self.told {
            return;
        }
        let here = self.cpu(cpu);
        let blind = std::mem::take(&mut here.blind) == tid;
        match on {
            // It was taken to another CPU: until then it waited for this one.
            Some(on) if on != cpu => {
                let there = self.cpu(on);
                let last = there.back().next().map_or(UNTOLD, |s| s.next);
                there.holders(begin, end, last, tell);
            }
            None if blind => here.holders(begin, end, UNTOLD, tell),
            _ => here.holders(begin, end, prev, tell),
        }
    }

    /// An observed thread has this name.
    pub(super) fn name(&mut self, (pid, tid): (u32, u32), thread: NameId) {
        let who = Who {
            kind: ComponentKind::Thread,
            pid,
            process: None,
            thread: Some(thread),
        };
        self.names.insert(tid, who);
    }

    /// A thread that is not observed has this name, and its process that. `known`: it is a process of
    /// the recording.
    pub(super) fn bystander(
        &mut self,
        (pid, tid): (u32, u32),
        (process, thread): (NameId, NameId),
        (kernel, known): (bool, bool),
    ) {
        self.told = true;
        if self.names.len() >= NAMES_MAX {
            // They are reported again.
            self.names.retain(|_, who| who.pid != 0);
        }
        let kind = match kernel {
            true => ComponentKind::Kernel,
            false => ComponentKind::Thread,
        };
        let who = Who {
            kind,
            pid: if known { pid } else { 0 },
            process: (!kernel && !known).then_some(process),
            thread: Some(thread),
        };
        self.names.insert(tid, who);
    }

    /// The instance that ended waited so.
    pub(super) fn ended(&mut self, instance: InstanceId, waits: Vec<Wait>) {
        self.ended.insert(instance, waits);
    }

    fn number(&mut self, by: u32) -> usize {
        let who = match by {
            0 => Who::nobody(ComponentKind::Idle),
            UNTOLD => Who::nobody(ComponentKind::Untold),
            HOST => Who::nobody(ComponentKind::Host),
            tid => match self.names.get(&tid) {
                Some(who) => *who,
                None => Who::nobody(ComponentKind::Unnamed),
            },
        };
        if let Some(&number) = self.numbers.get(&who) {
            return number;
        }
        let who = match self.list.len() < CAUSES_MAX {
            true => who,
            false => Who::nobody(ComponentKind::Others),
        };
        *self.numbers.entry(who).or_insert_with(|| {
            self.list.push(who);
            self.list.len() - 1
        })
    }

    /// Adds the waits of an instance to those of its callback: within it, and right before its start.
    pub(super) fn add(&mut self, instance: InstanceId, start: Option<u64>, to: &mut Waits) {
        if self.ended.is_empty() {
            return;
        }
        let (Some(waits), Some(start)) = (self.ended.remove(&instance), start) else {
            return;
        };
        for wait in waits {
            let times = to.0.entry(self.number(wait.by)).or_default();
            let (ns, n) = match (wait.begin >= start, wait.asleep) {
                (true, true) => &mut times.blocked,
                (true, false) => &mut times.preempted,
                (false, false) => &mut times.delayed,
                // It waited for work.
                (false, true) => continue,
            };
            *ns = ns.saturating_add(wait.end - wait.begin);
            *n += 1;
        }
    }

    /// The causes of a callback. `nodes` are those of a process.
    pub(super) fn of(
        &self,
        waits: &Waits,
        nodes: impl Fn(u32) -> Vec<String>,
        name: impl Fn(NameId) -> String,
    ) -> Vec<Cause> {
        let component = |who: &Who| {
            let nodes = if who.pid == 0 {
                Vec::new()
            } else {
                nodes(who.pid)
            };
            Component {
                kind: who.kind,
                nodes,
                process: who.process.map_or_else(String::new, &name),
                thread: who.thread.map_or_else(String::new, |n| plain(&name(n))),
            }
        };
        let cause = |(&number, times): (&usize, &Times)| Cause {
            by: component(&self.list[number]),
            preempted_ns: times.preempted.0,
            preempted: times.preempted.1,
            delayed_ns: times.delayed.0,
            delayed: times.delayed.1,
            blocked_ns: times.blocked.0,
            blocked: times.blocked.1,
        };
        let mut all = Vec::new();
        onbeat_document::evidence::add_causes(&mut all, waits.0.iter().map(cause));
        if all.len() > OF_CALLBACK_MAX {
            // The largest stay; equal ones by name, so that the same run always gives the same model.
            all.sort_by(|a, b| (b.total_ns(), &a.by).cmp(&(a.total_ns(), &b.by)));
            let mut others = all.split_off(OF_CALLBACK_MAX);
            for cause in &mut others {
                cause.by = Component::of(ComponentKind::Others);
            }
            let kept = std::mem::take(&mut all);
            onbeat_document::evidence::add_causes(&mut all, kept.into_iter().chain(others));
        }
        all
    }
}

/// A thread's name without its place: the kernel's threads are named after their CPU.
fn plain(name: &str) -> String {
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
        causes.waited(from, to, prev, |w| all.push((w.by, w.end - w.begin)));
        all
    }

    fn told() -> Causes {
        Causes {
            told: true,
            ..Causes::default()
        }
    }

    #[test]
    fn each_that_had_the_cpu_is_named_for_its_time() {
        let mut causes = told();
        causes.switch(0, 100, 7, 20);
        causes.switch(0, 130, 20, 30);
        causes.switch(0, 190, 30, 20);
        let all = waited(&mut causes, (100, Some(0)), (200, 0, 7), 20);
        assert_eq!(all, [(20, 10), (30, 60), (20, 30)]);
    }

    #[test]
    fn a_gap_is_not_filled_with_a_guess() {
        let mut causes = told();
        causes.switch(0, 100, 7, 20);
        // From 20 to 30 was not recorded.
        causes.switch(0, 160, 30, 40);
        let all = waited(&mut causes, (100, Some(0)), (200, 0, 7), 40);
        assert_eq!(all, [(40, 40), (UNTOLD, 60)]);
        causes.blind(0, 7);
        let all = waited(&mut causes, (170, None), (200, 0, 7), 40);
        assert_eq!(all, [(UNTOLD, 30)]);
    }

    #[test]
    fn before_somebody_waits_nothing_needs_to_be_recorded() {
        let mut causes = told();
        causes.switch(0, 100, 7, 20);
        // Asleep until 150: who followed 20 before is of no interest.
        let all = waited(&mut causes, (150, None), (200, 0, 7), 30);
        assert_eq!(all, [(30, 50)]);
    }

    #[test]
    fn who_is_taken_to_another_cpu_waited_for_the_first() {
        let mut causes = told();
        causes.switch(0, 100, 7, 20);
        causes.switch(1, 120, 8, 0);
        let all = waited(&mut causes, (100, Some(0)), (180, 1, 7), 0);
        assert_eq!(all, [(20, 80)]);
    }

    #[test]
    fn what_is_not_kept_any_more_is_not_told() {
        let mut causes = told();
        for i in 0..SWITCHES as u32 + 10 {
            causes.switch(0, 100 + u64::from(i), i, i + 1);
        }
        let last = SWITCHES as u32 + 10;
        let all = waited(&mut causes, (50, Some(0)), (200, 0, 7), last);
        assert_eq!(all.iter().map(|(_, ns)| ns).sum::<u64>(), 150);
        assert_eq!(all.last().map(|(by, _)| *by), Some(UNTOLD));
        // An older recording does not say who takes CPUs.
        causes.told = false;
        assert_eq!(waited(&mut causes, (50, Some(0)), (200, 0, 7), last), []);
    }

    #[test]
    fn too_many_causes_are_summed_up_before_anything_is_merged() {
        let mut causes = told();
        let mut waits = Waits::default();
        let mut names = Vec::new();
        for tid in 1..=100u32 {
            let name = NameId::new(tid as usize);
            names.push(tid);
            causes.bystander((tid, tid), (name, name), (false, false));
            let wait = |ns: u64| Wait {
                begin: 10,
                end: 10 + ns,
                by: tid,
                asleep: false,
            };
            causes.ended(InstanceId::new(0), vec![wait(u64::from(tid))]);
            causes.add(InstanceId::new(0), Some(10), &mut waits);
        }
        let all = causes.of(&waits, |_| Vec::new(), |n| format!("{:03}", n.index()));
        assert_eq!(all.len(), OF_CALLBACK_MAX + 1);
        assert_eq!(all.iter().map(|c| c.preempted_ns).sum::<u64>(), 5050);
        let others = all.iter().find(|c| c.by.kind == ComponentKind::Others);
        assert_eq!(
            others.map(|c| (c.preempted_ns, c.preempted)),
            Some((666, 36))
        );
    }
}
