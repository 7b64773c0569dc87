//! Tasks as every executor has them: what activates one, what watches it, what it has done.

use crate::exec::activation::{Activation, Condition, Input, Schedule, ScheduleError, Surplus};
use crate::exec::probe::{self, Callback, Traced};
use crate::wait::clock;
use std::fmt::Write as _;
use thiserror::Error;

/// What an execution has brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Something for the tasks behind it.
    Output,
    /// Nothing for anybody.
    Nothing,
}

/// What happens when a task takes longer than its deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overrun {
    /// It is counted; all goes on.
    #[default]
    Continue,
    /// Its output goes to nobody.
    Skip,
    /// The executor runs no more.
    Stop,
}

/// How a task is activated and watched.
#[derive(Debug, Clone)]
pub struct TaskOptions {
    /// Its inputs, by number.
    pub inputs: Vec<Input>,
    /// How they activate it together.
    pub condition: Condition,
    /// When it may run besides.
    pub schedule: Option<Schedule>,
    /// How long an execution may take, in ns. Only with a deadline is the clock read.
    pub deadline_ns: Option<u64>,
    /// What happens when it takes longer.
    pub overrun: Overrun,
}

impl Default for TaskOptions {
    fn default() -> Self {
        TaskOptions {
            inputs: Vec::new(),
            condition: Condition::All,
            schedule: None,
            deadline_ns: None,
            overrun: Overrun::default(),
        }
    }
}

impl TaskOptions {
    /// So many inputs, each of which waits for an item; all together activate the task.
    pub fn each(inputs: usize) -> TaskOptions {
        TaskOptions {
            inputs: vec![Input::EACH; inputs],
            ..TaskOptions::default()
        }
    }

    /// No input: once every period, from its first beginning after `offset_ns` on.
    pub fn every(period_ns: u64, offset_ns: u64) -> TaskOptions {
        TaskOptions::default().within(Schedule::Period {
            period_ns,
            offset_ns,
        })
    }

    /// The same, at its times only.
    pub fn within(self, schedule: Schedule) -> TaskOptions {
        TaskOptions {
            schedule: Some(schedule),
            ..self
        }
    }
}

/// What a task has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TaskStats {
    /// Executions.
    pub executions: u64,
    /// Executions that took longer than the deadline.
    pub late: u64,
    /// The longest of those with a deadline, in ns.
    pub longest_ns: u64,
    /// Releases of its period that passed unused.
    pub overruns: u64,
}

/// Why a task cannot be had as asked, in any executor.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum TaskError {
    /// Its time cannot be kept.
    #[error("task '{task}': {reason}")]
    Schedule {
        /// Its name.
        task: String,
        /// Why.
        reason: ScheduleError,
    },
    /// Without input and schedule it would run for ever.
    #[error(
        "task '{task}' has neither a triggering input nor a schedule: it would run at every step"
    )]
    Unbounded {
        /// Its name.
        task: String,
    },
    /// There is no such input.
    #[error("task '{task}' has {inputs} inputs, so there is no number {input}")]
    NoInput {
        /// Its name.
        task: String,
        /// As it was given.
        input: usize,
        /// How many it has.
        inputs: usize,
    },
}

/// Something that a task gets items from.
#[derive(Debug)]
struct Link {
    /// As a recorder sees it.
    callback: u64,
    /// Items so far, and how many of them executions have used.
    arrived: u64,
    taken: u64,
    input: u32,
    /// Its input's.
    threshold: u32,
    /// Items that an execution uses at most.
    used: u64,
}

impl Link {
    /// An execution uses items; the number of the last one.
    #[inline]
    fn take(&mut self) -> Option<u64> {
        let there = self.arrived - self.taken;
        self.taken += there.min(self.used);
        (there > 0).then(|| self.taken - 1)
    }
}

/// What came of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ran {
    Output,
    Nothing,
    /// It was late, and that stops the executor.
    Stop,
}

