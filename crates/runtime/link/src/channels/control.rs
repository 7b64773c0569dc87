//! What the two threads of a relay share.

use crate::interface::End;
use onbeat_flow::clock::now_ns;
use onbeat_flow::{Progress, Waker};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How often a thread that waits for the link looks whether it is to stop.
const STOP_PERIOD_NS: u64 = 100_000_000;
/// How long a relay that stops waits for the other host to take what was sent.
const DRAIN_NS: u64 = 10_000_000_000;

/// What the two threads of a relay share.
#[derive(Debug)]
pub(super) struct Control {
    /// Where the sending host's thread sleeps.
    pub(super) waker: Waker,
    /// The local channel's consumers.
    pub(super) progress: Progress,
    /// The other host's consumers have attached.
    pub(super) ready: AtomicBool,
    /// All items with smaller numbers are consumed by the other host.
    pub(super) consumed: AtomicU64,
    stopping: AtomicBool,
    /// When the relay was asked to stop, or 0.
    stopped_ns: AtomicU64,
    over: AtomicBool,
    broken: AtomicBool,
}

impl Control {
    pub(super) fn new(progress: Progress) -> Control {
        Control {
            waker: Waker::new(),
            progress,
            ready: AtomicBool::new(false),
            consumed: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            stopped_ns: AtomicU64::new(0),
            over: AtomicBool::new(false),
            broken: AtomicBool::new(false),
        }
    }

    /// Wakes the thread of this relay that sleeps at something of this host.
    pub(super) fn wake(&self) {
        self.waker.wake();
        self.progress.wake();
    }

    /// Asks both threads to end.
    pub(super) fn stop(&self) {
        self.stopped_ns.store(now_ns().max(1), Ordering::Relaxed);
        self.stopping.store(true, Ordering::Release);
        self.wake();
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// The link is not used any more: it has ended, or one of the threads is done with it.
    pub(super) fn end(&self, why: Option<&End>) {
        if why.is_some_and(|end| *end != End::Closed) {
            self.broken.store(true, Ordering::Release);
        }
        self.over.store(true, Ordering::Release);
        self.wake();
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// The link did not end regularly.
    pub(super) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// Until when a thread waits for the link before it looks at the above again.
    pub(super) fn look_again_ns(&self) -> u64 {
        now_ns() + STOP_PERIOD_NS
    }

    /// Whether a relay that stops has waited for the other host for long enough.
    pub(super) fn is_late(&self) -> bool {
        let stopped = self.stopped_ns.load(Ordering::Relaxed);
        self.is_stopping() && now_ns().saturating_sub(stopped) > DRAIN_NS
    }
}
