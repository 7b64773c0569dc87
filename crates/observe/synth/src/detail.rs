//! Reports every execution and item with all that synthesis knows of it. `onbeat-tables` writes
//! tables from these.

/// How an execution ended, and so which of its times are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The end has an event of its own.
    Exact,
    /// The end follows from the executor's next action.
    Inferred,
    /// The execution shared its stretch of the thread with others, so it has no times of its own.
    Shared,
    /// No event shows the run of the execution, so it has no times.
    Unshown,
    /// The event of the end is missing.
    Aborted,
    /// The process or thread ended before the execution did.
    CutOff,
    /// The recording ended before the execution did.
    Unfinished,
}

impl Ended {
    /// Reports whether response time and CPU times count in the model.
    pub fn is_timed(self) -> bool {
        matches!(self, Ended::Exact | Ended::Inferred)
    }
}

/// The times of a thread within an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spent {
    /// The time on the CPU.
    pub exec_ns: u64,
    /// The time in which the thread was ready, and another thread or the host had the CPU.
    pub preempted_ns: u64,
    /// The time asleep.
    pub blocked_ns: u64,
}

/// The input of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InputSeen {
    /// The number of the topic, see [`Synth::name`](super::Synth::name).
    pub name: u32,
    /// The time of the publication, CLOCK_MONOTONIC.
    pub published_ns: u64,
}

/// An execution that ended. All times are CLOCK_MONOTONIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExecutionSeen {
    /// The number of the callback: an index into
    /// [`Synth::callback_ids`](super::Synth::callback_ids).
    pub callback: u32,
    /// The id of the process that ran the callback.
    pub pid: u32,
    /// The id of the thread that ran the callback.
    pub tid: u32,
    /// The time from which on the callback could have run, or `None` if the recording does not show
    /// it. The response time counts from here.
    pub ready_ns: Option<u64>,
    /// The start.
    pub start_ns: u64,
    /// The end, or the latest time at which the execution can have ended.
    pub end_ns: u64,
    /// How the execution ended.
    pub ended: Ended,
    /// The times within the execution, or `None` if scheduler events are missing.
    pub spent: Option<Spent>,
    /// The number of preemptions.
    pub preemptions: u32,
    /// The number of sleeps.
    pub blockings: u32,
    /// The recording has scheduler events of the thread.
    pub scheduled: bool,
    /// The CPU, or `None` if the execution ran on several or the recording does not show it.
    pub cpu: Option<u16>,
    /// The number of CPUs on which the execution ran.
    pub cpus: u32,
    /// The item with which the execution began.
    pub input: Option<InputSeen>,
    /// The number of items that the execution published, requests and responses included.
    pub outputs: u32,
}

/// The fate of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// A callback took the item.
    Taken {
        /// The start of the callback, or the time of the take within a callback.
        time_ns: u64,
        /// The id of the process that took the item.
        pid: u32,
        /// The id of the thread that took the item.
        tid: u32,
    },
    /// The item was taken, and no callback ran for it.
    OnlyTaken {
        /// The time of the take.
        time_ns: u64,
    },
    /// The item was lost on its way.
    Lost,
    /// A later item took its place in a full queue.
    Overwritten,
    /// An earlier report of [`Fate::Lost`] was wrong: the item was taken after all.
    NotLost,
    /// An earlier report of [`Fate::Overwritten`] was wrong: the item was taken after all.
    NotOverwritten,
}

/// An item on its way to one callback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ItemSeen {
    /// The number of the callback that published the item, or `None` if it was no known callback.
    pub from: Option<u32>,
    /// The number of the callback to which the item goes.
    pub to: u32,
    /// The number of the topic or service, see [`Synth::name`](super::Synth::name).
    pub name: u32,
    /// The item went through memory of the process, not through the middleware.
    pub intra_process: bool,
    /// The time of the publication, CLOCK_MONOTONIC, or `None` if it was not recorded.
    pub published_ns: Option<u64>,
    /// The source time stamp (CLOCK_REALTIME), or `None` if the recording does not show it.
    pub source_ns: Option<i64>,
    /// The time at which the item arrived, CLOCK_MONOTONIC, or `None` if no sleeping thread was
    /// woken by it.
    pub available_ns: Option<u64>,
    /// The fate of the item.
    pub fate: Fate,
}

/// Executions and items that the caller has not taken yet.
#[derive(Debug, Clone, Default)]
pub(crate) struct Details {
    pub(crate) executions: Vec<ExecutionSeen>,
    pub(crate) items: Vec<ItemSeen>,
}

impl Details {
    pub(crate) fn is_empty(&self) -> bool {
        self.executions.is_empty() && self.items.is_empty()
    }
}
