//! Reports every execution and item with all that synthesis knows of it. `onbeat-tables` writes
//! tables from these.

/// The way in which an execution ended. It decides which of the execution's times are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The recording has an event for the end, for example `callback_end`.
    Exact,
    /// The recording has no event for the end. The executor's next call shows that the execution
    /// had ended.
    Inferred,
    /// The execution shared a part of its thread's time with other executions. It therefore has no
    /// times of its own.
    Shared,
    /// No event shows when the execution ran, so it has no times.
    Unshown,
    /// The recording lacks the event of the execution's end.
    Aborted,
    /// The process or thread ended before the execution did.
    CutOff,
    /// The recording ended before the execution did.
    Unfinished,
}

impl Ended {
    /// Reports whether the model counts the response time and the CPU times of an execution that
    /// ended this way.
    pub fn is_timed(self) -> bool {
        matches!(self, Ended::Exact | Ended::Inferred)
    }
}

/// The times of a thread within an execution: on the CPU (`exec_ns`), ready to run while another
/// thread or the host had the CPU (`preempted_ns`), and asleep (`blocked_ns`).
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spent {
    pub exec_ns: u64,
    pub preempted_ns: u64,
    pub blocked_ns: u64,
}

/// The input of an execution: the number of its topic, for [`Synth::name`](super::Synth::name), and
/// the time of its publication on CLOCK_MONOTONIC.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InputSeen {
    pub name: u32,
    pub published_ns: u64,
}

/// An execution that ended. All times are CLOCK_MONOTONIC. `pid` and `tid` are the ids of the
/// process and of the thread that ran the callback. `callback` is an index into
/// [`Synth::callback_ids`](super::Synth::callback_ids).
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExecutionSeen {
    pub callback: u32,
    pub pid: u32,
    pub tid: u32,
    /// The time from which on the callback could have run, or `None` if the recording does not show
    /// it. The response time counts from here.
    pub ready_ns: Option<u64>,
    pub start_ns: u64,
    /// The end of the execution. If its event is missing: the latest time at which the execution
    /// can have ended.
    pub end_ns: u64,
    pub ended: Ended,
    /// The times of the thread within the execution, or `None` if scheduler events are missing.
    pub spent: Option<Spent>,
    pub preemptions: u32,
    /// How often the thread went to sleep within the execution.
    pub blockings: u32,
    /// The recording has scheduler events of the thread.
    pub scheduled: bool,
    /// The number of the CPU on which the execution ran. `None` if the execution ran on several
    /// CPUs, or if the recording does not show the CPU.
    pub cpu: Option<u16>,
    pub cpus: u32,
    /// The item on which the callback ran, or `None` if it ran on no item or on an unknown one.
    pub input: Option<InputSeen>,
    /// The number of items that the execution published, requests and responses included.
    pub outputs: u32,
}

/// The fate of an item on its way to one callback. `NotLost` and `NotOverwritten` take back an
/// earlier report: a callback took the item after all.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Taken {
        /// The start of the callback that took the item. If a running callback took the item: the
        /// time of the take.
        time_ns: u64,
        pid: u32,
        tid: u32,
    },
    /// The item was taken, and no callback ran for it.
    OnlyTaken {
        time_ns: u64,
    },
    /// No callback took the item, and it was not overwritten.
    Lost,
    /// A later item took the place of this item, because the subscription's history was full.
    Overwritten,
    NotLost,
    NotOverwritten,
}

/// An item on its way to the callback `to`, and its fate. `from` and `to` are indices into
/// [`Synth::callback_ids`](super::Synth::callback_ids). `name` is the number of the topic or
/// service, for [`Synth::name`](super::Synth::name).
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ItemSeen {
    /// The callback that published the item, or `None` if no known callback did.
    pub from: Option<u32>,
    pub to: u32,
    pub name: u32,
    /// The item went through memory of the process, not through the middleware.
    pub intra_process: bool,
    /// The time of the publication, CLOCK_MONOTONIC, or `None` if it was not recorded.
    pub published_ns: Option<u64>,
    /// The source time stamp (CLOCK_REALTIME), or `None` if the recording does not show it.
    pub source_ns: Option<i64>,
    /// The time at which the item arrived and woke up a thread that waited for work,
    /// CLOCK_MONOTONIC. `None` if the item woke up no thread.
    pub available_ns: Option<u64>,
    pub fate: Fate,
}

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
