//! Executor: tasks on one thread, in a fixed order. A hand-over from one task to the next is a
//! function call.
//!
//! The data of a chain is a value of the user's own type, its state. Each task gets a reference to
//! it. Nothing is queued, copied or looked up between tasks. The chain itself only records which
//! tasks are ready.
//!
//! ```
//! use onbeat_flow::activation::{Input, Schedule};
//! use onbeat_flow::chain::{Chain, TaskOptions, TaskResult};
//!
//! #[derive(Default)]
//! struct Car { front: f64, rear: f64, fused: f64, sent: Vec<f64> }
//!
//! let each_ms = |ms: u64| Some(Schedule::Period { period_ns: ms * 1_000_000, offset_ns: 0 });
//! let mut chain = Chain::new(Car::default());
//! let front = chain.task("front", TaskOptions { schedule: each_ms(10), ..Default::default() },
//!     |car: &mut Car| { car.front += 1.0; TaskResult::Output })?;
//! let rear = chain.task("rear", TaskOptions { schedule: each_ms(20), ..Default::default() },
//!     |car: &mut Car| { car.rear += 2.0; TaskResult::Output })?;
//! let fusion = chain.task("fusion",
//!     TaskOptions { inputs: vec![Input::EACH; 2], ..Default::default() },
//!     |car: &mut Car| { car.fused = car.front + car.rear; TaskResult::Output })?;
//! // Leaves only in its slot, 5 to 6 ms into each 10 ms: data AND slot.
//! let slot = Schedule::slots(10_000_000, 0, [(5_000_000, 6_000_000)]);
//! let output = chain.task("output",
//!     TaskOptions { inputs: vec![Input::EACH], schedule: Some(slot), ..Default::default() },
//!     |car: &mut Car| { car.sent.push(car.fused); TaskResult::Nothing })?;
//! chain.connect(front, fusion, 0)?;
//! chain.connect(rear, fusion, 1)?;
//! chain.connect(fusion, output, 0)?;
//!
//! for ms in 0..30 {
//!     chain.step(ms * 1_000_000);
//! }
//! // At 5 ms, and at 25 ms with the third scan of the front and the second of the rear.
//! assert_eq!(chain.state().sent, [3.0, 7.0]);
//! # Ok::<(), onbeat_flow::chain::ChainError>(())
//! ```

use super::dot::{dot, Arrow, Group};
use super::execution::{Completion, TaskCore};
use super::options::TaskError;
use crate::wait::{clock, Waker};
use std::sync::atomic::{AtomicBool, Ordering};
use thiserror::Error;

pub use super::options::{Overrun, TaskOptions, TaskResult, TaskStats};

/// The reason why a chain cannot be built.
#[allow(missing_docs)] // The messages say the rest.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ChainError {
    #[error(transparent)]
    Task(#[from] TaskError),
    #[error("task '{to}' runs before '{from}', so '{to}' cannot use the output of '{from}'. Add the tasks in the order in which they run.")]
    Order { from: String, to: String },
}

/// The identity of a task of a chain, as [`Chain::task`] returns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskId(usize);

struct Output {
    task: usize,
    source: usize,
    input: usize,
}

struct ChainTask<S> {
    core: TaskCore,
    run: Box<dyn FnMut(&mut S) -> TaskResult + Send>,
    contents: Option<Contents<S>>,
    outputs: Vec<Output>,
}

type Contents<S> = Box<dyn FnMut(&mut S) -> bool + Send>;

#[derive(Clone, Copy, PartialEq)]
enum FeedCounts {
    Arrived,
    /// The feed returns the number of items that still wait outside of the executor.
    Waiting,
}

struct Feed<S> {
    poll: Box<dyn FnMut(&mut S) -> u32 + Send>,
    counts: FeedCounts,
    task: usize,
    source: usize,
}

/// A chain of tasks, in the order in which they were added, and the state that they share.
pub struct Chain<S> {
    state: S,
    tasks: Vec<ChainTask<S>>,
    feeds: Vec<Feed<S>>,
    is_stopped: bool,
    is_draining: bool,
    name: String,
}

impl<S> Chain<S> {
    /// Creates a chain without tasks.
    pub fn new(state: S) -> Chain<S> {
        Chain::named("chain", state)
    }

