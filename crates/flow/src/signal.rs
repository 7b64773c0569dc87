//! A sleeping place for one thread, on a futex: who signals pays for a system call only while
//! somebody sleeps.

use crate::memory::Memory;
use std::sync::atomic::{fence, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Bytes that a signal takes in the memory.
pub(crate) const SIZE: usize = 8;

/// A signal at a place in the memory: a count of signals, and a count of sleepers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signal<'a> {
    count: &'a AtomicU32,
    sleepers: &'a AtomicU32,
}

impl<'a> Signal<'a> {
    pub(crate) fn at(memory: &'a Memory, offset: usize) -> Signal<'a> {
        Signal {
            count: memory.u32(offset),
            sleepers: memory.u32(offset + 4),
        }
    }

    /// Wakes whoever waits. What was stored before is seen by who wakes. Real-time safe: a system
    /// call only if somebody sleeps.
    pub(crate) fn notify(&self) {
        // Either the sleeper sees what was stored before, or we see the sleeper.
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) != 0 {
            self.count.fetch_add(1, Ordering::Release);
            futex(self.count, libc::FUTEX_WAKE, i32::MAX as u32, None);
        }
    }

    /// Sleeps until `ready` says yes, or the deadline has passed; its last answer.
    pub(crate) fn wait(&self, deadline: Option<Instant>, mut ready: impl FnMut() -> bool) -> bool {
        if ready() {
            return true;
        }
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let answer = loop {
            let seen = self.count.load(Ordering::Acquire);
            fence(Ordering::SeqCst);
            if ready() {
                break true;
            }
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            if left.is_some_and(|l| l.is_zero()) {
                break false;
            }
            futex(self.count, libc::FUTEX_WAIT, seen, left);
        };
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
        answer
    }
}

/// The system call. Its result does not matter: whoever waits looks again, whatever woke it.
fn futex(word: &AtomicU32, operation: i32, value: u32, timeout: Option<Duration>) {
    let timeout = timeout.map(|t| libc::timespec {
        tv_sec: t.as_secs() as libc::time_t,
        tv_nsec: t.subsec_nanos().into(),
    });
    let pointer = timeout.as_ref().map_or(std::ptr::null(), |t| t as *const _);
    // SAFETY: the word and the timeout live throughout the call.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            operation | libc::FUTEX_PRIVATE_FLAG,
            value,
            pointer,
        );
    }
}
