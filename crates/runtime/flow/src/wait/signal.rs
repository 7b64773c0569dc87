//! A place where one thread sleeps, on a futex. Notifying costs a system call only while a thread
//! sleeps there.

use super::clock::now_ns;
use super::futex::{self, Word};
use crate::memory::atomics::{fence, AtomicU32, Ordering};
use crate::memory::Memory;

/// A signal in channel memory, which wakes a thread: a count of notifications and a count of
/// sleepers.
#[derive(Clone, Copy)]
pub(crate) struct Signal<'a> {
    count: &'a AtomicU32,
    sleepers: &'a AtomicU32,
    shared: bool,
}

impl<'a> Signal<'a> {
    /// Returns the signal at an offset in channel memory. It consists of two 32-bit words.
    #[inline]
    pub(crate) fn at(memory: &'a Memory, offset: usize) -> Signal<'a> {
        Signal {
            count: memory.u32(offset),
            sleepers: memory.u32(offset + 4),
            shared: memory.is_shared(),
        }
    }

    #[inline]
    pub(crate) fn local(count: &'a AtomicU32, sleepers: &'a AtomicU32) -> Signal<'a> {
        Signal {
            count,
            sleepers,
            shared: false,
        }
    }

    /// Wakes the waiting thread, which then sees everything that was stored before this call.
    /// Real-time safe: makes a system call only if a thread sleeps.
    #[inline]
    pub(crate) fn notify(&self) {
        // The fence makes sure that the sleeper sees the earlier stores, or that we see the
        // sleeper.
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) != 0 {
            self.count.fetch_add(1, Ordering::Release);
            futex::wake(self.count, self.shared);
        }
    }

    /// Resets the number of sleepers, because a sleeper that died has left its count behind.
    pub(crate) fn reset(&self) {
        self.sleepers.store(0, Ordering::Relaxed);
    }

    fn word(&self) -> Word<'a> {
        Word {
            word: self.count,
            seen: self.count.load(Ordering::Acquire),
            shared: self.shared,
        }
    }

    /// Sleeps until `ready` returns true or until `deadline_ns`. Returns the last result of
    /// `ready`.
    pub(crate) fn wait(&self, deadline_ns: Option<u64>, mut ready: impl FnMut() -> bool) -> bool {
        if ready() {
            return true;
        }
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let answer = loop {
            let word = self.word();
            fence(Ordering::SeqCst);
            if ready() {
                break true;
            }
            if deadline_ns.is_some_and(|d| now_ns() >= d) {
                break false;
            }
            futex::wait(word, deadline_ns);
        };
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
        answer
    }
}

pub(super) const MAX_SIGNALS: usize = futex::MAX_WORDS;

pub(super) fn wait_any(
    signals: &[Signal<'_>],
    deadline_ns: Option<u64>,
    mut ready: impl FnMut() -> bool,
) -> bool {
    if ready() {
        return true;
    }
    for signal in signals {
        signal.sleepers.fetch_add(1, Ordering::SeqCst);
    }
    let mut words = [signals[0].word(); MAX_SIGNALS];
    let answer = loop {
        for (word, signal) in words.iter_mut().zip(signals) {
            *word = signal.word();
        }
        fence(Ordering::SeqCst);
        if ready() {
            break true;
        }
        if deadline_ns.is_some_and(|d| now_ns() >= d) {
            break false;
        }
        futex::wait_any(&words[..signals.len().min(MAX_SIGNALS)], deadline_ns);
    };
    for signal in signals {
        signal.sleepers.fetch_sub(1, Ordering::Relaxed);
    }
    answer
}
