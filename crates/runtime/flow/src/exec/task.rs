//! Tasks: their options and counters, and for executors with several threads their code and state.

use super::execution::TaskCore;

pub use super::options::{Overrun, TaskError, TaskOptions, TaskResult, TaskStats};

type Run<S> = Box<dyn FnMut(&mut S) -> TaskResult + Send>;
type Poll<S> = Box<dyn FnMut(&mut S) -> u32 + Send>;
type Contents<S> = Box<dyn FnMut(&mut S) -> bool + Send>;

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
    cost_ns: u64,
    thread: Option<usize>,
}

impl<S: Send + 'static> Task<S> {
    /// A task with a state of its own.
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
            cost_ns: 1,
            thread: None,
        }
    }

    /// Feeds an input from outside the executor, for example from a channel whose consumer is on
    /// the thread's waker. The thread calls `waiting` in each cycle: it returns how many items
    /// wait.
    pub fn feed(
        mut self,
        input: usize,
        waiting: impl FnMut(&mut S) -> u32 + Send + 'static,
    ) -> Task<S> {
        self.feeds.push((input, Box::new(waiting)));
        self
    }

    /// A condition on contents: data activates the task only while `is_fulfilled` says so. The
    /// thread asks once enough items have come, and again when more come; it looks at items with
    /// [`Consumer::peek`](crate::Consumer::peek), without taking them. It must be short and bounded.
    pub fn only_if(mut self, is_fulfilled: impl FnMut(&mut S) -> bool + Send + 'static) -> Task<S> {
        self.contents = Some(Box::new(is_fulfilled));
        self
    }

    /// The execution time in ns that list scheduling assumes; 1 by default.
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
            let name = format!("{}/{input}", self.name);
            feeds.push((core.add_source(executor, &name, input), poll));
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
            }),
            cost_ns: self.cost_ns,
            thread: self.thread,
        })
    }
}

/// A task whose type of state is erased.
pub(crate) struct ErasedTask {
    pub(crate) core: TaskCore,
    pub(crate) code: Box<dyn TaskCode>,
    /// Items come from outside the executor.
    pub(crate) is_fed: bool,
    /// It has a condition on contents.
    pub(crate) is_conditional: bool,
    pub(crate) cost_ns: u64,
    pub(crate) thread: Option<usize>,
}

/// A task's code.
pub(crate) trait TaskCode: Send {
    /// Asks the feeds for items; returns whether there are new ones.
    fn poll(&mut self, core: &mut TaskCore) -> bool;
    /// Whether what waits fulfils the condition on contents, if there is one.
    fn is_fulfilled(&mut self) -> bool;
    fn run(&mut self) -> TaskResult;
}

struct StatefulCode<S> {
    state: S,
    run: Run<S>,
    /// Number of each feed's source, and the feed.
    feeds: Vec<(usize, Poll<S>)>,
    contents: Option<Contents<S>>,
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

    fn run(&mut self) -> TaskResult {
        (self.run)(&mut self.state)
    }
}
