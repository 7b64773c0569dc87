//! The threads behind one gate. Their owner adds and removes them, and the dispatcher looks at them
//! and changes their priority. The dispatcher waits for no lock of the owner.

use crate::sys;
use crate::waiting::{Waiting, Waits};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};

pub(crate) const THREADS: usize = 256;

pub(crate) struct Members {
    slots: Box<[Slot]>,
    used: AtomicUsize,
    /// Counts the beginnings and ends of the dispatcher's passes over the threads of the gate. It
    /// is odd while the dispatcher is in a pass.
    pass: AtomicU32,
    files: Mutex<Vec<Option<File>>>,
}

struct Slot {
    /// The thread id, or 0 for an entry without a thread.
    tid: AtomicU32,
    /// A descriptor of a file of the thread in `/proc`. Reading it fails once the thread has ended,
    /// even if another thread has the same id.
    alive: AtomicI32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    AllWait,
    /// At least one thread of the gate is working. The states of its other threads may be unknown.
    OneWorks,
    /// No thread of the gate is known to be working, and the state of at least one is unknown.
    OneUnknown,
}

impl Default for Members {
    fn default() -> Members {
        let slot = || Slot {
            tid: AtomicU32::new(0),
            alive: AtomicI32::new(-1),
        };
        Members {
            slots: (0..THREADS).map(|_| slot()).collect(),
            used: AtomicUsize::new(0),
            pass: AtomicU32::new(0),
            files: Mutex::default(),
        }
    }
}

impl Members {
    pub(crate) fn add(&self, tid: u32) -> io::Result<()> {
        let file = File::open(format!("/proc/{tid}/comm"))?;
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let free = self.slots.iter().position(|s| s.tid.load(SeqCst) == 0);
        let free = free.ok_or_else(|| {
            io::Error::other(format!(
                "the gate already has {THREADS} threads and has no room for more"
            ))
        })?;
        let room = files.len().max(free + 1);
        files.resize_with(room, || None);
        self.slots[free].alive.store(file.as_raw_fd(), SeqCst);
        files[free] = Some(file);
        self.slots[free].tid.store(tid, SeqCst);
        self.used.fetch_max(free + 1, SeqCst);
        Ok(())
    }

    /// Removes a thread. After this returns, the dispatcher does not change it any more.
    pub(crate) fn remove(&self, tid: u32) {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        for (slot, file) in self.slots.iter().zip(files.iter_mut()) {
            if slot.tid.compare_exchange(tid, 0, SeqCst, SeqCst).is_ok() {
                self.wait_for_pass();
                *file = None;
            }
        }
    }

    fn wait_for_pass(&self) {
        let pass = self.pass.load(SeqCst);
        while pass % 2 == 1 && self.pass.load(SeqCst) == pass {
            std::thread::yield_now();
        }
    }

    pub(crate) fn had_threads(&self) -> bool {
        self.used.load(SeqCst) > 0
    }

    /// Returns what the gate's threads are doing, and forgets threads that have ended. Real-time
    /// safe, because the dispatcher calls it.
    pub(crate) fn look(&self, waiting: Option<&dyn Waiting>) -> Look {
        let mut look = Look::AllWait;
        self.each_slot(
            |slot, tid| match waiting.map_or(Waits::Unknown, |w| w.of(tid)) {
                Waits::Yes => {}
                _ if !slot.is_alive() => slot.forget(tid),
                Waits::No => look = Look::OneWorks,
                Waits::Unknown if look == Look::AllWait => look = Look::OneUnknown,
                Waits::Unknown => {}
            },
        );
        look
    }

    /// Calls `act` for each thread that has not ended. It is real-time safe if `act` is.
    pub(crate) fn for_each(&self, mut act: impl FnMut(u32)) {
        self.each_slot(|slot, tid| match slot.is_alive() {
            true => act(tid),
            false => slot.forget(tid),
        });
    }

    fn each_slot(&self, mut act: impl FnMut(&Slot, u32)) {
        self.pass.fetch_add(1, SeqCst);
        for slot in &self.slots[..self.used.load(SeqCst)] {
            match slot.tid.load(SeqCst) {
                0 => {}
                tid => act(slot, tid),
            }
        }
        self.pass.fetch_add(1, SeqCst);
    }
}

impl Slot {
    fn is_alive(&self) -> bool {
        sys::can_read(self.alive.load(SeqCst))
    }

    fn forget(&self, tid: u32) {
        let _ = self.tid.compare_exchange(tid, 0, SeqCst, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    struct All(Waits);

    impl Waiting for All {
        fn of(&self, _: u32) -> Waits {
            self.0
        }
    }

    #[test]
    fn a_gate_forgets_a_thread_that_has_ended() {
        let members = Members::default();
        let seen = || {
            let mut seen = Vec::new();
            members.for_each(|tid| seen.push(tid));
            seen
        };
        let (send, receive) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            send.send(sys::gettid()).unwrap();
            let _ = ended.recv();
        });
        let tid = receive.recv().unwrap();
        members.add(sys::gettid()).unwrap();
        members.add(tid).unwrap();
        assert_eq!(seen(), [sys::gettid(), tid]);
        drop(end);
        thread.join().unwrap();
        while seen().len() > 1 {
            std::thread::yield_now();
        }
        assert!(members.add(tid).is_err());
        // The slot is used again, and its file is closed.
        members.add(sys::gettid()).unwrap();
        assert_eq!(members.used.load(SeqCst), 2);
        members.remove(sys::gettid());
        assert!(seen().is_empty());
        assert!(members.files.lock().unwrap().iter().all(Option::is_none));
    }

    #[test]
    fn a_gate_counts_as_working_if_one_thread_works_and_the_state_of_another_is_unknown() {
        struct ByParity;
        impl Waiting for ByParity {
            fn of(&self, tid: u32) -> Waits {
                match tid % 2 {
                    0 => Waits::No,
                    _ => Waits::Unknown,
                }
            }
        }
        let members = Members::default();
        assert_eq!(members.look(None), Look::AllWait);
        members.add(sys::gettid()).unwrap();
        assert_eq!(members.look(None), Look::OneUnknown);
        assert_eq!(members.look(Some(&All(Waits::Yes))), Look::AllWait);
        assert_eq!(members.look(Some(&All(Waits::No))), Look::OneWorks);
        let neighbour = |of: u32| {
            std::fs::read_dir("/proc/self/task")
                .unwrap()
                .find_map(move |e| {
                    let tid: u32 = e.ok()?.file_name().to_str()?.parse().ok()?;
                    (tid % 2 != of % 2).then_some(tid)
                })
        };
        if let Some(other) = neighbour(sys::gettid()) {
            if members.add(other).is_ok() {
                assert_eq!(members.look(Some(&ByParity)), Look::OneWorks);
            }
        }
    }
}
