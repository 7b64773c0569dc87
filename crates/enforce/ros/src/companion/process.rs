//! A companion's process, a child of this one.

use super::stderr::StderrTail;
use rustix::process::{kill_process, waitpid, Pid, Signal, WaitOptions};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{ChildStderr, ExitStatus};

/// A child of this process. Either this process started the child, or another child started it for
/// this process (CLONE_PARENT).
#[derive(Debug)]
pub struct Process {
    pid: Pid,
    status: Option<ExitStatus>,
    /// The last 4 KiB of the text that the process has written to its standard error.
    pub said: StderrTail,
}

impl Process {
    pub(super) fn new(pid: u32, stderr: Option<ChildStderr>) -> io::Result<Process> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        Ok(Process {
            pid: pid.ok_or(io::ErrorKind::InvalidData)?,
            status: None,
            said: StderrTail::new(stderr),
        })
    }

    /// Returns the id of the child in onbeat's PID namespace.
    pub fn id(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Sends SIGKILL to the process. Does not wait until the process has ended.
    pub fn kill(&mut self) {
        if self.status.is_none() {
            // The id cannot be used again before the process is waited for.
            let _ = kill_process(self.pid, Signal::KILL);
        }
    }

    /// Returns the exit status if the process has ended.
    ///
    /// # Errors
    ///
    /// Returns the system's error if the process's state cannot be read.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.status.is_none() {
            let ended = waitpid(Some(self.pid), WaitOptions::NOHANG)?;
            self.status = ended.map(|(_, status)| ExitStatus::from_raw(status.as_raw()));
        }
        Ok(self.status)
    }
}
