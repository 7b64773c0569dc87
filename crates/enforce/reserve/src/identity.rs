//! Identity of a thread: its id is not enough, since the kernel uses ids again.

use onbeat_proc::{Stat, Status};
use onbeat_time::clock::{boottime_ns, monotonic_ns};

/// Distinguishes a thread from a later one with its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The process that it belongs to.
    pub(crate) tgid: u32,
    /// When it was started, in kernel ticks since boot.
    pub(crate) start: u64,
}

/// A thread as it was seen to run: with its id alone, it could be another one by now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Thread id.
    pub tid: u32,
    /// Process that it belonged to.
    pub pid: u32,
    /// When it ran, CLOCK_MONOTONIC in ns.
    pub at_ns: u64,
}

impl Seen {
    /// Whether the thread that was seen still runs: no other has its id since.
    pub fn still_runs(&self) -> bool {
        identity(self.tid).is_some_and(|now| self.is(now))
    }

    /// Whether the thread that has the id now is the one that was seen: it had started before. One
    /// that started in the same kernel tick (10 ms) may be another, and counts as one.
    pub(crate) fn is(&self, now: Identity) -> bool {
        let since_boot = boottime_ns().saturating_sub(monotonic_ns());
        let seen = self.at_ns.saturating_add(since_boot) / tick_ns();
        now.tgid == self.pid && now.start < seen
    }
}

/// Identity of a running thread. `None` if it has ended, also as a zombie.
pub(crate) fn identity(tid: u32) -> Option<Identity> {
    let stat = Stat::of(tid).filter(|stat| !stat.has_ended())?;
    Some(Identity {
        tgid: Status::of(tid).ok()?.process()?,
        start: stat.start_ticks,
    })
}

/// Now, in the kernel ticks since boot in which it reports start times.
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
    fn a_thread_has_an_identity_while_it_lives() {
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
        // The kernel removes its entry a moment after the join.
        while identity(tid) == Some(found) {
            std::thread::yield_now();
        }
    }
}
