//! Wakes up threads of this process with a futex.

use std::sync::atomic::{AtomicU32, Ordering};

#[derive(Debug, Default)]
pub struct Notifier(AtomicU32);

impl Notifier {
    pub fn new() -> Notifier {
        Notifier::default()
    }

    pub fn count(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    /// Counts a notification and wakes up all waiting threads. Real-time safe: one system call that
    /// does not wait.
    pub fn notify(&self) {
        self.0.fetch_add(1, Ordering::Release);
        // SAFETY: the pointer to the counter is valid during the call.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.0.as_ptr(),
                libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                i32::MAX,
            )
        };
    }

    /// Sleeps until the count of notifications differs from `count`, or until `until_ns`
    /// (CLOCK_MONOTONIC). May return early. The time is absolute and uses the kernel's
    /// high-resolution timer, as clock_nanosleep does.
    pub fn wait(&self, count: u32, until_ns: u64) {
        let until = libc::timespec {
            tv_sec: (until_ns / 1_000_000_000) as libc::time_t,
            tv_nsec: (until_ns % 1_000_000_000) as libc::c_long,
        };
        // SAFETY: the pointers to the counter and to the time are valid during the call.
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

#[cfg(test)]
mod tests {
    use super::*;
    use onbeat_time::clock::monotonic_ns;

    #[test]
    fn a_notification_wakes_a_waiting_thread_and_is_never_missed() {
        let questions = Notifier::new();
        let rounds = 10_000;
        let answers = Notifier::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for i in 0..rounds {
                    while questions.count() == i {
                        questions.wait(i, u64::MAX / 2);
                    }
                    answers.notify();
                }
            });
            for i in 0..rounds {
                questions.notify();
                while answers.count() == i {
                    answers.wait(i, u64::MAX / 2);
                }
            }
        });
        // Nobody notifies, so the wait ends at its time.
        let until = monotonic_ns() + 2_000_000;
        questions.wait(rounds, until);
        assert!(monotonic_ns() >= until);
    }
}
