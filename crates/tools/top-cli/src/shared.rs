//! The state that the source of events and the screen share.

use onbeat_live::view::{View, Wanted};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Page {
    Chains,
    Callbacks,
    Topics,
    Machine,
}

impl Page {
    pub const ALL: [Page; 4] = [Page::Chains, Page::Callbacks, Page::Topics, Page::Machine];

    pub fn wanted(self) -> Wanted {
        Wanted {
            chains: self == Page::Chains,
            callbacks: self == Page::Callbacks,
            topics: self == Page::Topics,
            machine: self == Page::Machine,
        }
    }
}

#[derive(Default)]
pub struct Shared {
    view: Mutex<Option<View>>,
    page: AtomicU8,
    page_changed: AtomicBool,
    ended: AtomicBool,
    /// Whether the recording or the trace is over, so that no more events come.
    over: AtomicBool,
    recording: Mutex<Option<PathBuf>>,
}

/// Locks a value, even if a thread panicked while it held the lock. Locking is then safe, because
/// no thread leaves the value half changed.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub fn new(recording: Option<PathBuf>) -> Arc<Shared> {
        Arc::new(Shared {
            recording: Mutex::new(recording),
            ..Shared::default()
        })
    }

    pub fn show(&self, view: View) {
        *lock(&self.view) = Some(view);
    }

    pub fn take_view(&self) -> Option<View> {
        lock(&self.view).take()
    }

    pub fn choose(&self, page: Page) {
        self.page.store(page as u8, Relaxed);
        self.page_changed.store(true, Relaxed);
    }

    pub fn page(&self) -> Page {
        Page::ALL[usize::from(self.page.load(Relaxed)) % Page::ALL.len()]
    }

    /// Returns true if the user has changed the page since the last call.
    pub fn take_page_changed(&self) -> bool {
        self.page_changed.swap(false, Relaxed)
    }

    pub fn end(&self) {
        self.ended.store(true, Relaxed);
    }

    pub fn is_ended(&self) -> bool {
        self.ended.load(Relaxed)
    }

    pub fn set_over(&self) {
        self.over.store(true, Relaxed);
    }

    pub fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }

    pub fn recording(&self) -> Option<PathBuf> {
        lock(&self.recording).clone()
    }
}
