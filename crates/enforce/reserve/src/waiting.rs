//! The effect of the end of a slot on threads, and the question whether a thread waits.

/// The effect of the end of a slot on a thread that is working.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateKind {
    /// The thread drops to a normal priority, and is frozen once it waits. It is never frozen if it
    /// is unknown whether it waits.
    Soft,
    /// The thread is frozen wherever it is, with all locks that it holds.
    Hard,
}

/// The answer whether a thread waits for work. A waiting thread holds nothing that others need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    /// The thread sleeps where it waits for work.
    Yes,
    /// The thread is working: it runs, is ready, or sleeps somewhere else.
    No,
    /// The state of the thread is unknown.
    Unknown,
}

/// Reports whether threads wait for work.
pub trait Waiting: Send + Sync {
    /// Reports whether this thread waits for work. The dispatcher calls it, so it must be real-time
    /// safe and must not make system calls.
    fn of(&self, tid: u32) -> Waits;
}
