//! What the two threads of a relay share.

use crate::interface::{End, Shown};
use onbeat_flow::clock::now_ns;
use onbeat_flow::{Progress, Waker};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;

/// How often a thread that waits for the link looks whether it is to stop.
const STOP_PERIOD_NS: u64 = 100_000_000;
/// How long a relay that stops waits for the other host to take what was sent.
const DRAIN_NS: u64 = 10_000_000_000;

/// The hosts that a channel's items go to: one severs the channel only if nobody else is left.
#[derive(Debug)]
pub(super) struct Hosts {
    left: AtomicUsize,
    is_any_broken: AtomicBool,
}

impl Hosts {
    pub(super) fn new(count: usize) -> Arc<Hosts> {
        Arc::new(Hosts {
            left: AtomicUsize::new(count),
            is_any_broken: AtomicBool::new(false),
        })
    }

    /// Whether items still go somewhere.
    pub(super) fn is_any_left(&self) -> bool {
        self.left.load(Ordering::Acquire) > 0
    }
}

/// How a relay is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostState {
    /// The receiving host's expected consumers have not attached yet.
    Waiting,
    /// Items pass.
    Open,
    /// It has ended regularly.
    Closed,
    /// The link broke, or was not resumed in time.
    Severed,
}

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
    /// The hosts that the same items go to.
    pub(super) hosts: Arc<Hosts>,
    has_left: AtomicBool,
    /// Items that newer ones replaced before they left the sending host.
    lost: AtomicU64,
    /// Where that is shown.
    page: Option<Arc<dyn Shown>>,
    stopping: AtomicBool,
    /// When the relay was asked to stop, or 0.
    stopped_ns: AtomicU64,
    over: AtomicBool,
    broken: AtomicBool,
}

impl Control {
    pub(super) fn new(
        progress: Progress,
        hosts: Arc<Hosts>,
        page: Option<Arc<dyn Shown>>,
    ) -> Control {
        if let Some(page) = &page {
            page.set_lost(0);
        }
        Control {
            hosts,
            has_left: AtomicBool::new(false),
            lost: AtomicU64::new(0),
            page,
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

    /// No more items go to this host. The channel is severed if a link broke and no host is left.
    pub(super) fn leave(&self) {
        let hosts = &self.hosts;
        if self.is_broken() {
            hosts.is_any_broken.store(true, Ordering::Release);
        }
        if !self.has_left.swap(true, Ordering::AcqRel) {
            hosts.left.fetch_sub(1, Ordering::AcqRel);
        }
        if !hosts.is_any_left() && hosts.is_any_broken.load(Ordering::Acquire) {
            self.progress.sever();
        }
    }

    /// Notes how many items were replaced before they left. Real-time safe.
    pub(super) fn set_lost(&self, items: u64) {
        if self.lost.swap(items, Ordering::Relaxed) != items {
            if let Some(page) = &self.page {
                page.set_lost(items);
            }
        }
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    pub(super) fn state(&self) -> HostState {
        match (self.is_broken(), self.is_over()) {
            (true, _) => HostState::Severed,
            (false, true) => HostState::Closed,
            _ if self.ready.load(Ordering::Acquire) => HostState::Open,
            _ => HostState::Waiting,
        }
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
