//! Tasks on several threads in an order that is fixed before the start.
//!
//! Who hands over to whom must have no circle. Which task runs on which thread, and in which order
//! there, is computed from what the tasks cost (list scheduling: the task with the longest way to
//! the end goes first, to the thread on which it ends earliest), or stated. Each thread goes through
//! its tasks in this order again and again, runs what is ready, passes over what is not, and sleeps
//! when nothing is: what a [`crate::chain::Chain`] does, on several threads at once.
//!
//! ```
//! use onbeat_flow::activation::{Input, Schedule};
//! use onbeat_flow::graph::Graph;
//! use onbeat_flow::task::{Outcome, Task, TaskOptions};
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
//! let mut graph = Graph::new("perception", vec![ThreadOptions::new("a"), ThreadOptions::new("b")]);
//! let front = graph.task(Task::new("front", every_ms, lidar, |lidar| {
//!     lidar.send(b"8 points").map_or(Outcome::Nothing, |_| Outcome::Output)
//! }).cost(100_000))?;
//! let filter = graph.task(Task::new("filter", each(1), points, |points| {
//!     points.newest().map_or(Outcome::Nothing, |_| Outcome::Output)
//! }).cost(500_000))?;
//! let map = graph.task(Task::new("map", each(1), (), |()| Outcome::Output).cost(400_000))?;
//! let fuse = graph.task(Task::new("fuse", each(2), (), |()| Outcome::Nothing).cost(50_000))?;
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

use crate::exec::pool::{self, Lane, Program, Running, TaskId};
use crate::exec::task::{dot, Task, TaskError};
use crate::exec::thread::{ThreadError, ThreadOptions};
use crate::wait::Waker;
use thiserror::Error;

/// Why a graph cannot run as asked.
#[derive(Debug, Error)]
pub enum GraphError {
    /// A task cannot be had as asked.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// A thread cannot be had as asked; none was started.
    #[error(transparent)]
    Thread(#[from] ThreadError),
    /// There is nobody to run it.
    #[error("graph '{graph}' has no thread: give it at least one")]
    NoThreads {
        /// Its name.
        graph: String,
    },
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
    /// A feed wakes one thread, which has to be known.
    #[error("task '{task}' gets items from outside, so it must be known on which thread: say `on` which, and put the consumer on that thread's waker")]
    FedAnywhere {
        /// Its name.
        task: String,
    },
    /// Tasks that wait for one another.
    #[error("these tasks wait for one another in a circle: {}: remove one of the connections", path.join(" -> "))]
    Circle {
        /// Their names, the first one again at the end.
        path: Vec<String>,
    },
    /// An order in which tasks wait for one another.
    #[error("in this order these tasks wait for one another: {}: put each behind what it waits for", path.join(" -> "))]
    Deadlock {
        /// Their names, the first one again at the end.
        path: Vec<String>,
    },
    /// An order that is none of all tasks.
    #[error("task '{task}' stands {times} times in the order: name every task once")]
    Incomplete {
        /// Its name.
        task: String,
        /// How often.
        times: usize,
    },
    /// An order against what a task asked for.
    #[error("task '{task}' is to run on thread {thread}, but the order has it on another: change one of the two")]
    Elsewhere {
        /// Its name.
        task: String,
        /// As the task has it.
        thread: usize,
    },
    /// An order for other threads than there are.
    #[error("the order is for {given} threads, but there are {threads}: give one list for each")]
    Threads {
        /// As it was given.
        given: usize,
        /// How many there are.
        threads: usize,
    },
}

/// Tasks, and who hands over to whom, to be started.
pub struct Graph {
    program: Program,
    stated: Option<Vec<Vec<usize>>>,
}

impl Graph {
    /// No tasks yet, on these threads. The name stands before those of the tasks in recordings.
    pub fn new(name: &str, threads: Vec<ThreadOptions>) -> Graph {
        Graph {
            program: Program::new(name, threads),
            stated: None,
        }
    }

