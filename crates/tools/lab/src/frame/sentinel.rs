//! A thread on each CPU that measures how late the machine wakes it up, as cyclictest does.

use super::machine;
use onbeat_time::clock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

const PERIOD_NS: u64 = 2_000_000;
/// The SCHED_FIFO priority of the threads that measure wake-up delays. No measured program has a
/// higher priority.
const PRIORITY: i32 = 99;
const USUAL_DELAY_NS: u64 = 200_000;

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Lateness {
    pub longest_ns: u64,
    /// The time for which the thread did not get its CPU: for each wake-up delay, the part that
    /// exceeds [`USUAL_DELAY_NS`], in total.
    pub away_ns: u64,
}

impl Lateness {
    fn add(&mut self, late_ns: u64) {
        self.longest_ns = self.longest_ns.max(late_ns);
        self.away_ns += late_ns.saturating_sub(USUAL_DELAY_NS);
    }
}

/// One thread on each CPU that measures how late the machine wakes it up. Dropping this value ends
/// the threads.
pub struct Sentinels {
    seen: Vec<Arc<Mutex<Lateness>>>,
    ended: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    /// Whether the measuring threads have a real-time priority. Without one, measured programs
    /// delay the threads, and the delays say nothing about the machine.
    urgent: bool,
}

impl Sentinels {
    pub fn start() -> Sentinels {
        let seen: Vec<_> = (0..machine::cpus()).map(|_| Arc::default()).collect();
        let ended = Arc::new(AtomicBool::new(false));
        let urgent = Arc::new(AtomicBool::new(true));
        let threads = seen.iter().enumerate().map(|(cpu, seen)| {
            let (seen, ended, urgent) = (Arc::clone(seen), Arc::clone(&ended), Arc::clone(&urgent));
            let (ready, started) = std::sync::mpsc::channel();
            let thread = std::thread::spawn(move || {
                if !become_urgent(cpu) {
                    urgent.store(false, Ordering::Relaxed);
                }
                let _ = ready.send(());
                watch(&seen, &ended);
            });
            // The priority is known once the thread has asked for it.
            let _ = started.recv();
            thread
        });
        let threads = threads.collect();
        let urgent = urgent.load(Ordering::Relaxed);
        Sentinels {
            seen,
            ended,
            threads,
            urgent,
        }
    }

    /// Returns the wake-up delays of the measuring threads since the last call, by CPU. Returns
    /// `None` if the threads have no real-time priority.
    pub fn take(&self) -> Option<Vec<Lateness>> {
        let taken = self
            .seen
            .iter()
            .map(|seen| std::mem::take(&mut *lock(seen)));
        let taken = taken.collect();
        self.urgent.then_some(taken)
    }
}

impl Drop for Sentinels {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn lock(seen: &Mutex<Lateness>) -> MutexGuard<'_, Lateness> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

fn watch(seen: &Mutex<Lateness>, ended: &AtomicBool) {
    let mut due_ns = clock::monotonic_ns() + PERIOD_NS;
    while !ended.load(Ordering::Relaxed) {
        sleep_until(due_ns);
        let now_ns = clock::monotonic_ns();
        lock(seen).add(now_ns.saturating_sub(due_ns));
        due_ns = (due_ns + PERIOD_NS).max(now_ns);
    }
}

fn sleep_until(due_ns: u64) {
    let due = libc::timespec {
        tv_sec: (due_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (due_ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: `due` lives until the call returns. The kernel writes a remaining time only for relative
    // sleeps, so the last pointer may be null.
    unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &due,
            std::ptr::null_mut(),
        )
    };
}

/// Binds the calling thread to a CPU and gives it a real-time priority. Returns whether both
/// succeeded.
fn become_urgent(cpu: usize) -> bool {
    let parameter = libc::sched_param {
        sched_priority: PRIORITY,
    };
    // SAFETY: plain system calls for the calling thread; the set and the parameter live on its stack.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) == 0
            && libc::sched_setscheduler(0, libc::SCHED_FIFO, &parameter) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wake_up_delays_beyond_the_usual_one_count_as_time_without_the_cpu() {
        let mut seen = Lateness::default();
        for ns in [50_000, 200_000, 1_200_000, 700_000] {
            seen.add(ns);
        }
        assert_eq!((seen.longest_ns, seen.away_ns), (1_200_000, 1_500_000));
    }

    #[test]
    fn each_cpu_has_a_measuring_thread_whose_value_is_reset_when_it_is_read() {
        let sentinels = Sentinels::start();
        assert_eq!(sentinels.seen.len(), machine::cpus());
        lock(&sentinels.seen[0]).add(3_000_000_000);
        let _ = sentinels.take();
        assert!(lock(&sentinels.seen[0]).longest_ns < 3_000_000_000);
    }
}
