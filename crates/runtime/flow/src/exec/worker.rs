//! One thread of an executor: its tasks get items, run, pass outputs on, sleep and drain. Each
//! executor chooses the next task by its own `Step`.

use super::execution::{Completion, TaskCore};
use super::state::ExecutorState;
use super::task::TaskCode;
use crate::wait::clock;
use std::sync::atomic::Ordering;
use std::sync::Arc;

/// A function that runs those tasks of a worker that are ready at the given time (ns), and returns
/// how many ran. Each kind of executor has a function of its own.
pub(crate) type Step = fn(&mut Worker, u64) -> usize;

pub(crate) struct LocalOutput {
    pub(crate) task: usize,
    pub(crate) source: usize,
}

#[derive(Default)]
pub(crate) struct Outputs {
    pub(crate) local: Vec<LocalOutput>,
    pub(crate) remote: Vec<usize>,
    pub(crate) wakes: Vec<usize>,
}

pub(crate) struct RemoteInput {
    edge: usize,
    source: usize,
    seen: u64,
    /// The number of the item at which the worker stops polling this input for now, so that a fast
    /// producer cannot prolong the poll.
    until: u64,
}

impl RemoteInput {
    pub(crate) fn new(edge: usize, source: usize) -> RemoteInput {
        RemoteInput {
            edge,
            source,
            seen: 0,
            until: 0,
        }
    }
}

pub(crate) struct WorkerTask {
    pub(crate) id: usize,
    pub(crate) core: TaskCore,
    pub(crate) code: Box<dyn TaskCode>,
    pub(crate) is_fed: bool,
    pub(crate) is_conditional: bool,
    pub(crate) inputs: Vec<RemoteInput>,
    pub(crate) outputs: Outputs,
    pub(crate) priority: u32,
    /// The time in ns at which the task became ready, and the task's rank among those that became
    /// ready at this time.
    pub(crate) ready_since: Option<(u64, u64)>,
}

pub(crate) struct Worker {
    thread: usize,
    pub(crate) tasks: Vec<WorkerTask>,
    pub(crate) state: Arc<ExecutorState>,
    pub(crate) is_draining: bool,
    is_idle: bool,
    /// The worker orders items by their arrival times.
    is_timed: bool,
    readied: u64,
    receiving: Vec<usize>,
    /// The tasks that the worker polls because a feed, the time or an item's content can make them
    /// ready.
    polled: Vec<usize>,
}

impl Worker {
    pub(crate) fn new(
        thread: usize,
        tasks: Vec<WorkerTask>,
        state: Arc<ExecutorState>,
        is_timed: bool,
    ) -> Worker {
        let those = |wanted: fn(&WorkerTask) -> bool| {
            let all = tasks.iter().enumerate();
            all.filter(|(_, t)| wanted(t)).map(|(i, _)| i).collect()
        };
        Worker {
            thread,
            receiving: those(|t| !t.inputs.is_empty()),
            polled: those(|t| t.is_fed || t.is_conditional || t.core.activation.has_schedule()),
            tasks,
            state,
            is_draining: false,
            is_idle: false,
            is_timed,
            readied: 0,
        }
    }

    fn set_busy(&mut self) {
        if self.is_idle {
            self.is_idle = false;
            self.state.idle[self.thread].fetch_add(1, Ordering::SeqCst);
        }
    }

    fn set_idle(&mut self) {
        if !self.is_idle {
            self.is_idle = true;
            self.state.idle[self.thread].fetch_add(1, Ordering::SeqCst);
        }
    }

    pub(crate) fn collect(&mut self, task: usize) {
        for input in 0..self.tasks[task].inputs.len() {
            let remote = &self.tasks[task].inputs[input];
            let tail = self.state.edges[remote.edge].tail();
            if tail != remote.seen {
                self.arrive(task, input, tail);
            }
        }
        self.poll_feeds(task);
    }

    fn poll_feeds(&mut self, task: usize) -> bool {
        let it = &mut self.tasks[task];
        let new = it.is_fed && it.code.poll(&mut it.core);
        if new {
            self.set_busy();
        }
        new
    }

    fn arrive(&mut self, task: usize, input: usize, until: u64) {
        // This comes first, because the edge looks quiet afterwards.
        self.set_busy();
        let it = &mut self.tasks[task];
        let input = &mut it.inputs[input];
        let items = (until - input.seen).min(u64::from(u32::MAX)) as u32;
        it.core.arrive(input.source, items);
        input.seen = until;
        self.state.edges[input.edge].set_head(until);
    }