    /// Creates a chain with a name. In recordings its name precedes the names of the tasks.
    pub fn named(name: &str, state: S) -> Chain<S> {
        Chain {
            state,
            tasks: Vec::new(),
            feeds: Vec::new(),
            is_stopped: false,
            is_draining: false,
            name: name.into(),
        }
    }

    /// Adds a task. It runs after the tasks that were added before.
    pub fn task(
        &mut self,
        name: &str,
        options: TaskOptions,
        run: impl FnMut(&mut S) -> TaskResult + Send + 'static,
    ) -> Result<TaskId, ChainError> {
        self.tasks.push(ChainTask {
            core: TaskCore::new(&self.name, name, options)?,
            run: Box::new(run),
            contents: None,
            outputs: Vec::new(),
        });
        Ok(TaskId(self.tasks.len() - 1))
    }

    /// Adds a condition on contents: data activates the task only if `is_fulfilled` returns true.
    /// Each step calls `is_fulfilled` as soon as enough items have come. The function can look at a
    /// channel's items with [`Consumer::peek`](crate::Consumer::peek), without taking them. The
    /// function must be short and bounded.
    pub fn only_if(
        &mut self,
        task: TaskId,
        is_fulfilled: impl FnMut(&mut S) -> bool + Send + 'static,
    ) {
        let task = &mut self.tasks[task.0];
        task.contents = Some(Box::new(is_fulfilled));
        task.core.label_condition();
    }

    /// Connects one task's output to an input of a later task. An output may have several
    /// receivers, and an input several sources.
    pub fn connect(&mut self, from: TaskId, to: TaskId, input: usize) -> Result<(), ChainError> {
        self.tasks[to.0].core.check_input(input)?;
        let name = self.tasks[from.0].core.name.clone();
        let receiver = &mut self.tasks[to.0].core;
        if to.0 <= from.0 {
            return Err(ChainError::Order {
                from: name,
                to: receiver.name.clone(),
            });
        }
        let source = receiver.connect(&self.name, &name, input);
        self.tasks[from.0].outputs.push(Output {
            task: to.0,
            source,
            input,
        });
        Ok(())
    }

    /// Feeds an input from outside, for example from a channel's consumer. At the beginning of each
    /// [`Chain::step`], the chain calls `poll`. `poll` moves new items into the shared state and
    /// returns their number.
    pub fn feed(
        &mut self,
        to: TaskId,
        input: usize,
        poll: impl FnMut(&mut S) -> u32 + Send + 'static,
    ) -> Result<(), ChainError> {
        self.add_feed(to, input, Box::new(poll), FeedCounts::Arrived)
    }

    /// Feeds an input from outside, for example from a channel whose consumer is in the shared
    /// state. At the beginning of each [`Chain::step`], the chain calls `waiting`, which returns
    /// the number of items that *wait* there. The task's code takes the items itself. Until then
    /// the channel's policy applies to them.
    pub fn feed_waiting(
        &mut self,
        to: TaskId,
        input: usize,
        waiting: impl FnMut(&mut S) -> u32 + Send + 'static,
    ) -> Result<(), ChainError> {
        self.add_feed(to, input, Box::new(waiting), FeedCounts::Waiting)
    }

    fn add_feed(
        &mut self,
        to: TaskId,
        input: usize,
        poll: Box<dyn FnMut(&mut S) -> u32 + Send>,
        counts: FeedCounts,
    ) -> Result<(), ChainError> {
        let core = &mut self.tasks[to.0].core;
        core.check_input(input)?;
        let source = core.feed(&self.name, input);
        self.feeds.push(Feed {
            poll,
            counts,
            task: to.0,
            source,
        });
        Ok(())
    }

    /// Runs each ready task once, in order, and returns how many ran. Real-time safe if the tasks
    /// are: no allocation, no lock, no system call. The clock is read only for deadlines.
    pub fn step(&mut self, now_ns: u64) -> usize {
        if self.is_stopped {
            return 0;
        }
        self.poll_feeds();
        let mut executions = 0;
        for index in 0..self.tasks.len() {
            let (done, later) = self.tasks.split_at_mut(index + 1);
            let task = &mut done[index];
            let (contents, state) = (&mut task.contents, &mut self.state);
            let is_fulfilled = contents.as_mut().map(|it| || it(state));
            if !task.core.may_run(now_ns, self.is_draining, is_fulfilled) {
                continue;
            }
            executions += 1;
            match task.core.execute(now_ns, || (task.run)(&mut self.state)) {
                Completion::Output => {
                    for output in &task.outputs {
                        let receiver = &mut later[output.task - index - 1];
                        receiver.core.arrive(output.source, 1);
                    }
                }
                Completion::Nothing => {}
                Completion::Stop => {
                    self.is_stopped = true;
                    return executions;
                }
            }
        }
        executions
    }

