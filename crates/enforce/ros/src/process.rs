//! Settings of the shaper's process: signals, memory, timers; whether another one has ended.

use std::os::fd::RawFd;

fn signals() -> libc::sigset_t {
    // SAFETY: fills the set.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGTERM);
        libc::sigaddset(&mut set, libc::SIGINT);
        set
    }
}

/// Blocks SIGTERM and SIGINT, for which [`wait_for_signal`] waits. A write to a pipe that nobody
/// reads becomes an error instead of a signal.
pub fn block_signals() {
    // SAFETY: valid arguments.
    unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, &signals(), std::ptr::null_mut());
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
    }
}

/// Waits for one of the blocked signals; `None` after `at_most_ns`.
pub fn wait_for_signal(at_most_ns: u64) -> Option<i32> {
    let time = libc::timespec {
        tv_sec: (at_most_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (at_most_ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: valid arguments.
    let signal = unsafe { libc::sigtimedwait(&signals(), std::ptr::null_mut(), &time) };
    (signal > 0).then_some(signal)
}

/// Whether the process behind a descriptor has ended, also as a zombie. What is no such descriptor
/// has.
pub fn has_ended(pidfd: RawFd) -> bool {
    let mut ask = libc::pollfd {
        fd: pidfd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one entry, which lives while the call lasts; it does not wait.
    let ready = unsafe { libc::poll(&mut ask, 1, 0) };
    ready > 0 && ask.revents != 0
}

/// When the process that started this one ends, this one goes on, if it was stopped: to see that it is alone.
pub fn continue_without_owner() {
    // SAFETY: changes which signal this process gets.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGCONT as libc::c_ulong) };
}

/// Keeps the memory that the process uses from being paged out. If that is refused, paging may
/// delay items, which is no reason to end.
pub fn lock_memory() {
    // SAFETY: only changes how the kernel keeps memory.
    unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT) };
}

/// Makes the calling thread's timers fire when they are due, also without a real-time policy.
pub fn no_slack() {
    // SAFETY: plain call.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
}
