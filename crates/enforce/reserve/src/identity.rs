//! The identity of a thread. Its id is not enough, because the kernel reuses ids.

use onbeat_proc::{Stat, Status};
use onbeat_time::clock::{boottime_ns, monotonic_ns};

/// The id and start time of a thread. Together they distinguish it from a later thread with the
/// same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) tgid: u32,
    /// The start time in kernel ticks since boot.
    pub(crate) start: u64,
}

/// A thread, and a time at which it was seen running. By now the kernel may have given its id to
/// another thread.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    pub tid: u32,
    pub pid: u32,
    /// The time at which the thread ran, CLOCK_MONOTONIC in ns.
    pub at_ns: u64,
}

impl Seen {
    /// Reports whether the thread that was seen still runs. Returns false if another thread now has
    /// the same id.
    pub fn still_runs(&self) -> bool {
        identity(self.tid).is_some_and(|now| self.is(now))
    }

    /// Reports whether the thread that now has the id is the one that was seen. It is the same
    /// thread if it belongs to the same process and had started before the seen one ran. A thread
    /// that started in the kernel tick (10 ms) in which the other was seen counts as another one.
    pub(crate) fn is(&self, now: Identity) -> bool {
        let since_boot = boottime_ns().saturating_sub(monotonic_ns());
        let seen = self.at_ns.saturating_add(since_boot) / tick_ns();
        now.tgid == self.pid && now.start < seen
    }
}

/// Returns the identity of a running thread, or `None` if it has ended or is a zombie.
pub(crate) fn identity(tid: u32) -> Option<Identity> {
    let stat = Stat::of(tid).filter(|stat| !stat.has_ended())?;
    Some(Identity {
        tgid: Status::of(tid).ok()?.process()?,
        start: stat.start_ticks,
    })
}

pub(crate) fn now_ticks() -> u64 {
    boottime_ns() / tick_ns()
}

fn tick_ns() -> u64 {
    1_000_000_000 / onbeat_proc::system::ticks_per_second()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identity_of_a_thread_stays_the_same_until_it_ends() {
        let (send, receive) = std::sync::mpsc::channel();
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            send.send(crate::sys::gettid()).unwrap();
            let _ = wait.recv();
        });
        let tid = receive.recv().unwrap();
        let found = identity(tid).unwrap();
        assert_eq!(found.tgid, std::process::id());
        assert_eq!(identity(tid), Some(found));
        assert!(found.start <= now_ticks());
        drop(end);
        thread.join().unwrap();
        // The kernel removes the thread's entry a moment after the join.
        while identity(tid) == Some(found) {
            std::thread::yield_now();
        }
    }
}
