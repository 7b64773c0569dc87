//! Child processes that end with the experiment, however it ends.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The time that a child may take to end before the lab kills it. It is long, because a recorder
/// needs long to remove its probes while real-time threads run.
const GRACE: Duration = Duration::from_secs(60);

/// The process groups that still run. The experiment and its watchdog share this set.
#[derive(Debug, Clone, Default)]
pub struct Groups(Arc<Mutex<BTreeSet<i32>>>);

impl Groups {
    fn alive(&self) -> MutexGuard<'_, BTreeSet<i32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn kill_all(&self) {
        for &group in self.alive().iter() {
            signal_group(group, libc::SIGKILL);
        }
    }

    /// Starts a command as the leader of its own process group. If the lab dies, even by SIGKILL,
    /// the kernel kills the command. Dropping the returned value ends the group.
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
        self.alive().insert(child.id() as i32);
        Ok(Guarded {
            child,
            groups: self.clone(),
            ended: None,
        })
    }
}

pub fn pin(command: &mut Command, cpu: usize) {
    // SAFETY: sched_setaffinity is a plain system call, and the set lives on the child's stack.
    unsafe {
        command.pre_exec(move || {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(cpu, &mut set);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
            Ok(())
        });
    }
}

pub fn real_time(command: &mut Command, priority: i32) {
    // SAFETY: sched_setscheduler is a plain system call, and its parameter lives on the child's
    // stack.
    unsafe {
        command.pre_exec(move || {
            let parameter = libc::sched_param {
                sched_priority: priority,
            };
            match libc::sched_setscheduler(0, libc::SCHED_FIFO, &parameter) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        });
    }
}

pub fn nice(command: &mut Command, value: i32) {
    // SAFETY: setpriority is a plain system call on plain numbers.
    unsafe {
        command.pre_exec(move || {
            libc::setpriority(libc::PRIO_PROCESS, 0, value);
            Ok(())
        });
    }
}

fn signal_group(group: i32, signal: i32) {
    // SAFETY: kill takes plain numbers; a negative one names a process group.
    unsafe { libc::kill(-group, signal) };
}

#[derive(Debug)]
pub struct Guarded {
    child: Child,
    groups: Groups,
    ended: Option<Ended>,
}

#[derive(Debug, Clone, Copy)]
pub struct Ended {
    pub status: ExitStatus,
    pub user_s: f64,
    pub system_s: f64,
    pub max_rss_kb: u64,
    pub disk_bytes: u64,
}

impl Ended {
    pub fn cpu_s(&self) -> f64 {
        self.user_s + self.system_s
    }
}

impl Guarded {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Returns a colon and the last line that the child wrote to its piped standard error, or an
    /// empty string if it wrote nothing. Only for a child that has ended and that writes little.
    pub fn last_error(&mut self) -> String {
        let mut text = String::new();
        if let Some(mut pipe) = self.child.stderr.take() {
            let _ = pipe.read_to_string(&mut text);
        }
        text.lines()
            .last()
            .map(|l| format!(": {l}"))
            .unwrap_or_default()
    }

    pub fn running(&mut self) -> bool {
        matches!(self.poll(), Ok(None))
    }

    fn poll(&mut self) -> io::Result<Option<Ended>> {
        if self.ended.is_none() {
            self.ended = self.reap(libc::WNOHANG)?;
        }
        Ok(self.ended)
    }

    /// Waits for the child with `wait4`, because the standard library does not report the resources
    /// that a child used.
    fn reap(&self, options: i32) -> io::Result<Option<Ended>> {
        let mut status = 0;
        // SAFETY: an all-zero rusage is a valid value of a plain C struct.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are to live variables; the kernel did not report the child's end yet.
        let pid = unsafe { libc::wait4(self.pid() as i32, &mut status, options, &mut usage) };
        match pid {
            0 => Ok(None),
            -1 => Err(io::Error::last_os_error()),
            _ => {
                let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
                Ok(Some(Ended {
                    status: ExitStatus::from_raw(status),
                    user_s: seconds(usage.ru_utime),
                    system_s: seconds(usage.ru_stime),
                    max_rss_kb: usage.ru_maxrss as u64,
                    disk_bytes: usage.ru_inblock as u64 * 512,
                }))
            }
        }
    }

    pub fn wait(&mut self, limit: Duration) -> io::Result<Option<Ended>> {
        let until = Instant::now() + limit;
        loop {
            if let Some(ended) = self.poll()? {
                return Ok(Some(ended));
            }
            if Instant::now() >= until {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends the signal to the process group's leader alone, and waits for the leader's end. Kills
    /// the group if the leader does not end within [`GRACE`].
    pub fn end(&mut self, signal: i32) -> io::Result<Ended> {
        if self.poll()?.is_none() {
            // SAFETY: kill takes plain numbers. The child was not reaped, so the id is still the
            // child's.
            unsafe { libc::kill(self.pid() as i32, signal) };
        }
        if let Some(ended) = self.wait(GRACE)? {
            return Ok(ended);
        }
        signal_group(self.pid() as i32, libc::SIGKILL);
        self.ended = self.reap(0)?;
        self.ended
            .ok_or_else(|| io::Error::other("the kernel did not report the child's end"))
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        if self.running() {
            let _ = self.end(libc::SIGTERM);
        }
        // Grandchildren that the leader left behind.
        signal_group(self.pid() as i32, libc::SIGKILL);
        self.groups.alive().remove(&(self.pid() as i32));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alive(pid: i32) -> bool {
        // A zombie that has not been reaped yet does not count.
        std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|s| {
            !s.rsplit(')')
                .next()
                .unwrap_or("")
                .trim_start()
                .starts_with('Z')
        })
    }

    #[test]
    fn dropping_a_child_kills_its_grandchildren() {
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
        // SIGKILL is delivered, but the process takes some time to end.
        for _ in 0..1000 {
            if !alive(grandchild) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("the grandchild still runs");
    }

    #[test]
    fn waiting_for_a_child_returns_its_exit_status() {
        let mut child = Groups::default()
            .spawn(Command::new("sh").args(["-c", "exit 3"]))
            .unwrap();
        let ended = child.wait(Duration::from_secs(60)).unwrap().unwrap();
        assert_eq!(ended.status.code(), Some(3));
        assert_eq!(child.end(libc::SIGTERM).unwrap().status.code(), Some(3));
    }

    #[test]
    fn cpu_time_and_memory_of_a_child_are_measured() {
        let burn = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
        let mut child = Groups::default()
            .spawn(Command::new("sh").args(["-c", burn]))
            .unwrap();
        let ended = child.wait(Duration::from_secs(600)).unwrap().unwrap();
        assert!(ended.cpu_s() > 0.001 && ended.max_rss_kb > 100, "{ended:?}");
    }
}
