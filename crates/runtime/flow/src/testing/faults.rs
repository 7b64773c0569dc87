//! Fault points: a test can kill this process at any of them, between two steps that others can
//! see.

/// Marks a point at which tests can kill the process. Costs nothing unless the feature
/// `fault-points` is on.
#[inline(always)]
pub(crate) fn point() {
    #[cfg(feature = "fault-points")]
    counted::point();
}

#[cfg(feature = "fault-points")]
pub use counted::{die_at, passed};

#[cfg(feature = "fault-points")]
mod counted {
    use std::sync::atomic::{AtomicU64, Ordering};

    static PASSED: AtomicU64 = AtomicU64::new(0);
    static LAST: AtomicU64 = AtomicU64::new(u64::MAX);

    pub(crate) fn point() {
        let last = LAST.load(Ordering::Relaxed);
        if last != u64::MAX && PASSED.fetch_add(1, Ordering::Relaxed) == last {
            // SAFETY: the call ends this process at once, as the test wants it.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        }
    }

    /// Starts to count fault points. The process kills itself at the point with this number.
    pub fn die_at(number: u64) {
        PASSED.store(0, Ordering::Relaxed);
        LAST.store(number, Ordering::Relaxed);
    }

    /// Returns the number of fault points that the process has passed since [`die_at`].
    pub fn passed() -> u64 {
        PASSED.load(Ordering::Relaxed)
    }
}
