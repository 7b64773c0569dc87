//! The state that the two threads of a relay share.

use crate::interface::{End, Shown};
use onbeat_flow::clock::now_ns;
use onbeat_flow::{Progress, Waker};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;

const STOP_CHECK_PERIOD_NS: u64 = 100_000_000;
/// The longest time, in ns, for which a relay that stops waits until the other host has received
/// all items sent to it.
const DRAIN_LIMIT_NS: u64 = 10_000_000_000;

/// The hosts that receive a channel's items. When the last host leaves, the channel is severed if
/// any host's link broke.
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

    pub(super) fn is_any_left(&self) -> bool {
        self.left.load(Ordering::Acquire) > 0
    }
}

/// The state of a relay to another host.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostState {
    /// The receiving host's expected consumers have not attached yet.
    Waiting,
    Open,
    /// The channel has ended as intended, and the relay has ended with it.
    Closed,
    /// The link broke, or was not resumed in time.
    Severed,
}

#[derive(Debug)]
pub(super) struct Control {
    pub(super) waker: Waker,
    pub(super) progress: Progress,
    pub(super) consumers_ready: AtomicBool,
    pub(super) consumed: AtomicU64,
    pub(super) hosts: Arc<Hosts>,
    has_left: AtomicBool,
    lost: AtomicU64,
    page: Option<Arc<dyn Shown>>,
    stopping: AtomicBool,
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
            consumers_ready: AtomicBool::new(false),
            consumed: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            stopped_ns: AtomicU64::new(0),
            over: AtomicBool::new(false),
            broken: AtomicBool::new(false),
        }
    }

    pub(super) fn wake(&self) {
        self.waker.wake();
        self.progress.wake();
    }

    pub(super) fn stop(&self) {
        self.stopped_ns.store(now_ns().max(1), Ordering::Relaxed);
        self.stopping.store(true, Ordering::Release);
        self.wake();
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

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

    pub(super) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// Removes the relay's host from the hosts that receive the channel's items. Severs the channel
    /// if this was the last host and a link to any of the hosts broke.
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
            _ if self.consumers_ready.load(Ordering::Acquire) => HostState::Open,
            _ => HostState::Waiting,
        }
    }

    pub(super) fn next_check_ns(&self) -> u64 {
        now_ns() + STOP_CHECK_PERIOD_NS
    }

    pub(super) fn is_drain_over(&self) -> bool {
        let stopped = self.stopped_ns.load(Ordering::Relaxed);
        self.is_stopping() && now_ns().saturating_sub(stopped) > DRAIN_LIMIT_NS
    }
}
