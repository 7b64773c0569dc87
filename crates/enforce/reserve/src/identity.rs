//! Identity of a thread: its id is not enough, since the kernel uses ids again.

use onbeat_proc::{Stat, Status};

/// Distinguishes a thread from a later one with its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The process that it belongs to.
    pub(crate) tgid: u32,
    /// When it was started, in kernel ticks since boot.
    pub(crate) start: u64,
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
    let tick_ns = 1_000_000_000 / onbeat_proc::system::ticks_per_second();
    onbeat_time::clock::boottime_ns() / tick_ns
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
