//! Executor: tasks on several threads, by priority. On each thread the ready task with the highest
//! priority runs first; among equal priorities, the task that became ready first.
//!
//! Each task belongs to one thread. Tasks do not preempt each other on their thread (the scheduler
//! of the Tasking Framework, section 5.4.2 of the thesis). So a task waits for at most one task of
//! lower priority, the one that runs when it becomes ready, and for those of higher priority. The
//! kernel decides which thread gets a CPU, by the threads' own priorities.
//!
//! A task becomes ready with the last item that it needs, or with its release. Items of a feed
//! count from the time when the thread polls the feed, which it does after each execution. A task
//! that is still ready after its execution comes behind the ready tasks of the same priority.
//! Receive tasks ([`Priorities::receive`]) count as ready from the time at which their next item
//! came.
//!
//! ```
//! use onbeat_flow::activation::{Input, Schedule};
//! use onbeat_flow::priority::Priorities;
//! use onbeat_flow::task::{Task, TaskOptions, TaskResult};
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
//! let threads = ["control", "rest"].map(ThreadOptions::new);
//! let mut tasks = Priorities::new("car", threads.to_vec());
//! let sense = tasks.task(0, 10, Task::new("sense", every_ms, (), |()| TaskResult::Output))?;
//! let steer = tasks.task(0, 20, Task::new("steer", each.clone(), Arc::clone(&commands), |n| {
//!     n.fetch_add(1, Ordering::Relaxed);
//!     TaskResult::Nothing
//! }))?;
//! let log = tasks.task(1, 1, Task::new("log", each, (), |()| TaskResult::Nothing))?;
//! tasks.connect(sense, steer, 0)?;
//! tasks.connect(sense, log, 0)?;
//! let mut running = tasks.start()?;
//! # while running.stats(steer).executions == 0 { std::thread::yield_now(); }
//! running.drain(None)?;
//! assert_eq!(running.stats(log).executions, running.stats(sense).executions);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use super::dot::{dot, Group};
use super::options::TaskError;
use super::pool::{self, Running};
use super::program::{Program, TaskId};
use super::task::{Task, TaskResult};
use super::thread::{ThreadError, ThreadOptions};
use super::worker::Worker;
use crate::channel::{AttachError, Channel, Item};
use crate::wait::Waker;
use thiserror::Error;

/// The reason why an executor by priority refuses a task or cannot start.
#[allow(missing_docs)] // The messages say the rest.
#[derive(Debug, Error)]
pub enum PriorityError {
    #[error(transparent)]
    Task(#[from] TaskError),
    #[error(transparent)]
    Thread(#[from] ThreadError),
    #[error(
        "task '{task}' is assigned to thread {thread}, but there are {threads} threads, numbered from 0. Use one of these numbers."
    )]
    NoThread {
        task: String,
        thread: usize,
        threads: usize,
    },
    #[error("task '{task}' cannot receive: {reason}")]
    Attach { task: String, reason: AttachError },
}

/// An executor of tasks with priorities, before its threads start.
pub struct Priorities {
    program: Program,
    priority_of_task: Vec<u32>,
    thread_of_task: Vec<usize>,
}

impl Priorities {
    /// Creates an executor without tasks, for these threads. In recordings its name precedes the
    /// names of the tasks.
    pub fn new(name: &str, threads: Vec<ThreadOptions>) -> Priorities {
        Priorities {
            program: Program::new(name, threads),
            priority_of_task: Vec::new(),
            thread_of_task: Vec::new(),
        }
    }

