//! The kinds of stretches, and the reasons why one is unknown.

use serde::Serialize;

/// The state of an execution during a stretch: running, or the way in which it waits.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Runs,
    /// The client library ran on a CPU: it took the item, or looked for work.
    Library,
    Preempted,
    /// The thread had been woken up and could run, but another thread had the CPU.
    Queued,
    /// The callback's thread slept, for example until a mutex was free, a response came, a device
    /// was ready or a time was reached.
    Sleeps,
    /// The executor's thread ran another callback, or slept although the callback was due.
    Executor,
    /// The item was on its way to the receiver, whose thread slept. Also: the item waited until the
    /// callback took it with a call of its own.
    Transport,
    /// A synchroniser waited for its other inputs.
    Inputs,
    /// The callback's data was stored, and the timer that reads it was not due yet.
    Timer,
    /// The host of the virtual machine had the CPU.
    Stolen,
    /// The recording does not show the state. A [`Reason`] says why.
    Unknown,
}

impl Kind {
    /// All kinds, in the order in which tables list them.
    pub const ALL: [Kind; 11] = [
        Kind::Runs,
        Kind::Library,
        Kind::Preempted,
        Kind::Queued,
        Kind::Sleeps,
        Kind::Executor,
        Kind::Transport,
        Kind::Inputs,
        Kind::Timer,
        Kind::Stolen,
        Kind::Unknown,
    ];

    /// Returns the letter that stands for the kind in pictures where colours do not suffice.
    pub fn letter(self) -> char {
        match self {
            Kind::Runs => 'R',
            Kind::Library => 'L',
            Kind::Preempted => 'P',
            Kind::Queued => 'Q',
            Kind::Sleeps => 'S',
            Kind::Executor => 'E',
            Kind::Transport => 'T',
            Kind::Inputs => 'I',
            Kind::Timer => 'C',
            Kind::Stolen => 'H',
            Kind::Unknown => '?',
        }
    }

    /// Returns the kind in words, such as `preempted`, as tables show it.
    pub fn text(self) -> &'static str {
        match self {
            Kind::Runs => "runs",
            Kind::Library => "client library runs",
            Kind::Preempted => "preempted",
            Kind::Queued => "queued for a CPU",
            Kind::Sleeps => "sleeps",
            Kind::Executor => "waits for executor",
            Kind::Transport => "transport",
            Kind::Inputs => "waits for inputs",
            Kind::Timer => "waits for timer",
            Kind::Stolen => "stolen by host",
            Kind::Unknown => "unknown",
        }
    }
}

/// The reason why the recording does not show the state during a stretch.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    LostEvents,
    /// A scheduler event of the thread is missing.
    MissingEvent,
    /// The kernel accounted less CPU time than the scheduler events show.
    NoCpuTime,
    /// The recording has no scheduler events of the thread at this time.
    NoScheduler,
    NotRecorded,
    /// The stretch is older than the history that onbeat keeps.
    ShortHistory,
}

impl Reason {
    /// Returns the reason in words, such as `events were lost here`.
    pub fn text(self) -> &'static str {
        match self {
            Reason::LostEvents => "events were lost here",
            Reason::MissingEvent => "a scheduler event is missing",
            Reason::NoCpuTime => "the kernel counted less CPU time than the context switches show",
            Reason::NoScheduler => "no scheduler events of the thread",
            Reason::NotRecorded => "the thread is not recorded",
            Reason::ShortHistory => "history too short",
        }
    }
}
