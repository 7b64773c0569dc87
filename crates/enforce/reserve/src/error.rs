//! Errors, warnings and the report of a reservation.

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

/// Why a reservation did not start. Nothing has been changed then.
#[derive(Debug, Error)]
pub enum StartError {
    /// The slots do not fit into the cycle.
    #[error(transparent)]
    Table(#[from] TableError),
    /// A cycle that is too short for gates.
    #[error("a cycle of {0} ns is too short: gates need some 0.1 ms each, give 1 ms at least")]
    Cycle(u64),
    /// Two servers have the same name.
    #[error("there are two servers {0:?}: give each a name of its own")]
    Name(String),
    /// A priority that is too high.
    #[error("server {server:?} has priority {priority}: give 0 to {MAX_PRIORITY}, and less than the dispatcher's {dispatcher}")]
    ServerPriority {
        /// The server's name.
        server: String,
        /// The refused priority.
        priority: u8,
        /// The dispatcher's priority.
        dispatcher: u8,
    },
    /// A CPU that does not exist.
    #[error("{who} is to run on CPU {cpu}: this machine has CPUs 0 to {last}")]
    NoCpu {
        /// The server, or the dispatcher.
        who: String,
        /// The CPU that does not exist.
        cpu: u16,
        /// The highest CPU of the machine.
        last: u16,
    },
    /// Threads would run too long before their slots.
    #[error(
        "a lead of {0} ns lets threads run too long before their slots: give {MAX_LEAD_NS} at most"
    )]
    Lead(u64),
    /// The ledger, in which changes are noted first, cannot be written.
    #[error("changes cannot be noted in {}: {source}: run as root, or name a directory of this user", path.display())]
    State {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The guard could not be started.
    #[error("the guard process cannot be started: {0}")]
    Guard(io::Error),
    /// No freezer can be used.
    #[error("threads cannot be kept from running: {0}: run as root, where a cgroup freezer is mounted (mount -t cgroup -o freezer none /sys/fs/cgroup/freezer, or cgroup2)")]
    NoFreezer(String),
    /// No sched_ext scheduler can be used.
    #[error("threads cannot be kept to their slots: {0}")]
    SchedExt(#[from] SchedExtError),
    /// The dispatcher could not be started.
    #[error("the dispatcher's thread cannot be started: {0}")]
    Dispatcher(io::Error),
    /// The dispatcher is not allowed on its CPU.
    #[error(
        "the dispatcher cannot run on CPU {cpu}: {source}: name a CPU that this process may use"
    )]
    DispatcherCpu {
        /// The refused CPU.
        cpu: u16,
        /// The system's error.
        source: io::Error,
    },
    /// The dispatcher is not allowed its priority.
    #[error("the dispatcher cannot have real-time priority {priority}: {source}: priorities are 1 to 99, and need root or CAP_SYS_NICE")]
    DispatcherPriority {
        /// The refused priority.
        priority: u8,
        /// The system's error.
        source: io::Error,
    },
}

/// Why a thread was not assigned or placed. It is unchanged then.
#[derive(Debug, Error)]
pub enum AssignError {
    /// There is no such server.
    #[error("there is no server {0:?}")]
    UnknownServer(String),
    /// The thread has ended or never existed.
    #[error("there is no thread {0} (any more)")]
    Vanished(u32),
    /// The thread is this reservation's own.
    #[error("thread {0} is the dispatcher, which cannot be gated")]
    Own(u32),
    /// It was assigned or placed before.
    #[error("thread {tid} is already {place}: release it first")]
    Already {
        /// The thread.
        tid: u32,
        /// Its server, or the CPU that it was placed on.
        place: String,
    },
    /// Another reservation has it.
    #[error("thread {tid} belongs to another reservation ({holder}): end that one first")]
    Taken {
        /// The thread.
        tid: u32,
        /// Name of the other reservation, with the id of its process.
        holder: String,
    },
    /// Its scheduling or affinity cannot be read, and could not be put back.
    #[error("the state of thread {tid} cannot be read: {source}")]
    Read {
        /// The thread.
        tid: u32,
        /// The system's error.
        source: io::Error,
    },
    /// It is not allowed its policy or priority.
    #[error("thread {tid} cannot have real-time priority {priority}: {source}: priorities are 0 to 99, and need root or CAP_SYS_NICE")]
    Priority {
        /// The thread.
        tid: u32,
        /// The refused value.
        priority: u8,
        /// The system's error.
        source: io::Error,
    },
    /// It is not allowed on its CPU.
    #[error("thread {tid} cannot run on CPU {cpu}: {source}: the CPU has to be online, and allowed by the thread's cpuset")]
    Cpu {
        /// The thread.
        tid: u32,
        /// The refused value.
        cpu: u16,
        /// The system's error.
        source: io::Error,
    },
    /// The dispatcher could not take it on.
    #[error("thread {tid} cannot be followed by its gate: {source}")]
    Member {
        /// The thread.
        tid: u32,
        /// The system's error.
        source: io::Error,
    },
    /// It could not be put behind the gate.
    #[error("thread {tid} cannot be put behind a gate: {source}")]
    Gate {
        /// The thread.
        tid: u32,
        /// The gate's error.
        source: GateError,
    },
    /// It was started by a gated thread, and cannot leave that one's gate.
    #[error("thread {tid} cannot leave the gate of the thread that started it: {source}")]
    Free {
        /// Thread id.
        tid: u32,
        /// The system's error.
        source: io::Error,
    },
    /// The change could not be noted in the ledger, and was not made.
    #[error("the change of thread {tid} cannot be noted down: {source}")]
    Note {
        /// The thread.
        tid: u32,
        /// The system's error.
        source: io::Error,
    },
    /// The guard process is gone: after a crash, nothing would be put back.
    #[error(
        "the guard process is gone, and nobody would put thread {0} back: stop, and start again"
    )]
    NoGuard(u32),
}

