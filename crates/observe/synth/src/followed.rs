//! Executions of chains with their steps, and what was seen around them. `onbeat-why` cuts latencies
//! with them.

/// An execution of a chain that ended, with the same latency as in the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainEnd {
    /// The number of the path, see [`Synth::path`](super::Synth::path).
    pub path: u32,
    /// The time of the output, or of the last callback's end without one, CLOCK_MONOTONIC.
    pub end_ns: u64,
    /// The user cut the chain at this output.
    pub cut: bool,
    /// The callback stored the data and published it before. Such an output counts in the chain's
    /// data age, but is not an execution of the chain.
    pub reread: bool,
    /// The executions of the chain's callbacks, first to last.
    pub steps: Vec<ChainStep>,
}

/// The execution of one callback within an execution of a chain. All times are CLOCK_MONOTONIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainStep {
    /// The number of the callback or synchroniser.
    pub callback: u32,
    /// The number of the topic over which the data came. The first step has none.
    pub name: Option<u32>,
    /// The step is a synchroniser, and the callback before it completed the set of inputs. The
    /// model leaves such a step out if the callback waits for no other input.
    pub own: bool,
    /// The time at which the step before published the data. At least that step's start.
    pub published_ns: u64,
    /// The start of the step's share of the latency. At least `published_ns`.
    pub start_ns: u64,
    /// The start of the callback. It is later than `start_ns` where the chain begins at an input.
    pub began_ns: u64,
    /// The time at which the step's timer was due.
    pub released_ns: Option<u64>,
    /// At a synchroniser: the number of the callback whose input came last.
    pub last_input: Option<u32>,
    /// The id of the process that ran the callback.
    pub pid: u32,
    /// The id of the thread that ran the callback.
    pub tid: u32,
}

/// A synchroniser joined its inputs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined {
    /// The number of the synchroniser's vertex.
    pub synchroniser: u32,
    /// The time at which the last input was handed to the synchroniser, CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// The steps that led to the input that came last, first to last.
    pub steps: Vec<ChainStep>,
}

/// The instant from which on a callback could have started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// The number of the callback.
    pub callback: u32,
    /// The id of the thread that ran the callback.
    pub tid: u32,
    /// The start of the callback, CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// The publication of the item, or the time at which the timer was due, CLOCK_MONOTONIC.
    pub since_ns: u64,
    /// The callback belongs to a timer.
    pub released: bool,
}

/// A part of a time in which a thread was ready to run and had no CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// The id of the thread that waited for the CPU.
    pub tid: u32,
    /// The start of the part, CLOCK_MONOTONIC.
    pub begin_ns: u64,
    /// The end of the part, CLOCK_MONOTONIC.
    pub end_ns: u64,
    /// The id of the thread that had the CPU, 0 for an idle CPU, or
    /// [`UNTOLD`](onbeat_trace::UNTOLD).
    pub by_tid: u32,
}
