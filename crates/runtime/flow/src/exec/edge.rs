//! A connection between two threads: a counter that one side writes and the other reads. Neither
//! thread ever waits for the other, not even for one that was preempted during a hand-over.

use std::sync::atomic::{AtomicU64, Ordering};

/// The number of latest items whose arrival times an edge stores.
const TIMES: usize = 64;

#[repr(align(64))]
pub(crate) struct Edge {
    /// The number of items that the producer has passed on. Only the producer writes it.
    tail: AtomicU64,
    /// The arrival times of the latest items in ns, at the index of the item number modulo `TIMES`.
    /// Empty if the edge stores no arrival times. Only the producer writes them.
    times_ns: Box<[AtomicU64]>,
    /// The number of items that have arrived at the consumer. Only the consumer writes it.
    head: AtomicU64,
    /// An item at this edge may activate the consumer. If `false`, an item does not wake the
    /// consumer's thread.
    wakes: bool,
}

impl Edge {
    pub(crate) fn new(is_timed: bool, wakes: bool) -> Edge {
        let times = if is_timed { TIMES } else { 0 };
        Edge {
            tail: AtomicU64::new(0),
            times_ns: (0..times).map(|_| AtomicU64::new(0)).collect(),
            head: AtomicU64::new(0),
            wakes,
        }
    }

    #[inline]
    pub(crate) fn push(&self, time_ns: u64) {
        let tail = self.tail.load(Ordering::Relaxed);
        if !self.times_ns.is_empty() {
            self.times_ns[tail as usize % TIMES].store(time_ns, Ordering::Relaxed);
        }
        self.tail.store(tail + 1, Ordering::Release);
    }

    #[inline]
    pub(crate) fn tail(&self) -> u64 {
        self.tail.load(Ordering::Acquire)
    }

    /// Returns when the producer passed on the item with this number, in ns. Panics if the edge
    /// stores no times.
    #[inline]
    pub(crate) fn time_ns(&self, item: u64) -> u64 {
        self.times_ns[item as usize % TIMES].load(Ordering::Relaxed)
    }

    /// Records that all items before number `head` have arrived. Only the consumer calls this.
    #[inline]
    pub(crate) fn set_head(&self, head: u64) {
        self.head.store(head, Ordering::SeqCst);
    }

    pub(crate) fn is_quiet(&self) -> bool {
        !self.wakes || self.tail.load(Ordering::SeqCst) == self.head.load(Ordering::SeqCst)
    }
}
