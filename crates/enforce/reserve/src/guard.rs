//! A process that waits for its owner's end, and puts the machine back if the owner could not.
//!
//! It is forked before anything is changed, and reads what was changed from the ledger, which both
//! have open. It can be killed like any process; what then remains, [`recover`](crate::recover) finds.

use crate::ledger::Ledger;
use crate::sys::{self, Scheduling};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;

/// What the owner writes when everything is back as it was.
const DONE: u8 = b'd';

/// The owner's end of its guard.
pub(crate) struct Guard {
    pipe: File,
    pid: libc::pid_t,
}

impl Guard {
    /// Forks the guard of this process, and waits until it is deaf to what may end this one.
    pub(crate) fn start(ledger: &Ledger, priority: u8) -> io::Result<Guard> {
        let (read, write) = sys::pipe()?;
        let (mut ready, tell) = sys::pipe()?;
        let owner = sys::pidfd_of_self()?;
        let pid = sys::fork(|| {
            let keep = [
                read.as_raw_fd(),
                tell.as_raw_fd(),
                owner.as_raw_fd(),
                ledger.file().as_raw_fd(),
            ];
            sys::seclude(c"onbeat-guard", &keep);
            // Neither short of memory nor behind threads that spin is a reason not to come.
            let _ = std::fs::write("/proc/self/oom_score_adj", "-1000");
            let _ = sys::set_affinity(0, &(0..sys::cpus()).collect::<Vec<_>>());
            let _ = sys::schedule(0, &Scheduling::fifo(priority));
            let _ = (&tell).write_all(&[DONE]);
            watch(&read, owner.as_raw_fd(), ledger);
        })?;
        drop(tell);
        ready.read_exact(&mut [0])?;
        Ok(Guard { pipe: write, pid })
    }

    /// Whether it is there.
    pub(crate) fn is_running(&self) -> bool {
        sys::is_running(self.pid)
    }

    /// Sends it home: everything is back as it was.
    pub(crate) fn done(mut self) {
        let _ = self.pipe.write_all(&[DONE]);
        sys::reap(self.pid);
    }
}

fn watch(pipe: &File, owner: i32, ledger: &Ledger) {
    let mut word = [0];
    let told = sys::wait_for_either(pipe.as_raw_fd(), owner);
    // The pipe may be kept open by a child of the owner: its end is no news, but its word is.
    if told && (&mut &*pipe).read(&mut word).is_ok_and(|n| n == 1) && word[0] == DONE {
        return;
    }
    // What fails because somebody is on his way may not fail a moment later.
    for _ in 0..5 {
        if ledger.restore().failures.is_empty() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
}
