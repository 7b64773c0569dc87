//! Tasks: their options and counters, and for executors with several threads their code and state.

use super::activation::Input;
use super::execution::TaskCore;
use crate::channel::{Consumer, Item};

pub use super::options::{Overrun, TaskError, TaskOptions, TaskResult, TaskStats};

type Run<S> = Box<dyn FnMut(&mut S) -> TaskResult + Send>;
type Poll<S> = Box<dyn FnMut(&mut S) -> u32 + Send>;
type Contents<S> = Box<dyn FnMut(&mut S) -> bool + Send>;
type Since<S> = Box<dyn FnMut(&mut S) -> Option<u64> + Send>;

/// A task for an executor with several threads. It owns its state, and receives and sends data
/// through channels in that state.
///
/// ```
/// use onbeat_flow::activation::Input;
/// use onbeat_flow::task::{Task, TaskOptions, TaskResult};
/// use onbeat_flow::{Channel, Options, Policy, Waker};
///
/// let channel = Channel::new(Options::new(Policy::Credit { credits: 4 }, 8))?;
/// let waker = Waker::new();
/// let options = TaskOptions { inputs: vec![Input::EACH], ..Default::default() };
/// let task = Task::new("log", options, channel.consumer_on(&waker)?, |scans| {
///     while let Some(scan) = scans.receive() {
///         println!("{scan:?}", scan = &*scan);
///     }
///     TaskResult::Nothing
/// })
/// .feed(0, |scans| scans.stats().waiting as u32);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Task<S> {
    name: String,
    options: TaskOptions,
    state: S,
    run: Run<S>,
    feeds: Vec<(usize, Poll<S>)>,
    contents: Option<Contents<S>>,
    since: Option<Since<S>>,
    cost_ns: u64,
    thread: Option<usize>,
}

impl<S: Send + 'static> Task<S> {
    /// Creates a task. The task owns `state`. Each execution calls `run` with the state.
    pub fn new(
        name: &str,
        options: TaskOptions,
        state: S,
        run: impl FnMut(&mut S) -> TaskResult + Send + 'static,
    ) -> Task<S> {
        Task {
            name: name.into(),
            options,
            state,
            run: Box::new(run),
            feeds: Vec::new(),
            contents: None,
            since: None,
            cost_ns: 1,
            thread: None,
        }
    }

    /// Feeds an input from outside the executor, for example from a channel whose consumer wakes
    /// the thread. The thread calls `waiting` in each pass over its tasks. `waiting`
    /// returns how many items wait.
    pub fn feed(
        mut self,
        input: usize,
        waiting: impl FnMut(&mut S) -> u32 + Send + 'static,
    ) -> Task<S> {
        self.feeds.push((input, Box::new(waiting)));
        self
    }

    /// Adds a condition on contents: data activates the task only if `is_fulfilled` returns true.
    /// The thread calls `is_fulfilled` when enough items have come. It calls the function again
    /// when more items come. The function can look at items with
    /// [`Consumer::peek`](crate::Consumer::peek), without taking them. The function must be short
    /// and bounded.
    pub fn only_if(mut self, is_fulfilled: impl FnMut(&mut S) -> bool + Send + 'static) -> Task<S> {
        self.contents = Some(Box::new(is_fulfilled));
        self
    }

    /// Sets a function that returns the time since which the next item of a feed has waited, in ns
    /// of CLOCK_MONOTONIC. Tasks of equal priority then run in the order of these times. If the
    /// function returns `None`, the time at which the thread noticed the item counts instead.
    pub fn waiting_since(
        mut self,
        since_ns: impl FnMut(&mut S) -> Option<u64> + Send + 'static,
    ) -> Task<S> {
        self.since = Some(Box::new(since_ns));
        self
    }

    /// Sets the execution time in ns that list scheduling assumes. The default is 1.
    pub fn cost(mut self, cost_ns: u64) -> Task<S> {
        self.cost_ns = cost_ns;
        self
    }

    /// Assigns the task to a thread by its number.
    pub fn on(mut self, thread: usize) -> Task<S> {
        self.thread = Some(thread);
        self
    }

    pub(crate) fn erase(self, executor: &str) -> Result<ErasedTask, TaskError> {
        let mut core = TaskCore::new(executor, &self.name, self.options)?;
        let mut feeds = Vec::new();
        for (input, poll) in self.feeds {
            core.check_input(input)?;
            feeds.push((core.feed(executor, input), poll));
        }
        if self.contents.is_some() {
            core.label_condition();
        }
        Ok(ErasedTask {
            core,
            is_fed: !feeds.is_empty(),
            is_conditional: self.contents.is_some(),
            code: Box::new(StatefulCode {
                state: self.state,
                run: self.run,
                feeds,
                contents: self.contents,
                since: self.since,
            }),
            cost_ns: self.cost_ns,
            thread: self.thread,
        })
    }
}

impl Task<Consumer> {
    /// Creates a receive task (thesis, section 5.4.2, steps 6 to 8). It runs once for each item of
    /// a channel, and borrows the item while it runs. Receive tasks of equal priority run in the
    /// order in which their items were sent into the channel. For a channel from another host, this
    /// is the order in which the items came to this host.
    pub fn receiving(
        name: &str,
        consumer: Consumer,
        mut take: impl FnMut(&Item<'_>) -> TaskResult + Send + 'static,
    ) -> Task<Consumer> {
        let options = TaskOptions {
            inputs: vec![Input::EACH],
            ..TaskOptions::default()
        };
        let run = move |consumer: &mut Consumer| {
            let item = consumer.receive();
            item.map_or(TaskResult::Nothing, |item| take(&item))
        };
        Task::new(name, options, consumer, run)
            .feed(0, |consumer| consumer.waiting())
            .waiting_since(|consumer| consumer.next_sent_ns())
    }
}

pub(crate) struct ErasedTask {
    pub(crate) core: TaskCore,
    pub(crate) code: Box<dyn TaskCode>,
    pub(crate) is_fed: bool,
    pub(crate) is_conditional: bool,
    pub(crate) cost_ns: u64,
    pub(crate) thread: Option<usize>,
}

pub(crate) trait TaskCode: Send {
    fn poll(&mut self, core: &mut TaskCore) -> bool;
    /// Reports whether the waiting items fulfil the condition on contents. Returns `true` if the
    /// task has no such condition.
    fn is_fulfilled(&mut self) -> bool;
    /// Returns the time since which the next item of the feeds has waited, in ns of
    /// CLOCK_MONOTONIC. Returns `None` if the task has not set [`Task::waiting_since`].
    fn since_ns(&mut self) -> Option<u64>;
    fn run(&mut self) -> TaskResult;
}

struct StatefulCode<S> {
    state: S,
    run: Run<S>,
    feeds: Vec<(usize, Poll<S>)>,
    contents: Option<Contents<S>>,
    since: Option<Since<S>>,
}

impl<S: Send> TaskCode for StatefulCode<S> {
    fn poll(&mut self, core: &mut TaskCore) -> bool {
        let mut any = false;
        for (source, poll) in &mut self.feeds {
            any |= core.set_waiting(*source, poll(&mut self.state));
        }
        any
    }

    fn is_fulfilled(&mut self) -> bool {
        let Some(contents) = &mut self.contents else {
            return true;
        };
        contents(&mut self.state)
    }

    fn since_ns(&mut self) -> Option<u64> {
        self.since.as_mut()?(&mut self.state)
    }

    fn run(&mut self) -> TaskResult {
        (self.run)(&mut self.state)
    }
}
