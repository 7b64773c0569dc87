//! Which threads wait for work, for the gates: those of executors as the recorder's probes see them,
//! the middleware's publisher threads as the kernel shows them.

use onbeat_record::WaitTable;
use onbeat_reserve::{Waiting, Waits};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering::Acquire, Ordering::Release};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Most publisher threads of all processes.
const PUBLISHERS: usize = 64;
/// Longest text that the kernel shows of a thread.
const TEXT: usize = 256;

/// Number of the system call in which a thread waits, and its operation, where that is a condition
/// variable: glibc's waiters use this one, those of its mutexes another.
const FUTEX: &str = if cfg!(target_arch = "x86_64") {
    "202"
} else {
    "98"
};
const FUTEX_WAIT_BITSET: u64 = 9;
const FUTEX_OPTIONS: u64 = 128 | 256;

/// Answers the gates. Threads are added before they are gated.
#[derive(Debug, Default)]
pub(crate) struct WhoWaits {
    /// Set once the recording runs, where this kernel can tell.
    table: OnceLock<Arc<WaitTable>>,
    publishers: Publishers,
}

#[derive(Debug)]
struct Publishers {
    threads: [Publisher; PUBLISHERS],
    /// The owner's: the files behind the descriptors.
    files: Mutex<Vec<File>>,
}

/// Room for a publisher thread. Its descriptor stays the same number for ever, so that the dispatcher
/// may read it at any time.
#[derive(Debug)]
struct Publisher {
    /// 0: no thread, or one that is being replaced.
    tid: AtomicU32,
    /// Of `/proc/TID/syscall`. Reading it fails once the thread has ended.
    fd: AtomicI32,
}

impl Publisher {
    const fn none() -> Publisher {
        Publisher {
            tid: AtomicU32::new(0),
            fd: AtomicI32::new(-1),
        }
    }

    /// What the kernel shows of the thread. Real-time safe as the kernel's answer is.
    fn read<'t>(&self, text: &'t mut [u8]) -> Option<&'t str> {
        let fd = self.fd.load(Acquire);
        // SAFETY: the text has room for so many bytes.
        let n = unsafe { libc::pread(fd, text.as_mut_ptr().cast(), text.len(), 0) };
        let text = text.get(..usize::try_from(n).ok()?)?;
        std::str::from_utf8(text).ok()
    }
}

impl Default for Publishers {
    fn default() -> Publishers {
        Publishers {
            threads: [const { Publisher::none() }; PUBLISHERS],
            files: Mutex::default(),
        }
    }
}

impl WhoWaits {
    /// The recorder's table, once there is one.
    pub(crate) fn set_table(&self, table: impl FnOnce() -> Option<Arc<WaitTable>>) {
        if self.table.get().is_none() {
            if let Some(table) = table() {
                let _ = self.table.set(table);
            }
        }
    }

    /// Whether the recorder sees who waits in `rcl_wait`.
    pub(crate) fn has_table(&self) -> bool {
        self.table.get().is_some()
    }

    /// A publisher thread of the middleware: it waits for work in a condition variable. One too many
    /// stays unknown; those that have ended make room.
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
        let has_ended = |p: &Publisher| p.read(&mut [0; TEXT]).is_none();
        if let Some(ended) = self.threads[..files.len()].iter().find(|p| has_ended(p)) {
            ended.tid.store(0, Release);
            let fd = ended.fd.load(Acquire);
            // SAFETY: both are descriptors of ours; that of `fd` stays its file's.
            if unsafe { libc::dup3(file.as_raw_fd(), fd, libc::O_CLOEXEC) } >= 0 {
                ended.tid.store(tid, Release);
            }
        } else if let Some(free) = self.threads.get(files.len()) {
            free.fd.store(file.as_raw_fd(), Release);
            free.tid.store(tid, Release);
            files.push(file);
        }
    }

    /// One read of a file that the kernel makes up, after no more steps than there is room for
    /// threads. No allocation, and no lock of this process. The kernel looks at another thread for it:
    /// where that runs just then on another CPU, the answer is at once that it runs; where it is about
    /// to fall asleep, the kernel may wait for it to do so.
    fn of(&self, tid: u32) -> Waits {
        let mut known = self.threads.iter();
        let Some(publisher) = known.find(|p| p.tid.load(Acquire) == tid) else {
            return Waits::Unknown;
        };
        match publisher.read(&mut [0; TEXT]).map(is_in_condition) {
            Some(true) => Waits::Yes,
            Some(false) => Waits::No,
            None => Waits::Unknown,
        }
    }
}

/// Whether `/proc/TID/syscall` shows a thread that waits in a condition variable, as far as that can be
/// told: glibc waits for a semaphore, for a lock with a time limit and for a lock of readers and
/// writers with the same operation. A publisher thread that waits for one of those is taken for one
/// that waits for work, and may be frozen with other locks in hand until its slot.
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
    fn a_condition_variable_is_told_from_a_mutex_and_from_work() {
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
    fn a_publisher_thread_is_seen_at_its_condition_variable() {
        if onbeat_rights::is_elevated() || unsafe_euid() != 0 {
            println!("skipped: a_publisher_thread_is_seen: needs root");
            return;
        }
        let who = WhoWaits::default();
        let (send, receive) = mpsc::channel();
        let work = Arc::new((Mutex::new(0), Condvar::new()));
        let theirs = work.clone();
        let thread = std::thread::spawn(move || {
            // SAFETY: cannot fail.
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
        // Rust's own condition variables use the same operation as glibc's.
        until(Waits::Yes);
        *work.0.lock().expect("no panic") = 1;
        work.1.notify_one();
        until(Waits::No);
        *work.0.lock().expect("no panic") = 2;
        thread.join().expect("no panic");
        until(Waits::Unknown);
    }

    /// An application that is started anew every hour has more of them than there is room for.
    #[test]
    fn publisher_threads_that_have_ended_make_room() {
        if unsafe_euid() != 0 {
            println!("skipped: publisher_threads_that_have_ended_make_room: needs root");
            return;
        }
        let who = WhoWaits::default();
        for n in 0..=2 * PUBLISHERS {
            let (send, receive) = mpsc::channel();
            let (end, wait) = mpsc::channel::<()>();
            let thread = std::thread::spawn(move || {
                // SAFETY: cannot fail.
                send.send(unsafe { libc::gettid() } as u32)
                    .expect("a listener");
                let _ = wait.recv();
            });
            let tid = receive.recv().expect("its id");
            who.add_publisher(tid);
            assert_ne!(who.of(tid), Waits::Unknown, "the {n}th");
            drop(end);
            thread.join().expect("no panic");
            // The kernel removes its entry a moment after the join.
            let begin = std::time::Instant::now();
            while who.of(tid) != Waits::Unknown {
                assert!(begin.elapsed().as_secs() < 60, "it has ended");
                std::thread::yield_now();
            }
        }
    }

    fn unsafe_euid() -> u32 {
        // SAFETY: cannot fail.
        unsafe { libc::geteuid() }
    }
}