    #[inline]
    fn poll_feeds(&mut self) {
        for feed in &mut self.feeds {
            let items = (feed.poll)(&mut self.state);
            let core = &mut self.tasks[feed.task].core;
            match feed.counts {
                FeedCounts::Waiting => {
                    core.set_waiting(feed.source, items);
                }
                FeedCounts::Arrived if items > 0 => core.arrive(feed.source, items),
                FeedCounts::Arrived => {}
            }
        }
    }

    /// Calls [`Chain::step`] whenever a task is ready. Between the calls, sleeps until an item
    /// arrives at a consumer on this waker, or until a release, slot or timer of a task is due.
    ///
    /// Ends when `stop` is set (and the waker woken), or when an overrun stops the chain. Runs on
    /// the calling thread, with the policy, priority and CPUs of the caller.
    pub fn run(&mut self, waker: &Waker, stop: &AtomicBool) {
        let is_over = |chain: &Self| chain.is_stopped || stop.load(Ordering::Acquire);
        let now_ns = clock::now_ns();
        let tasks = self.tasks.iter_mut();
        tasks.for_each(|t| t.core.activation.start(now_ns));
        while !is_over(self) {
            let now_ns = clock::now_ns();
            if self.step(now_ns) == 0 {
                let wake_ns = self.wake_ns(now_ns);
                waker.wait(wake_ns, || is_over(self) || self.step(clock::now_ns()) > 0);
            }
        }
    }

    /// Runs tasks until they have used all items that have arrived. If an item must wait for a
    /// slot, the call sleeps until the slot. Time alone starts no task. The call ends earlier if
    /// another thread sets `stop` and wakes `waker`.
    pub fn drain(&mut self, waker: &Waker, stop: &AtomicBool) {
        self.is_draining = true;
        let is_over = |chain: &Self| chain.is_stopped || stop.load(Ordering::Acquire);
        while !is_over(self) {
            let now_ns = clock::now_ns();
            if self.step(now_ns) > 0 {
                continue;
            }
            let Some(wake_ns) = self.wake_ns(now_ns) else {
                break;
            };
            waker.wait(Some(wake_ns), || {
                is_over(self) || self.step(clock::now_ns()) > 0
            });
        }
        self.is_draining = false;
    }

    /// Returns the next time at which a task may be ready without a new item, or `None` if all
    /// tasks wait for items.
    pub fn wake_ns(&self, now_ns: u64) -> Option<u64> {
        let tasks = self.tasks.iter();
        tasks
            .filter_map(|t| t.core.wake_ns(now_ns, self.is_draining))
            .min()
    }

    /// Reports whether an overrun has stopped the chain.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Returns the state that the tasks share.
    pub fn state(&self) -> &S {
        &self.state
    }

    /// Returns the state that the tasks share. The caller may change it between two calls of
    /// [`Chain::step`].
    pub fn state_mut(&mut self) -> &mut S {
        &mut self.state
    }

    /// Returns the counters of a task, for example of its executions and its late executions.
    pub fn stats(&self, task: TaskId) -> TaskStats {
        self.tasks[task.0].core.stats()
    }

