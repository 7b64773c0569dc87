//! The few system calls of the shaper: a bell between threads, signals, memory.

use std::sync::atomic::{AtomicU32, Ordering};

/// A counter that a thread can wait for. Ringing it takes no lock.
#[derive(Debug, Default)]
pub struct Bell(AtomicU32);

impl Bell {
    /// Not rung yet.
    pub fn new() -> Bell {
        Bell::default()
    }

    /// How often it was rung.
    pub fn count(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    /// Rings. Real-time safe: one system call that does not wait.
    pub fn ring(&self) {
        self.0.fetch_add(1, Ordering::Release);
        // SAFETY: the word is valid for the call.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.0.as_ptr(),
                libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                i32::MAX,
            )
        };
    }

    /// Sleeps until it is rung more than `count` times, or until then (CLOCK_MONOTONIC). May return
    /// early. An absolute time on the kernel's high-resolution timer, like clock_nanosleep's.
    pub fn wait(&self, count: u32, until_ns: u64) {
        let until = libc::timespec {
            tv_sec: (until_ns / 1_000_000_000) as libc::time_t,
            tv_nsec: (until_ns % 1_000_000_000) as libc::c_long,
        };
        // SAFETY: word and time are valid for the call.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.0.as_ptr(),
                libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG,
                count,
                &until,
                std::ptr::null::<u32>(),
                libc::FUTEX_BITSET_MATCH_ANY,
            )
        };
    }
}

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

/// Blocks SIGTERM and SIGINT, which [`wait`] takes; and lets a write to a dead pipe be an error.
pub fn block() {
    // SAFETY: valid arguments.
    unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, &signals(), std::ptr::null_mut());
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
    }
}

/// Waits for one of the blocked signals, but no longer than that.
pub fn wait(at_most_ns: u64) -> Option<i32> {
    let time = libc::timespec {
        tv_sec: (at_most_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (at_most_ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: valid arguments.
    let signal = unsafe { libc::sigtimedwait(&signals(), std::ptr::null_mut(), &time) };
    (signal > 0).then_some(signal)
}

/// Keeps what the process uses in memory. Where that is refused, paging may delay it: no reason to end.
pub fn lock_memory() {
    // SAFETY: only changes how the kernel keeps memory.
    unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT) };
}

/// Lets the calling thread's timers fire when they are due, also without a real-time policy.
pub fn no_slack() {
    // SAFETY: plain call.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use onbeat_flow::clock::now_ns;

    #[test]
    fn a_bell_wakes_and_is_not_missed() {
        let bell = Bell::new();
        let rounds = 10_000;
        let answers = Bell::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for i in 0..rounds {
                    while bell.count() == i {
                        bell.wait(i, u64::MAX / 2);
                    }
                    answers.ring();
                }
            });
            for i in 0..rounds {
                bell.ring();
                while answers.count() == i {
                    answers.wait(i, u64::MAX / 2);
                }
            }
        });
        // Nobody rings: the time ends it.
        let until = now_ns() + 2_000_000;
        bell.wait(rounds, until);
        assert!(now_ns() >= until);
    }
}