    /// Adds a task.
    pub fn task<S: Send + 'static>(&mut self, task: Task<S>) -> Result<TaskId, GraphError> {
        let parts = task.into_parts(&self.program.name)?;
        let threads = self.program.threads.len();
        match parts.thread {
            Some(thread) if thread >= threads => {
                return Err(GraphError::NoThread {
                    task: parts.core.name,
                    thread,
                    threads,
                })
            }
            None if parts.fed && threads > 1 => {
                return Err(GraphError::FedAnywhere {
                    task: parts.core.name,
                })
            }
            _ => {}
        }
        self.program.tasks.push(parts);
        Ok(TaskId(self.program.tasks.len() - 1))
    }

    /// What one task brings arrives at an input of another. A task may have several followers, and
    /// an input several sources.
    pub fn connect(&mut self, from: TaskId, to: TaskId, input: usize) -> Result<(), GraphError> {
        Ok(self.program.connect(from, to, input)?)
    }

    /// Where a thread sleeps: give it to the consumers of that thread's tasks.
    ///
    /// # Panics
    /// If there is no such thread.
    pub fn waker(&self, thread: usize) -> Waker {
        self.program.wakers[thread].clone()
    }

    /// States the order instead of computing it: all tasks, by thread.
    pub fn set_order(&mut self, order: Vec<Vec<TaskId>>) {
        let order = order.into_iter();
        self.stated = Some(
            order
                .map(|t| t.into_iter().map(|id| id.0).collect())
                .collect(),
        );
    }

    /// The tasks of each thread, in the order in which it goes through them.
    pub fn order(&self) -> Result<Vec<Vec<TaskId>>, GraphError> {
        let order = self.plan()?.into_iter();
        Ok(order.map(|t| t.into_iter().map(TaskId).collect()).collect())
    }

