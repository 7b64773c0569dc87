//! The trait that every kind of gate implements. A gate keeps threads from running.
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

/// The reason why a thread could not be put behind a gate. The messages explain the fields.
#[allow(missing_docs)]
#[derive(Debug, Error)]
pub enum GateError {
    #[error("{what} {}: {source}", path.display())]
    Kernel {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("cannot read which cgroup the thread belongs to: {0}")]
    Where(io::Error),
    #[error("the threads of this server come from more than {0} cgroups, which is too many for one gate. Assign them to several servers.")]
    TooMany(usize),
    /// Putting the thread behind a gate could not be recorded in the ledger, so the reservation did
    /// not do it.
    #[error("nothing was changed, because the change cannot be written into the ledger: {0}")]
    Note(io::Error),
    /// The guard did not accept the gate's file, so the reservation did not put the thread behind
    /// the gate.
    #[error("nothing was changed, because the guard did not accept the gate and so could not open it after a crash: {0}")]
    Guard(io::Error),
}

/// Records the changes that an enforcer (the mechanism that limits threads to slots) makes, so that
/// they are undone even after a crash.
pub trait Witness {
    /// Records a change in the ledger, before it is made.
    ///
    /// # Errors
    ///
    /// Fails if the ledger cannot be written. The caller must then not make the change.
    fn note(&self, entry: Entry) -> io::Result<()>;

    /// Gives the guard the file that opens and closes a gate, and the text that opens the gate when
    /// it is written to this file. The caller must do this before it puts a thread behind the gate.
    ///
    /// # Errors
    ///
    /// Fails if the guard does not answer. The caller must then put no thread behind the gate.
    fn watch(&self, gate: &File, open: &[u8]) -> io::Result<()>;
}

/// A kernel mechanism that keeps threads from running, with a gate for each server. It records
/// every change before it makes the change, so that another process can undo it.
pub(crate) trait Backend: Send + Sync {
    fn name(&self) -> &'static str;

    /// Creates the gate of a server, which is open at first. `label` must be a valid file name.
    fn create(
        &mut self,
        server: usize,
        label: &str,
        witness: &dyn Witness,
    ) -> Result<(), GateError>;

    /// Opens the gate, so that the server's threads run. The dispatcher calls it: it does not
    /// allocate, takes no lock of this process, and makes one system call per cgroup of the gate.
    fn open(&self, server: usize) -> io::Result<()>;

    /// Closes the gate, so that the server's threads do not run. Real-time safe, like
    /// [`open`](Backend::open).
    fn close(&self, server: usize) -> io::Result<()>;

    /// Returns the file that undoes [`add`](Backend::add): a write of the thread's id to it moves
    /// the thread back into its cgroup. Returns `None` if `add` does not move the thread.
    fn home(&self, tid: u32) -> Result<Option<PathBuf>, GateError>;

    /// Lists the threads that are behind any of the gates: the threads that were put there, and the
    /// threads that they have started.
    fn inside(&self) -> Vec<u32>;

    /// Returns the file through which the thread leaves this backend's gates: a write of the
    /// thread's id to it moves the thread into the nearest cgroup outside. Returns `None` if the
    /// thread is behind no gate.
    fn way_out(&self, tid: u32) -> Option<PathBuf>;

    /// Puts the thread behind the server's gate. To undo this, write the thread's id to the file
    /// that an earlier call of [`home`](Backend::home) returned.
    fn add(&self, server: usize, tid: u32, witness: &dyn Witness) -> Result<(), GateError>;
}
