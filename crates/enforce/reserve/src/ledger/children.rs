//! What threads of a ledger have started meanwhile: it inherited a CPU, perhaps a cgroup, and lost
//! its nice value.

use super::{inherited, place, put, Thread};
use crate::identity::{identity, Identity};
use crate::sys;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

/// How far up processes are asked for the one that started them.
const GENERATIONS: usize = 64;

/// The thread of the ledger from which the thread `tid` of no ledger descends: one of its process, or
/// of the nearest process above. Of several in one process, the one whose CPU it has.
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
    // Who has lost its parents is still on the CPU.
    threads.iter().find(pinned_so)
}

/// Lets threads and processes that pinned threads have started meanwhile use the CPUs of their
/// parents again, at their nice value. What is pinned by itself stays so.
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

/// Gives a thread what the one that started it had.
fn put_back(parent: &Thread, tid: u32, child: Identity) {
    // One that has ended meanwhile needs nothing, and one that has its id now is left alone.
    if identity(tid) == Some(child) {
        let _ = parent.pin_back(tid);
        take_from_sched_ext(parent, tid);
        give_nice(parent, tid);
    }
}

/// A thread that a sched_ext scheduler has run gives its children its policy.
fn take_from_sched_ext(parent: &Thread, tid: u32) {
    let was = &parent.scheduling;
    if !was.is_ext() && sys::scheduling(tid).is_ok_and(|s| s.is_ext()) {
        let _ = sys::schedule(tid, &was.of_children());
    }
}

/// A thread of a real-time policy whose children are normal threads gives them the nice value 0.
pub(crate) fn give_nice(parent: &Thread, tid: u32) {
    let is_normal = |s: &sys::Scheduling| s.policy == libc::SCHED_OTHER && s.nice == 0;
    let was_normal = parent.scheduling.priority == 0;
    if was_normal && sys::scheduling(tid).is_ok_and(|s| is_normal(&s)) {
        let _ = sys::set_nice(tid, parent.scheduling.nice);
    }
}

/// Takes a thread that gated threads of the ledger have started out from behind the gate, into the
/// cgroup of the one that started it; `way_out` takes it where nobody knows that one. It may use that
/// one's CPUs again, at its nice value. False if it has ended.
///
/// # Errors
///
/// The thread stays behind the gate.
pub(crate) fn free(threads: &[Thread], tid: u32, way_out: &Path) -> io::Result<bool> {
    let Some(child) = identity(tid) else {
        return Ok(false);
    };
    let relative = relative(threads, tid);
    let home = relative.filter(|r| place::is_home(r));
    let home = home.and_then(|r| r.home.as_deref());
    match put(tid, home.unwrap_or(way_out)) {
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

/// The processes of the threads, and all that descend from them: each with the process of the ledger
/// that it descends from.
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
