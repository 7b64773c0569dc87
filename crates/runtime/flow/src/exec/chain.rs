//! Tasks in a fixed order on one thread: the hand-over from one to the next is a function call.
//!
//! The data of a chain lies in a state of the user's own type, which each task gets by reference:
//! nothing is queued, copied or looked up between tasks. What the chain keeps is only who has
//! something to do.
//!
//! ```
//! use onbeat_flow::activation::{Condition, Input, Schedule};
//! use onbeat_flow::chain::{Chain, Outcome, TaskOptions};
//!
//! #[derive(Default)]
//! struct Car { front: f64, rear: f64, fused: f64, sent: Vec<f64> }
//!
//! let each_ms = |ms: u64| Some(Schedule::Period { period_ns: ms * 1_000_000, offset_ns: 0 });
//! let mut chain = Chain::new(Car::default());
//! let front = chain.task("front", TaskOptions { schedule: each_ms(10), ..Default::default() },
//!     |car: &mut Car| { car.front += 1.0; Outcome::Output })?;
//! let rear = chain.task("rear", TaskOptions { schedule: each_ms(20), ..Default::default() },
//!     |car: &mut Car| { car.rear += 2.0; Outcome::Output })?;
//! let fusion = chain.task("fusion",
//!     TaskOptions { inputs: vec![Input::EACH; 2], ..Default::default() },
//!     |car: &mut Car| { car.fused = car.front + car.rear; Outcome::Output })?;
//! // Leaves only in its slot, 5 to 6 ms into each 10 ms: data AND slot.
//! let slot = Schedule::Slots { cycle_ns: 10_000_000, origin_ns: 0, slots: vec![(5_000_000, 6_000_000)] };
//! let output = chain.task("output",
//!     TaskOptions { inputs: vec![Input::EACH], schedule: Some(slot), ..Default::default() },
//!     |car: &mut Car| { car.sent.push(car.fused); Outcome::Nothing })?;
//! chain.connect(front, fusion, 0)?;
//! chain.connect(rear, fusion, 1)?;
//! chain.connect(fusion, output, 0)?;
//!
//! for ms in 0..30 {
//!     chain.step(ms * 1_000_000);
//! }
//! // At 5 ms; and at 25 ms, when the third scan of the front has met the second of the rear.
//! assert_eq!(chain.state().sent, [3.0, 7.0]);
//! # Ok::<(), onbeat_flow::chain::ChainError>(())
//! ```

use crate::exec::task::{dot, Core, Ran, TaskError};
use crate::wait::clock;
use crate::wait::Waker;
use std::sync::atomic::{AtomicBool, Ordering};
use thiserror::Error;

pub use crate::exec::task::{Outcome, Overrun, TaskOptions, TaskStats};

/// Why a chain cannot be built as asked.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ChainError {
    /// A task cannot be had as asked.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// A task hands over to later ones only.
    #[error("'{to}' runs before '{from}': add the tasks in the order in which they run")]
    Order {
        /// From which.
        from: String,
        /// To which.
        to: String,
    },
}

/// A task of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskId(usize);

struct Task<S> {
    core: Core,
    run: Box<dyn FnMut(&mut S) -> Outcome + Send>,
    /// Tasks and their links that its output goes to.
    outputs: Vec<(usize, usize)>,
    /// The same with the number of the input, to be drawn.
    drawn: Vec<(usize, usize)>,
}

/// Something outside that is asked for items.
struct Feed<S> {
    poll: Box<dyn FnMut(&mut S) -> u32 + Send>,
    /// It says how many wait, and not how many came.
    waiting: bool,
    /// Task and link that they go to.
    to: usize,
    link: usize,
}

/// Tasks in the order in which they were added, and the state that they share.
pub struct Chain<S> {
    state: S,
    tasks: Vec<Task<S>>,
    feeds: Vec<Feed<S>>,
    stopped: bool,
    /// What time alone makes run does not any more.
    draining: bool,
    name: String,
}

impl<S> Chain<S> {
    /// A chain without tasks.
    pub fn new(state: S) -> Chain<S> {
        Chain::named("chain", state)
    }

    /// The same with a name of its own, which recordings show before those of the tasks.
    pub fn named(name: &str, state: S) -> Chain<S> {
        Chain {
            state,
            tasks: Vec::new(),
            feeds: Vec::new(),
            stopped: false,
            draining: false,
            name: name.into(),
        }
    }

    /// Adds a task, to run after those that are there.
    pub fn task(
        &mut self,
        name: &str,
        options: TaskOptions,
        run: impl FnMut(&mut S) -> Outcome + Send + 'static,
    ) -> Result<TaskId, ChainError> {
        self.tasks.push(Task {
            core: Core::new(&self.name, name, options)?,
            run: Box::new(run),
            outputs: Vec::new(),
            drawn: Vec::new(),
        });
        Ok(TaskId(self.tasks.len() - 1))
    }

