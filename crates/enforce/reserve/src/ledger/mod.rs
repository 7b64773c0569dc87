//! The ledger: changes of the machine, recorded before they are made, so that another process can
//! undo them.
//!
//! A ledger is a file with one JSON value per line, which the owner of a reservation writes. The
//! process that undoes the changes reads it: the owner itself, its guard if the owner has died, or
//! [`recover`](crate::recover) if both have died. The ledger is locked while the owner or the guard
//! lives.

mod children;
mod compact;
mod file;
mod place;
mod recovery;
mod state;

pub(crate) use children::{free, give_nice};
pub(crate) use compact::keep_one_per_process_and_cpu;
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
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    Group(Group),
    /// A thread that the reservation changes, with its state before the change.
    Thread(Thread),
    /// The id and start time of the guard that watches the owner.
    Guard(u32, u64),
    /// The id and start time of a thread that was put back.
    Released(u32, u64),
    Snapshot(Snapshot),
}

/// The first or last line of a snapshot. A snapshot repeats the entries of the ledger that are
/// still needed. A reader of the ledger ignores everything before a complete snapshot.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Snapshot {
    Begin,
    /// The last line of a snapshot. If it is missing, the entries before the snapshot still count.
    End,
}

/// A cgroup that the reservation creates.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// The file that lets the threads of the cgroup run, and the text to write to this file.
    pub thaw: Option<(PathBuf, String)>,
    /// The file that lists the threads of the cgroup.
    pub members: PathBuf,
    /// The file through which threads leave this cgroup if the cgroup that they came from is
    /// unknown.
    pub home: PathBuf,
    pub dir: PathBuf,
}

/// The state of a thread before it was changed.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    pub tid: u32,
    pub tgid: u32,
    /// The start time in kernel ticks since boot, which distinguishes the thread from a later one
    /// with the same id.
    pub start: u64,
    pub(crate) scheduling: Scheduling,
    pub(crate) cpus: Vec<u16>,
    pub(crate) home: Option<PathBuf>,
    /// The CPU that the reservation pinned the thread to, and the instant of the pinning in kernel
    /// ticks since boot. Threads that the thread starts inherit the pinning.
    #[serde(default)]
    pub(crate) bound: Option<(u16, u64)>,
}

/// The result of undoing a reservation's changes: the numbers of undone changes, and the changes
/// that could not be undone.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Restored {
    pub threads: usize,
    /// The number of changed threads that had ended before they could be put back.
    pub gone: usize,
    pub groups: usize,
    /// The changes that could not be undone, one line each.
    pub failures: Vec<String>,
    /// The changes that could only be undone in part, for example because a cgroup no longer
    /// exists. One line each.
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

/// Returns the changed thread from which another thread has inherited its pinning. `tgid` is the
/// process, `start` the start (in kernel ticks) and `cpus` are the CPUs of the other thread. The
/// changed thread belongs to the same process and was pinned to the same CPU before `start`.
/// Returns `None` if the other thread was pinned in another way.
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

    /// Gives `tid` the CPUs and policy that the recorded thread had before the change. If one of
    /// them fails, still tries the other. The CPUs come first, because SCHED_DEADLINE accepts only
    /// threads that may use all CPUs.
    pub(super) fn schedule_back(&self, tid: u32) -> io::Result<()> {
        let pinned = self.pin_back(tid);
        let scheduled = sys::schedule(tid, &self.scheduling);
        pinned.and(scheduled)
    }

    /// Gives `tid` the CPUs that the recorded thread had before the change. If none of them is
    /// online any more, `tid` gets all online CPUs.
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
            Some(home) => move_to_cgroup(self.tid, home),
            None => Ok(()),
        }
    }

    /// Gives the thread its previous state. Returns false if the thread has ended.
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

/// Moves a thread into the cgroup of the file `home`, or into the nearest cgroup above that still
/// exists.
pub(super) fn move_to_cgroup(tid: u32, home: &Path) -> io::Result<()> {
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
