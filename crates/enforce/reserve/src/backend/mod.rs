//! What the dispatcher keeps threads from running with: the trait that every kind of gate implements.
//!
//! [`choose`] picks the mechanism: a cgroup freezer of version 1 or 2.

mod cgroup;
mod choose;

pub(crate) use choose::choose;

use crate::ledger::Entry;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why a thread could not be put behind a gate.
#[derive(Debug, Error)]
pub enum GateError {
    /// A directory or file of the kernel cannot be used.
    #[error("{what} {}: {source}", path.display())]
    Kernel {
        /// The operation that failed.
        what: &'static str,
        /// Its file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The thread's cgroup is unknown.
    #[error("the thread's cgroup cannot be determined: {0}")]
    Where(io::Error),
    /// A gate has room for this many cgroups only.
    #[error("its threads come from more than {0} cgroups: give them to several servers")]
    TooMany(usize),
    /// The change could not be noted in the ledger, and was not made.
    #[error("the change cannot be noted down: {0}")]
    Note(io::Error),
    /// The guard could not be told of it, and it was not made.
    #[error("{0}: nobody would open the gate after a crash")]
    Guard(io::Error),
}

/// Who is told of what an enforcer changes, so that it is undone whatever happens.
pub trait Witness {
    /// Notes a change in the ledger, before it is made.
    ///
    /// # Errors
    ///
    /// The change must not be made then.
    fn note(&self, entry: Entry) -> io::Result<()>;

    /// Gives the guard the file of a gate, and the text that opens it, before a thread is put
    /// behind it.
    ///
    /// # Errors
    ///
    /// The guard does not answer: no thread may be put there then.
    fn watch(&self, gate: &File, open: &[u8]) -> io::Result<()>;
}

/// A kernel mechanism that keeps threads from running: a gate for each server. It notes every
/// change of the machine first, in a form that another process can undo.
pub(crate) trait Backend: Send + Sync {
    /// Name for messages.
    fn name(&self) -> &'static str;

    /// Creates the gate of a server. The gate is open. `label` is valid as a file name.
    fn create(
        &mut self,
        server: usize,
        label: &str,
        witness: &dyn Witness,
    ) -> Result<(), GateError>;

    /// Lets the server's threads run. The dispatcher calls it: it does not allocate, takes no lock
    /// of this process, and makes one system call per group of the gate.
    fn open(&self, server: usize) -> io::Result<()>;

    /// Keeps the server's threads from running. As real-time safe as [`open`](Backend::open).
    fn close(&self, server: usize) -> io::Result<()>;

    /// The file that takes the thread back into its cgroup when its id is written to it. `None` if
    /// [`add`](Backend::add) does not move the thread.
    fn home(&self, tid: u32) -> Result<Option<PathBuf>, GateError>;

    /// The threads behind all gates: those that were put there, and what they have started.
    fn inside(&self) -> Vec<u32>;

    /// The file that takes the thread out from behind a gate of this backend, into the nearest cgroup
    /// that is none of its own. `None` if it is behind none.
    fn way_out(&self, tid: u32) -> Option<PathBuf>;

    /// Puts the thread behind the server's gate. [`home`](Backend::home), asked before, undoes the
    /// move.
    fn add(&self, server: usize, tid: u32, witness: &dyn Witness) -> Result<(), GateError>;
}
