//! A sleeping place for one thread, on a futex: who signals pays for a system call only while
//! somebody sleeps.

use crate::channel::Shared;
use crate::clock::now_ns;
use crate::futex::{self, Word};
use crate::memory::Memory;
use crate::sync::{fence, AtomicU32, Ordering};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};

/// A signal at some place: a count of signals, and a count of sleepers.
#[derive(Clone, Copy)]
pub(crate) struct Signal<'a> {
    count: &'a AtomicU32,
    sleepers: &'a AtomicU32,
    shared: bool,
}

impl<'a> Signal<'a> {
    #[inline]
    pub(crate) fn at(memory: &'a Memory, offset: usize) -> Signal<'a> {
        Signal {
            count: memory.u32(offset),
            sleepers: memory.u32(offset + 4),
            shared: memory.region().is_shared(),
        }
    }

    /// Wakes whoever waits. What was stored before is seen by who wakes. Real-time safe: a system
    /// call only if somebody sleeps.
    #[inline]
    pub(crate) fn notify(&self) {
        // Either the sleeper sees what was stored before, or we see the sleeper.
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) != 0 {
            self.count.fetch_add(1, Ordering::Release);
            futex::wake(self.count, self.shared);
        }
    }

    /// Nobody sleeps here any more, whatever a sleeper that died has left.
    pub(crate) fn reset(&self) {
        self.sleepers.store(0, Ordering::Relaxed);
    }

    /// The word to sleep on, as it is now.
    fn word(&self) -> Word<'a> {
        Word {
            word: self.count,
            seen: self.count.load(Ordering::Acquire),
            shared: self.shared,
        }
    }

    /// Sleeps until `ready` says yes, or it is `deadline_ns`; its last answer.
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

/// Sleeps on several signals at once.
fn wait_any(
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
    let mut words = [signals[0].word(); futex::MOST];
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
        futex::wait_any(&words[..signals.len().min(futex::MOST)], deadline_ns);
    };
    for signal in signals {
        signal.sleepers.fetch_sub(1, Ordering::Relaxed);
    }
    answer
}

/// One sleeping place for everything that a thread waits for: give it to each of the thread's
/// consumers ([`crate::Channel::consumer_on`]), so that an item on any of them wakes it.
///
/// Up to 32 of them may be consumers of channels in shared memory. On kernels before 5.16, which
/// cannot wait for several words, a thread with such consumers looks every ms instead.
#[derive(Clone, Default)]
pub struct Waker {
    words: Arc<Words>,
}

#[derive(Default)]
pub(crate) struct Words {
    count: AtomicU32,
    sleepers: AtomicU32,
    /// Consumers whose producers cannot reach the words above, and how many they are, so that who has
    /// none takes no lock.
    remote: Mutex<Vec<(Arc<Shared>, usize)>>,
    remotes: AtomicUsize,
}

impl Words {
    #[inline]
    pub(crate) fn signal(&self) -> Signal<'_> {
        Signal {
            count: &self.count,
            sleepers: &self.sleepers,
            shared: false,
        }
    }

    fn remote(&self) -> std::sync::MutexGuard<'_, Vec<(Arc<Shared>, usize)>> {
        self.remote.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl std::fmt::Debug for Waker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Waker of {} remote consumers", self.words.remote().len())
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
    /// `deadline_ns` (CLOCK_MONOTONIC); the last answer. Consumers that join meanwhile are waited
    /// for from the next call on. With consumers of shared memory it takes a lock, for as long as it
    /// takes to copy their list, that only joining and leaving take too; without, none.
    pub fn wait(&self, deadline_ns: Option<u64>, ready: impl FnMut() -> bool) -> bool {
        if self.words.remotes.load(Ordering::Acquire) == 0 {
            return self.words.signal().wait(deadline_ns, ready);
        }
        const NONE: Option<(Arc<Shared>, usize)> = None;
        let mut remote = [NONE; futex::MOST - 1];
        let mut count = 0;
        for (copy, entry) in remote.iter_mut().zip(&*self.words.remote()) {
            *copy = Some(entry.clone());
            count += 1;
        }
        let mut signals = [self.words.signal(); futex::MOST];
        for (signal, (shared, consumer)) in signals[1..].iter_mut().zip(remote.iter().flatten()) {
            *signal = shared.ring(*consumer).signal();
        }
        wait_any(&signals[..1 + count], deadline_ns, ready)
    }

    pub(crate) fn words(&self) -> &Arc<Words> {
        &self.words
    }

    /// Waits for that consumer too; `false` if there are too many.
    pub(crate) fn join(&self, shared: &Arc<Shared>, consumer: usize) -> bool {
        let mut remote = self.words.remote();
        if remote.len() >= futex::MOST - 1 {
            return false;
        }
        remote.push((Arc::clone(shared), consumer));
        self.words.remotes.store(remote.len(), Ordering::Release);
        true
    }

    pub(crate) fn leave(&self, shared: &Arc<Shared>, consumer: usize) {
        let mut remote = self.words.remote();
        remote.retain(|(s, c)| !Arc::ptr_eq(s, shared) || *c != consumer);
        self.words.remotes.store(remote.len(), Ordering::Release);
    }
}