/// What of a task is needed to build and draw it, and what a recorder reads.
#[derive(Debug)]
struct Described {
    inputs: Vec<Input>,
    /// It waits for all its inputs.
    joins: bool,
    traced: Traced,
    callbacks: Vec<Callback>,
}

/// A task without its code: activation, deadline, figures, and what a recorder sees.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) activation: Activation,
    links: Vec<Link>,
    deadline_ns: Option<u64>,
    overrun: Overrun,
    /// Time alone makes it run.
    pub(crate) is_source: bool,
    stats: TaskStats,
    /// Items that it has brought.
    brought: u64,
    /// The task, and time as what makes it run, as a recorder sees them.
    task: u64,
    time: u64,
    pub(crate) name: String,
    /// Apart, so that what each execution needs lies close together.
    described: Box<Described>,
}

impl Core {
    pub(crate) fn new(executor: &str, name: &str, options: TaskOptions) -> Result<Core, TaskError> {
        let waits = options.inputs.iter().any(|i| i.threshold > 0);
        if !waits && options.schedule.is_none() {
            return Err(TaskError::Unbounded { task: name.into() });
        }
        let period_ns = match options.schedule {
            Some(Schedule::Period { period_ns, .. }) => period_ns,
            Some(Schedule::Slots { cycle_ns, .. }) => cycle_ns,
            None => 0,
        };
        let inputs = options.inputs.clone();
        let joins = matches!(options.condition, Condition::All);
        let activation = Activation::new(options.inputs, options.condition, options.schedule)
            .map_err(|reason| TaskError::Schedule {
                task: name.into(),
                reason,
            })?;
        let traced = Traced::new(executor, name, period_ns);
        Ok(Core {
            activation,
            links: Vec::new(),
            deadline_ns: options.deadline_ns,
            overrun: options.overrun,
            is_source: !waits,
            stats: TaskStats::default(),
            brought: 0,
            task: traced.task(),
            time: traced.time(),
            name: name.into(),
            described: Box::new(Described {
                inputs,
                joins,
                traced,
                callbacks: Vec::new(),
            }),
        })
    }

    pub(crate) fn check_input(&self, input: usize) -> Result<(), TaskError> {
        if input < self.described.inputs.len() {
            return Ok(());
        }
        Err(TaskError::NoInput {
            task: self.name.clone(),
            input,
            inputs: self.described.inputs.len(),
        })
    }

    /// May an item at this input make the task run?
    pub(crate) fn wakes(&self, input: usize) -> bool {
        self.described.inputs[input].threshold > 0 || self.activation.has_predicate()
    }

    /// Ties something that brings items to an input; its number.
    pub(crate) fn link(&mut self, executor: &str, source: &str, input: usize) -> usize {
        let described = &mut *self.described;
        let Input {
            threshold, surplus, ..
        } = described.inputs[input];
        let triggering = described.inputs.iter().filter(|i| i.threshold > 0);
        let joined = described.joins && triggering.count() > 1 && threshold > 0;
        let topic = probe::topic(executor, source);
        let callback = described.traced.source(&topic, joined);
        self.links.push(Link {
            callback: callback.handle(),
            arrived: 0,
            taken: 0,
            input: input as u32,
            threshold,
            used: match surplus {
                Surplus::Keep if threshold > 0 => threshold.into(),
                _ => u64::MAX,
            },
        });
        described.callbacks.push(callback);
        self.links.len() - 1
    }

    /// So many items wait at a link now, told ones among them; true if there are new ones.
    /// Real-time safe.
    pub(crate) fn level(&mut self, link: usize, items: u32) -> bool {
        let it = &mut self.links[link];
        let told = (it.arrived - it.taken).min(u64::from(u32::MAX)) as u32;
        if items < told {
            // The task has read more of them than its input counts.
            it.taken += u64::from(told - items);
            let input = it.input as usize;
            self.activation.forget(input, told - items);
        } else if items > told {
            self.arrive(link, items - told);
        }
        items > told
    }

