//! The shaper's process, a child of this one.

use super::said::Said;
use rustix::process::{kill_process, waitpid, Pid, Signal, WaitOptions};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{ChildStderr, ExitStatus};

/// A child that was started here, or by a child in our name (CLONE_PARENT).
#[derive(Debug)]
pub(super) struct Process {
    pid: Pid,
    status: Option<ExitStatus>,
    /// What it writes to its standard error.
    pub(super) said: Said,
}

impl Process {
    /// A child by its id. Nobody else waits for it.
    pub(super) fn new(pid: u32, stderr: Option<ChildStderr>) -> io::Result<Process> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        Ok(Process {
            pid: pid.ok_or(io::ErrorKind::InvalidData)?,
            status: None,
            said: Said::new(stderr),
        })
    }

    /// Its id, as this process's pid namespace has it.
    pub(super) fn id(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Kills it, stopped or not. Nothing if it has ended.
    pub(super) fn kill(&mut self) {
        if self.status.is_none() {
            // Until it is waited for, its id is its own.
            let _ = kill_process(self.pid, Signal::KILL);
        }
    }

    /// Its exit status once it has ended. Does not wait.
    pub(super) fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.status.is_none() {
            let ended = waitpid(Some(self.pid), WaitOptions::NOHANG)?;
            self.status = ended.map(|(_, status)| ExitStatus::from_raw(status.as_raw()));
        }
        Ok(self.status)
    }
}
