//! One task without its code: its activation, deadline and counters, and the reports to a recorder.

use super::activation::{Activation, Condition, Input, Surplus, TimeAndData};
use super::options::{Overrun, TaskError, TaskOptions, TaskResult, TaskStats};
use super::probe::{self, CallbackProbe, InputKind, TaskProbe};
use super::schedule::Schedule;
use crate::wait::clock;

#[derive(Debug)]
struct Source {
    callback: u64,
    arrived: u64,
    taken: u64,
    input: u32,
    threshold: u32,
    is_fed: bool,
    most_per_execution: u64,
}

/// The last of the items that an execution uses from one input, as a recorder sees it: the input's
/// callback and the item's number.
struct Taken {
    callback: u64,
    sequence: u64,
    is_fed: bool,
}

impl Taken {
    /// Reports to a recorder that a callback only stored this item, because another input has
    /// activated the task. Does nothing for items from outside of the executor.
    fn report_stored(&self) {
        if !self.is_fed {
            probe::onbeat_flow_task_start(self.callback, self.sequence);
            probe::onbeat_flow_task_end(self.callback);
        }
    }
}

impl Source {
    #[inline]
    fn take(&mut self) -> Option<u64> {
        let unused = self.arrived - self.taken;
        self.taken += unused.min(self.most_per_execution);
        (unused > 0).then(|| self.taken - 1)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Completion {
    Output,
    Nothing,
    Stop,
}

impl From<TaskResult> for Completion {
    fn from(result: TaskResult) -> Completion {
        match result {
            TaskResult::Output => Completion::Output,
            TaskResult::Nothing => Completion::Nothing,
        }
    }
}

#[derive(Debug)]
struct Description {
    inputs: Vec<Input>,
    waits_for_all: bool,
    label: String,
    probe: TaskProbe,
    callbacks: Vec<CallbackProbe>,
}

#[derive(Debug)]
pub(crate) struct TaskCore {
    pub(crate) activation: Activation,
    sources: Vec<Source>,
    deadline_ns: Option<u64>,
    overrun: Overrun,
    /// The task has no triggering input: time alone activates it.
    pub(crate) is_source: bool,
    stats: TaskStats,
    outputs: u64,
    task_handle: u64,
    timer_handle: u64,
    pub(crate) name: String,
    /// Boxed, so that the fields that each execution needs lie close together.
    description: Box<Description>,
}

impl TaskCore {
    pub(crate) fn new(
        executor: &str,
        name: &str,
        options: TaskOptions,
    ) -> Result<TaskCore, TaskError> {
        let waits = options.inputs.iter().any(|i| i.threshold > 0);
        if !waits && options.schedule.is_none() {
            return Err(TaskError::Unbounded { task: name.into() });
        }
        let period_ns = options.schedule.as_ref().map_or(0, Schedule::period_ns);
        let inputs = options.inputs.clone();
        let waits_for_all = matches!(options.condition, Condition::All);
        let label = label(name, options.schedule.as_ref(), options.time_and_data);
        let activation = Activation::new(options.inputs, options.condition, options.schedule)
            .map_err(|reason| TaskError::Schedule {
                task: name.into(),
                reason,
            })?
            .combined(options.time_and_data);
        let probe = TaskProbe::new(executor, name, period_ns);
        Ok(TaskCore {
            activation,
            sources: Vec::new(),
            deadline_ns: options.deadline_ns,
            overrun: options.overrun,
            is_source: !waits,
            stats: TaskStats::default(),
            outputs: 0,
            task_handle: probe.task(),
            timer_handle: probe.timer(),
            name: name.into(),
            description: Box::new(Description {
                inputs,
                waits_for_all,
                label,
                probe,
                callbacks: Vec::new(),
            }),
        })
    }

    pub(crate) fn check_input(&self, input: usize) -> Result<(), TaskError> {
        if input < self.description.inputs.len() {
            return Ok(());
        }
        Err(TaskError::NoInput {
            task: self.name.clone(),
            input,
            inputs: self.description.inputs.len(),
        })
    }

    pub(crate) fn is_triggered_by(&self, input: usize) -> bool {
        let activation = &self.activation;
        self.description.inputs[input].threshold > 0
            || activation.has_predicate()
            || activation.sets_timer(input)
    }

    pub(crate) fn label(&self) -> &str {
        &self.description.label
    }

    pub(crate) fn label_condition(&mut self) {
        self.description
            .label
            .push_str(", if the task's condition on the contents of its items holds");
    }

    /// Reports whether the task may run now. `is_fulfilled` is the condition on contents: it is
    /// called only when enough items have come. While the executor drains its items, time alone
    /// starts no task. Real-time safe if `is_fulfilled` is.
    #[inline]
    pub(crate) fn may_run(
        &mut self,
        now_ns: u64,
        is_draining: bool,
        is_fulfilled: Option<impl FnOnce() -> bool>,
    ) -> bool {
        let activation = &mut self.activation;
        activation.observe(now_ns);
        if let Some(is_fulfilled) = is_fulfilled {
            if activation.has_items() {
                activation.set_fulfilled(is_fulfilled());
            }
        }
        match is_draining {
            false => activation.is_ready(now_ns),
            true if self.is_source => false,
            true if activation.is_either() => activation.has_data(),
            true => activation.is_ready(now_ns),
        }
    }

    pub(crate) fn wake_ns(&self, now_ns: u64, is_draining: bool) -> Option<u64> {
        let data_alone = self.is_source || self.activation.is_either();
        match is_draining && data_alone {
            true => None,
            false => self.activation.wake_ns(now_ns),
        }
    }

    pub(crate) fn connect(&mut self, executor: &str, name: &str, input: usize) -> usize {
        let inputs = &self.description.inputs;
        let triggering = inputs.iter().filter(|i| i.threshold > 0).count();
        let waits_for_all =
            self.description.waits_for_all && triggering > 1 && inputs[input].threshold > 0;
        let kind = match waits_for_all {
            true => InputKind::Joined,
            false => InputKind::Alone,
        };
        self.add_source(executor, name, input, kind)
    }

    pub(crate) fn feed(&mut self, executor: &str, input: usize) -> usize {
        let name = format!("{}/{input}", self.name);
        self.add_source(executor, &name, input, InputKind::Fed)
    }

    fn add_source(&mut self, executor: &str, name: &str, input: usize, kind: InputKind) -> usize {
        let description = &mut *self.description;
        let Input {
            threshold, surplus, ..
        } = description.inputs[input];
        let topic = probe::topic(executor, name);
        let callback = description.probe.subscription(&topic, kind);
        self.sources.push(Source {
            callback: callback.handle(),
            is_fed: kind == InputKind::Fed,
            arrived: 0,
            taken: 0,
            input: input as u32,
            threshold,
            most_per_execution: match surplus {
                Surplus::Keep if threshold > 0 => threshold.into(),
                _ => u64::MAX,
            },
        });
        description.callbacks.push(callback);
        self.sources.len() - 1
    }

    /// Records that source `source` of the task now has `items` unused items. Returns whether some
    /// of them are new. Real-time safe.
    pub(crate) fn set_waiting(&mut self, source: usize, items: u32) -> bool {
        let it = &mut self.sources[source];
        let known = (it.arrived - it.taken).min(u64::from(u32::MAX)) as u32;
        if items < known {
            // The task has read more items than its input counts.
            it.taken += u64::from(known - items);
            let input = it.input as usize;
            self.activation.forget(input, known - items);
        } else if items > known {
            self.arrive(source, items - known);
        }
        items > known
    }

    #[inline]
    pub(crate) fn arrive(&mut self, source: usize, items: u32) {
        let source = &mut self.sources[source];
        source.arrived += u64::from(items);
        self.activation.arrive(source.input as usize, items);
    }

    /// Reports the start of an execution to a recorder, and returns the callback that activated it.
    ///
    /// A recorder sees each input of the task as a callback. If the execution uses items of several
    /// inputs, only one of their callbacks has activated the task. Inputs with a threshold above 0
    /// have precedence over the other inputs, then outputs of other tasks over fed inputs, then
    /// inputs that were connected later over earlier ones. The callbacks of the other inputs appear
    /// as subscriptions that only stored their item. If time alone has activated the task, the
    /// callbacks of all inputs appear in this way. Items from outside of the executor are reported
    /// when the task's code receives them.
    #[cold]
    fn report_start(&mut self, by_time: bool) -> u64 {
        let mut last: Option<Taken> = None;
        for pass in [(false, true), (false, false), (true, true), (true, false)] {
            for source in &mut self.sources {
                if (source.threshold > 0, source.is_fed) != pass {
                    continue;
                }
                let Some(sequence) = source.take() else {
                    continue;
                };
                let taken = Taken {
                    callback: source.callback,
                    sequence,
                    is_fed: source.is_fed,
                };
                if let Some(stored) = last.replace(taken) {
                    stored.report_stored();
                }
            }
        }
        if let Some(stored) = last.take_if(|_| by_time) {
            stored.report_stored();
        }
        let (callback, sequence) =
            last.map_or((self.timer_handle, 0), |t| (t.callback, t.sequence));
        probe::onbeat_flow_task_start(callback, sequence);
        callback
    }

    /// Runs the task's code and measures how long the code takes. Real-time safe if the code is.
    /// The clock is read only if the task has a deadline.
    #[inline]
    pub(crate) fn execute(&mut self, now_ns: u64, run: impl FnOnce() -> TaskResult) -> Completion {
        let by_time = self.activation.begin(now_ns);
        let reported = if crate::watch::is_watched() {
            Some(self.report_start(by_time))
        } else {
            self.sources.iter_mut().for_each(|source| {
                source.take();
            });
            None
        };
        self.stats.executions += 1;
        let completion = match self.deadline_ns {
            None => run().into(),
            Some(deadline_ns) => self.run_timed(deadline_ns, run),
        };
        if completion == Completion::Output {
            if reported.is_some() {
                probe::onbeat_flow_publish(self.task_handle, self.outputs);
            }
            self.outputs += 1;
        }
        if let Some(callback) = reported {
            probe::onbeat_flow_task_end(callback);
        }
        completion
    }

    #[inline]
    fn run_timed(&mut self, deadline_ns: u64, run: impl FnOnce() -> TaskResult) -> Completion {
        let start_ns = clock::now_ns();
        let result = run();
        let duration_ns = clock::now_ns() - start_ns;
        self.stats.longest_ns = self.stats.longest_ns.max(duration_ns);
        if duration_ns <= deadline_ns {
            return result.into();
        }
        self.stats.late += 1;
        match self.overrun {
            Overrun::Continue => result.into(),
            Overrun::Skip => Completion::Nothing,
            Overrun::Stop => Completion::Stop,
        }
    }

    pub(crate) fn stats(&self) -> TaskStats {
        TaskStats {
            overruns: self.activation.overruns(),
            by_time: self.activation.by_time(),
            ..self.stats
        }
    }
}

fn label(name: &str, schedule: Option<&Schedule>, combination: TimeAndData) -> String {
    match (schedule, combination) {
        (None, _) => name.into(),
        (Some(schedule), TimeAndData::Both) => format!("{name}, {schedule}"),
        (Some(schedule), TimeAndData::Either) => format!("{name}, or {schedule}"),
    }
}
