//! The trait that every enforcer implements. An enforcer keeps the threads of servers to their
//! slots.
//!
//! [`dispatched`] uses a dispatcher thread that opens and closes cgroup freezers. [`sched_ext`]
//! uses a scheduler in BPF programs.

pub(crate) mod dispatched;
pub(crate) mod sched_ext;

use crate::backend::{GateError, Witness};
use crate::gate::{Change, Move};
use crate::stats::{Pauses, Stats};
use crate::table::Table;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// The scheduling class of the threads that an enforcer (the mechanism that limits threads to
/// slots) controls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// The class SCHED_RR at the server's priority, or SCHED_OTHER for priority 0.
    RealTime,
    /// The class SCHED_EXT. Threads of servers without slots also get this class. In another class,
    /// they would run before the threads with slots.
    SchedExt,
}

/// The reason why an enforcer (the mechanism that limits threads to slots) did not admit a thread.
/// The thread runs as before.
#[derive(Debug, Error)]
#[allow(missing_docs)] // The messages say the rest.
pub enum AdmitError {
    #[error("the thread cannot be added to its server, because the thread has ended or the server has no room: {0}")]
    Member(io::Error),
    #[error(transparent)]
    Gate(#[from] GateError),
}

/// The progress of an enforcer (the mechanism that limits threads to slots). A round is one pass
/// through the table of slots.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pulse {
    /// Counts the rounds that have ended, including rounds that were skipped because the enforcer
    /// was late.
    pub rounds: u64,
    /// Counts how often the enforcer has switched to another table of slots.
    pub swaps: u64,
    /// Counts how often gates stayed open although slots were over, by reason.
    pub pauses: Pauses,
}

/// Limits the threads of servers to the slots of a table.
///
/// The caller sets and records a thread's policy, priority and CPU before it admits the thread.
/// Before the enforcer changes anything else, it records the change in a form that another process
/// can undo.
///
/// The owner calls the methods from any of its threads while the enforcer runs.
pub trait Enforcer: Send + Sync {
    /// Returns the name of the mechanism, for messages.
    fn name(&self) -> &'static str;

    /// Returns the scheduling class that a thread must have before it is admitted.
    fn class(&self) -> Class;

    /// Returns the file that undoes [`admit`](Enforcer::admit): a write of the thread's id to it
    /// moves the thread back into its cgroup. Returns `None` if `admit` does not move the thread.
    ///
    /// # Errors
    ///
    /// Fails if the thread's cgroup is unknown. The thread cannot be admitted then.
    fn home(&self, tid: u32) -> Result<Option<PathBuf>, GateError>;

    /// Lists the threads that run only in slots: admitted threads, and threads that inherited the
    /// limit from the thread that started them.
    fn inside(&self) -> Vec<u32> {
        Vec::new()
    }

    /// Returns the file through which a thread leaves a gate that it inherited from an admitted
    /// thread. The caller uses this file if the thread's own cgroup is unknown. Returns `None` if
    /// the thread is behind no gate.
    fn way_out(&self, _tid: u32) -> Option<PathBuf> {
        None
    }

    /// Limits the thread to the slots of a server from now on. To undo this, call
    /// [`evict`](Enforcer::evict), then write the thread's id to the file that an earlier call of
    /// [`home`](Enforcer::home) returned.
    ///
    /// # Errors
    ///
    /// Returns an [`AdmitError`] with the reason.
    fn admit(&self, tid: u32, server: usize, witness: &dyn Witness) -> Result<(), AdmitError>;

    /// Removes the thread, which may have ended, from the threads that the enforcer limits to
    /// slots. The enforcer no longer changes it. The caller restores its policy and cgroup.
    fn evict(&self, tid: u32, server: usize);

    /// Continues with another table of slots when the current round (one pass through the table)
    /// ends. The new table must have the same cycle and the same number of servers. A thread whose
    /// slot is open in both tables is not interrupted. If several tables are given within a round,
    /// the last one is used. [`Pulse::swaps`] counts the tables that came into effect.
    fn swap_table(&self, table: Table);

    /// Shifts the cycles of the table so that one of them begins at `origin_ns` (CLOCK_MONOTONIC).
    /// The shift happens between rounds (passes through the table), in the steps of
    /// [`Walk::advance`](crate::table::Walk::advance). Real-time safe.
    fn set_origin(&self, origin_ns: u64);

    /// Reads the counters, which begin at the start of the enforcer. The enforcer may write them
    /// during the call, so that some counters can include one event more than others.
    fn stats(&self) -> Stats;

    /// Returns the changes of threads' priorities that happened after the first `seen` ones, and
    /// sets `seen` to the number of all changes.
    fn changes_since(&self, seen: &mut u64) -> Vec<Change>;

    /// Returns the openings and closings of gates that happened after the first `seen` ones, and
    /// sets `seen` to the number of all openings and closings. The list is empty with sched_ext,
    /// where the kernel has no gates and limits threads to slots itself.
    fn moves_since(&self, _seen: &mut u64) -> Vec<Move> {
        Vec::new()
    }

    /// Returns the progress so far: rounds, swapped tables and pauses.
    fn pulse(&self) -> Pulse;

    /// Returns the enforcer's own thread, which cannot be admitted.
    fn own_thread(&self) -> Option<u32>;

    /// Ends the enforcer. The caller puts the threads back afterwards.
    fn stop(&mut self);
}
