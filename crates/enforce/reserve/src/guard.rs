//! The guard: a process that waits for its owner's end and undoes the changes if the owner did not.
//!
//! It is forked before anything is changed. It reads the changes from the ledger, which both
//! processes have open. It can be killed like any process; then [`recover`](crate::recover) undoes
//! the changes.

use crate::ledger::Ledger;
use crate::sys::{self, Scheduling};
use onbeat_rights::Capability;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;

/// The owner writes it when everything is as it was before.
const DONE: u8 = b'd';

/// The guard, as its owner has it.
pub(crate) struct Guard {
    pipe: File,
    pid: libc::pid_t,
}

impl Guard {
    /// Forks the guard of this process and waits until it ignores the signals that may end this
    /// one.
    pub(crate) fn start(ledger: &Ledger, priority: u8) -> io::Result<Guard> {
        let (read, write) = sys::pipe()?;
        let (mut ready, signal_ready) = sys::pipe()?;
        let owner = sys::pidfd_of_self()?;
        let pid = sys::fork(|| {
            let [file, directory] = ledger.descriptors();
            let keep = [
                read.as_raw_fd(),
                signal_ready.as_raw_fd(),
                owner.as_raw_fd(),
                file,
                directory,
            ];
            sys::seclude(c"onbeat-guard", &keep);
            // It must act even when memory is short or real-time threads spin.
            let _ = std::fs::write("/proc/self/oom_score_adj", "-1000");
            let _ = sys::set_affinity(0, &(0..sys::cpus()).collect::<Vec<_>>());
            let _ = sys::schedule(0, &Scheduling::fifo(priority));
            // All that it takes to put threads back.
            onbeat_rights::keep([
                Capability::CAP_SYS_NICE,
                Capability::CAP_DAC_OVERRIDE,
                Capability::CAP_DAC_READ_SEARCH,
            ]);
            let _ = (&signal_ready).write_all(&[DONE]);
            watch(&read, owner.as_raw_fd(), ledger);
        })?;
        drop(signal_ready);
        ready.read_exact(&mut [0])?;
        Ok(Guard { pipe: write, pid })
    }

    /// Whether the guard process runs.
    pub(crate) fn is_running(&self) -> bool {
        sys::is_running(self.pid)
    }

    /// Ends the guard: everything is as it was before.
    pub(crate) fn done(mut self) {
        let _ = self.pipe.write_all(&[DONE]);
        sys::reap(self.pid);
    }
}

fn watch(pipe: &File, owner: i32, ledger: &Ledger) {
    let mut word = [0];
    let written = sys::wait_for_either(pipe.as_raw_fd(), owner);
    // Only the word counts, not the pipe's end: a child of the owner may keep it open.
    if written && (&mut &*pipe).read(&mut word).is_ok_and(|n| n == 1) && word[0] == DONE {
        return;
    }
    // A failure because a thread is just ending may not occur a moment later.
    for _ in 0..5 {
        if ledger.restore().failures.is_empty() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
}
