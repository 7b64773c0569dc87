//! Reports when threads had a CPU, as far as this user and container are allowed to see it.

use crate::perf::{Seen, Switches};
use onbeat_trace::manifest::Scheduling;
use std::time::Duration;

pub enum Scheduler {
    Perf(Switches),
    Refused(String),
}

impl Scheduler {
    /// Opens the source of scheduler events. If the source cannot be used, the result has the
    /// reason. The caller must call this function on the thread that starts the command, before the
    /// command starts.
    pub fn open() -> Scheduler {
        if !Switches::may_follow() {
            let why = "onbeat runs as root, but lacks capabilities that the recorded command gets";
            return Scheduler::Refused(why.into());
        }
        match Switches::open() {
            Ok(switches) => Scheduler::Perf(switches),
            Err(error) => Scheduler::Refused(error.to_string()),
        }
    }

    /// Returns the longest delay in ns between a thread's call and the report of the thread's time
    /// off the CPU before this call. 0 if the kernel reports context switches.
    pub fn max_delay_ns(&self) -> u64 {
        match self {
            Scheduler::Perf(_) => 0,
            // A time off the CPU becomes known at the next reading of the thread's clock. Trace
            // readers sort later events.
            Scheduler::Refused(_) => 1_000_000_000,
        }
    }

    /// Notes that the command has started. Returns a sentence for the user if the command's context
    /// switches cannot be seen.
    pub fn started(&mut self, pid: u32) -> Option<String> {
        let Scheduler::Perf(switches) = self else {
            return None;
        };
        match switches.started(pid) {
            // A command that has already ended has no switches to show.
            Err(e) if e.raw_os_error() != Some(libc::ESRCH) => Some(format!(
                "Context switches of the command are not recorded ({e}), so its execution times include time in which it did not run."
            )),
            _ => None,
        }
    }

    pub fn means(&self) -> Scheduling {
        match self {
            Scheduler::Perf(_) => Scheduling::Perf,
            Scheduler::Refused(_) => Scheduling::Clocks,
        }
    }

    pub fn wait(&self, timeout: Duration) {
        match self {
            Scheduler::Perf(switches) => switches.wait(timeout),
            // A signal does not end a sleep of the standard library.
            Scheduler::Refused(_) => std::thread::sleep(timeout),
        }
    }

    pub fn take(&mut self, seen: &mut Vec<Seen>) {
        if let Scheduler::Perf(switches) = self {
            switches.take(seen);
        }
    }

    pub fn lost(&self) -> u64 {
        match self {
            Scheduler::Perf(switches) => switches.lost(),
            Scheduler::Refused(_) => 0,
        }
    }
}