    /// Items arrive. Real-time safe.
    #[inline]
    pub(crate) fn arrive(&mut self, link: usize, items: u32) {
        let link = &mut self.links[link];
        link.arrived += u64::from(items);
        self.activation.arrive(link.input as usize, items);
    }

    /// Shows that an execution begins; what made the task run, as a recorder sees it. Of several
    /// inputs that is the last that it waits for: those before are shown as subscriptions that only
    /// took note.
    #[cold]
    fn show_start(&mut self) -> u64 {
        let mut last: Option<(u64, u64)> = None;
        for waited_for in [false, true] {
            for link in &mut self.links {
                if (link.threshold > 0) != waited_for {
                    continue;
                }
                let Some(sequence) = link.take() else {
                    continue;
                };
                if let Some((callback, sequence)) = last.replace((link.callback, sequence)) {
                    probe::onbeat_flow_task_start(callback, sequence);
                    probe::onbeat_flow_task_end(callback);
                }
            }
        }
        let (callback, sequence) = last.unwrap_or((self.time, 0));
        probe::onbeat_flow_task_start(callback, sequence);
        callback
    }

    /// Runs the task's code and watches it. Real-time safe as far as the code is; the clock is read
    /// only for a deadline.
    #[inline]
    pub(crate) fn execute(&mut self, now_ns: u64, run: impl FnOnce() -> Outcome) -> Ran {
        self.activation.begin(now_ns);
        let shown = if probe::is_watched() {
            Some(self.show_start())
        } else {
            self.links.iter_mut().for_each(|link| {
                link.take();
            });
            None
        };
        self.stats.executions += 1;
        let ran = match self.deadline_ns {
            None => run().into(),
            Some(deadline_ns) => {
                let begin = clock::now_ns();
                let outcome = run();
                let took = clock::now_ns() - begin;
                self.stats.longest_ns = self.stats.longest_ns.max(took);
                if took <= deadline_ns {
                    outcome.into()
                } else {
                    self.stats.late += 1;
                    match self.overrun {
                        Overrun::Continue => outcome.into(),
                        Overrun::Skip => Ran::Nothing,
                        Overrun::Stop => Ran::Stop,
                    }
                }
            }
        };
        if ran == Ran::Output {
            if shown.is_some() {
                probe::onbeat_flow_publish(self.task, self.brought);
            }
            self.brought += 1;
        }
        if let Some(callback) = shown {
            probe::onbeat_flow_task_end(callback);
        }
        ran
    }

    pub(crate) fn stats(&self) -> TaskStats {
        TaskStats {
            overruns: self.activation.overruns(),
            ..self.stats
        }
    }
}

impl From<Outcome> for Ran {
    fn from(outcome: Outcome) -> Ran {
        match outcome {
            Outcome::Output => Ran::Output,
            Outcome::Nothing => Ran::Nothing,
        }
    }
}

type Run<S> = Box<dyn FnMut(&mut S) -> Outcome + Send>;
type Poll<S> = Box<dyn FnMut(&mut S) -> u32 + Send>;

/// A task for an executor with several threads: its state is its own, and what it gets and gives
/// goes through channels that its state holds.
///
/// ```
/// use onbeat_flow::activation::Input;
/// use onbeat_flow::task::{Outcome, Task, TaskOptions};
/// use onbeat_flow::{Channel, Options, Policy, Waker};
///
/// let (channel, waker) = (Channel::new(Options::new(Policy::Credit { credits: 4 }, 8))?, Waker::new());
/// let options = TaskOptions { inputs: vec![Input::EACH], ..Default::default() };
/// let task = Task::new("log", options, channel.consumer_on(&waker)?, |scans| {
///     while let Some(scan) = scans.receive() {
///         println!("{scan:?}", scan = &*scan);
///     }
///     Outcome::Nothing
/// })
/// .feed(0, |scans| scans.stats().waiting as u32);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Task<S> {
    name: String,
    options: TaskOptions,
    state: S,
    run: Run<S>,
    feeds: Vec<(usize, Poll<S>)>,
    cost_ns: u64,
    thread: Option<usize>,
}