    /// What one task brings arrives at an input of a later one. A task may have several followers,
    /// and an input several sources.
    pub fn connect(&mut self, from: TaskId, to: TaskId, input: usize) -> Result<(), ChainError> {
        self.tasks[to.0].core.check_input(input)?;
        let source = self.tasks[from.0].core.name.clone();
        if to.0 <= from.0 {
            return Err(ChainError::Order {
                from: source,
                to: self.tasks[to.0].core.name.clone(),
            });
        }
        let link = self.tasks[to.0].core.link(&self.name, &source, input);
        let source = &mut self.tasks[from.0];
        source.outputs.push((to.0, link));
        source.drawn.push((to.0, input));
        Ok(())
    }

    /// Asks `poll` at the beginning of each step how many items came from outside, and are now in
    /// the state, for example from a channel's consumer.
    pub fn feed(
        &mut self,
        to: TaskId,
        input: usize,
        poll: impl FnMut(&mut S) -> u32 + Send + 'static,
    ) -> Result<(), ChainError> {
        self.add_feed(to, input, Box::new(poll), false)
    }

    /// Asks at the beginning of each step how many items *wait* outside, for example in a channel
    /// whose consumer is part of the state. The task takes them there, so that they stay in the
    /// channel, and its policy holds, until then.
    pub fn feed_waiting(
        &mut self,
        to: TaskId,
        input: usize,
        waiting: impl FnMut(&mut S) -> u32 + Send + 'static,
    ) -> Result<(), ChainError> {
        self.add_feed(to, input, Box::new(waiting), true)
    }

    fn add_feed(
        &mut self,
        to: TaskId,
        input: usize,
        poll: Box<dyn FnMut(&mut S) -> u32 + Send>,
        waiting: bool,
    ) -> Result<(), ChainError> {
        let core = &mut self.tasks[to.0].core;
        core.check_input(input)?;
        let source = format!("{}/{input}", core.name);
        let link = core.link(&self.name, &source, input);
        self.feeds.push(Feed {
            poll,
            waiting,
            to: to.0,
            link,
        });
        Ok(())
    }

    /// Runs each task that is ready, once, in order; how many ran. Real-time safe as far as the
    /// tasks are: no allocation, no lock, no system call, and the clock is only read for deadlines.
    pub fn step(&mut self, now_ns: u64) -> usize {
        if self.stopped {
            return 0;
        }
        for feed in &mut self.feeds {
            let items = (feed.poll)(&mut self.state);
            let core = &mut self.tasks[feed.to].core;
            if feed.waiting {
                core.level(feed.link, items);
            } else if items > 0 {
                core.arrive(feed.link, items);
            }
        }
        let mut ran = 0;
        for index in 0..self.tasks.len() {
            let (done, later) = self.tasks.split_at_mut(index + 1);
            let task = &mut done[index];
            if (self.draining && task.core.is_source) || !task.core.activation.is_ready(now_ns) {
                continue;
            }
            ran += 1;
            match task.core.execute(now_ns, || (task.run)(&mut self.state)) {
                Ran::Output => {
                    for &(to, link) in &task.outputs {
                        later[to - index - 1].core.arrive(link, 1);
                    }
                }
                Ran::Nothing => {}
                Ran::Stop => {
                    self.stopped = true;
                    return ran;
                }
            }
        }
        ran
    }

    /// Steps whenever there is something to do, and sleeps in between: until something arrives by a
    /// consumer on this waker, or until the time of a task has come. Ends when `stop` is set (and
    /// the waker woken), or when an overrun stops the chain. All on the calling thread, whose
    /// policy, priority and CPU are the caller's to set.
    pub fn run(&mut self, waker: &Waker, stop: &AtomicBool) {
        let over = |chain: &Self| chain.stopped || stop.load(Ordering::Acquire);
        let now_ns = clock::now_ns();
        let tasks = self.tasks.iter_mut();
        tasks.for_each(|t| t.core.activation.start(now_ns));
        while !over(self) {
            let now_ns = clock::now_ns();
            if self.step(now_ns) == 0 {
                let wake_ns = self.wake_ns(now_ns);
                waker.wait(wake_ns, || over(self) || self.step(clock::now_ns()) > 0);
            }
        }
    }