    /// Adds a task to a thread. A higher priority runs first. Ignores the thread that [`Task::on`]
    /// sets.
    pub fn task<S: Send + 'static>(
        &mut self,
        thread: usize,
        priority: u32,
        task: Task<S>,
    ) -> Result<TaskId, PriorityError> {
        let task = task.erase(&self.program.name)?;
        let threads = self.program.threads.len();
        if thread >= threads {
            return Err(PriorityError::NoThread {
                task: task.core.name,
                thread,
                threads,
            });
        }
        self.priority_of_task.push(priority);
        self.thread_of_task.push(thread);
        Ok(self.program.add(task))
    }

    /// Adds a receive task ([`Task::receiving`]) to a thread. The task calls `take` for each item
    /// of the channel. Among the thread's ready tasks, the one with the highest priority runs
    /// first. Among equal priorities, the task whose item came first runs first. The consumer
    /// attaches during this call, so items that come before the thread starts are not missed.
    ///
    /// # Errors
    /// Fails if the executor has no such thread, or if the channel has no place for another
    /// consumer.
    pub fn receive(
        &mut self,
        thread: usize,
        priority: u32,
        name: &str,
        channel: &Channel,
        take: impl FnMut(&Item<'_>) -> TaskResult + Send + 'static,
    ) -> Result<TaskId, PriorityError> {
        let Some(waker) = self.program.wakers.get(thread) else {
            return Err(PriorityError::NoThread {
                task: name.into(),
                thread,
                threads: self.program.threads.len(),
            });
        };
        let consumer = channel.consumer_on(waker);
        let consumer = consumer.map_err(|reason| PriorityError::Attach {
            task: name.into(),
            reason,
        })?;
        self.task(thread, priority, Task::receiving(name, consumer, take))
    }

    /// Connects one task's output to an input of another task or of itself. An output may have
    /// several receivers, and an input several sources.
    pub fn connect(&mut self, from: TaskId, to: TaskId, input: usize) -> Result<(), PriorityError> {
        Ok(self.program.connect(from, to, input)?)
    }

    /// Returns the waker at which a thread sleeps. Give it to the consumers of that thread's tasks.
    ///
    /// # Panics
    /// If the executor has no such thread.
    pub fn waker(&self, thread: usize) -> Waker {
        self.program.wakers[thread].clone()
    }

    /// Starts all threads as soon as each has its settings. If one thread cannot get them, starts
    /// none.
    pub fn start(self) -> Result<Running, PriorityError> {
        let order = self.order();
        let Priorities {
            program,
            priority_of_task,
            ..
        } = self;
        Ok(pool::start(program, &order, Some(&priority_of_task), step)?)
    }

    fn order(&self) -> Vec<Vec<usize>> {
        let mut order = vec![Vec::new(); self.program.threads.len()];
        for (task, &thread) in self.thread_of_task.iter().enumerate() {
            order[thread].push(task);
        }
        for tasks in &mut order {
            tasks.sort_by_key(|&t| std::cmp::Reverse(self.priority_of_task[t]));
        }
        order
    }

    /// Draws tasks and connections for graphviz, grouped by thread.
    pub fn to_dot(&self) -> String {
        let text = |t: usize| {
            let name = self.program.tasks[t].core.label();
            format!("{name} ({})", self.priority_of_task[t])
        };
        let groups = self.program.threads.iter().zip(self.order());
        let groups: Vec<_> = groups
            .map(|(thread, tasks)| Group {
                label: thread.name.clone(),
                boxes: tasks.into_iter().map(|t| (t, text(t))).collect(),
            })
            .collect();
        dot("priorities", &groups, self.program.arrows())
    }
}

fn step(worker: &mut Worker, now_ns: u64) -> usize {
    worker.collect_in_order(now_ns);
    // The tasks are sorted by priority, so the search ends at the first lower priority after a
    // ready task.
    let mut first: Option<(u32, (u64, u64), usize)> = None;
    for (i, task) in worker.tasks.iter().enumerate() {
        if first.is_some_and(|(priority, ..)| task.priority < priority) {
            break;
        }
        if let Some(since) = task.ready_since {
            if first.is_none_or(|(_, earliest, _)| since < earliest) {
                first = Some((task.priority, since, i));
            }
        }
    }
    match first {
        None => 0,
        Some((.., task)) => {
            worker.run(task, now_ns);
            1
        }
    }
}
