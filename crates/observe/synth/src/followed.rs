//! Executions of chains with their steps, and what was seen around them. `onbeat-why` cuts latencies
//! with them.

use std::vec::Drain;

/// Calls `see` with each item that a `drain_` function of [`Synth`](super::Synth) returned.
///
/// After most events, most of these lists are empty. This function only reads the length of an
/// empty list. A `for` loop would move the iterator first, which costs more.
#[inline]
pub fn each<T>(items: Drain<'_, T>, see: impl FnMut(T)) {
    if items.len() > 0 {
        items.for_each(see);
    }
}

/// One execution of a chain. The latency that the model counts is the time from the start of the
/// first step to `end_ns`.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainEnd {
    /// The number of the chain's path, for [`Synth::path`](super::Synth::path).
    pub path: u32,
    /// The time of the chain's output on CLOCK_MONOTONIC, or the end of the last callback if there
    /// was no output.
    pub end_ns: u64,
    /// The user cut the chain at this output. The execution ends here even if the data continues.
    pub cut: bool,
    /// The output repeats data that the last callback had stored and published before. Such an
    /// output counts in the chain's data age, but not as an execution of the chain.
    pub reread: bool,
    pub steps: Vec<ChainStep>,
}

/// The execution of one callback within the execution of a chain. All times are on CLOCK_MONOTONIC.
/// `pid` and `tid` are the ids of the process and of the thread that ran the callback.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainStep {
    /// The number of the callback or synchroniser, as an index into
    /// [`Synth::callback_ids`](super::Synth::callback_ids).
    pub callback: u32,
    /// The number of the topic over which the data came, for [`Synth::name`](super::Synth::name).
    /// `None` for the first step.
    pub name: Option<u32>,
    /// The step is a synchroniser whose output the callback of the previous step published. The
    /// model leaves out this step if that callback does not wait for other inputs.
    pub own: bool,
    /// The time at which the previous step published the data. It is not before the start of the
    /// previous step.
    pub published_ns: u64,
    /// The time at which the step's share of the chain's latency begins. It is not before
    /// `published_ns`.
    pub start_ns: u64,
    /// The start of the execution. It is later than `start_ns` if the chain begins at the
    /// publication of its input.
    pub began_ns: u64,
    /// The time at which the step's timer was due. `None` for other callbacks, or if the time is
    /// unknown.
    pub released_ns: Option<u64>,
    /// For a synchroniser: the number of the callback whose input came last. `None` for other
    /// steps.
    pub last_input: Option<u32>,
    pub pid: u32,
    pub tid: u32,
}

/// The moment at which a synchroniser joined its inputs. `synchroniser` is an index into
/// [`Synth::callback_ids`](super::Synth::callback_ids).
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined {
    pub synchroniser: u32,
    /// The time on CLOCK_MONOTONIC at which the synchroniser got its last input.
    pub time_ns: u64,
    /// The steps of the chain that brought the last input, first to last.
    pub steps: Vec<ChainStep>,
}

/// The start of a callback on the thread `tid`, and the time from which on it could have started.
/// Times are CLOCK_MONOTONIC. `callback` is an index into
/// [`Synth::callback_ids`](super::Synth::callback_ids).
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    pub callback: u32,
    pub tid: u32,
    pub start_ns: u64,
    /// The time at which the callback's item was published or its timer was due, on
    /// CLOCK_MONOTONIC.
    pub since_ns: u64,
    /// The callback belongs to a timer, so `since_ns` is the time at which the timer was due.
    pub released: bool,
}

/// A request of a callback to a service, and its response. Times are CLOCK_MONOTONIC.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// The number of the callback that sent the request, as an index into
    /// [`Synth::callback_ids`](super::Synth::callback_ids).
    pub from: u32,
    /// The number of the service's callback.
    pub to: u32,
    pub sent_ns: u64,
    /// The time at which the client took the response.
    pub received_ns: u64,
}

/// An item that a shaper of onbeat held back until it sent the item. Times are CLOCK_MONOTONIC.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shaped {
    /// The number of the topic, for [`Synth::name`](super::Synth::name).
    pub name: u32,
    /// The time at which the application published the item.
    pub published_ns: u64,
    pub sent_ns: u64,
}

/// A time in which the thread `tid` was ready to run while the thread `by_tid` had the CPU. Times
/// are CLOCK_MONOTONIC.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    pub tid: u32,
    pub begin_ns: u64,
    pub end_ns: u64,
    /// The id of the thread that had the CPU, 0 for an idle CPU, or
    /// [`UNTOLD`](onbeat_trace::UNTOLD).
    pub by_tid: u32,
}

/// A callback or synchroniser of a path, without the times of an execution. The fields have the
/// meaning of the same fields of [`ChainStep`].
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathStep {
    pub callback: u32,
    pub name: Option<u32>,
    pub own: bool,
}

impl PathStep {
    /// Returns a step without its times.
    pub fn of(step: &ChainStep) -> PathStep {
        PathStep {
            callback: step.callback,
            name: step.name,
            own: step.own,
        }
    }
}
