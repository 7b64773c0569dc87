//! The processes that are suspended until their probes are in place, as the recorder and its guard see
//! them.

use super::flags::FlagTable;
use crate::records::PROCESS_ENDING;
use std::rc::Rc;

/// Stands for all processes: one of them was suspended.
const ANY: u32 = 0;

/// The table of suspended processes. It outlives the programs, and is readable in a forked child too.
#[derive(Clone)]
pub struct Suspended {
    processes: Rc<FlagTable>,
    table: Rc<FlagTable>,
    recorder: u32,
}

impl Suspended {
    /// Of the two tables of the programs.
    pub(super) fn new(processes: Rc<FlagTable>, table: FlagTable) -> Suspended {
        Suspended {
            processes,
            table: Rc::new(table),
            recorder: std::process::id(),
        }
    }

    /// Of no programs.
    #[cfg(test)]
    pub fn none() -> Suspended {
        Suspended::new(Rc::new(FlagTable::empty()), FlagTable::empty())
    }

    /// The recorder's process id.
    pub fn recorder(&self) -> u32 {
        self.recorder
    }

    /// The processes that are suspended now: only those that the programs suspended, or that suspended
    /// themselves for that reason.
    pub fn all(&self) -> Vec<u32> {
        let mut all = self.table.set();
        all.retain(|&pid| pid != ANY);
        all
    }

    /// Whether a process was suspended since this was asked last.
    pub fn is_new(&self) -> bool {
        self.table.clear(ANY) != 0
    }

    /// Resumes a process. False if it was resumed already.
    pub fn resume(&self, pid: u32) -> bool {
        // First: one that is suspended again after the signal is in the table again.
        let was_suspended = self.table.clear(pid) != 0;
        // SAFETY: plain system call; SIGCONT does nothing to a process that runs.
        unsafe { libc::kill(pid as libc::pid_t, libc::SIGCONT) };
        was_suspended
    }

    /// Resumes every process that is suspended; one that somebody else has stopped stays so.
    pub fn resume_all(&self) {
        for pid in self.all() {
            self.resume(pid);
        }
    }

    /// From now on no process is suspended any more: nobody will resume it.
    pub fn no_more(&self) {
        let change = |flags| flags | PROCESS_ENDING as u8;
        self.processes.update(self.recorder, change);
    }

    /// As the programs do it.
    #[cfg(test)]
    pub fn suspend(&self, pid: u32) {
        // SAFETY: plain system call on a child of the test's.
        unsafe { libc::kill(pid as libc::pid_t, libc::SIGSTOP) };
        self.table.update(pid, |_| 1);
        self.table.update(ANY, |_| 1);
    }
}
