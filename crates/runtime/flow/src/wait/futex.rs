//! Thin futex calls. They return nothing: a thread that wakes up checks its condition again,
//! whatever woke it.

use crate::memory::atomics::AtomicU32;

pub(crate) const MAX_WORDS: usize = 33;

#[derive(Clone, Copy)]
pub(crate) struct Word<'a> {
    pub(crate) word: &'a AtomicU32,
    pub(crate) seen: u32,
    // loom does not distinguish processes.
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) shared: bool,
}

#[cfg(not(loom))]
mod calls {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn timespec(ns: u64) -> libc::timespec {
        libc::timespec {
            tv_sec: (ns / 1_000_000_000) as libc::time_t,
            tv_nsec: (ns % 1_000_000_000) as libc::c_long,
        }
    }

    fn private(shared: bool) -> i32 {
        if shared {
            0
        } else {
            libc::FUTEX_PRIVATE_FLAG
        }
    }

    pub(crate) fn wait(word: Word<'_>, deadline_ns: Option<u64>) {
        let deadline = deadline_ns.map(timespec);
        let pointer = deadline
            .as_ref()
            .map_or(std::ptr::null(), |t| t as *const _);
        // SAFETY: the word and the deadline live throughout the call.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                word.word.as_ptr(),
                libc::FUTEX_WAIT_BITSET | private(word.shared),
                word.seen,
                pointer,
                std::ptr::null::<u32>(),
                libc::FUTEX_BITSET_MATCH_ANY,
            );
        }
    }

    pub(crate) fn wake(word: &AtomicU32, shared: bool) {
        // SAFETY: the word lives throughout the call.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                word.as_ptr(),
                libc::FUTEX_WAKE | private(shared),
                i32::MAX,
            );
        }
    }

    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Waiter {
        value: u64,
        address: u64,
        flags: u32,
        reserved: u32,
    }

    const SIZE_U32: u32 = 2;
    /// The number of the system call futex_waitv, the same on every architecture. It exists since
    /// Linux 5.16.
    const SYS_FUTEX_WAITV: libc::c_long = 449;
    /// The polling period on kernels that cannot wait for several futex words (before Linux 5.16).
    const POLL_NS: u64 = 1_000_000;

    /// Sleeps until one of the words no longer has its `seen` value, at most until `deadline_ns`.
    /// On kernels before Linux 5.16 it sleeps on the first word for at most 1 ms, so that the
    /// caller can check the other words.
    pub(crate) fn wait_any(words: &[Word<'_>], deadline_ns: Option<u64>) {
        static MISSING: AtomicBool = AtomicBool::new(false);
        if let [only] = words {
            return wait(*only, deadline_ns);
        }
        if !MISSING.load(Ordering::Relaxed) {
            let mut waiters = [Waiter {
                value: 0,
                address: 0,
                flags: 0,
                reserved: 0,
            }; MAX_WORDS];
            for (waiter, word) in waiters.iter_mut().zip(words) {
                *waiter = Waiter {
                    value: u64::from(word.seen),
                    address: word.word.as_ptr() as u64,
                    flags: SIZE_U32 | private(word.shared) as u32,
                    reserved: 0,
                };
            }
            let deadline = deadline_ns.map(timespec);
            let pointer = deadline
                .as_ref()
                .map_or(std::ptr::null(), |t| t as *const _);
            // SAFETY: waiters, their words and the deadline live throughout the call.
            let result = unsafe {
                libc::syscall(
                    SYS_FUTEX_WAITV,
                    waiters.as_ptr(),
                    words.len().min(MAX_WORDS),
                    0,
                    pointer,
                    libc::CLOCK_MONOTONIC,
                )
            };
            let missing =
                result < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ENOSYS);
            if !missing {
                return;
            }
            MISSING.store(true, Ordering::Relaxed);
        }
        let poll_at = crate::wait::clock::now_ns() + POLL_NS;
        wait(
            words[0],
            Some(deadline_ns.map_or(poll_at, |d| d.min(poll_at))),
        );
    }
}
#[cfg(not(loom))]
pub(crate) use calls::{wait, wait_any, wake};

/// Replaces the futexes in tests with loom. All threads sleep on one condition variable, because
/// spurious wake-ups are allowed.
#[cfg(loom)]
mod modelled {
    use super::*;
    use loom::sync::{Condvar, Mutex};
    use std::sync::Arc;

    loom::lazy_static! {
        static ref PLACE: Arc<(Mutex<()>, Condvar)> = Arc::new((Mutex::new(()), Condvar::new()));
    }

    pub(crate) fn wait(word: Word<'_>, _deadline_ns: Option<u64>) {
        let guard = PLACE.0.lock().unwrap();
        if word.word.load(crate::memory::atomics::Ordering::SeqCst) == word.seen {
            drop(PLACE.1.wait(guard).unwrap());
        }
    }

    pub(crate) fn wake(_word: &AtomicU32, _shared: bool) {
        let _guard = PLACE.0.lock().unwrap();
        PLACE.1.notify_all();
    }

    pub(crate) fn wait_any(words: &[Word<'_>], deadline_ns: Option<u64>) {
        wait(words[0], deadline_ns);
    }
}
#[cfg(loom)]
pub(crate) use modelled::{wait, wait_any, wake};
