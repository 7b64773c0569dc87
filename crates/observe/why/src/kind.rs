//! The kinds of stretches, and the reasons why one is unknown.

use onbeat_trace::CallKind;
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
    /// The thread could run, but it or its control group had used up its CPU time: the quota of the
    /// group, the budget of a deadline thread, or the limit for real-time threads.
    Throttled,
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
    /// A shaper of onbeat held the item back until its slot.
    Held,
    /// The host of the virtual machine had the CPU.
    Stolen,
    /// The recording does not show the state. A [`Reason`] says why.
    Unknown,
}

impl Kind {
    /// All kinds, in the order in which tables list them.
    pub const ALL: [Kind; 13] = [
        Kind::Runs,
        Kind::Library,
        Kind::Preempted,
        Kind::Queued,
        Kind::Throttled,
        Kind::Sleeps,
        Kind::Executor,
        Kind::Transport,
        Kind::Inputs,
        Kind::Timer,
        Kind::Held,
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
            Kind::Throttled => 'B',
            Kind::Sleeps => 'S',
            Kind::Executor => 'E',
            Kind::Transport => 'T',
            Kind::Inputs => 'I',
            Kind::Timer => 'C',
            Kind::Held => 'W',
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
            Kind::Throttled => "throttled",
            Kind::Sleeps => "sleeps",
            Kind::Executor => "waits for executor",
            Kind::Transport => "transport",
            Kind::Inputs => "waits for inputs",
            Kind::Timer => "waits for timer",
            Kind::Held => "held by shaper",
            Kind::Stolen => "stolen by host",
            Kind::Unknown => "unknown",
        }
    }
}

/// Returns the kind of call in which a thread sleeps as a word of a sentence, such as `fsync`.
pub fn call_text(call: CallKind) -> &'static str {
    match call {
        CallKind::Futex => "futex",
        CallKind::Sleep => "nanosleep",
        CallKind::PageFault => "a page fault",
        CallKind::Poll => "poll",
        CallKind::Read => "read",
        CallKind::Write => "write",
        CallKind::Sync => "fsync",
        CallKind::File => "a file call",
        CallKind::Send => "send",
        CallKind::Receive => "recv",
        CallKind::Connect => "connect",
        CallKind::Memory => "mmap",
        CallKind::Ioctl => "ioctl",
        CallKind::Child => "wait",
        CallKind::Signal => "sigwait",
        CallKind::Process => "clone",
        CallKind::Other => "another system call",
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
