//! Settings of a companion process of onbeat: signals, memory and timers; and a check whether
//! another process has ended.

use std::os::fd::RawFd;

fn signals() -> libc::sigset_t {
    // SAFETY: an all-zero set is valid, and the calls only write to this set.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGTERM);
        libc::sigaddset(&mut set, libc::SIGINT);
        set
    }
}

/// Blocks SIGTERM and SIGINT, so that [`wait_for_signal`] can wait for them. Ignores SIGPIPE, so
/// that a write to a pipe without readers becomes an error.
pub fn block_signals() {
    // SAFETY: all pointers are valid or null, as the calls allow.
    unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, &signals(), std::ptr::null_mut());
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
    }
}

/// Waits for SIGTERM or SIGINT, for at most `at_most_ns`. Returns the signal, or `None` if none
/// came.
pub fn wait_for_signal(at_most_ns: u64) -> Option<i32> {
    let time = libc::timespec {
        tv_sec: (at_most_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (at_most_ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: the pointers to the set and the time are valid during the call.
    let signal = unsafe { libc::sigtimedwait(&signals(), std::ptr::null_mut(), &time) };
    (signal > 0).then_some(signal)
}

/// Reports whether the process behind a descriptor has ended. A zombie counts as ended, and so does
/// a descriptor that refers to no process.
pub fn has_ended(pidfd: RawFd) -> bool {
    let mut ask = libc::pollfd {
        fd: pidfd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: the one entry is valid during the call.
    let ready = unsafe { libc::poll(&mut ask, 1, 0) };
    ready > 0 && ask.revents != 0
}

/// Makes the kernel send SIGCONT to this process when its parent ends. If this process is stopped
/// at that time, it continues and can react to the parent's end.
pub fn continue_without_owner() {
    // SAFETY: the call takes no pointers and changes only a signal of this process.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGCONT as libc::c_ulong) };
}

/// Locks the memory that the process uses. If the system refuses, the process continues without
/// locked memory. Paging may then delay items.
pub fn lock_memory() {
    // SAFETY: the call takes no pointers and changes only how the kernel keeps memory.
    unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT) };
}

/// Makes the timers of the calling thread fire exactly when they are due, even if the thread has no
/// real-time policy.
pub fn no_slack() {
    // SAFETY: the call takes no pointers.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
}