    /// Draws the chain for graphviz.
    pub fn to_dot(&self) -> String {
        let tasks = self.tasks.iter().enumerate();
        let boxes = tasks
            .clone()
            .map(|(i, t)| (i, format!("{}. {}", i + 1, t.core.label())))
            .collect();
        let arrows = tasks.flat_map(|(from, t)| {
            t.outputs.iter().map(move |o| Arrow {
                from,
                to: o.task,
                input: o.input,
            })
        });
        let label = String::new();
        dot("chain", &[Group { label, boxes }], arrows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::activation::{Input, Schedule};

    fn each(inputs: usize) -> TaskOptions {
        TaskOptions {
            inputs: vec![Input::EACH; inputs],
            ..TaskOptions::default()
        }
    }

    fn every_ns(period_ns: u64) -> TaskOptions {
        TaskOptions {
            schedule: Some(Schedule::Period {
                period_ns,
                offset_ns: 0,
            }),
            ..TaskOptions::default()
        }
    }

    #[test]
    fn later_tasks_use_an_output_in_the_same_step() {
        let mut chain = Chain::new(Vec::new());
        let note = |name: &'static str, result| {
            move |log: &mut Vec<&'static str>| {
                log.push(name);
                result
            }
        };
        let a = chain
            .task("a", every_ns(10), note("a", TaskResult::Output))
            .unwrap();
        let b = chain
            .task("b", each(1), note("b", TaskResult::Nothing))
            .unwrap();
        let c = chain
            .task("c", each(1), note("c", TaskResult::Output))
            .unwrap();
        let d = chain
            .task("d", each(2), note("d", TaskResult::Output))
            .unwrap();
        chain.connect(a, b, 0).unwrap();
        chain.connect(a, c, 0).unwrap();
        chain.connect(b, d, 0).unwrap();
        chain.connect(c, d, 1).unwrap();
        assert_eq!(chain.step(0), 3);
        assert_eq!(chain.state()[..], ["a", "b", "c"], "b had no output for d");
        assert_eq!((chain.step(5), chain.wake_ns(5)), (0, Some(10)));
        assert_eq!(chain.stats(a).executions, 1);
        let dot = chain.to_dot();
        assert!(dot.contains("t0 -> t2 [headlabel=\"0\"]"), "{dot}");
    }

    #[test]
    fn a_late_task_is_counted_and_handled_as_configured() {
        for (overrun, followed, stopped) in [
            (Overrun::Continue, 1, false),
            (Overrun::Skip, 0, false),
            (Overrun::Stop, 0, true),
        ] {
            let mut chain = Chain::new(0);
            let slow = TaskOptions {
                deadline_ns: Some(1000),
                overrun,
                ..every_ns(10)
            };
            let first = chain
                .task("slow", slow, |_| {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                    TaskResult::Output
                })
                .unwrap();
            let count = |n: &mut i32| {
                *n += 1;
                TaskResult::Nothing
            };
            let second = chain.task("next", each(1), count).unwrap();
            chain.connect(first, second, 0).unwrap();
            chain.step(0);
            assert_eq!((*chain.state(), chain.is_stopped()), (followed, stopped));
            let stats = chain.stats(first);
            assert_eq!((stats.executions, stats.late), (1, 1));
            assert!(stats.longest_ns >= 1_000_000);
            assert_eq!(chain.step(10) == 0, stopped);
        }
    }

    #[test]
    fn the_feeds_of_a_chain_of_tasks_are_polled_in_each_step_of_the_chain() {
        let mut chain = Chain::new((vec![3, 0, 1], 0));
        let task = chain
            .task("sum", each(1), |s: &mut (Vec<u32>, u32)| {
                s.1 += 1;
                TaskResult::Nothing
            })
            .unwrap();
        chain.feed(task, 0, |s| s.0.pop().unwrap_or(0)).unwrap();
        (0..10).for_each(|now| {
            chain.step(now);
        });
        assert_eq!(chain.state().1, 4);
    }

