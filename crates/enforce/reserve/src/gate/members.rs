//! The threads behind one gate: their owner adds and removes them, the dispatcher looks at them and
//! changes their priority. Neither waits for a lock of the other.

use crate::sys;
use crate::waiting::{Waiting, Waits};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};

/// Most threads behind one gate.
pub(crate) const THREADS: usize = 256;

/// The threads behind a gate.
pub(crate) struct Members {
    slots: Box<[Slot]>,
    /// Slots from here on were never used.
    used: AtomicUsize,
    /// Odd while the dispatcher goes through the slots.
    pass: AtomicU32,
    /// The owner's: the files that own the descriptors.
    files: Mutex<Vec<Option<File>>>,
}

/// Room for one thread.
struct Slot {
    /// 0: no thread.
    tid: AtomicU32,
    /// A file of the thread in `/proc`. Reading it fails once the thread has ended, also when
    /// another one has its id.
    alive: AtomicI32,
}

/// What the threads of a gate do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// All of them wait.
    AllWait,
    /// One at least is at work; of the others nothing may be known.
    OneWorks,
    /// None is known to be at work, but of one at least nothing is known.
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
    /// Adds a thread. Its file is opened here: a thread that has ended already cannot be added.
    pub(crate) fn add(&self, tid: u32) -> io::Result<()> {
        let file = File::open(format!("/proc/{tid}/comm"))?;
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let free = self.slots.iter().position(|s| s.tid.load(SeqCst) == 0);
        let free = free.ok_or_else(|| {
            io::Error::other(format!("a gate has room for {THREADS} threads only"))
        })?;
        let room = files.len().max(free + 1);
        files.resize_with(room, || None);
        self.slots[free].alive.store(file.as_raw_fd(), SeqCst);
        files[free] = Some(file);
        self.slots[free].tid.store(tid, SeqCst);
        self.used.fetch_max(free + 1, SeqCst);
        Ok(())
    }

    /// Removes a thread. The dispatcher changes it no more when this returns.
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

    /// Whether a thread was ever added. What such a thread has started may be behind the gate when it
    /// has ended itself.
    pub(crate) fn were_there(&self) -> bool {
        self.used.load(SeqCst) > 0
    }

    /// What the threads do. A thread that has ended is forgotten. For the dispatcher: real-time safe.
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

    /// Does something with each thread that lives. For the dispatcher: real-time safe if that is.
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

    /// The thread has ended. Its owner closes the file later.
    fn forget(&self, tid: u32) {
        let _ = self.tid.compare_exchange(tid, 0, SeqCst, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// All threads do the same.
    struct All(Waits);

    impl Waiting for All {
        fn of(&self, _: u32) -> Waits {
            self.0
        }
    }

    #[test]
    fn a_thread_that_has_ended_is_forgotten() {
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
        // Its place is used again, and its file closed.
        members.add(sys::gettid()).unwrap();
        assert_eq!(members.used.load(SeqCst), 2);
        members.remove(sys::gettid());
        assert!(seen().is_empty());
        assert!(members.files.lock().unwrap().iter().all(Option::is_none));
    }

    #[test]
    fn one_that_works_counts_more_than_one_that_is_unknown() {
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
