//! A sleeping place for one thread, on a futex: who signals pays for a system call only while
//! somebody sleeps.

use crate::clock::now_ns;
use crate::memory::Memory;
use std::sync::atomic::{fence, AtomicU32, Ordering};
use std::sync::Arc;

/// Bytes that a signal takes in the memory.
pub(crate) const SIZE: usize = 8;

/// A signal at some place: a count of signals, and a count of sleepers.
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

    /// Sleeps until `ready` says yes, or it is `deadline_ns`; its last answer.
    pub(crate) fn wait(&self, deadline_ns: Option<u64>, mut ready: impl FnMut() -> bool) -> bool {
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
            if deadline_ns.is_some_and(|d| now_ns() >= d) {
                break false;
            }
            futex(self.count, libc::FUTEX_WAIT_BITSET, seen, deadline_ns);
        };
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
        answer
    }
}

/// One sleeping place for everything that a thread waits for: give it to each of the thread's
/// consumers ([`crate::Channel::consumer_on`]), so that an item on any of them wakes it.
#[derive(Debug, Clone, Default)]
pub struct Waker {
    words: Arc<Words>,
}

#[derive(Debug, Default)]
pub(crate) struct Words {
    count: AtomicU32,
    sleepers: AtomicU32,
}

impl Words {
    pub(crate) fn signal(&self) -> Signal<'_> {
        Signal {
            count: &self.count,
            sleepers: &self.sleepers,
        }
    }
}

impl Waker {
    /// A place where nobody sleeps yet.
    pub fn new() -> Waker {
        Waker::default()
    }

    /// Wakes who sleeps here. Real-time safe: a system call only if somebody does.
    pub fn wake(&self) {
        self.words.signal().notify();
    }

    /// Sleeps until `ready` says yes, which is asked again after each wake-up, or until
    /// `deadline_ns` (CLOCK_MONOTONIC); the last answer.
    pub fn wait(&self, deadline_ns: Option<u64>, ready: impl FnMut() -> bool) -> bool {
        self.words.signal().wait(deadline_ns, ready)
    }

    pub(crate) fn words(&self) -> &Arc<Words> {
        &self.words
    }
}

/// The system call; a time-out is an absolute time of CLOCK_MONOTONIC. Its result does not matter:
/// whoever waits looks again, whatever woke it.
fn futex(word: &AtomicU32, operation: i32, value: u32, deadline_ns: Option<u64>) {
    let deadline = deadline_ns.map(|ns| libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    });
    let pointer = deadline
        .as_ref()
        .map_or(std::ptr::null(), |t| t as *const _);
    // SAFETY: the word and the deadline live throughout the call.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            operation | libc::FUTEX_PRIVATE_FLAG,
            value,
            pointer,
            std::ptr::null::<u32>(),
            libc::FUTEX_BITSET_MATCH_ANY,
        );
    }
}