impl<S: Send + 'static> Task<S> {
    /// A task with a state of its own.
    pub fn new(
        name: &str,
        options: TaskOptions,
        state: S,
        run: impl FnMut(&mut S) -> Outcome + Send + 'static,
    ) -> Task<S> {
        Task {
            name: name.into(),
            options,
            state,
            run: Box::new(run),
            feeds: Vec::new(),
            cost_ns: 1,
            thread: None,
        }
    }

    /// Something outside brings items to an input, for example a channel whose consumer is on the
    /// thread's waker: `waiting` is asked, whenever the thread looks for something to do, how many
    /// items wait there.
    pub fn feed(
        mut self,
        input: usize,
        waiting: impl FnMut(&mut S) -> u32 + Send + 'static,
    ) -> Task<S> {
        self.feeds.push((input, Box::new(waiting)));
        self
    }

    /// How long an execution takes, in ns, for distributing tasks over threads; 1 unless told.
    pub fn cost(mut self, cost_ns: u64) -> Task<S> {
        self.cost_ns = cost_ns;
        self
    }

    /// On which thread it runs, by number.
    pub fn on(mut self, thread: usize) -> Task<S> {
        self.thread = Some(thread);
        self
    }

    pub(crate) fn into_parts(self, executor: &str) -> Result<Parts, TaskError> {
        let mut core = Core::new(executor, &self.name, self.options)?;
        let mut feeds = Vec::new();
        for (input, poll) in self.feeds {
            core.check_input(input)?;
            let source = format!("{}/{input}", self.name);
            feeds.push((core.link(executor, &source, input), poll));
        }
        Ok(Parts {
            core,
            fed: !feeds.is_empty(),
            work: Box::new(Owned {
                state: self.state,
                run: self.run,
                feeds,
            }),
            cost_ns: self.cost_ns,
            thread: self.thread,
        })
    }
}

/// A task whose type of state is forgotten.
pub(crate) struct Parts {
    pub(crate) core: Core,
    pub(crate) work: Box<dyn Work>,
    pub(crate) fed: bool,
    pub(crate) cost_ns: u64,
    pub(crate) thread: Option<usize>,
}

/// A task's code.
pub(crate) trait Work: Send {
    /// Looks what came from outside; true if anything did.
    fn poll(&mut self, core: &mut Core) -> bool;
    fn run(&mut self) -> Outcome;
}

struct Owned<S> {
    state: S,
    run: Run<S>,
    feeds: Vec<(usize, Poll<S>)>,
}

impl<S: Send> Work for Owned<S> {
    fn poll(&mut self, core: &mut Core) -> bool {
        let mut any = false;
        for (link, poll) in &mut self.feeds {
            any |= core.level(*link, poll(&mut self.state));
        }
        any
    }

    fn run(&mut self) -> Outcome {
        (self.run)(&mut self.state)
    }
}

/// A graph for graphviz: groups of boxes (a group without a label is none), and arrows with the
/// number of the input that they go to.
pub(crate) fn dot(
    title: &str,
    groups: &[(String, Vec<(usize, String)>)],
    edges: impl Iterator<Item = (usize, usize, usize)>,
) -> String {
    let escape = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
    let mut dot = format!("digraph {title} {{\n  rankdir=LR;\n  node [shape=box];\n");
    for (group, (label, boxes)) in groups.iter().enumerate() {
        let indent = if label.is_empty() { "  " } else { "    " };
        if !label.is_empty() {
            let label = escape(label);
            let _ = writeln!(dot, "  subgraph cluster_{group} {{\n    label=\"{label}\";");
        }
        for (index, text) in boxes {
            let _ = writeln!(dot, "{indent}t{index} [label=\"{}\"];", escape(text));
        }
        if !label.is_empty() {
            dot.push_str("  }\n");
        }
    }
    for (from, to, input) in edges {
        let _ = writeln!(dot, "  t{from} -> t{to} [headlabel=\"{input}\"];");
    }
    dot.push_str("}\n");
    dot
}
