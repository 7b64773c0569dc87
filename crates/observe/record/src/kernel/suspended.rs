//! The processes that are suspended until their probes are in place, for the recorder and its
//! guard.

use super::flags::FlagTable;
use crate::records::PROCESS_ENDING;
use std::rc::Rc;

/// The id that stands for all processes. Its flag is set if any process was suspended.
const ANY: u32 = 0;

#[derive(Clone)]
pub struct Suspended {
    processes: Rc<FlagTable>,
    table: Rc<FlagTable>,
    recorder: u32,
}

impl Suspended {
    pub(super) fn new(processes: Rc<FlagTable>, table: FlagTable) -> Suspended {
        Suspended {
            processes,
            table: Rc::new(table),
            recorder: std::process::id(),
        }
    }

    #[cfg(test)]
    pub fn none() -> Suspended {
        Suspended::new(Rc::new(FlagTable::empty()), FlagTable::empty())
    }

    pub fn recorder(&self) -> u32 {
        self.recorder
    }

    /// Returns the processes that are suspended now. They include processes that suspended
    /// themselves because their child was suspended.
    pub fn all(&self) -> Vec<u32> {
        let mut all = self.table.ids_with_flags();
        all.retain(|&pid| pid != ANY);
        all
    }

    pub fn is_new(&self) -> bool {
        self.table.clear(ANY) != 0
    }

    pub fn resume(&self, pid: u32) -> bool {
        // The flag is cleared first. A process that is suspended again after the signal is in the
        // table again.
        let was_suspended = self.table.clear(pid) != 0;
        // SAFETY: the call is a plain system call. SIGCONT does nothing to a process that runs.
        unsafe { libc::kill(pid as libc::pid_t, libc::SIGCONT) };
        was_suspended
    }

    /// Resumes every suspended process. A process that another program has stopped stays stopped.
    pub fn resume_all(&self) {
        for pid in self.all() {
            self.resume(pid);
        }
    }

    /// Stops the BPF programs from suspending processes, because no process would resume them any
    /// more.
    pub fn no_more(&self) {
        let change = |flags| flags | PROCESS_ENDING as u8;
        self.processes.update(self.recorder, change);
    }

    #[cfg(test)]
    pub fn suspend(&self, pid: u32) {
        // SAFETY: the call is a plain system call on a child of the test.
        unsafe { libc::kill(pid as libc::pid_t, libc::SIGSTOP) };
        self.table.update(pid, |_| 1);
        self.table.update(ANY, |_| 1);
    }
}
