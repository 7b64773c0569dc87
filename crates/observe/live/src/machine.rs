//! Follows the CPU time of threads and CPUs, and which programs have the CPU while observed threads
//! wait for it. Cuts chosen executions of chains into stretches.

use crate::kept::Kept;
use crate::late::Chosen;
use crate::window::Windows;
use crate::{PathNumber, ENTRIES_MAX, NAME_MAX};
use onbeat_synth::detail::ExecutionSeen;
use onbeat_synth::followed::{ChainEnd, Held};
use onbeat_synth::Synth;
use onbeat_trace::{Event, EventKind};
use onbeat_why::every::{Cut, Every};

/// The largest number of callbacks that are listed for one thread.
const CALLBACKS_MAX: usize = 16;

#[derive(Debug, Clone, Default)]
pub(crate) struct Thread {
    pub(crate) pid: u32,
    pub(crate) comm: String,
    /// The time in ns for which the thread had a CPU.
    pub(crate) running: Windows<u64>,
    /// The time in ns in which the thread was ready to run and another thread had the CPU.
    pub(crate) waiting: Windows<u64>,
    /// The numbers of the callbacks that the thread ran, in order of their first run.
    pub(crate) callbacks: Vec<u32>,
    pub(crate) cpu: Option<u16>,
    pub(crate) has_ended: bool,
    /// The time (CLOCK_MONOTONIC, ns) up to which the thread's CPU time is counted. `None` if the
    /// thread has no CPU now.
    on_since: Option<u64>,
}

#[derive(Debug, Clone)]
pub(crate) struct Machine {
    pub(crate) threads: Kept<u32, Thread>,
    /// The time in ns for which observed threads had each CPU.
    pub(crate) cpus: Kept<u16, Windows<u64>>,
    /// The time in ns for which each component had a CPU while an observed thread waited for it.
    /// The keys are indices into [`Synth::components`](onbeat_synth::Synth::components).
    pub(crate) holders: Kept<u32, Windows<u64>>,
    /// The executions of chains that will be cut into stretches as soon as no later event can
    /// change their stretches.
    every: Every<(PathNumber, Chosen)>,
}

impl Machine {
    pub(crate) fn new() -> Machine {
        Machine {
            threads: Kept::new(ENTRIES_MAX),
            cpus: Kept::new(ENTRIES_MAX),
            holders: Kept::new(ENTRIES_MAX),
            every: Every::of_running(),
        }
    }

    /// Processes the next event. `time_ns` is the latest of the times of this event and all earlier
    /// ones.
    pub(crate) fn push(&mut self, event: &Event, time_ns: u64) {
        self.every.push(event);
        match &event.kind {
            EventKind::SwitchIn { .. } => {
                if let Some(thread) = self.thread(event, time_ns) {
                    thread.on_since = Some(time_ns);
                    thread.cpu = Some(event.cpu);
                }
            }
            EventKind::SwitchOut { .. } => {
                if let Some(thread) = self.thread(event, time_ns) {
                    thread.cpu = Some(event.cpu);
                    let ran = thread.count_until(time_ns);
                    thread.on_since = None;
                    self.count(event.cpu, ran, time_ns);
                }
            }
            EventKind::Thread { comm, .. }
            | EventKind::Exec { comm }
            | EventKind::Fork { comm, .. } => {
                if let Some(thread) = self.thread(event, time_ns) {
                    thread.comm = comm.chars().take(NAME_MAX).collect();
                    thread.has_ended = false;
                }
            }
            EventKind::Exit => {
                if let Some(thread) = self.threads.get_mut(&event.tid) {
                    thread.has_ended = true;
                }
            }
            _ => {}
        }
    }

    fn thread(&mut self, event: &Event, time_ns: u64) -> Option<&mut Thread> {
        let pid = event.pid;
        let new = || Thread {
            pid,
            ..Thread::default()
        };
        let thread = self.threads.at(event.tid, time_ns, new)?;
        if thread.pid != pid {
            // The kernel uses the number of an ended thread again.
            *thread = new();
        }
        Some(thread)
    }

