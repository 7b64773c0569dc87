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

use crate::activation::{Activation, Condition, Input, Schedule, ScheduleError};
use crate::clock;
use crate::signal::Waker;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
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
    /// The chain runs no more.
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

/// Why a chain cannot be built as asked.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ChainError {
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
    /// A task hands over to later ones only.
    #[error("'{to}' runs before '{from}': add the tasks in the order in which they run")]
    Order {
        /// From which.
        from: String,
        /// To which.
        to: String,
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

/// A task of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskId(usize);

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

struct Task<S> {
    name: String,
    activation: Activation,
    deadline_ns: Option<u64>,
    overrun: Overrun,
    run: Box<dyn FnMut(&mut S) -> Outcome + Send>,
    /// Tasks and inputs that its output goes to.
    outputs: Vec<(usize, usize)>,
    stats: TaskStats,
}

type Poll<S> = Box<dyn FnMut(&mut S) -> u32 + Send>;

/// Tasks in the order in which they were added, and the state that they share.
pub struct Chain<S> {
    state: S,
    tasks: Vec<Task<S>>,
    /// Polls, with the task and input that what they find goes to.
    feeds: Vec<(Poll<S>, usize, usize)>,
    stopped: bool,
}

impl<S> Chain<S> {
    /// A chain without tasks.
    pub fn new(state: S) -> Chain<S> {
        Chain {
            state,
            tasks: Vec::new(),
            feeds: Vec::new(),
            stopped: false,
        }
    }

    /// Adds a task, to run after those that are there.
    pub fn task(
        &mut self,
        name: &str,
        options: TaskOptions,
        run: impl FnMut(&mut S) -> Outcome + Send + 'static,
    ) -> Result<TaskId, ChainError> {
        let waits = options.inputs.iter().any(|i| i.threshold > 0);
        if !waits && options.schedule.is_none() {
            return Err(ChainError::Unbounded { task: name.into() });
        }
        let activation = Activation::new(options.inputs, options.condition, options.schedule)
            .map_err(|reason| ChainError::Schedule {
                task: name.into(),
                reason,
            })?;
        self.tasks.push(Task {
            name: name.into(),
            activation,
            deadline_ns: options.deadline_ns,
            overrun: options.overrun,
            run: Box::new(run),
            outputs: Vec::new(),
            stats: TaskStats::default(),
        });
        Ok(TaskId(self.tasks.len() - 1))
    }

    fn check_input(&self, task: TaskId, input: usize) -> Result<(), ChainError> {
        let inputs = self.tasks[task.0].activation.arrived().len();
        if input < inputs {
            return Ok(());
        }
        Err(ChainError::NoInput {
            task: self.tasks[task.0].name.clone(),
            input,
            inputs,
        })
    }

    /// What one task brings arrives at an input of a later one. A task may have several followers,
    /// and an input several sources.
    pub fn connect(&mut self, from: TaskId, to: TaskId, input: usize) -> Result<(), ChainError> {
        self.check_input(to, input)?;
        if to.0 <= from.0 {
            return Err(ChainError::Order {
                from: self.tasks[from.0].name.clone(),
                to: self.tasks[to.0].name.clone(),
            });
        }
        self.tasks[from.0].outputs.push((to.0, input));
        Ok(())
    }

    /// Asks `poll` at the beginning of each step how many items came from outside, for example from
    /// a channel's consumer.
    pub fn feed(
        &mut self,
        to: TaskId,
        input: usize,
        poll: impl FnMut(&mut S) -> u32 + Send + 'static,
    ) -> Result<(), ChainError> {
        self.check_input(to, input)?;
        self.feeds.push((Box::new(poll), to.0, input));
        Ok(())
    }

    /// Runs each task that is ready, once, in order; how many ran. Real-time safe as far as the
    /// tasks are: no allocation, no lock, no system call, and the clock is only read for deadlines.
    pub fn step(&mut self, now_ns: u64) -> usize {
        if self.stopped {
            return 0;
        }
        for (poll, to, input) in &mut self.feeds {
            let items = poll(&mut self.state);
            if items > 0 {
                self.tasks[*to].activation.arrive(*input, items);
            }
        }
        let mut ran = 0;
        for index in 0..self.tasks.len() {
            let (done, later) = self.tasks.split_at_mut(index + 1);
            let task = &mut done[index];
            if !task.activation.is_ready(now_ns) {
                continue;
            }
            task.activation.begin(now_ns);
            task.stats.executions += 1;
            ran += 1;
            let outcome = match task.deadline_ns {
                None => (task.run)(&mut self.state),
                Some(deadline_ns) => {
                    let begin = clock::now_ns();
                    let outcome = (task.run)(&mut self.state);
                    let took = clock::now_ns() - begin;
                    task.stats.longest_ns = task.stats.longest_ns.max(took);
                    if took <= deadline_ns {
                        outcome
                    } else {
                        task.stats.late += 1;
                        match task.overrun {
                            Overrun::Continue => outcome,
                            Overrun::Skip => Outcome::Nothing,
                            Overrun::Stop => {
                                self.stopped = true;
                                return ran;
                            }
                        }
                    }
                }
            };
            if outcome == Outcome::Output {
                for &(to, input) in &task.outputs {
                    later[to - index - 1].activation.arrive(input, 1);
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
        while !over(self) {
            let now_ns = clock::now_ns();
            if self.step(now_ns) == 0 {
                let wake_ns = self.wake_ns(now_ns);
                waker.wait(wake_ns, || over(self) || self.step(clock::now_ns()) > 0);
            }
        }
    }

    /// The next time at which a task may be ready without anything arriving; `None` if all wait
    /// for data.
    pub fn wake_ns(&self, now_ns: u64) -> Option<u64> {
        self.tasks
            .iter()
            .filter_map(|t| t.activation.wake_ns(now_ns))
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
        let task = &self.tasks[task.0];
        TaskStats {
            overruns: task.activation.overruns(),
            ..task.stats
        }
    }

    /// The chain as a graph for graphviz.
    pub fn to_dot(&self) -> String {
        let mut dot = String::from("digraph chain {\n  rankdir=LR;\n  node [shape=box];\n");
        for (i, task) in self.tasks.iter().enumerate() {
            let name = task.name.replace('\\', "\\\\").replace('"', "\\\"");
            let _ = writeln!(dot, "  t{i} [label=\"{}. {name}\"];", i + 1);
        }
        for (i, task) in self.tasks.iter().enumerate() {
            for (to, input) in &task.outputs {
                let _ = writeln!(dot, "  t{i} -> t{to} [headlabel=\"{input}\"];");
            }
        }
        dot.push_str("}\n");
        dot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            Err(ChainError::NoInput { .. })
        ));
        assert!(matches!(
            chain.feed(b, 2, |()| 0),
            Err(ChainError::NoInput { .. })
        ));
    }
}
