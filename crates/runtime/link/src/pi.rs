//! A lock with priority inheritance, and a bell on which threads wait. A thread of low priority
//! that holds the lock runs with the priority of the most urgent waiting thread. So no third thread
//! can delay both.
//!
//! The kernel does the inheritance (FUTEX_LOCK_PI). Without contention it makes no system call.
//! Nothing allocates.

use onbeat_flow::clock::now_ns;
use rustix::thread::futex::{self, Flags, Timespec};
use std::cell::{Cell, UnsafeCell};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

#[derive(Debug, Default)]
pub struct Lock<T> {
    /// The futex word in the kernel's format: 0 if the lock is free, otherwise the owner's thread
    /// id and a bit that says whether threads wait.
    owner: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: only the thread that has the lock reaches the value.
unsafe impl<T: Send> Send for Lock<T> {}
// SAFETY: only the thread that has the lock reaches the value.
unsafe impl<T: Send> Sync for Lock<T> {}

#[derive(Debug)]
pub struct Guard<'a, T> {
    lock: &'a Lock<T>,
    _bound_to_thread: std::marker::PhantomData<*const ()>,
}

fn this_thread() -> u32 {
    thread_local! {
        static THREAD: Cell<u32> = const { Cell::new(0) };
    }
    THREAD.with(|known| {
        if known.get() == 0 {
            known.set(rustix::thread::gettid().as_raw_nonzero().get() as u32);
        }
        known.get()
    })
}

impl<T> Lock<T> {
    pub fn new(value: T) -> Lock<T> {
        Lock {
            owner: AtomicU32::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits until the lock is free, and takes it. A thread that already holds the lock blocks
    /// forever.
    pub fn lock(&self) -> Guard<'_, T> {
        let (me, owner) = (this_thread(), &self.owner);
        let take = || owner.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed);
        // The kernel refuses when it is interrupted, or when the owner is just leaving. Then try
        // again.
        while take().is_err() && futex::lock_pi(owner, Flags::PRIVATE, None).is_err() {}
        Guard {
            lock: self,
            _bound_to_thread: std::marker::PhantomData,
        }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this thread has the lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this thread has the lock.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        let owner = &self.lock.owner;
        let free = owner.compare_exchange(this_thread(), 0, Ordering::Release, Ordering::Relaxed);
        if free.is_err() {
            // Others wait: the kernel gives the lock to the most urgent one.
            let _ = futex::unlock_pi(owner, Flags::PRIVATE);
        }
    }
}

#[derive(Debug, Default)]
pub struct Bell(AtomicU32);

impl Bell {
    pub fn new() -> Bell {
        Bell::default()
    }

    /// Wakes all threads that wait for this bell. The caller holds the lock, or has released it
    /// just after it changed the value.
    pub fn ring(&self) {
        self.0.fetch_add(1, Ordering::Release);
        let _ = futex::wake(&self.0, Flags::PRIVATE, i32::MAX as u32);
    }

    /// Releases the lock, waits until this bell rings or until `deadline_ns`, and takes the lock
    /// again. May return although the bell has not rung. Returns `None`, without the lock, if the
    /// deadline had passed before the call.
    pub fn wait<'a, T>(
        &self,
        guard: Guard<'a, T>,
        deadline_ns: Option<u64>,
    ) -> Option<Guard<'a, T>> {
        let lock = guard.lock;
        let left = deadline_ns.map(|deadline| deadline.saturating_sub(now_ns()));
        if left == Some(0) {
            return None;
        }
        let rings = self.0.load(Ordering::Acquire);
        drop(guard);
        let timeout = left.map(|ns| {
            // The kernel refuses times beyond this limit.
            let left = Duration::from_nanos(ns.min(i64::MAX as u64));
            Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: left.subsec_nanos() as _,
            }
        });
        let _ = futex::wait(&self.0, Flags::PRIVATE, rings, timeout.as_ref());
        Some(lock.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::sync::Arc;

    #[test]
    fn only_one_thread_holds_the_lock_and_no_wake_up_is_missed() {
        let shared = Arc::new((Lock::new(0u64), Bell::new()));
        let players: Vec<_> = (0..3)
            .map(|me| {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || {
                    let (lock, bell) = &*shared;
                    for round in 0..2000 {
                        let mut turn = lock.lock();
                        while *turn != 3 * round + me {
                            turn = bell.wait(turn, None).unwrap();
                        }
                        *turn += 1;
                        drop(turn);
                        bell.ring();
                    }
                })
            })
            .collect();
        players.into_iter().for_each(|p| p.join().unwrap());
        assert_eq!(*shared.0.lock(), 6000);
    }

    #[test]
    fn waiting_returns_none_when_the_deadline_has_passed() {
        let (lock, bell) = (Lock::new(()), Bell::new());
        assert!(bell.wait(lock.lock(), Some(now_ns())).is_none());
        // The wait ends at the deadline, and the next call returns `None`.
        let soon = Some(now_ns() + 1_000_000);
        while let Some(guard) = bell.wait(lock.lock(), soon) {
            drop(guard);
        }
        drop(lock.lock());
    }

    fn kernel_priority(thread: u32) -> i64 {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
        let after_name = stat.rsplit(") ").next().unwrap();
        after_name.split(' ').nth(15).unwrap().parse().unwrap()
    }

    #[test]
    fn the_holder_inherits_the_priority_of_a_waiting_thread() {
        let shared = Arc::new(Lock::new(()));
        let held = shared.lock();
        let me = this_thread();
        let before = kernel_priority(me);
        let is_allowed = Arc::new(AtomicBool::new(true));
        let (other, allowed) = (Arc::clone(&shared), Arc::clone(&is_allowed));
        let urgent = std::thread::spawn(move || {
            let priority = libc::sched_param { sched_priority: 7 };
            // SAFETY: changes the scheduling of this thread only.
            let set = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &priority) };
            allowed.store(set == 0, Ordering::SeqCst);
            drop(other.lock());
        });
        let watchdog = now_ns() + 100_000_000_000;
        while kernel_priority(me) == before && is_allowed.load(Ordering::SeqCst) {
            assert!(now_ns() < watchdog, "the priority is not inherited");
            std::thread::yield_now();
        }
        if is_allowed.load(Ordering::SeqCst) {
            assert_eq!(kernel_priority(me), -8);
        } else {
            println!("SKIPPED the inheritance: no real-time priority is allowed here");
        }
        drop(held);
        urgent.join().unwrap();
        assert_eq!(kernel_priority(me), before);
    }
}
