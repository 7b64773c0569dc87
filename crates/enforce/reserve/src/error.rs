//! Errors, warnings and the final report of a reservation.

use crate::backend::GateError;
use crate::enforcer::sched_ext::SchedExtError;
use crate::ledger::Restored;
use crate::options::MAX_LEAD_NS;
use crate::server::MAX_PRIORITY;
use crate::stats::Stats;
use crate::table::TableError;
use std::fmt;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// The reason why a reservation did not start. Nothing has been changed then. The messages explain
/// the fields.
#[allow(missing_docs)]
#[derive(Debug, Error)]
pub enum StartError {
    #[error(transparent)]
    Table(#[from] TableError),
    #[error("a cycle of {0} ns is too short: each gate needs about 0.1 ms. Give at least 1 ms.")]
    Cycle(u64),
    #[error("two servers have the name {0:?}. Give each another name.")]
    Name(String),
    #[error("server {server:?} cannot have priority {priority}. Give 0 to {MAX_PRIORITY}, and less than the dispatcher's {dispatcher}.")]
    ServerPriority {
        server: String,
        priority: u8,
        dispatcher: u8,
    },
    #[error(
        "{who} cannot run on CPU {cpu}: this machine has CPUs 0 to {last}. Choose one of them."
    )]
    NoCpu { who: String, cpu: u16, last: u16 },
    #[error(
        "a lead of {0} ns lets threads run too long before their slots. Give at most {MAX_LEAD_NS} ns."
    )]
    Lead(u64),
    #[error("cannot write the ledger of changes in {}: {source}. Run as root, or name a directory that belongs to this user.", path.display())]
    State { path: PathBuf, source: io::Error },
    #[error("cannot start the guard process, which undoes all changes if onbeat crashes: {0}. Check the limits for processes and open files (ulimit -a).")]
    Guard(io::Error),
    #[error("no cgroup freezer can be used, so threads cannot be stopped between their slots: {0}. Run as root, and mount a freezer (mount -t cgroup -o freezer none /sys/fs/cgroup/freezer, or cgroup2).")]
    NoFreezer(String),
    #[error("cannot keep threads within their slots with sched_ext: {0}")]
    SchedExt(#[from] SchedExtError),
    #[error("cannot start the dispatcher thread, which opens and closes the gates: {0}. Check the limit for threads (ulimit -u).")]
    Dispatcher(io::Error),
    #[error(
        "the dispatcher cannot run on CPU {cpu}: {source}. Name a CPU that this process may use."
    )]
    DispatcherCpu { cpu: u16, source: io::Error },
    #[error("the dispatcher cannot have real-time priority {priority}: {source}. Choose 1 to 99, and run as root or with CAP_SYS_NICE.")]
    DispatcherPriority { priority: u8, source: io::Error },
}

/// The reason why a thread was not assigned or placed. The thread is unchanged then. The messages
/// explain the fields.
#[allow(missing_docs)]
#[derive(Debug, Error)]
pub enum AssignError {
    #[error("the reservation has no server {0:?}. Name one of its servers.")]
    UnknownServer(String),
    #[error("thread {0} does not exist: it has ended, or its id is wrong. Check the id.")]
    Vanished(u32),
    #[error("thread {0} is the dispatcher of this reservation, which opens the gates and cannot wait behind a gate. Choose another thread.")]
    Own(u32),
    #[error("thread {tid} is already {place}. Release it first.")]
    Already { tid: u32, place: String },
    #[error("thread {tid} belongs to another reservation ({holder}). End that reservation first.")]
    Taken { tid: u32, holder: String },
    #[error("thread {tid} was not changed, because its present scheduling and CPUs cannot be read and restored later: {source}")]
    Read { tid: u32, source: io::Error },
    #[error("thread {tid} cannot have real-time priority {priority}: {source}. Choose 0 to 99, and run as root or with CAP_SYS_NICE.")]
    Priority {
        tid: u32,
        priority: u8,
        source: io::Error,
    },
    #[error("thread {tid} cannot run on CPU {cpu}: {source}. Choose a CPU that is online and in the thread's cpuset.")]
    Cpu {
        tid: u32,
        cpu: u16,
        source: io::Error,
    },
    #[error("thread {tid} cannot be added to its server, because the thread has ended or the server has no room: {source}. Assign the thread to another server.")]
    Member { tid: u32, source: io::Error },
    #[error("thread {tid} cannot be put behind the gate of its server, which stops the thread between slots: {source}")]
    Gate { tid: u32, source: GateError },
    #[error("thread {tid} cannot leave the gate that it inherited from the thread that started it: {source}. The thread runs only while that gate is open.")]
    Free { tid: u32, source: io::Error },
    /// Placing or assigning the thread could not be recorded in the ledger, so the reservation did
    /// not do it.
    #[error("thread {tid} was not changed, because the ledger, from which changes are undone, cannot be written: {source}. Check the space and the rights of its directory.")]
    Note { tid: u32, source: io::Error },
    #[error(
        "the guard process has ended, so nothing would restore thread {0} after a crash. The thread was not changed. Stop the reservation and start it again."
    )]
    NoGuard(u32),
}

