//! Changes of the machine, noted before they are made, so that another process can undo them.
//!
//! A ledger is a file with one JSON value per line. The owner of a reservation writes it. Whoever
//! undoes the changes reads it: the owner itself, its guard if the owner has died, or
//! [`recover`](crate::recover) if both have. The ledger is locked as long as owner or guard lives.

mod children;
mod compact;
mod file;
mod place;
mod recovery;
mod state;

pub(crate) use children::{free, give_nice};
pub(crate) use compact::forget_alike;
pub(crate) use file::{default_dir, Ledger, Ledgers};
pub(crate) use recovery::recover;
pub use recovery::{recover_in, FoundLedger, FoundThread, GroupStanding, Recovery, Standing};

use crate::identity::identity;
use crate::sys::{self, Scheduling};
use serde::{Deserialize, Serialize};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A change of the machine, as a line of the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// A cgroup is created.
    Group(Group),
    /// A thread is changed.
    Thread(Thread),
    /// The guard that watches the owner. Its id and start time.
    Guard(u32, u64),
    /// A thread was put back. Its id and start time.
    Released(u32, u64),
    /// Begin or end of a snapshot.
    Snapshot(Snapshot),
}

/// What lies between both ends is all that counts of what was noted before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Snapshot {
    /// The first line of a snapshot.
    Begin,
    /// The last one. Without it a snapshot says only what was noted before.
    End,
}

/// A cgroup that is created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// The text that lets its threads run, and the file that takes it.
    pub thaw: Option<(PathBuf, String)>,
    /// File that lists its threads.
    pub members: PathBuf,
    /// File that takes threads whose own cgroup is unknown.
    pub home: PathBuf,
    /// Directory of the cgroup.
    pub dir: PathBuf,
}

/// A thread as it was before it was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// Thread id.
    pub tid: u32,
    /// Process that it belongs to.
    pub tgid: u32,
    /// When it was started, in kernel ticks since boot: distinguishes it from a later thread with
    /// its id.
    pub start: u64,
    /// Policy and priority.
    pub(crate) scheduling: Scheduling,
    /// CPUs that it was allowed to use.
    pub(crate) cpus: Vec<u16>,
    /// File that takes it back into its cgroup. `None` if it was not moved.
    pub(crate) home: Option<PathBuf>,
    /// The CPU that it is pinned to, and when it was, in kernel ticks since boot. A thread that it
    /// starts inherits the pinning.
    #[serde(default)]
    pub(crate) bound: Option<(u16, u64)>,
}

/// Changes that were undone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Restored {
    /// Threads that are as they were before.
    pub threads: usize,
    /// Threads that have ended meanwhile.
    pub gone: usize,
    /// Cgroups that were removed.
    pub groups: usize,
    /// Changes that could not be undone, one line each.
    pub failures: Vec<String>,
    /// What could be undone in part only, because it is not there any more, one line each.
    pub remarks: Vec<String>,
}

impl Restored {
    pub(super) fn fail(&mut self, what: String) {
        if !self.failures.contains(&what) {
            self.failures.push(what);
        }
    }

    pub(super) fn remark(&mut self, what: String) {
        if !self.remarks.contains(&what) {
            self.remarks.push(what);
        }
    }

    pub(crate) fn join(&mut self, other: Restored) {
        self.threads += other.threads;
        self.gone += other.gone;
        self.groups += other.groups;
        other.failures.into_iter().for_each(|f| self.fail(f));
        other.remarks.into_iter().for_each(|r| self.remark(r));
    }
}

/// The thread from which another has inherited its pinning: one of the changed threads, pinned
/// to the same CPU, started it in a later kernel tick. `None` if the pinning is the thread's own.
pub(crate) fn inherited<'t>(
    mut changed: impl Iterator<Item = &'t Thread>,
    tgid: u32,
    start: u64,
    cpus: &[u16],
) -> Option<&'t Thread> {
    let by_us = |t: &&Thread| {
        let later = |&(cpu, at): &(u16, u64)| cpus == [cpu] && start > at;
        t.tgid == tgid && t.bound.as_ref().is_some_and(later)
    };
    changed.find(by_us)
}

impl Thread {
    pub(crate) fn lives(&self) -> bool {
        identity(self.tid).is_some_and(|i| i.start == self.start)
    }

    /// Gives `tid` this thread's CPUs and policy; the one also where the other fails. CPUs first:
    /// SCHED_DEADLINE accepts a thread only if it may use all of them.
    pub(super) fn schedule_back(&self, tid: u32) -> io::Result<()> {
        let pinned = self.pin_back(tid);
        let scheduled = sys::schedule(tid, &self.scheduling);
        pinned.and(scheduled)
    }

    /// Gives `tid` this thread's CPUs; those that are online, if none of its own is any more.
    pub(super) fn pin_back(&self, tid: u32) -> io::Result<()> {
        match sys::set_affinity(tid, &self.cpus) {
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
                let online = sys::online().unwrap_or_default();
                let is_lost = self.cpus.iter().all(|cpu| !online.contains(cpu));
                match is_lost && !online.is_empty() {
                    true => sys::set_affinity(tid, &online),
                    false => Err(e),
                }
            }
            result => result,
        }
    }

    pub(super) fn move_back(&self) -> io::Result<()> {
        match &self.home {
            Some(home) => put(self.tid, home),
            None => Ok(()),
        }
    }

    /// Puts the thread back. False if it has ended.
    pub(crate) fn restore(&self) -> io::Result<bool> {
        if !self.lives() {
            return Ok(false);
        }
        let scheduled = self.schedule_back(self.tid);
        let moved = self.move_back();
        match scheduled.and(moved) {
            Err(_) if !self.lives() => Ok(false),
            result => result.map(|()| true),
        }
    }
}

/// Moves a thread into the cgroup of the file `home`, or the nearest one above that still exists.
pub(super) fn put(tid: u32, home: &Path) -> io::Result<()> {
    let name = home.file_name().unwrap_or_default().to_os_string();
    let mut dir = home.parent();
    while let Some(d) = dir {
        let file = OpenOptions::new().write(true).open(d.join(&name));
        match file.and_then(|mut f| f.write_all(tid.to_string().as_bytes())) {
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound) => dir = d.parent(),
            Err(e) if e.raw_os_error() == Some(libc::ENODEV) => dir = d.parent(),
            result => return result,
        }
    }
    Err(io::ErrorKind::NotFound.into())
}
