//! The application's process beside which a companion runs. It is identified and held by a
//! descriptor: its id cannot pass to another process while its files are read and its namespaces
//! entered.

use onbeat_proc::namespace::Namespace;
use onbeat_proc::{Stat, User};
use onbeat_time::clock::{boottime_ns, monotonic_ns};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::process::{pidfd_open, Pid, PidfdFlags};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// The application's process beside which a companion (a process of onbeat) runs.
#[derive(Debug)]
pub struct Beside {
    /// The id of the application's process in onbeat's PID namespace.
    pub pid: u32,
    /// The user of the process. The companion runs as this user, because it loads libraries that
    /// the process names.
    pub user: User,
    /// The kinds of namespaces that the application's process does not share with onbeat.
    pub container: Vec<Namespace>,
    process: OwnedFd,
}

impl Beside {
    /// Returns the process `pid` that was seen at `seen_ns` (CLOCK_MONOTONIC). Returns `None` if it
    /// has ended since then, or if this user may not run a companion beside it. Only root can
    /// become another user.
    pub fn of(pid: u32, seen_ns: u64) -> Option<Beside> {
        let process = pidfd_open(Pid::from_raw(pid.try_into().ok()?)?, PidfdFlags::empty()).ok()?;
        let beside = Beside {
            pid,
            user: may_run_as(pid)?,
            container: Namespace::foreign(pid).ok()?,
            process,
        };
        (had_started(pid, seen_ns) && !beside.has_ended(Duration::ZERO)).then_some(beside)
    }

    /// Reports whether the facts that were read about the process are still valid: it has not
    /// ended, and its user is the same.
    pub fn is_unchanged(&self) -> bool {
        may_run_as(self.pid) == Some(self.user) && !self.has_ended(Duration::ZERO)
    }

    /// Reports whether the process has ended, or ends within the time `within` from now.
    pub fn has_ended(&self, within: Duration) -> bool {
        let within = Timespec::try_from(within).ok();
        let mut ask = [PollFd::new(&self.process, PollFlags::IN)];
        poll(&mut ask, within.as_ref()).is_ok_and(|ready| ready > 0)
    }
}

impl AsFd for Beside {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.process.as_fd()
    }
}

fn may_run_as(pid: u32) -> Option<User> {
    // SAFETY: geteuid has no arguments and cannot fail.
    let own = unsafe { libc::geteuid() };
    onbeat_proc::user(pid).filter(|user| own == 0 || user.uid == own)
}

/// Reports whether the process that has this id now had started by `seen_ns`. A process that
/// started in the same kernel tick (10 ms) does not count, because it may be another process.
fn had_started(pid: u32, seen_ns: u64) -> bool {
    let tick_ns = 1_000_000_000 / onbeat_proc::system::ticks_per_second();
    let since_boot = boottime_ns().saturating_sub(monotonic_ns());
    let seen = seen_ns.saturating_add(since_boot) / tick_ns;
    Stat::of(pid).is_some_and(|stat| stat.start_ticks < seen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_with_a_reused_id_or_one_that_has_ended_is_refused() {
        let before_ns = monotonic_ns();
        let mut child = Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("sleep starts");
        assert!(
            Beside::of(child.id(), before_ns).is_none(),
            "it started later"
        );
        assert!(Beside::of(u32::MAX - 1, u64::MAX).is_none());
        while !had_started(child.id(), monotonic_ns()) {
            std::thread::yield_now();
        }
        let beside = Beside::of(child.id(), monotonic_ns()).expect("it runs");
        assert!(beside.is_unchanged() && beside.container.is_empty());
        child.kill().expect("it is ours");
        assert!(beside.has_ended(Duration::from_secs(60)));
        assert!(!beside.is_unchanged(), "a zombie is no application");
        child.wait().expect("it has ended");
        assert!(!beside.is_unchanged());
    }
}
