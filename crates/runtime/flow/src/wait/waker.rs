//! One place to sleep for everything that a thread waits for.

use super::signal::{wait_any, Signal, MAX_SIGNALS};
use crate::memory::atomics::{AtomicU32, Ordering};
use crate::memory::Memory;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard};

pub(crate) const MAX_REMOTE_SIGNALS: usize = MAX_SIGNALS - 1;

/// A place where a thread sleeps. Give it to each of the thread's consumers
/// ([`Channel::consumer_on`](crate::Channel::consumer_on)), so that an item at any of them wakes
/// the thread.
///
/// Up to 32 of the consumers may be on channels in shared memory. Kernels before 5.16 cannot wait
/// for several words: on these kernels a thread with such consumers polls every ms instead.
#[derive(Clone, Default)]
pub struct Waker {
    words: Arc<WakerWords>,
}

#[derive(Default)]
pub(crate) struct WakerWords {
    count: AtomicU32,
    sleepers: AtomicU32,
    /// The signals of consumers in shared memory. Producers in other processes reach only these
    /// signals.
    remote: Mutex<Vec<Arc<RemoteSignal>>>,
    /// The number of signals in `remote`. While it is 0, a thread that waits takes no lock.
    remotes: AtomicUsize,
}

/// The signal of a consumer in shared memory. The memory stays mapped as long as this value lives.
struct RemoteSignal {
    memory: Memory,
    offset: usize,
}

impl RemoteSignal {
    fn signal(&self) -> Signal<'_> {
        Signal::at(&self.memory, self.offset)
    }
}

impl WakerWords {
    #[inline]
    pub(crate) fn signal(&self) -> Signal<'_> {
        Signal::local(&self.count, &self.sleepers)
    }

    fn remote(&self) -> MutexGuard<'_, Vec<Arc<RemoteSignal>>> {
        self.remote.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl std::fmt::Debug for Waker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Waker of {} remote consumers", self.words.remote().len())
    }
}

impl Waker {
    /// Creates a waker at which no thread sleeps yet.
    pub fn new() -> Waker {
        Waker::default()
    }

    /// Wakes the thread that sleeps at this waker. Real-time safe: makes a system call only if a
    /// thread sleeps.
    pub fn wake(&self) {
        self.words.signal().notify();
    }

    /// Sleeps until `ready` returns true or until `deadline_ns` (CLOCK_MONOTONIC), and returns the
    /// last result of `ready`. Calls `ready` again after each wake-up.
    ///
    /// A consumer that gets this waker during the call wakes only later calls. If the waker has
    /// consumers in shared memory, the call takes a lock while it copies their list. Only adding
    /// and removing such consumers takes the same lock. Without such consumers the call takes no
    /// lock.
    pub fn wait(&self, deadline_ns: Option<u64>, ready: impl FnMut() -> bool) -> bool {
        if self.words.remotes.load(Ordering::Acquire) == 0 {
            return self.words.signal().wait(deadline_ns, ready);
        }
        const NONE: Option<Arc<RemoteSignal>> = None;
        let mut remote = [NONE; MAX_REMOTE_SIGNALS];
        let mut count = 0;
        for (copy, signal) in remote.iter_mut().zip(&*self.words.remote()) {
            *copy = Some(Arc::clone(signal));
            count += 1;
        }
        let mut signals = [self.words.signal(); MAX_SIGNALS];
        for (signal, remote) in signals[1..].iter_mut().zip(remote.iter().flatten()) {
            *signal = remote.signal();
        }
        wait_any(&signals[..1 + count], deadline_ns, ready)
    }

    pub(crate) fn words(&self) -> &Arc<WakerWords> {
        &self.words
    }

    /// Adds a consumer's signal to the signals for which this waker's thread waits. `offset` says
    /// where in the channel's memory the signal is. Returns `false` if there are too many signals.
    pub(crate) fn join(&self, memory: &Memory, offset: usize) -> bool {
        let mut remote = self.words.remote();
        if remote.len() >= MAX_REMOTE_SIGNALS {
            return false;
        }
        let memory = memory.clone();
        remote.push(Arc::new(RemoteSignal { memory, offset }));
        self.words.remotes.store(remote.len(), Ordering::Release);
        true
    }

    pub(crate) fn leave(&self, memory: &Memory, offset: usize) {
        let mut remote = self.words.remote();
        remote.retain(|r| !r.memory.is_same_as(memory) || r.offset != offset);
        self.words.remotes.store(remote.len(), Ordering::Release);
    }
}