/// Why a table was not swapped. The reservation runs on with the one that it has.
#[derive(Debug, Error)]
pub enum SwapError {
    /// The slots do not fit into the cycle.
    #[error(transparent)]
    Table(#[from] TableError),
    /// Other servers than those that run.
    #[error("the servers are not those that run: only their slots can be changed, in a reservation that is started anew everything")]
    Servers,
    /// A server that had no slots, and has no gate.
    #[error("server {0:?} runs all the time and has no gate: it can be given slots when the reservation is started only")]
    NoGate(String),
}

/// Why a thread was not put back.
#[derive(Debug, Error)]
pub enum ReleaseError {
    /// It was neither assigned nor placed.
    #[error("thread {0} belongs to no server here")]
    NotAssigned(u32),
    /// The system refused. Stopping the reservation tries again.
    #[error("thread {tid} cannot be put back: {source}")]
    Restore {
        /// The thread.
        tid: u32,
        /// The system's error.
        source: io::Error,
    },
}

/// A reason why a reservation that runs may be less precise or complete than expected.
#[derive(Debug, Clone, PartialEq)]
pub enum Warning {
    /// The slots leave the CPU less than the kernel takes from real-time threads.
    RealTimeLimit {
        /// The CPU.
        cpu: u16,
        /// Share of the cycle in the slots of real-time servers.
        share: f64,
        /// Share that the kernel allows real-time threads.
        limit: f64,
    },
    /// Memory may be paged, for this reason.
    MemoryNotLocked(String),
    /// The dispatcher runs on a server's CPU and takes time from its threads.
    DispatcherAmongServers {
        /// The CPU.
        cpu: u16,
    },
    /// Under sched_ext normal threads go before those of servers.
    NormalFirst,
    /// A reservation that was killed had left changes, which are undone now.
    Recovered {
        /// Threads that were put back.
        threads: usize,
        /// Cgroups that were removed.
        groups: usize,
    },
    /// A reservation that was killed has left a change that cannot be undone.
    NotRecovered(String),
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::RealTimeLimit { cpu, share, limit } => write!(
                f,
                "slots take up to {:.1} % of CPU {cpu}, of which the kernel allows real-time threads {:.1} % (sched_rt_runtime_us): beyond, they lose time to others",
                share * 100.0,
                limit * 100.0
            ),
            Warning::MemoryNotLocked(reason) => write!(
                f,
                "memory cannot be locked ({reason}): the dispatcher may be late when memory is short (needs root, CAP_IPC_LOCK or a larger RLIMIT_MEMLOCK)"
            ),
            Warning::DispatcherAmongServers { cpu } => write!(
                f,
                "the dispatcher runs on CPU {cpu} as servers do, and takes some 0.1 ms from them with each change of a slot"
            ),
            Warning::NormalFirst => write!(
                f,
                "under sched_ext every normal thread of a server's CPU goes before the server's threads, in their slots too: keep such threads off that CPU"
            ),
            Warning::Recovered { threads, groups } => write!(
                f,
                "a reservation that was killed had left {threads} threads and {groups} cgroups changed: they are as they were"
            ),
            Warning::NotRecovered(what) => {
                write!(f, "a reservation that was killed has left something: {what}")
            }
        }
    }
}

/// The end of a reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Counters of the dispatcher.
    pub stats: Stats,
    /// Threads and cgroups that were put back.
    pub restored: Restored,
}
