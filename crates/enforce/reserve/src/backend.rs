//! What keeps a thread from running: the trait that every means implements.

use crate::ledger::Entry;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why a thread could not be put behind a gate.
#[derive(Debug, Error)]
pub enum GateError {
    /// A directory or file of the kernel could not be used.
    #[error("{what} {}: {source}", path.display())]
    Kernel {
        /// What was tried.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is not known where the thread is.
    #[error("the thread's cgroup cannot be told: {0}")]
    Where(io::Error),
    /// There would be more groups than a gate has room for.
    #[error("its threads come from more than {0} cgroups: give them to several servers")]
    TooMany(usize),
    /// The change could not be noted, and was not made.
    #[error("the change cannot be noted down: {0}")]
    Note(io::Error),
}

/// Takes down a change before it is made.
pub type Note<'a> = &'a mut dyn FnMut(Entry) -> io::Result<()>;

/// The machine's means to keep threads from running: a gate for each server. What it changes in the
/// machine is noted first, in a form that another process can undo.
pub trait Backend: Send + Sync {
    /// What it is called.
    fn name(&self) -> &'static str;

    /// Makes the gate of a server, open. `label` is fit for a file's name.
    fn create(&mut self, server: usize, label: &str, note: Note) -> Result<(), GateError>;

    /// Lets the server's threads run. Called by the dispatcher: allocates nothing, takes no lock of
    /// this process, and makes one system call for each group of the gate.
    fn open(&self, server: usize) -> io::Result<()>;

    /// Keeps the server's threads from running. Real-time safe as [`open`](Backend::open).
    fn close(&self, server: usize) -> io::Result<()>;

    /// Where the thread has to be put back to, as a file that its id is written to; none where
    /// [`add`](Backend::add) would move it nowhere.
    fn home(&self, tid: u32) -> Result<Option<PathBuf>, GateError>;

    /// Puts the thread behind the server's gate. That the thread was moved, [`home`](Backend::home)
    /// undoes.
    fn add(&self, server: usize, tid: u32, note: Note) -> Result<(), GateError>;
}
