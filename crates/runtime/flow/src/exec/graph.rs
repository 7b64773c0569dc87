//! Executor: tasks on several threads, in an order that is fixed before the start.
//!
//! The connections must have no circle. Threads and order are given, or computed from the costs of
//! the tasks by list scheduling: the task with the longest path to an end comes first, on the
//! thread where it ends earliest. Each thread goes through its tasks in this order again and again.
//! It runs those that are ready and sleeps when none is: a [`crate::chain::Chain`] on several
//! threads.
//!
//! ```
//! use onbeat_flow::activation::{Input, Schedule};
//! use onbeat_flow::graph::Graph;
//! use onbeat_flow::task::{Task, TaskOptions, TaskResult};
//! use onbeat_flow::thread::ThreadOptions;
//! use onbeat_flow::{Channel, Options, Policy};
//!
//! let each = |inputs| TaskOptions { inputs: vec![Input::EACH; inputs], ..Default::default() };
//! let every_ms = TaskOptions {
//!     schedule: Some(Schedule::Period { period_ns: 1_000_000, offset_ns: 0 }),
//!     ..Default::default()
//! };
//! let scans = Channel::new(Options::new(Policy::Latest, 8))?;
//! let (mut lidar, points) = (scans.producer()?, scans.consumer()?);
//!
//! let threads = ["a", "b"].map(ThreadOptions::new);
//! let mut graph = Graph::new("perception", threads.to_vec());
//! let front = graph.task(Task::new("front", every_ms, lidar, |lidar| {
//!     lidar.send(b"8 points").map_or(TaskResult::Nothing, |_| TaskResult::Output)
//! }).cost(100_000))?;
//! let filter = graph.task(Task::new("filter", each(1), points, |points| {
//!     points.newest().map_or(TaskResult::Nothing, |_| TaskResult::Output)
//! }).cost(500_000))?;
//! let map = graph.task(Task::new("map", each(1), (), |()| TaskResult::Output).cost(400_000))?;
//! let fuse = graph.task(Task::new("fuse", each(2), (), |()| TaskResult::Nothing).cost(50_000))?;
//! graph.connect(front, filter, 0)?;
//! graph.connect(front, map, 0)?;
//! graph.connect(filter, fuse, 0)?;
//! graph.connect(map, fuse, 1)?;
//! assert_eq!(graph.order()?, [vec![front, filter, fuse], vec![map]]);
//!
//! let mut running = graph.start()?;
//! # while running.stats(fuse).executions == 0 { std::thread::yield_now(); }
//! running.drain(None)?;
//! assert_eq!(running.stats(fuse).executions, running.stats(front).executions);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use super::dot::{dot, Group};
use super::options::TaskError;
use super::order::{circle, list_schedule, Job};
use super::pool::{self, Running};
use super::program::{Program, TaskId};
use super::task::Task;
use super::thread::{ThreadError, ThreadOptions};
use super::worker::Worker;
use crate::wait::Waker;
use thiserror::Error;

/// The reason why a graph cannot run.
#[allow(missing_docs)] // The messages say the rest.
#[derive(Debug, Error)]
pub enum GraphError {
    #[error(transparent)]
    Task(#[from] TaskError),
    #[error(transparent)]
    Thread(#[from] ThreadError),
    #[error("graph '{graph}' has no thread. Give it at least one.")]
    NoThreads { graph: String },
    #[error(
        "task '{task}' is assigned to thread {thread}, but there are {threads} threads, numbered from 0. Use one of these numbers."
    )]
    NoThread {
        task: String,
        thread: usize,
        threads: usize,
    },
    #[error("task '{task}' gets items from outside, but has no fixed thread. Assign the task to a thread with `on`, and give that thread's waker to the consumer.")]
    FedAnywhere { task: String },
    #[error("these tasks wait for one another in a circle: {}. Remove one of the connections.", path.join(" -> "))]
    Circle { path: Vec<String> },
    #[error("with the given order, these tasks wait for one another: {}. Put each task after its predecessors.", path.join(" -> "))]
    Deadlock { path: Vec<String> },
    #[error("the order names task '{task}' {times} times. Name every task once.")]
    Incomplete { task: String, times: usize },
    #[error("task '{task}' is assigned to thread {thread}, but the order puts it on another thread. Change the assignment or the order.")]
    Elsewhere { task: String, thread: usize },
    #[error("the order is for {given} threads, but the graph has {threads}. Give one list for each thread.")]
    Threads { given: usize, threads: usize },
}

/// A graph of tasks and connections, before its threads start.
pub struct Graph {
    program: Program,
    given_order: Option<Vec<Vec<usize>>>,
}

impl Graph {
    /// Creates a graph without tasks, for these threads. In recordings its name precedes the names
    /// of the tasks.
    pub fn new(name: &str, threads: Vec<ThreadOptions>) -> Graph {
        Graph {
            program: Program::new(name, threads),
            given_order: None,
        }
    }

