//! How a task is activated and watched, what it counts, and why it may be refused.

use super::activation::{Condition, Input, TimeAndData, TimerStart};
use super::schedule::{Schedule, ScheduleError};
use thiserror::Error;

/// The result of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskResult {
    /// There is an item for the tasks that follow.
    Output,
    /// There is no output.
    Nothing,
}

/// What happens when an execution takes longer than the task's deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overrun {
    /// It is counted, and its output is passed on.
    #[default]
    Continue,
    /// It is counted, and its output is discarded.
    Skip,
    /// It is counted, and the executor stops.
    Stop,
}

/// How a task is activated and watched.
#[derive(Debug, Clone)]
pub struct TaskOptions {
    /// Its inputs, which are numbered from 0.
    pub inputs: Vec<Input>,
    /// How the inputs activate it together.
    pub condition: Condition,
    /// At which times it may run, in addition to the condition.
    pub schedule: Option<Schedule>,
    /// Whether it needs both time and data, or one of them.
    pub time_and_data: TimeAndData,
    /// How long an execution may take, in ns. The clock is read only if there is a deadline.
    pub deadline_ns: Option<u64>,
    /// What happens when an execution takes longer.
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
    /// A task with this number of inputs, activated when there is an item at each.
    pub fn each(inputs: usize) -> TaskOptions {
        TaskOptions {
            inputs: vec![Input::EACH; inputs],
            ..TaskOptions::default()
        }
    }

    /// A task without inputs that runs once per period, from the first release at or after
    /// `offset_ns`.
    pub fn every(period_ns: u64, offset_ns: u64) -> TaskOptions {
        TaskOptions::default().within(Schedule::Period {
            period_ns,
            offset_ns,
        })
    }

    /// The same task, only at the times of a schedule.
    pub fn within(self, schedule: Schedule) -> TaskOptions {
        TaskOptions {
            schedule: Some(schedule),
            time_and_data: TimeAndData::Both,
            ..self
        }
    }

    /// The same task, also at the times of a schedule: data OR time.
    pub fn or_at(self, schedule: Schedule) -> TaskOptions {
        TaskOptions {
            schedule: Some(schedule),
            time_and_data: TimeAndData::Either,
            ..self
        }
    }

    /// The same task with a watchdog: it also runs when it has not for so long. Each completion
    /// cancels the timer and sets it anew.
    pub fn or_after_silence_of(self, delay_ns: u64) -> TaskOptions {
        let start = TimerStart::Completion;
        self.or_at(Schedule::After { delay_ns, start })
    }

    /// The same task with a time-out: it also runs, with what there is, so long after the first
    /// unused item at this input. An execution before cancels the timer.
    pub fn or_after_item(self, input: usize, delay_ns: u64) -> TaskOptions {
        let start = TimerStart::Item(input);
        self.or_at(Schedule::After { delay_ns, start })
    }
}

/// Counters of a task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TaskStats {
    /// Executions.
    pub executions: u64,
    /// Executions that took longer than the deadline.
    pub late: u64,
    /// The longest execution in ns; 0 without a deadline.
    pub longest_ns: u64,
    /// Releases of its period that passed unused.
    pub overruns: u64,
    /// Executions that time started without data, where either is enough: time-outs.
    pub by_time: u64,
}

/// Why an executor refuses a task.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum TaskError {
    /// Its schedule is impossible.
    #[error("task '{task}': {reason}")]
    Schedule {
        /// Name of the task.
        task: String,
        /// What is wrong with the schedule.
        reason: ScheduleError,
    },
    /// Nothing limits how often it runs.
    #[error(
        "task '{task}' has neither a triggering input nor a schedule: it would run at every step"
    )]
    Unbounded {
        /// Name of the task.
        task: String,
    },
    /// There is no such input.
    #[error("task '{task}' has {inputs} inputs, so there is no number {input}")]
    NoInput {
        /// Name of the task.
        task: String,
        /// The number that was given.
        input: usize,
        /// Number of inputs.
        inputs: usize,
    },
}
