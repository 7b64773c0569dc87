//! A task's options and counters, and the reasons why an executor refuses it.

use super::activation::{Condition, Input, TimeAndData, TimerStart};
use super::schedule::{Schedule, ScheduleError};
use thiserror::Error;

/// The result of an execution: whether it made an item for the tasks that follow.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskResult {
    Output,
    Nothing,
}

/// The reaction to an execution that takes longer than the task's deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overrun {
    /// An execution beyond the deadline counts as late, and its output is passed on.
    #[default]
    Continue,
    /// An execution beyond the deadline counts as late, and its output is discarded.
    Skip,
    /// An execution beyond the deadline counts as late, and the executor stops.
    Stop,
}

/// The options of a task: inputs, activation, deadline, and the reaction to a late execution.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone)]
pub struct TaskOptions {
    /// The inputs of the task. Their indices are the input numbers of connections and feeds.
    pub inputs: Vec<Input>,
    pub condition: Condition,
    /// The times at which the task may run. `time_and_data` says whether the task also needs items.
    pub schedule: Option<Schedule>,
    pub time_and_data: TimeAndData,
    /// The longest time that an execution may take, in ns. The clock is read only if there is a
    /// deadline.
    pub deadline_ns: Option<u64>,
    pub overrun: Overrun,
}

impl Default for TaskOptions {
    fn default() -> Self {
        TaskOptions {
            inputs: Vec::new(),
            condition: Condition::All,
            schedule: None,
            time_and_data: TimeAndData::default(),
            deadline_ns: None,
            overrun: Overrun::default(),
        }
    }
}

impl TaskOptions {
    /// Returns options for a task with this number of inputs. The task runs when each input has an
    /// item.
    pub fn each(inputs: usize) -> TaskOptions {
        TaskOptions {
            inputs: vec![Input::EACH; inputs],
            ..TaskOptions::default()
        }
    }

    /// Returns options for a task without inputs that runs once per period, from the first release
    /// at or after `offset_ns`.
    pub fn every(period_ns: u64, offset_ns: u64) -> TaskOptions {
        TaskOptions::default().within(Schedule::Period {
            period_ns,
            offset_ns,
        })
    }

    /// Limits the task to the times of a schedule. The task then needs data AND time.
    pub fn within(self, schedule: Schedule) -> TaskOptions {
        TaskOptions {
            schedule: Some(schedule),
            time_and_data: TimeAndData::Both,
            ..self
        }
    }

    /// Lets the task also run at the times of a schedule. The task then needs data OR time.
    pub fn or_at(self, schedule: Schedule) -> TaskOptions {
        TaskOptions {
            schedule: Some(schedule),
            time_and_data: TimeAndData::Either,
            ..self
        }
    }

    /// Adds a watchdog: the task also runs when it has not run for `delay_ns`. The delay begins
    /// again after each execution.
    pub fn or_after_silence_of(self, delay_ns: u64) -> TaskOptions {
        let start = TimerStart::Completion;
        self.or_at(Schedule::After { delay_ns, start })
    }

    /// Adds a time-out. `delay_ns` after the first unused item at this input, the task runs with
    /// the items that have come. An earlier execution cancels the timer.
    pub fn or_after_item(self, input: usize, delay_ns: u64) -> TaskOptions {
        let start = TimerStart::Item(input);
        self.or_at(Schedule::After { delay_ns, start })
    }
}

/// The counters of a task since the start of its executor.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TaskStats {
    pub executions: u64,
    /// The number of executions that took longer than the deadline.
    pub late: u64,
    /// The longest time of an execution in ns. 0 if the task has no deadline, because onbeat then
    /// does not measure.
    pub longest_ns: u64,
    /// The number of releases of the task's period that passed unused.
    pub overruns: u64,
    /// The number of time-outs: executions that the schedule started without data. Only a task with
    /// [`TimeAndData::Either`](crate::activation::TimeAndData) counts them.
    pub by_time: u64,
}

/// The reason why an executor refuses a task.
#[allow(missing_docs)] // The messages say the rest.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum TaskError {
    #[error("task '{task}': {reason}")]
    Schedule { task: String, reason: ScheduleError },
    #[error(
        "task '{task}' has neither a triggering input nor a schedule, so it would run at every step of the executor. Add one of them."
    )]
    Unbounded { task: String },
    #[error("task '{task}' has no input {input}: it has {inputs}, numbered from 0. Give one of these numbers.")]
    NoInput {
        task: String,
        input: usize,
        inputs: usize,
    },
}
