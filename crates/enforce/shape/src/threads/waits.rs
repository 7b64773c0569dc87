//! Reports to the gates which threads wait for work. The recorder's probes see the executors'
//! threads; the kernel shows the middleware's publisher threads.

use onbeat_record::WaitTable;
use onbeat_reserve::{Waiting, Waits};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering::Acquire, Ordering::Release};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

const MAX_PUBLISHERS: usize = 64;
const MAX_TEXT_BYTES: usize = 256;

/// The number of the futex system call. A thread that waits for a condition variable of glibc uses
/// it with the operation [`FUTEX_WAIT_BITSET`]. Mutexes of glibc use another operation.
const FUTEX: &str = if cfg!(target_arch = "x86_64") {
    "202"
} else {
    "98"
};
const FUTEX_WAIT_BITSET: u64 = 9;
const FUTEX_OPTIONS: u64 = 128 | 256;

/// Finds out whether a thread waits for work. A thread must be added before it is gated.
#[derive(Debug, Default)]
pub(crate) struct WhoWaits {
    /// The recorder's table of waiting threads. It is set once the recording runs, if this kernel
    /// supports it.
    table: OnceLock<Arc<WaitTable>>,
    publishers: Publishers,
}

#[derive(Debug)]
struct Publishers {
    threads: [Publisher; MAX_PUBLISHERS],
    files: Mutex<Vec<File>>,
}

/// The entry for one publisher thread. The number of its file descriptor never changes, so the
/// dispatcher may read through it at any time.
#[derive(Debug)]
struct Publisher {
    /// The id of the publisher thread. 0 means that the entry is empty or that its thread is being
    /// replaced.
    tid: AtomicU32,
    fd: AtomicI32,
}

impl Publisher {
    const fn none() -> Publisher {
        Publisher {
            tid: AtomicU32::new(0),
            fd: AtomicI32::new(-1),
        }
    }

    /// Reads `/proc/TID/syscall`. The call takes no lock and allocates no memory. The kernel may
    /// delay it.
    fn read<'t>(&self, text: &'t mut [u8]) -> Option<&'t str> {
        let fd = self.fd.load(Acquire);
        // SAFETY: `text` is valid for `text.len()` bytes, and the kernel writes no more.
        let n = unsafe { libc::pread(fd, text.as_mut_ptr().cast(), text.len(), 0) };
        let text = text.get(..usize::try_from(n).ok()?)?;
        std::str::from_utf8(text).ok()
    }
}

impl Default for Publishers {
    fn default() -> Publishers {
        Publishers {
            threads: [const { Publisher::none() }; MAX_PUBLISHERS],
            files: Mutex::default(),
        }
    }
}

impl WhoWaits {
    pub(crate) fn set_table(&self, table: impl FnOnce() -> Option<Arc<WaitTable>>) {
        if self.table.get().is_none() {
            if let Some(table) = table() {
                let _ = self.table.set(table);
            }
        }
    }

    pub(crate) fn has_table(&self) -> bool {
        self.table.get().is_some()
    }

    /// Adds a publisher thread of the middleware, which waits for work in a condition variable. The
    /// thread gets the entry of a thread that has ended. If all entries are in use, onbeat does not
    /// learn whether the thread waits.
    pub(crate) fn add_publisher(&self, tid: u32) {
        if let Ok(file) = File::open(format!("/proc/{tid}/syscall")) {
            self.publishers.add(tid, file);
        }
    }
}

impl Waiting for WhoWaits {
    fn of(&self, tid: u32) -> Waits {
        match self.table.get().and_then(|table| table.waits(tid)) {
            Some(true) => Waits::Yes,
            Some(false) => Waits::No,
            None => self.publishers.of(tid),
        }
    }
}

impl Publishers {
    fn add(&self, tid: u32, file: File) {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let has_ended = |p: &Publisher| p.read(&mut [0; MAX_TEXT_BYTES]).is_none();
        if let Some(ended) = self.threads[..files.len()].iter().find(|p| has_ended(p)) {
            ended.tid.store(0, Release);
            let fd = ended.fd.load(Acquire);
            // SAFETY: both descriptors are open and owned by this process; `fd` stays the
            // descriptor of its file.
            if unsafe { libc::dup3(file.as_raw_fd(), fd, libc::O_CLOEXEC) } >= 0 {
                ended.tid.store(tid, Release);
            }
        } else if let Some(free) = self.threads.get(files.len()) {
            free.fd.store(file.as_raw_fd(), Release);
            free.tid.store(tid, Release);
            files.push(file);
        }
    }