    pub(crate) fn collect_in_order(&mut self, now_ns: u64) {
        for &task in &self.receiving {
            for input in &mut self.tasks[task].inputs {
                input.until = self.state.edges[input.edge].tail();
            }
        }
        while let Some((time_ns, task, input)) = self.earliest() {
            let seen = self.tasks[task].inputs[input].seen;
            self.arrive(task, input, seen + 1);
            self.update_ready(task, now_ns, time_ns);
        }
        for i in 0..self.polled.len() {
            let task = self.polled[i];
            let new = self.poll_feeds(task);
            let it = &mut self.tasks[task];
            let released_ns = it.core.activation.released_ns(now_ns);
            let seen_ns = released_ns.filter(|_| !new).unwrap_or(now_ns);
            let since_ns = it.code.since_ns().map_or(seen_ns, |ns| ns.min(now_ns));
            self.update_ready(task, now_ns, since_ns);
        }
    }

    fn earliest(&self) -> Option<(u64, usize, usize)> {
        let mut earliest: Option<(u64, usize, usize)> = None;
        for &task in &self.receiving {
            for (i, input) in self.tasks[task].inputs.iter().enumerate() {
                if input.until == input.seen {
                    continue;
                }
                let time_ns = self.state.edges[input.edge].time_ns(input.seen);
                if earliest.is_none_or(|(first, ..)| time_ns < first) {
                    earliest = Some((time_ns, task, i));
                }
            }
        }
        earliest
    }

    fn update_ready(&mut self, task: usize, now_ns: u64, time_ns: u64) {
        let may_run = self.may_run(task, now_ns);
        let it = &mut self.tasks[task];
        if !may_run {
            it.ready_since = None;
        } else if it.ready_since.is_none() {
            self.readied += 1;
            it.ready_since = Some((time_ns, self.readied));
        }
    }

    pub(crate) fn may_run(&mut self, task: usize, now_ns: u64) -> bool {
        let it = &mut self.tasks[task];
        let (core, code) = (&mut it.core, &mut it.code);
        let is_fulfilled = it.is_conditional.then_some(|| code.is_fulfilled());
        core.may_run(now_ns, self.is_draining, is_fulfilled)
    }

    /// Runs a task and passes its output on. Returns `false` if the executor must stop. Real-time
    /// safe if the task's code is: makes a system call only to wake a sleeping thread.
    pub(crate) fn run(&mut self, task: usize, now_ns: u64) -> bool {
        let it = &mut self.tasks[task];
        let completion = it.core.execute(now_ns, || it.code.run());
        self.state.stats[it.id].set(&it.core.stats());
        if self.is_timed {
            self.pass_on_in_order(task, clock::now_ns(), completion);
        } else if completion == Completion::Output {
            for i in 0..self.tasks[task].outputs.local.len() {
                let LocalOutput { task: to, source } = self.tasks[task].outputs.local[i];
                self.tasks[to].core.arrive(source, 1);
            }
            self.push(task, 0);
        }
        if completion == Completion::Stop {
            self.state.stop();
        }
        completion != Completion::Stop
    }

    fn pass_on_in_order(&mut self, task: usize, now_ns: u64, completion: Completion) {
        if completion == Completion::Output {
            self.push(task, now_ns);
        }
        // Items that came meanwhile are first. The task itself, if it is still ready, comes after
        // them.
        self.tasks[task].ready_since = None;
        self.collect_in_order(now_ns);
        self.update_ready(task, now_ns, now_ns);
        if completion == Completion::Output {
            for i in 0..self.tasks[task].outputs.local.len() {
                let LocalOutput { task: to, source } = self.tasks[task].outputs.local[i];
                self.tasks[to].core.arrive(source, 1);
                self.update_ready(to, now_ns, now_ns);
            }
        }
    }

    fn push(&self, task: usize, time_ns: u64) {
        let outputs = &self.tasks[task].outputs;
        for &edge in &outputs.remote {
            self.state.edges[edge].push(time_ns);
        }
        for &thread in &outputs.wakes {
            self.state.wakers[thread].wake();
        }
    }

    fn wake_ns(&self, now_ns: u64) -> Option<u64> {
        let tasks = self.tasks.iter();
        tasks
            .filter_map(|t| t.core.wake_ns(now_ns, self.is_draining))
            .min()
    }

    pub(crate) fn serve(&mut self, step: Step) {
        let state = Arc::clone(&self.state);
        let is_over = || state.is_stopped.load(Ordering::Acquire);
        let now_ns = clock::now_ns();
        self.tasks
            .iter_mut()
            .for_each(|t| t.core.activation.start(now_ns));
        while !is_over() {
            self.is_draining = state.is_draining.load(Ordering::Acquire);
            let now_ns = clock::now_ns();
            if step(self, now_ns) > 0 {
                continue;
            }
            let wake_ns = self.wake_ns(now_ns);
            // A task that waits for its slot still has work to do.
            if self.is_draining && wake_ns.is_none() {
                self.set_idle();
                if state.is_quiet() {
                    state.stop();
                    break;
                }
            }
            let was_idle = self.is_idle;
            state.wakers[self.thread].wait(wake_ns, || {
                is_over()
                    || state.is_draining.load(Ordering::Acquire) != self.is_draining
                    || step(self, clock::now_ns()) > 0
                    // Items have come, even if too few to run a task. The thread must become idle
                    // again.
                    || self.is_idle != was_idle
            });
        }
    }
}
