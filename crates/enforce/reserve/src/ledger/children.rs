//! Threads and processes that threads of a ledger have started meanwhile. They inherited a CPU,
//! perhaps a cgroup, and lost their nice value.

use super::{inherited, move_to_cgroup, place, Thread};
use crate::identity::{identity, Identity};
use crate::sys;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

const GENERATIONS: usize = 64;

/// Finds the thread of the ledger that is the ancestor of `tid`, a thread that is in no ledger. The
/// ancestor belongs to the same process or to the nearest ancestor process. If several threads of a
/// process match, one on the same CPU is preferred. If no process matches, returns a thread of the
/// ledger that was pinned to the CPU of `tid`.
pub(super) fn relative(threads: &[Thread], tid: u32) -> Option<&Thread> {
    let cpus = sys::affinity(tid).unwrap_or_default();
    let pinned_so = |t: &&Thread| t.bound.is_some_and(|(cpu, _)| cpus == [cpu]);
    let mut process = identity(tid)?.tgid;
    for _ in 0..GENERATIONS {
        let of_process = || threads.iter().filter(|t| t.tgid == process);
        let found = of_process().find(pinned_so).or_else(|| of_process().next());
        if found.is_some() {
            return found;
        }
        match onbeat_proc::parent(process).filter(|&p| p > 1) {
            Some(parent) => process = parent,
            None => break,
        }
    }
    // A process without its parents is still pinned to the CPU.
    threads.iter().find(pinned_so)
}

/// Restores threads and processes that inherited a pinning: they get the CPUs and the nice value
/// that their parents had before the pinning. Threads that pinned themselves are not changed.
pub(super) fn unpin(threads: &[Thread]) {
    let known: BTreeSet<(u32, u64)> = threads.iter().map(|t| (t.tid, t.start)).collect();
    for (process, origin) in descendants(threads) {
        for tid in onbeat_proc::threads(process) {
            let (Some(child), Ok(cpus)) = (identity(tid), sys::affinity(tid)) else {
                continue;
            };
            if known.contains(&(tid, child.start)) {
                continue;
            }
            if let Some(theirs) = inherited(threads.iter(), origin, child.start, &cpus) {
                put_back(theirs, tid, child);
            }
        }
    }
}

fn put_back(parent: &Thread, tid: u32, child: Identity) {
    // A thread that has ended needs nothing, and another thread with the same id is left alone.
    if identity(tid) == Some(child) {
        let _ = parent.pin_back(tid);
        take_from_sched_ext(parent, tid);
        give_nice(parent, tid);
    }
}

fn take_from_sched_ext(parent: &Thread, tid: u32) {
    let was = &parent.scheduling;
    if !was.is_ext() && sys::scheduling(tid).is_ok_and(|s| s.is_ext()) {
        let _ = sys::schedule(tid, &was.of_children());
    }
}

/// Gives a normal child thread its parent's nice value. The kernel had reset the child's nice value
/// to 0, because its parent had a real-time policy.
pub(crate) fn give_nice(parent: &Thread, tid: u32) {
    let is_normal = |s: &sys::Scheduling| s.policy == libc::SCHED_OTHER && s.nice == 0;
    let was_normal = parent.scheduling.priority == 0;
    if was_normal && sys::scheduling(tid).is_ok_and(|s| is_normal(&s)) {
        let _ = sys::set_nice(tid, parent.scheduling.nice);
    }
}

/// Moves a thread from the gate that it inherited into its parent's cgroup. If the parent is
/// unknown, the thread moves through the file `way_out`. The freed thread also gets its parent's
/// CPUs and nice value. Returns false if the thread has ended.
///
/// # Errors
///
/// Fails if the thread cannot be moved. It stays behind the gate.
pub(crate) fn free(threads: &[Thread], tid: u32, way_out: &Path) -> io::Result<bool> {
    let Some(child) = identity(tid) else {
        return Ok(false);
    };
    let relative = relative(threads, tid);
    let home = relative.filter(|r| place::is_home(r));
    let home = home.and_then(|r| r.home.as_deref());
    match move_to_cgroup(tid, home.unwrap_or(way_out)) {
        Err(_) if identity(tid) != Some(child) => return Ok(false),
        moved => moved?,
    }
    let pinned_so = |r: &&Thread| {
        let cpus = sys::affinity(tid).unwrap_or_default();
        r.bound.is_some_and(|(cpu, _)| cpus == [cpu])
    };
    if let Some(relative) = relative.filter(pinned_so) {
        put_back(relative, tid, child);
    }
    Ok(true)
}

/// Maps each process of the threads, and each descendant of these processes, to the process in the
/// ledger from which it descends.
fn descendants(threads: &[Thread]) -> BTreeMap<u32, u32> {
    let mut found: BTreeMap<u32, u32> = threads.iter().map(|t| (t.tgid, t.tgid)).collect();
    let parents: Vec<(u32, u32)> = onbeat_proc::processes()
        .into_iter()
        .filter_map(|p| Some((p, onbeat_proc::parent(p)?)))
        .collect();
    loop {
        let new: Vec<(u32, u32)> = parents
            .iter()
            .filter(|(process, _)| !found.contains_key(process))
            .filter_map(|(process, parent)| Some((*process, *found.get(parent)?)))
            .collect();
        if new.is_empty() {
            return found;
        }
        found.extend(new);
    }
}
