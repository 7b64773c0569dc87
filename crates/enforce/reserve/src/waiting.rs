//! What gates ask about threads, and what they do at the end of a slot.

/// What the end of a slot does to a thread that is at work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateKind {
    /// It drops to a normal priority, and is frozen once it waits. Where nothing says whether it
    /// waits, it is never frozen.
    Soft,
    /// It is frozen wherever it is, with all locks that it holds.
    Hard,
}

/// Whether a thread waits for work: then it holds nothing that others need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    /// It sleeps where it waits for work.
    Yes,
    /// It is at work: it runs, is ready, or sleeps somewhere else.
    No,
    /// Nothing is known of the thread.
    Unknown,
}

/// Says whether threads wait.
pub trait Waiting: Send + Sync {
    /// Whether this thread waits. The dispatcher asks: real-time safe, no system call.
    fn of(&self, tid: u32) -> Waits;
}
