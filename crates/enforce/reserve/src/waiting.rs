//! The effect of the end of a slot on threads, and the question whether a thread waits.

/// The effect of the end of a slot on a thread that is working.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateKind {
    /// The thread drops to a normal priority, and is frozen when it waits for work. If its state is
    /// unknown, it is not frozen.
    Soft,
    /// The thread is frozen at any point, with all locks that it holds.
    Hard,
}

/// The answer to the question whether a thread waits for work. A waiting thread holds no lock or
/// other resource that other threads need.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    /// The thread sleeps at the place in its code where it waits for work.
    Yes,
    /// The thread does not wait for work: it runs, is ready, or sleeps at another place in its
    /// code.
    No,
    Unknown,
}

/// A source that reports whether threads wait for work.
pub trait Waiting: Send + Sync {
    /// Reports whether this thread waits for work. The dispatcher calls this method, so it must be
    /// real-time safe: no allocation, no lock, no unbounded loop. The method may read one file of
    /// the kernel.
    fn of(&self, tid: u32) -> Waits;
}