    /// Adds a task. If the graph has several threads, a task with a feed must be assigned to one of
    /// them ([`Task::on`]).
    pub fn task<S: Send + 'static>(&mut self, task: Task<S>) -> Result<TaskId, GraphError> {
        let task = task.erase(&self.program.name)?;
        let threads = self.program.threads.len();
        match task.thread {
            Some(thread) if thread >= threads => Err(GraphError::NoThread {
                task: task.core.name,
                thread,
                threads,
            }),
            None if task.is_fed && threads > 1 => Err(GraphError::FedAnywhere {
                task: task.core.name,
            }),
            _ => Ok(self.program.add(task)),
        }
    }

    /// Connects one task's output to an input of another task. An output may have several
    /// receivers, and an input several sources.
    pub fn connect(&mut self, from: TaskId, to: TaskId, input: usize) -> Result<(), GraphError> {
        Ok(self.program.connect(from, to, input)?)
    }

    /// Returns the waker at which a thread sleeps. Give it to the consumers of that thread's tasks.
    ///
    /// # Panics
    /// If the graph has no such thread.
    pub fn waker(&self, thread: usize) -> Waker {
        self.program.wakers[thread].clone()
    }

    /// Sets the order of the tasks on each thread. onbeat then does not compute the order. `order`
    /// has one list per thread, and contains each task once.
    pub fn set_order(&mut self, order: Vec<Vec<TaskId>>) {
        let order = order.into_iter();
        self.given_order = Some(
            order
                .map(|t| t.into_iter().map(|id| id.0).collect())
                .collect(),
        );
    }

    /// Returns the tasks of each thread, in the order in which the thread runs them.
    pub fn order(&self) -> Result<Vec<Vec<TaskId>>, GraphError> {
        let order = self.plan()?.into_iter();
        Ok(order.map(|t| t.into_iter().map(TaskId).collect()).collect())
    }

    /// Starts all threads as soon as each has its settings. If one thread cannot get them, starts
    /// none.
    pub fn start(self) -> Result<Running, GraphError> {
        let order = self.plan()?;
        Ok(pool::start(self.program, &order, None, step)?)
    }

    fn names(&self, tasks: &[usize]) -> Vec<String> {
        let name = |&t: &usize| self.program.tasks[t].core.name.clone();
        tasks.iter().map(name).collect()
    }

    fn followers(&self) -> Vec<Vec<usize>> {
        let mut followers = vec![Vec::new(); self.program.tasks.len()];
        for c in &self.program.connections {
            followers[c.from].push(c.to);
        }
        followers
    }

    fn plan(&self) -> Result<Vec<Vec<usize>>, GraphError> {
        let threads = self.program.threads.len();
        if threads == 0 {
            return Err(GraphError::NoThreads {
                graph: self.program.name.clone(),
            });
        }
        if let Some(path) = circle(&self.followers()) {
            let path = self.names(&path);
            return Err(GraphError::Circle { path });
        }
        match &self.given_order {
            None => Ok(list_schedule(&self.jobs(), threads)),
            Some(order) => {
                self.check(order)?;
                Ok(order.clone())
            }
        }
    }

    fn jobs(&self) -> Vec<Job> {
        let mut jobs: Vec<Job> = self
            .program
            .tasks
            .iter()
            .map(|task| Job {
                cost_ns: task.cost_ns,
                thread: task.thread,
                followers: Vec::new(),
                predecessors: Vec::new(),
            })
            .collect();
        for c in &self.program.connections {
            jobs[c.from].followers.push(c.to);
            jobs[c.to].predecessors.push(c.from);
        }
        jobs
    }

    /// Checks that a given order contains all tasks, each on a thread where the task may run, and
    /// that the order and the connections form no circle.
    fn check(&self, order: &[Vec<usize>]) -> Result<(), GraphError> {
        let threads = self.program.threads.len();
        if order.len() != threads {
            return Err(GraphError::Threads {
                given: order.len(),
                threads,
            });
        }
        for (index, task) in self.program.tasks.iter().enumerate() {
            let name = || task.core.name.clone();
            let times = order.iter().flatten().filter(|&&t| t == index).count();
            if times != 1 {
                let task = name();
                return Err(GraphError::Incomplete { task, times });
            }
            if let Some(thread) = task.thread.filter(|&t| !order[t].contains(&index)) {
                let task = name();
                return Err(GraphError::Elsewhere { task, thread });
            }
        }
        let mut followers = self.followers();
        for tasks in order {
            for pair in tasks.windows(2) {
                followers[pair[0]].push(pair[1]);
            }
        }
        match circle(&followers) {
            None => Ok(()),
            Some(path) => Err(GraphError::Deadlock {
                path: self.names(&path),
            }),
        }
    }

    /// Draws tasks and connections for graphviz, grouped by thread and numbered in the order in
    /// which the thread runs them.
    pub fn to_dot(&self) -> String {
        let name = |t: usize| self.program.tasks[t].core.label();
        let groups: Vec<_> = match self.plan() {
            Ok(order) => order
                .iter()
                .zip(&self.program.threads)
                .map(|(tasks, thread)| {
                    let boxes = tasks.iter().enumerate();
                    let boxes = boxes.map(|(i, &t)| (t, format!("{}. {}", i + 1, name(t))));
                    Group {
                        label: thread.name.clone(),
                        boxes: boxes.collect(),
                    }
                })
                .collect(),
            // A graph that cannot run is drawn too, to show why.
            Err(_) => {
                let boxes = (0..self.program.tasks.len()).map(|t| (t, name(t).to_owned()));
                vec![Group {
                    label: String::new(),
                    boxes: boxes.collect(),
                }]
            }
        };
        dot("graph", &groups, self.program.arrows())
    }
}

fn step(worker: &mut Worker, now_ns: u64) -> usize {
    let mut executions = 0;
    for task in 0..worker.tasks.len() {
        worker.collect(task);
        if !worker.may_run(task, now_ns) {
            continue;
        }
        executions += 1;
        if !worker.run(task, now_ns) {
            break;
        }
    }
    executions
}
