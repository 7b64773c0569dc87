//! Child processes that cannot outlive an experiment, whichever way it ends.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a child has to end properly before it is killed.
const GRACE: Duration = Duration::from_secs(10);

/// The process groups that are alive now; shared with the watchdog.
#[derive(Debug, Clone, Default)]
pub struct Groups(Arc<Mutex<BTreeSet<i32>>>);

impl Groups {
    /// Kills every group.
    pub fn kill_all(&self) {
        for &group in self.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            signal_group(group, libc::SIGKILL);
        }
    }

    /// Starts a command as leader of its own process group. The kernel terminates it when the
    /// lab dies, also by SIGKILL; dropping it ends the group.
    pub fn spawn(&self, command: &mut Command) -> io::Result<Guarded> {
        let parent = std::process::id();
        command.process_group(0);
        // SAFETY: prctl, getppid and _exit are async-signal-safe; nothing else runs in the child.
        unsafe {
            command.pre_exec(move || {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
                // The lab may have died before the line above.
                if libc::getppid() as u32 != parent {
                    libc::_exit(1);
                }
                Ok(())
            });
        }
        let child = command.spawn()?;
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(child.id() as i32);
        Ok(Guarded {
            child,
            groups: self.clone(),
            ended: None,
        })
    }
}

fn signal_group(group: i32, signal: i32) {
    // SAFETY: kill takes plain numbers; a negative one names a process group.
    unsafe { libc::kill(-group, signal) };
}

/// A running child with its process group.
#[derive(Debug)]
pub struct Guarded {
    child: Child,
    groups: Groups,
    ended: Option<ExitStatus>,
}

impl Guarded {
    /// Process id, which is the group's id too.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The child, for its pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// True while it runs.
    pub fn running(&mut self) -> bool {
        matches!(self.poll(), Ok(None))
    }

    fn poll(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait()?;
        }
        Ok(self.ended)
    }

    /// Waits until it ends or the time is over (`None`).
    pub fn wait(&mut self, limit: Duration) -> io::Result<Option<ExitStatus>> {
        let until = Instant::now() + limit;
        loop {
            if let Some(status) = self.poll()? {
                return Ok(Some(status));
            }
            if Instant::now() >= until {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Asks it to end with a signal to the leader alone, and waits; kills the group when it does
    /// not.
    pub fn end(&mut self, signal: i32) -> io::Result<ExitStatus> {
        if self.poll()?.is_none() {
            // SAFETY: kill takes plain numbers. The child was not reaped, so the id is still its.
            unsafe { libc::kill(self.pid() as i32, signal) };
        }
        if let Some(status) = self.wait(GRACE)? {
            return Ok(status);
        }
        signal_group(self.pid() as i32, libc::SIGKILL);
        let status = self.child.wait()?;
        self.ended = Some(status);
        Ok(status)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        if self.running() {
            let _ = self.end(libc::SIGTERM);
        }
        // Grandchildren that the leader left behind.
        signal_group(self.pid() as i32, libc::SIGKILL);
        self.groups
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&(self.pid() as i32));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alive(pid: i32) -> bool {
        // A zombie that nobody reaped yet does not count.
        std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|s| {
            !s.rsplit(')')
                .next()
                .unwrap_or("")
                .trim_start()
                .starts_with('Z')
        })
    }

    #[test]
    fn a_dropped_child_takes_its_grandchildren_along() {
        let groups = Groups::default();
        let dir = tempfile::tempdir().unwrap();
        let pid_file = dir.path().join("pid");
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!(
            "sleep 1000 & echo $! > {0}.new; mv {0}.new {0}; wait",
            pid_file.display()
        ));
        let child = groups.spawn(&mut command).unwrap();
        let grandchild: i32 = loop {
            match std::fs::read_to_string(&pid_file) {
                Ok(text) => break text.trim().parse().unwrap(),
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        assert!(alive(grandchild));
        drop(child);
        // SIGKILL is delivered, but the process ends in its own time.
        for _ in 0..1000 {
            if !alive(grandchild) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("the grandchild still runs");
    }

    #[test]
    fn waiting_gives_the_exit_status() {
        let mut child = Groups::default()
            .spawn(Command::new("sh").args(["-c", "exit 3"]))
            .unwrap();
        let status = child.wait(Duration::from_secs(60)).unwrap().unwrap();
        assert_eq!(status.code(), Some(3));
        assert_eq!(child.end(libc::SIGTERM).unwrap().code(), Some(3));
    }
}