    /// Returns whether the publisher thread `tid` waits for work. Searches at most
    /// [`MAX_PUBLISHERS`] entries and reads one kernel file. Allocates no memory, and takes no lock
    /// of this process. If the thread is about to sleep, the kernel may delay the answer until the
    /// thread sleeps. Otherwise the kernel answers at once.
    fn of(&self, tid: u32) -> Waits {
        let mut known = self.threads.iter();
        let Some(publisher) = known.find(|p| p.tid.load(Acquire) == tid) else {
            return Waits::Unknown;
        };
        match publisher
            .read(&mut [0; MAX_TEXT_BYTES])
            .map(is_in_condition)
        {
            Some(true) => Waits::Yes,
            Some(false) => Waits::No,
            None => Waits::Unknown,
        }
    }
}

/// Returns true if `/proc/TID/syscall` shows a thread that waits for a condition variable. glibc
/// uses the same operation for semaphores, locks with a time limit and read-write locks. A
/// publisher thread that waits for one of these therefore counts as waiting for work. A gate may
/// then freeze it until its slot, although it holds other locks.
fn is_in_condition(text: &str) -> bool {
    let mut words = text.split_ascii_whitespace();
    let number = words.next();
    let operation = words.nth(1).and_then(|w| w.strip_prefix("0x"));
    let operation = operation.and_then(|w| u64::from_str_radix(w, 16).ok());
    number == Some(FUTEX) && operation.map(|o| o & !FUTEX_OPTIONS) == Some(FUTEX_WAIT_BITSET)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{mpsc, Condvar};

    #[test]
    fn a_wait_for_a_condition_variable_differs_from_a_mutex_wait() {
        let at = |rest: &str| format!("{FUTEX} 0x7f0012345678 {rest} 0x0 0x7ffd 0x7f00\n");
        assert!(is_in_condition(&at("0x89 0x0 0x0 0x0 0xffffffff")));
        assert!(is_in_condition(&at("0x189 0x0 0x0 0x0 0xffffffff")));
        assert!(!is_in_condition(&at("0x80 0x2 0x0 0x0 0x0")));
        assert!(!is_in_condition("running\n"));
        assert!(!is_in_condition(
            "232 0x5 0x89 0x1 0x0 0x0 0x0 0x7ffd 0x7f00\n"
        ));
        assert!(!is_in_condition(""));
    }

    #[test]
    fn a_publisher_thread_counts_as_waiting_at_its_condition_variable() {
        if onbeat_rights::is_elevated() || effective_user() != 0 {
            println!("skipped: a_publisher_thread_counts_as_waiting: needs root");
            return;
        }
        let who = WhoWaits::default();
        let (send, receive) = mpsc::channel();
        let work = Arc::new((Mutex::new(0), Condvar::new()));
        let theirs = work.clone();
        let thread = std::thread::spawn(move || {
            // SAFETY: gettid takes no arguments and cannot fail.
            send.send(unsafe { libc::gettid() } as u32)
                .expect("a listener");
            let mut stage = theirs.0.lock().expect("no panic");
            while *stage == 0 {
                stage = theirs.1.wait(stage).expect("no panic");
            }
            drop(stage);
            while *theirs.0.lock().expect("no panic") == 1 {}
        });
        let tid = receive.recv().expect("its id");
        assert_eq!(who.of(tid), Waits::Unknown);
        who.add_publisher(tid);
        let until = |wanted: Waits| {
            let begin = std::time::Instant::now();
            while who.of(tid) != wanted {
                assert!(begin.elapsed().as_secs() < 60, "it is never {wanted:?}");
                std::thread::yield_now();
            }
        };
        // Rust's condition variables use the same futex operation as those of glibc.
        until(Waits::Yes);
        *work.0.lock().expect("no panic") = 1;
        work.1.notify_one();
        until(Waits::No);
        *work.0.lock().expect("no panic") = 2;
        thread.join().expect("no panic");
        until(Waits::Unknown);
    }

    #[test]
    fn ended_publisher_threads_make_room_for_new_ones() {
        if effective_user() != 0 {
            println!("skipped: ended_publisher_threads_make_room_for_new_ones: needs root");
            return;
        }
        let who = WhoWaits::default();
        for n in 0..=2 * MAX_PUBLISHERS {
            let (send, receive) = mpsc::channel();
            let (end, wait) = mpsc::channel::<()>();
            let thread = std::thread::spawn(move || {
                // SAFETY: gettid takes no arguments and cannot fail.
                send.send(unsafe { libc::gettid() } as u32)
                    .expect("a listener");
                let _ = wait.recv();
            });
            let tid = receive.recv().expect("its id");
            who.add_publisher(tid);
            assert_ne!(who.of(tid), Waits::Unknown, "the {n}th");
            drop(end);
            thread.join().expect("no panic");
            // The kernel removes the thread's entry a moment after the join.
            let begin = std::time::Instant::now();
            while who.of(tid) != Waits::Unknown {
                assert!(begin.elapsed().as_secs() < 60, "it has ended");
                std::thread::yield_now();
            }
        }
    }

    fn effective_user() -> u32 {
        // SAFETY: geteuid takes no arguments and cannot fail.
        unsafe { libc::geteuid() }
    }
}