    fn count(&mut self, cpu: u16, ran_ns: u64, time_ns: u64) {
        if let Some(of_cpu) = self.cpus.at(cpu, time_ns, Windows::default) {
            of_cpu.add_span(time_ns.saturating_sub(ran_ns), time_ns);
        }
    }

    pub(crate) fn count_running(&mut self, now_ns: u64) {
        let mut ran = Vec::new();
        for thread in self.threads.values_mut() {
            let time = thread.count_until(now_ns);
            ran.extend(thread.cpu.filter(|_| time > 0).map(|cpu| (cpu, time)));
        }
        for (cpu, time) in ran {
            self.count(cpu, time, now_ns);
        }
    }

    pub(crate) fn ran(&mut self, seen: &ExecutionSeen) {
        self.every.ran(seen);
        if let Some(thread) = self.threads.get_mut(&seen.tid) {
            let is_new = !thread.callbacks.contains(&seen.callback);
            if is_new && thread.callbacks.len() < CALLBACKS_MAX {
                thread.callbacks.push(seen.callback);
            }
        }
    }

    /// Takes two kinds of observations from the synthesis: how long threads waited for CPUs, and
    /// which items synchronisers joined.
    pub(crate) fn take(&mut self, synth: &mut Synth) {
        let mut all_held = Vec::new();
        self.every.take_seeing(synth, |held| all_held.push(*held));
        for held in all_held {
            let component = synth.component_of(held.by_tid);
            self.held(&held, component);
        }
    }

    /// Adds a chosen execution of a chain. [`Machine::cut`] reports the execution later, with its
    /// stretches.
    pub(crate) fn ended(&mut self, end: ChainEnd, what: (PathNumber, Chosen)) {
        self.every.ended(end, what);
    }

    /// Calls `report` with each chosen execution and its stretches, as soon as no later event can
    /// change the stretches. If `all` is true, reports all chosen executions. See [`Every::cut`].
    pub(crate) fn cut(
        &mut self,
        synth: &mut Synth,
        all: bool,
        report: impl FnMut((PathNumber, Chosen), &[Cut]),
    ) {
        self.every.cut(synth, all, report);
    }

    /// Counts a time in which a thread waited for its CPU while `component` had this CPU.
    fn held(&mut self, held: &Held, component: u32) {
        let ns = held.end_ns.saturating_sub(held.begin_ns);
        if let Some(thread) = self.threads.get_mut(&held.tid) {
            thread.waiting.at(held.end_ns, |sum| *sum += ns);
        }
        if let Some(holder) = self.holders.at(component, held.end_ns, Windows::default) {
            holder.at(held.end_ns, |sum| *sum += ns);
        }
    }

    /// Forgets the callbacks and components whose numbers the synthesis gives to other callbacks
    /// and components from now on.
    pub(crate) fn forget(
        &mut self,
        is_gone_callback: impl Fn(u32) -> bool,
        is_gone_component: impl Fn(u32) -> bool,
    ) {
        for thread in self.threads.values_mut() {
            thread
                .callbacks
                .retain(|&callback| !is_gone_callback(callback));
        }
        self.holders
            .retain(|&component| !is_gone_component(component));
        self.every.forget(is_gone_callback);
    }

    pub(crate) fn forget_before(&mut self, time_ns: u64) {
        self.threads.forget_before(time_ns);
        self.holders.forget_before(time_ns);
    }
}

impl Thread {
    /// Counts the thread's time on the CPU up to `now_ns`. Returns the part of this time that was
    /// not counted before.
    fn count_until(&mut self, now_ns: u64) -> u64 {
        let Some(since) = self.on_since else {
            return 0;
        };
        let ran = now_ns.saturating_sub(since);
        self.on_since = Some(now_ns.max(since));
        self.running.add_span(now_ns.saturating_sub(ran), now_ns);
        ran
    }
}