    /// Starts all threads: each once all of them have what they were asked to have, or none.
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
        if self.program.threads.is_empty() {
            return Err(GraphError::NoThreads {
                graph: self.program.name.clone(),
            });
        }
        let followers = self.followers();
        if let Some(path) = circle(&followers) {
            let path = self.names(&path);
            return Err(GraphError::Circle { path });
        }
        match &self.stated {
            None => Ok(self.list_schedule(&followers)),
            Some(order) => {
                self.check(order, followers)?;
                Ok(order.clone())
            }
        }
    }

    /// Is a stated order one of all tasks, each on a thread that it may be on, in which nobody
    /// waits for a later one?
    fn check(
        &self,
        order: &[Vec<usize>],
        mut followers: Vec<Vec<usize>>,
    ) -> Result<(), GraphError> {
        let threads = self.program.threads.len();
        if order.len() != threads {
            return Err(GraphError::Threads {
                given: order.len(),
                threads,
            });
        }
        for (task, parts) in self.program.tasks.iter().enumerate() {
            let name = || parts.core.name.clone();
            let times = order.iter().flatten().filter(|&&t| t == task).count();
            if times != 1 {
                let task = name();
                return Err(GraphError::Incomplete { task, times });
            }
            if let Some(thread) = parts.thread.filter(|&t| !order[t].contains(&task)) {
                let task = name();
                return Err(GraphError::Elsewhere { task, thread });
            }
        }
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

    /// List scheduling: by the longest way to the end, to where it ends earliest.
    fn list_schedule(&self, followers: &[Vec<usize>]) -> Vec<Vec<usize>> {
        let tasks = &self.program.tasks;
        let mut before = vec![Vec::new(); tasks.len()];
        for c in &self.program.connections {
            before[c.to].push(c.from);
        }
        // Longest way to the end, from the ends back.
        let mut way = vec![0u64; tasks.len()];
        let mut left: Vec<usize> = followers.iter().map(Vec::len).collect();
        let mut done: Vec<usize> = (0..tasks.len()).filter(|&t| left[t] == 0).collect();
        while let Some(task) = done.pop() {
            let behind = followers[task].iter().map(|&f| way[f]).max();
            way[task] = tasks[task].cost_ns.saturating_add(behind.unwrap_or(0));
            for &b in &before[task] {
                left[b] -= 1;
                if left[b] == 0 {
                    done.push(b);
                }
            }
        }
        let mut order = vec![Vec::new(); self.program.threads.len()];
        let mut free_ns = vec![0u64; order.len()];
        let mut end_ns: Vec<Option<u64>> = vec![None; tasks.len()];
        let mut at = vec![0; tasks.len()];
        for _ in tasks {
            let open = (0..tasks.len())
                .filter(|&t| end_ns[t].is_none() && before[t].iter().all(|&b| end_ns[b].is_some()));
            let Some(task) = open.min_by_key(|&t| (std::cmp::Reverse(way[t]), t)) else {
                break;
            };
            let ready_ns = before[task].iter().filter_map(|&b| end_ns[b]).max();
            let start_ns = |thread: usize| ready_ns.unwrap_or(0).max(free_ns[thread]);
            // Where two are equal: where what it waits for last runs, which saves a hand-over.
            let last = before[task].iter().max_by_key(|&&b| end_ns[b]);
            let away = |thread: usize| last.is_some_and(|&b| at[b] != thread);
            let thread = tasks[task].thread.unwrap_or_else(|| {
                (0..order.len())
                    .min_by_key(|&t| (start_ns(t), away(t), t))
                    .unwrap_or(0)
            });
            let end = start_ns(thread).saturating_add(tasks[task].cost_ns);
            (end_ns[task], free_ns[thread], at[task]) = (Some(end), end, thread);
            order[thread].push(task);
        }
        order
    }

    /// Tasks and hand-overs as a graph for graphviz, grouped by thread and numbered in its order.
    pub fn to_dot(&self) -> String {
        let name = |t: usize| &self.program.tasks[t].core.name;
        let groups: Vec<_> = match self.plan() {
            Ok(order) => order
                .iter()
                .zip(&self.program.threads)
                .map(|(tasks, thread)| {
                    let boxes = tasks.iter().enumerate();
                    let boxes = boxes.map(|(i, &t)| (t, format!("{}. {}", i + 1, name(t))));
                    (thread.name.clone(), boxes.collect())
                })
                .collect(),
            // What cannot run is drawn all the same, so that one sees why.
            Err(_) => {
                let boxes = (0..self.program.tasks.len()).map(|t| (t, name(t).clone()));
                vec![(String::new(), boxes.collect())]
            }
        };
        dot("graph", &groups, self.program.arrows())
    }
}

/// A circle among tasks, its first one again at the end.
fn circle(followers: &[Vec<usize>]) -> Option<Vec<usize>> {
    #[derive(Clone, Copy, PartialEq)]
    enum Seen {
        Not,
        OnTheWay,
        Done,
    }
    let mut seen = vec![Seen::Not; followers.len()];
    for root in 0..followers.len() {
        // The way from the root, and the follower of each that comes next.
        let mut way = vec![(root, 0)];
        if seen[root] != Seen::Not {
            continue;
        }
        seen[root] = Seen::OnTheWay;
        while let Some((task, next)) = way.last_mut() {
            let Some(&follower) = followers[*task].get(*next) else {
                seen[*task] = Seen::Done;
                way.pop();
                continue;
            };
            *next += 1;
            match seen[follower] {
                Seen::Done => {}
                Seen::Not => {
                    seen[follower] = Seen::OnTheWay;
                    way.push((follower, 0));
                }
                Seen::OnTheWay => {
                    let from = way.iter().position(|w| w.0 == follower)?;
                    let mut path: Vec<usize> = way[from..].iter().map(|w| w.0).collect();
                    path.push(follower);
                    return Some(path);
                }
            }
        }
    }
    None
}

/// Goes through the thread's tasks once.
fn step(lane: &mut Lane, now_ns: u64) -> usize {
    let mut ran = 0;
    for entry in 0..lane.entries.len() {
        lane.look(entry);
        if !lane.may_run(entry, now_ns) {
            continue;
        }
        ran += 1;
        if !lane.run(entry, now_ns) {
            break;
        }
    }
    ran
}
