//! The state that the threads of an executor share.

use super::edge::Edge;
use super::options::TaskStats;
use crate::wait::Waker;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

#[derive(Default)]
pub(crate) struct SharedStats {
    executions: AtomicU64,
    late: AtomicU64,
    longest_ns: AtomicU64,
    overruns: AtomicU64,
    by_time: AtomicU64,
}

impl SharedStats {
    pub(crate) fn set(&self, stats: &TaskStats) {
        self.executions.store(stats.executions, Ordering::Relaxed);
        self.late.store(stats.late, Ordering::Relaxed);
        self.longest_ns.store(stats.longest_ns, Ordering::Relaxed);
        self.overruns.store(stats.overruns, Ordering::Relaxed);
        self.by_time.store(stats.by_time, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> TaskStats {
        TaskStats {
            executions: self.executions.load(Ordering::Relaxed),
            late: self.late.load(Ordering::Relaxed),
            longest_ns: self.longest_ns.load(Ordering::Relaxed),
            overruns: self.overruns.load(Ordering::Relaxed),
            by_time: self.by_time.load(Ordering::Relaxed),
        }
    }
}

pub(crate) struct ExecutorState {
    pub(crate) wakers: Vec<Waker>,
    pub(crate) edges: Vec<Edge>,
    pub(crate) stats: Vec<SharedStats>,
    pub(crate) is_stopped: AtomicBool,
    pub(crate) is_draining: AtomicBool,
    /// One counter per thread. It is odd while the thread is idle. While the executor drains, the
    /// counter grows whenever the thread becomes idle or busy.
    pub(crate) idle: Vec<AtomicU64>,
    pub(crate) ended: AtomicUsize,
    pub(crate) owner: Waker,
}

impl ExecutorState {
    pub(crate) fn new(wakers: Vec<Waker>, edges: Vec<Edge>, tasks: usize) -> ExecutorState {
        ExecutorState {
            idle: wakers.iter().map(|_| AtomicU64::new(0)).collect(),
            wakers,
            edges,
            stats: (0..tasks).map(|_| SharedStats::default()).collect(),
            is_stopped: AtomicBool::new(false),
            is_draining: AtomicBool::new(false),
            ended: AtomicUsize::new(0),
            owner: Waker::new(),
        }
    }

    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        self.wakers.iter().for_each(Waker::wake);
    }

    /// Reports whether all threads are idle and no item is between two tasks. Each thread calls
    /// this function after it has become idle. The call of the last one returns `true`.
    pub(crate) fn is_quiet(&self) -> bool {
        let before = self.all_idle();
        before.is_some() && self.edges.iter().all(Edge::is_quiet) && self.all_idle() == before
    }

    /// Returns the sum of the idle counters, or `None` if a thread is busy. The counters only grow,
    /// so equal sums mean equal counters.
    fn all_idle(&self) -> Option<u64> {
        let mut sum = 0u64;
        for idle in &self.idle {
            let number = idle.load(Ordering::SeqCst);
            if number % 2 == 0 {
                return None;
            }
            sum = sum.wrapping_add(number);
        }
        Some(sum)
    }
}
