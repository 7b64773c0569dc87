//! When threads had a CPU, as far as this user and container may know.

use crate::perf::{Seen, Switches};
use onbeat_trace::manifest::Scheduling;
use std::time::Duration;

/// Who tells when threads had a CPU.
pub enum Scheduler {
    /// The kernel's records of context switches.
    Perf(Switches),
    /// Nobody: the kernel refused, for this reason.
    Refused(String),
}

impl Scheduler {
    /// The best there is. To be called on the thread that starts the command, before it does.
    pub fn open() -> Scheduler {
        if !Switches::may_follow() {
            let why = "this root has given up rights that its command has";
            return Scheduler::Refused(why.into());
        }
        match Switches::open() {
            Ok(switches) => Scheduler::Perf(switches),
            Err(error) => Scheduler::Refused(error.to_string()),
        }
    }

    /// How much later than calls it may be known that a thread was off its CPU.
    pub fn behind_ns(&self) -> u64 {
        match self {
            Scheduler::Perf(_) => 0,
            // Until the next reading of its clock. The reader of traces puts later ones in order.
            Scheduler::Refused(_) => 1_000_000_000,
        }
    }

    /// The command has been started. Returns why its context switches are not seen, if so.
    pub fn started(&mut self, pid: u32) -> Option<String> {
        let Scheduler::Perf(switches) = self else {
            return None;
        };
        match switches.started(pid) {
            // One that has ended already has nothing to show.
            Err(e) if e.raw_os_error() != Some(libc::ESRCH) => Some(format!(
                "Context switches of the command are not seen ({e}): its execution times hold the time in which it did not run."
            )),
            _ => None,
        }
    }

    /// For the manifest.
    pub fn means(&self) -> Scheduling {
        match self {
            Scheduler::Perf(_) => Scheduling::Perf,
            Scheduler::Refused(_) => Scheduling::Clocks,
        }
    }

    /// Waits for so long, or until much is to be taken, or a signal comes.
    pub fn wait(&self, timeout: Duration) {
        match self {
            Scheduler::Perf(switches) => switches.wait(timeout),
            // A signal ends no sleep of the standard library.
            Scheduler::Refused(_) => std::thread::sleep(timeout),
        }
    }

    /// Takes what was seen so far.
    pub fn take(&mut self, seen: &mut Vec<Seen>) {
        if let Scheduler::Perf(switches) = self {
            switches.take(seen);
        }
    }

    /// Records that were lost so far.
    pub fn lost(&self) -> u64 {
        match self {
            Scheduler::Perf(switches) => switches.lost(),
            Scheduler::Refused(_) => 0,
        }
    }
}
