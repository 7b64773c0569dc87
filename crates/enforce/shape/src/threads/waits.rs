//! Which threads wait for work, for the gates: those of executors as the recorder's probes see them,
//! the middleware's publisher threads as the kernel shows them.

use onbeat_record::WaitTable;
use onbeat_reserve::{Waiting, Waits};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Release};
use std::sync::{Arc, OnceLock};

/// Most publisher threads of all processes.
const PUBLISHERS: usize = 64;

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
    threads: [OnceLock<(u32, File)>; PUBLISHERS],
    count: AtomicU32,
}

impl Default for Publishers {
    fn default() -> Publishers {
        Publishers {
            threads: [const { OnceLock::new() }; PUBLISHERS],
            count: AtomicU32::new(0),
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
    /// stays unknown.
    pub(crate) fn add_publisher(&self, tid: u32) {
        let Ok(file) = File::open(format!("/proc/{tid}/syscall")) else {
            return;
        };
        let count = self.publishers.count.load(Acquire);
        if let Some(free) = self.publishers.threads.get(count as usize) {
            if free.set((tid, file)).is_ok() {
                self.publishers.count.store(count + 1, Release);
            }
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
    /// Real-time safe: one read of a file that the kernel makes up.
    fn of(&self, tid: u32) -> Waits {
        let known = &self.threads[..self.count.load(Acquire) as usize];
        let mut known = known.iter().rev().filter_map(OnceLock::get);
        let Some((_, file)) = known.find(|(of, _)| *of == tid) else {
            return Waits::Unknown;
        };
        let mut text = [0; 256];
        let Ok(n) = file.read_at(&mut text, 0) else {
            return Waits::Unknown;
        };
        match is_in_condition(std::str::from_utf8(&text[..n]).unwrap_or_default()) {
            true => Waits::Yes,
            false => Waits::No,
        }
    }
}

/// Whether `/proc/TID/syscall` shows a thread that waits in a condition variable.
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
    use std::sync::{mpsc, Condvar, Mutex};

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

    fn unsafe_euid() -> u32 {
        // SAFETY: cannot fail.
        unsafe { libc::geteuid() }
    }
}