/// The reason why a reservation did not replace its table of slots. The reservation keeps its
/// current table.
#[derive(Debug, Error)]
#[allow(missing_docs)] // The messages say the rest.
pub enum SwapError {
    #[error(transparent)]
    Table(#[from] TableError),
    #[error("the servers of the new table differ from those of the running reservation. Change only their slots, or start the reservation again.")]
    Servers,
    #[error("server {0:?} was started without slots and has no gate, so it cannot get slots now. Start the reservation again.")]
    NoGate(String),
}

#[allow(missing_docs)]
#[derive(Debug, Error)]
pub enum ReleaseError {
    #[error("cannot release thread {0}, because this reservation did not assign or place it. Release it in the reservation that assigned it.")]
    NotAssigned(u32),
    /// The kernel refused to restore the thread's state. onbeat tries again when the reservation
    /// stops.
    #[error("cannot restore the previous scheduling and cgroup of thread {tid}: {source}. Stop the reservation: the reservation then tries again to restore the thread.")]
    Restore { tid: u32, source: io::Error },
}

/// A reason why a running reservation may be less precise or complete than expected.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq)]
pub enum Warning {
    /// The slots take more of a CPU's time than the kernel lets real-time threads use.
    RealTimeLimit {
        cpu: u16,
        /// The share of the cycle in which a slot of a real-time server on this CPU is open.
        share: f64,
        /// The share of a CPU's time that the kernel lets real-time threads use
        /// (`sched_rt_runtime_us` / `sched_rt_period_us`).
        limit: f64,
    },
    /// The process's memory could not be locked, so page faults may delay the dispatcher. The text
    /// is the reason.
    MemoryNotLocked(String),
    /// The dispatcher runs on a server's CPU and takes time from the server's threads.
    DispatcherAmongServers { cpu: u16 },
    /// The reservation uses sched_ext. On a server's CPU, the kernel therefore runs normal threads
    /// before the server's threads, even in their slots.
    NormalFirst,
    /// A reservation that was killed had left changes, which are undone now.
    Recovered { threads: usize, groups: usize },
    /// Some changes of a reservation that was killed could not be undone, or were undone only in
    /// part. The text says which.
    NotRecovered(String),
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::RealTimeLimit { cpu, share, limit } => write!(
                f,
                "slots take up to {:.1} % of CPU {cpu}, but the kernel allows real-time threads only {:.1} % (sched_rt_runtime_us). Beyond this limit, the kernel lets other threads run. Raise the limit, or shorten the slots",
                share * 100.0,
                limit * 100.0
            ),
            Warning::MemoryNotLocked(reason) => write!(
                f,
                "memory cannot be locked ({reason}), so the dispatcher may be late when memory is short. Run as root or with CAP_IPC_LOCK, or raise RLIMIT_MEMLOCK"
            ),
            Warning::DispatcherAmongServers { cpu } => write!(
                f,
                "the dispatcher shares CPU {cpu} with servers and takes about 0.1 ms from the servers each time a slot begins or ends. Put the dispatcher on a CPU of its own"
            ),
            Warning::NormalFirst => write!(
                f,
                "under sched_ext every normal thread of a server's CPU runs before the server's threads, even in their slots. Keep such threads off that CPU"
            ),
            Warning::Recovered { threads, groups } => write!(
                f,
                "a reservation that was killed had left {threads} threads and {groups} cgroups changed. onbeat has restored them"
            ),
            Warning::NotRecovered(what) => {
                write!(f, "onbeat could not undo all changes of a reservation that was killed: {what}")
            }
        }
    }
}

/// The final report of a reservation.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub stats: Stats,
    pub restored: Restored,
}
