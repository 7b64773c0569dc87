//! What keeps the threads of servers to their slots: the trait that every enforcer implements.
//!
//! [`dispatched`]: a dispatcher thread that opens and closes cgroup freezers. [`sched_ext`]: a scheduler
//! in BPF programs.

pub(crate) mod dispatched;
pub(crate) mod sched_ext;

use crate::backend::{GateError, Witness};
use crate::gate::{Change, Move};
use crate::stats::{Pauses, Stats};
use crate::table::Table;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// The scheduling class that an enforcer keeps the threads of servers in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// SCHED_RR at the server's priority; SCHED_OTHER for priority 0.
    RealTime,
    /// SCHED_EXT. The threads of servers without slots too: else these would go before the others.
    SchedExt,
}

/// Why an enforcer did not take a thread on. The thread runs as before.
#[derive(Debug, Error)]
pub enum AdmitError {
    /// The thread cannot be followed.
    #[error("it cannot be followed: {0}")]
    Member(io::Error),
    /// It cannot be put behind its server's gate.
    #[error(transparent)]
    Gate(#[from] GateError),
}

/// Where an enforcer is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pulse {
    /// Rounds that it has ended, those that it skipped included. It grows as long as the enforcer
    /// runs.
    pub rounds: u64,
    /// Tables that took effect after the first.
    pub swaps: u64,
    /// Why threads were not kept to their slots.
    pub pauses: Pauses,
}

/// Keeps the threads of servers to the slots of a table. A thread comes to it with its policy,
/// priority and CPU given and noted; the enforcer notes what else it changes of the machine first,
/// in a form that another process can undo.
///
/// Methods are called by the owner, from any of its threads, while the enforcer runs.
pub trait Enforcer: Send + Sync {
    /// Name of the mechanism, for messages.
    fn name(&self) -> &'static str;

    /// How it wants the threads scheduled that it is to admit.
    fn class(&self) -> Class;

    /// The file that takes the thread back into its cgroup when its id is written to it. `None` if
    /// [`admit`](Enforcer::admit) does not move the thread.
    ///
    /// # Errors
    ///
    /// The thread's cgroup is unknown: it cannot be admitted.
    fn home(&self, tid: u32) -> Result<Option<PathBuf>, GateError>;

    /// The threads that it keeps to slots: those that were admitted, and what they have started,
    /// where that inherits it.
    fn inside(&self) -> Vec<u32> {
        Vec::new()
    }

    /// For a thread that is kept to slots because one that was admitted has started it: the file that
    /// ends this, if nobody knows where the thread came from. `None` if it is not kept.
    fn way_out(&self, _tid: u32) -> Option<PathBuf> {
        None
    }

    /// From now on the thread runs in the slots of this server only. [`home`](Enforcer::home), asked
    /// before, and [`evict`](Enforcer::evict) undo it.
    ///
    /// # Errors
    ///
    /// [`AdmitError`].
    fn admit(&self, tid: u32, server: usize, witness: &dyn Witness) -> Result<(), AdmitError>;

    /// The thread is left alone when this returns; it may have ended. Its policy and cgroup are put
    /// back by the caller.
    fn evict(&self, tid: u32, server: usize);

    /// Goes on with another table, of as many servers and the same cycle, from the next round on.
    /// Threads that are in a slot of both tables run on meanwhile. Of several tables within a round
    /// the last one is taken. [`Pulse::swaps`] tells when it has happened.
    fn swap_table(&self, table: Table);

    /// A cycle begins at this instant, CLOCK_MONOTONIC: the phase moves there between rounds, in the
    /// steps of [`Walk::advance`](crate::table::Walk::advance). Real-time safe.
    fn set_origin(&self, origin_ns: u64);

    /// Counters since the start. It writes meanwhile: they may be one event apart.
    fn stats(&self) -> Stats;

    /// When it changed the priority of threads, after the first `seen` changes, which becomes the
    /// number of all.
    fn changes_since(&self, seen: &mut u64) -> Vec<Change>;

    /// When it opened and shut servers, and how late it was, after the first `seen` moves, which
    /// becomes the number of all. None where the kernel does it.
    fn moves_since(&self, _seen: &mut u64) -> Vec<Move> {
        Vec::new()
    }

    /// Where it is.
    fn pulse(&self) -> Pulse;

    /// Its own thread, which cannot be admitted.
    fn own_thread(&self) -> Option<u32>;

    /// Ends it. Threads may be left in the middle of nothing: they are put back afterwards.
    fn stop(&mut self);
}
