//! Tasks by priority: of those that are ready the highest runs first, first come, first served among
//! equals.
//!
//! Each thread has tasks of its own, with priorities of their own, and runs one to its end before it
//! looks for the next (the scheduler of the Tasking Framework, section 5.4.2 of the thesis). So a
//! task is held up by one other at most, the one that runs when it becomes ready, and by those
//! above it. Which thread gets the CPU is up to the kernel, by the threads' own priorities.
//!
//! When a task became ready is the time of the last item that it took, or of its release. Items of a
//! feed count from when the thread looks, which is after each execution. A task that is still ready
//! when it ends stands behind its equals.
//!
//! ```
//! use onbeat_flow::activation::{Input, Schedule};
//! use onbeat_flow::priority::Priorities;
//! use onbeat_flow::task::{Outcome, Task, TaskOptions};
//! use onbeat_flow::thread::ThreadOptions;
//! use std::sync::atomic::{AtomicU64, Ordering};
//! use std::sync::Arc;
//!
//! let commands = Arc::new(AtomicU64::new(0));
//! let every_ms = TaskOptions {
//!     schedule: Some(Schedule::Period { period_ns: 1_000_000, offset_ns: 0 }),
//!     ..Default::default()
//! };
//! let each = TaskOptions { inputs: vec![Input::EACH], ..Default::default() };
//!
//! let mut tasks = Priorities::new("car", vec![ThreadOptions::new("control"), ThreadOptions::new("rest")]);
//! let sense = tasks.task(0, 10, Task::new("sense", every_ms, (), |()| Outcome::Output))?;
//! let steer = tasks.task(0, 20, Task::new("steer", each.clone(), Arc::clone(&commands), |n| {
//!     n.fetch_add(1, Ordering::Relaxed);
//!     Outcome::Nothing
//! }))?;
//! let log = tasks.task(1, 1, Task::new("log", each, (), |()| Outcome::Nothing))?;
//! tasks.connect(sense, steer, 0)?;
//! tasks.connect(sense, log, 0)?;
//! let mut running = tasks.start()?;
//! # while running.stats(steer).executions == 0 { std::thread::yield_now(); }
//! running.drain(None)?;
//! assert_eq!(running.stats(log).executions, running.stats(sense).executions);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::exec::pool::{self, Lane, Program, Running, TaskId};
use crate::exec::task::{dot, Task, TaskError};
use crate::exec::thread::{ThreadError, ThreadOptions};
use crate::wait::Waker;
use thiserror::Error;

/// Why tasks cannot run by priority as asked.
#[derive(Debug, Error)]
pub enum PriorityError {
    /// A task cannot be had as asked.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// A thread cannot be had as asked; none was started.
    #[error(transparent)]
    Thread(#[from] ThreadError),
    /// There is no such thread.
    #[error(
        "task '{task}' is to run on thread {thread}, but there are {threads}: threads count from 0"
    )]
    NoThread {
        /// Its name.
        task: String,
        /// As it was given.
        thread: usize,
        /// How many there are.
        threads: usize,
    },
}

/// Tasks with priorities on threads, to be started.
pub struct Priorities {
    program: Program,
    priorities: Vec<u32>,
    threads: Vec<usize>,
}

impl Priorities {
    /// No tasks yet, on these threads. The name stands before those of the tasks in recordings.
    pub fn new(name: &str, threads: Vec<ThreadOptions>) -> Priorities {
        Priorities {
            program: Program::new(name, threads),
            priorities: Vec::new(),
            threads: Vec::new(),
        }
    }

    /// Adds a task to a thread; of those that are ready the one with the highest priority runs.
    /// What the task itself says of its thread does not count.
    pub fn task<S: Send + 'static>(
        &mut self,
        thread: usize,
        priority: u32,
        task: Task<S>,
    ) -> Result<TaskId, PriorityError> {
        let parts = task.into_parts(&self.program.name)?;
        let threads = self.program.threads.len();
        if thread >= threads {
            return Err(PriorityError::NoThread {
                task: parts.core.name,
                thread,
                threads,
            });
        }
        self.program.tasks.push(parts);
        self.priorities.push(priority);
        self.threads.push(thread);
        Ok(TaskId(self.program.tasks.len() - 1))
    }

    /// What one task brings arrives at an input of another, or of itself. A task may have several
    /// followers, and an input several sources.
    pub fn connect(&mut self, from: TaskId, to: TaskId, input: usize) -> Result<(), PriorityError> {
        Ok(self.program.connect(from, to, input)?)
    }

    /// Where a thread sleeps: give it to the consumers of that thread's tasks.
    ///
    /// # Panics
    /// If there is no such thread.
    pub fn waker(&self, thread: usize) -> Waker {
        self.program.wakers[thread].clone()
    }

    /// Starts all threads: each once all of them have what they were asked to have, or none.
    pub fn start(self) -> Result<Running, PriorityError> {
        let order = self.order();
        let Priorities {
            program,
            priorities,
            ..
        } = self;
        Ok(pool::start(program, &order, Some(&priorities), step)?)
    }

    /// The tasks of each thread, highest priority first.
    fn order(&self) -> Vec<Vec<usize>> {
        let mut order = vec![Vec::new(); self.program.threads.len()];
        for (task, &thread) in self.threads.iter().enumerate() {
            order[thread].push(task);
        }
        for tasks in &mut order {
            tasks.sort_by_key(|&t| std::cmp::Reverse(self.priorities[t]));
        }
        order
    }

    /// Tasks and hand-overs as a graph for graphviz, grouped by thread.
    pub fn to_dot(&self) -> String {
        let groups = self.program.threads.iter().zip(self.order());
        let groups: Vec<_> = groups
            .map(|(thread, tasks)| {
                let label = |t: usize| {
                    format!(
                        "{} ({})",
                        self.program.tasks[t].core.name, self.priorities[t]
                    )
                };
                let boxes = tasks.into_iter().map(|t| (t, label(t))).collect();
                (thread.name.clone(), boxes)
            })
            .collect();
        dot("priorities", &groups, self.program.arrows())
    }
}

/// Runs the task that is due, if any.
fn step(lane: &mut Lane, now_ns: u64) -> usize {
    lane.look_in_turn(now_ns);
    // Highest first: those behind the first ready one's equals need no look.
    let mut first: Option<(u32, (u64, u64), usize)> = None;
    for (i, entry) in lane.entries.iter().enumerate() {
        if first.is_some_and(|(priority, ..)| entry.priority < priority) {
            break;
        }
        if let Some(since) = entry.since {
            if first.is_none_or(|(_, earliest, _)| since < earliest) {
                first = Some((entry.priority, since, i));
            }
        }
    }
    match first {
        None => 0,
        Some((.., entry)) => {
            lane.run(entry, now_ns);
            1
        }
    }
}