    /// Runs until no input is pending: what has arrived is worked off, also what waits for a slot,
    /// and nothing is released by time alone. Sleeps until a slot where it must; `stop` ends it
    /// earlier, once `waker` is woken.
    pub fn drain(&mut self, waker: &Waker, stop: &AtomicBool) {
        self.draining = true;
        let over = |chain: &Self| chain.stopped || stop.load(Ordering::Acquire);
        while !over(self) {
            let now_ns = clock::now_ns();
            if self.step(now_ns) > 0 {
                continue;
            }
            let Some(wake_ns) = self.wake_ns(now_ns) else {
                break;
            };
            waker.wait(Some(wake_ns), || {
                over(self) || self.step(clock::now_ns()) > 0
            });
        }
        self.draining = false;
    }

    /// The next time at which a task may be ready without anything arriving; `None` if all wait
    /// for data.
    pub fn wake_ns(&self, now_ns: u64) -> Option<u64> {
        self.tasks
            .iter()
            .filter(|t| !(self.draining && t.core.is_source))
            .filter_map(|t| t.core.activation.wake_ns(now_ns))
            .min()
    }

    /// An overrun has stopped the chain.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// What the tasks share.
    pub fn state(&self) -> &S {
        &self.state
    }

    /// What the tasks share, to be changed between steps.
    pub fn state_mut(&mut self) -> &mut S {
        &mut self.state
    }

    /// What a task has done so far.
    pub fn stats(&self, task: TaskId) -> TaskStats {
        self.tasks[task.0].core.stats()
    }

    /// The chain as a graph for graphviz.
    pub fn to_dot(&self) -> String {
        let tasks = self.tasks.iter().enumerate();
        let boxes = tasks
            .clone()
            .map(|(i, t)| (i, format!("{}. {}", i + 1, t.core.name)))
            .collect();
        let edges = tasks.flat_map(|(i, t)| t.drawn.iter().map(move |&(to, n)| (i, to, n)));
        dot("chain", &[(String::new(), boxes)], edges)
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
    fn what_a_task_brings_is_used_in_the_same_step_by_everybody_behind_it() {
        let mut chain = Chain::new(Vec::new());
        let note = |name: &'static str, outcome| {
            move |log: &mut Vec<&'static str>| {
                log.push(name);
                outcome
            }
        };
        let a = chain
            .task("a", every_ns(10), note("a", Outcome::Output))
            .unwrap();
        let b = chain
            .task("b", each(1), note("b", Outcome::Nothing))
            .unwrap();
        let c = chain
            .task("c", each(1), note("c", Outcome::Output))
            .unwrap();
        let d = chain
            .task("d", each(2), note("d", Outcome::Output))
            .unwrap();
        chain.connect(a, b, 0).unwrap();
        chain.connect(a, c, 0).unwrap();
        chain.connect(b, d, 0).unwrap();
        chain.connect(c, d, 1).unwrap();
        assert_eq!(chain.step(0), 3);
        assert_eq!(chain.state()[..], ["a", "b", "c"], "b gave d nothing");
        assert_eq!((chain.step(5), chain.wake_ns(5)), (0, Some(10)));
        assert_eq!(chain.stats(a).executions, 1);
        let dot = chain.to_dot();
        assert!(dot.contains("t0 -> t2 [headlabel=\"0\"]"), "{dot}");
    }

    #[test]
    fn a_task_that_is_late_is_counted_and_treated_as_asked() {
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
                    Outcome::Output
                })
                .unwrap();
            let count = |n: &mut i32| {
                *n += 1;
                Outcome::Nothing
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
    fn what_comes_from_outside_is_asked_for_at_each_step() {
        let mut chain = Chain::new((vec![3, 0, 1], 0));
        let task = chain
            .task("sum", each(1), |s: &mut (Vec<u32>, u32)| {
                s.1 += 1;
                Outcome::Nothing
            })
            .unwrap();
        chain.feed(task, 0, |s| s.0.pop().unwrap_or(0)).unwrap();
        (0..10).for_each(|now| {
            chain.step(now);
        });
        assert_eq!(chain.state().1, 4);
    }

    #[test]
    fn a_running_chain_sleeps_until_something_arrives_or_a_time_has_come() {
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
                Outcome::Nothing
            })
            .unwrap();
        let (done, place) = (std::sync::Arc::clone(&stop), waker.clone());
        let add = chain
            .task("add", each(1), move |s: &mut State| {
                if s.sum == 4950 && s.ticks >= 3 {
                    done.store(true, Ordering::Release);
                    place.wake();
                }
                Outcome::Nothing
            })
            .unwrap();
        chain
            .feed(add, 0, move |s| {
                // All that is there, or one more look once it has all come.
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
    fn what_cannot_run_is_refused_by_name() {
        let mut chain = Chain::new(());
        let refused = chain.task("t", TaskOptions::default(), |()| Outcome::Nothing);
        assert!(refused.unwrap_err().to_string().contains("'t'"));
        let a = chain.task("a", each(1), |()| Outcome::Nothing).unwrap();
        let b = chain.task("b", each(1), |()| Outcome::Nothing).unwrap();
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