    #[test]
    fn a_chain_joins_items_by_their_contents_or_times_out() {
        use crate::{Channel, Consumer, Options, Policy};
        struct Car {
            sensors: [Consumer; 2],
            fused: Vec<Vec<u8>>,
        }
        let channels =
            [(); 2].map(|()| Channel::new(Options::new(Policy::Credit { credits: 4 }, 1)).unwrap());
        let sensors = channels.each_ref().map(|c| c.consumer().unwrap());
        let mut producers = channels.each_ref().map(|c| c.producer().unwrap());
        let mut chain = Chain::new(Car {
            sensors,
            fused: Vec::new(),
        });
        let options = each(2).or_after_item(0, 10);
        let fuse = |car: &mut Car| {
            let of = |s: &Consumer| s.receive().map(|item| item[0]);
            car.fused.push(car.sensors.iter().filter_map(of).collect());
            TaskResult::Nothing
        };
        let fuse = chain.task("fuse", options, fuse).unwrap();
        for i in 0..2 {
            let waiting = move |car: &mut Car| car.sensors[i].waiting();
            chain.feed_waiting(fuse, i, waiting).unwrap();
        }
        chain.only_if(fuse, |car| {
            let [a, b] = &mut car.sensors;
            a.peek(0) == b.peek(0)
        });
        let dot = chain.to_dot();
        let label = "1. fuse, or 0.00001 ms after an item at input 0, \
                     if the task's condition on the contents of its items holds";
        assert!(dot.contains(label), "{dot}");

        producers[0].send(&[1]).unwrap();
        assert_eq!((chain.step(0), chain.wake_ns(1)), (0, Some(10)));
        producers[1].send(&[1]).unwrap();
        assert_eq!(chain.step(2), 1, "both, and they fit");
        producers[0].send(&[2]).unwrap();
        producers[1].send(&[3]).unwrap();
        assert_eq!((chain.step(3), chain.wake_ns(3)), (0, Some(13)));
        // An item that `peek` has shown is not consumed.
        assert_eq!(chain.state().sensors[0].stats().in_flight, 1);
        assert_eq!((chain.step(12), chain.step(13)), (0, 1));
        assert_eq!(chain.state().fused, [[1, 1], [2, 3]]);
        let stats = chain.stats(fuse);
        assert_eq!((stats.executions, stats.by_time), (2, 1));
        // Time alone starts no task while draining.
        producers[0].send(&[4]).unwrap();
        chain.drain(&Waker::new(), &AtomicBool::new(false));
        assert_eq!(chain.stats(fuse).executions, 2);
    }

    #[test]
    fn a_running_chain_sleeps_until_an_item_or_a_release() {
        use crate::{Channel, Options, Policy};
        struct State {
            sum: u64,
            ticks: u64,
        }
        let channel = Channel::new(Options::new(Policy::Credit { credits: 2 }, 8)).unwrap();
        let (waker, stop) = (Waker::new(), std::sync::Arc::new(AtomicBool::new(false)));
        let consumer = channel.consumer_on(&waker).unwrap();
        let mut chain = Chain::new(State { sum: 0, ticks: 0 });
        let tick = chain
            .task("tick", every_ns(2_000_000), |s: &mut State| {
                s.ticks += 1;
                TaskResult::Nothing
            })
            .unwrap();
        let (done, sleeper) = (std::sync::Arc::clone(&stop), waker.clone());
        let add = chain
            .task("add", each(1), move |s: &mut State| {
                if s.sum == 4950 && s.ticks >= 3 {
                    done.store(true, Ordering::Release);
                    sleeper.wake();
                }
                TaskResult::Nothing
            })
            .unwrap();
        chain
            .feed(add, 0, move |s| {
                // The last execution comes once all items have arrived.
                let mut items = u32::from(s.sum == 4950);
                while let Some(item) = consumer.receive() {
                    s.sum += u64::from(item[0]);
                    items = 1;
                }
                items
            })
            .unwrap();
        let mut producer = channel.producer().unwrap();
        let sender = std::thread::spawn(move || {
            for number in 0..100 {
                producer.send(&[number]).unwrap();
                std::thread::sleep(std::time::Duration::from_micros(100));
            }
        });
        chain.run(&waker, &stop);
        sender.join().unwrap();
        assert_eq!(chain.state().sum, 4950);
        assert!(chain.stats(tick).executions >= 3);
    }

    #[test]
    fn impossible_tasks_and_connections_are_refused_by_name() {
        let mut chain = Chain::new(());
        let refused = chain.task("t", TaskOptions::default(), |()| TaskResult::Nothing);
        assert!(refused.unwrap_err().to_string().contains("'t'"));
        let a = chain.task("a", each(1), |()| TaskResult::Nothing).unwrap();
        let b = chain.task("b", each(1), |()| TaskResult::Nothing).unwrap();
        assert!(matches!(
            chain.connect(b, a, 0),
            Err(ChainError::Order { .. })
        ));
        assert!(matches!(
            chain.connect(a, b, 1),
            Err(ChainError::Task(TaskError::NoInput { .. }))
        ));
        assert!(matches!(
            chain.feed(b, 2, |()| 0),
            Err(ChainError::Task(TaskError::NoInput { .. }))
        ));
    }
}
