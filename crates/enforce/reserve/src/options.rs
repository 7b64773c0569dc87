//! How a table is run, why it is not, and what is to be said of it.

use crate::backend::GateError;
use crate::ledger::{self, Restored};
use crate::stats::Stats;
use crate::table::TableError;
use onbeat_plan::schema::MAX_PRIORITY;
use std::fmt;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Longest lead: how far a thread may run before its slot.
pub(crate) const MAX_LEAD_NS: u64 = 300_000;
/// Shortest cycle: below, the gates' own time is all there is.
pub(crate) const MIN_CYCLE_NS: u64 = 1_000_000;

/// Which means keeps threads from running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Choice {
    /// The freezer of cgroup v1 where it is mounted, else that of v2.
    #[default]
    Auto,
    /// The freezer of cgroup v1.
    CgroupV1,
    /// The freezer of cgroup v2.
    CgroupV2,
}

/// How a table is run.
#[derive(Debug, Clone)]
pub struct Options {
    /// CPU of the dispatcher: not one of the servers', where there is another.
    pub dispatcher_cpu: u16,
    /// Its priority (SCHED_FIFO): above those of the servers and of placed threads.
    pub dispatcher_priority: u8,
    /// Gates open so much before their slots, because a thaw takes its time. At most 0.3 ms.
    pub lead_ns: u64,
    /// Which means keeps threads from running.
    pub backend: Choice,
    /// Keeps the process's memory from being paged while the table runs (mlockall, as pages come to be
    /// used). Where that is not allowed it makes a [`Warning`].
    pub lock_memory: bool,
    /// Table of mounts in which the cgroup hierarchies are found.
    pub mount_table: PathBuf,
    /// Directory of the notes from which things are put back. It has to be the same for all
    /// reservations of a machine, for [`recover`](crate::recover) and for threads not to be taken twice.
    pub state_dir: PathBuf,
    /// Called in the dispatcher's thread before its first event. It must be real-time safe.
    pub on_dispatcher: fn(),
}

impl Options {
    /// The dispatcher on this CPU at priority 98, gates that open 0.05 ms before their slots.
    pub fn new(dispatcher_cpu: u16) -> Options {
        Options {
            dispatcher_cpu,
            dispatcher_priority: 98,
            lead_ns: 50_000,
            backend: Choice::Auto,
            lock_memory: true,
            mount_table: "/proc/self/mountinfo".into(),
            state_dir: ledger::default_dir(),
            on_dispatcher: || (),
        }
    }
}

/// Why a table does not run. Nothing has been changed then.
#[derive(Debug, Error)]
pub enum StartError {
    /// The slots make no table.
    #[error(transparent)]
    Table(#[from] TableError),
    /// A cycle that is too short for gates.
    #[error("a cycle of {0} ns is too short: gates need some 0.1 ms each, give 1 ms at least")]
    Cycle(u64),
    /// Two servers have a name.
    #[error("there are two servers {0:?}: give each a name of its own")]
    Name(String),
    /// A priority that is too high.
    #[error("server {server:?} has priority {priority}: give 0 to {MAX_PRIORITY}, and less than the dispatcher's {dispatcher}")]
    ServerPriority {
        /// The server's name.
        server: String,
        /// As it was given.
        priority: u8,
        /// The dispatcher's.
        dispatcher: u8,
    },
    /// A CPU that does not exist.
    #[error("{who} is to run on CPU {cpu}: this machine has CPUs 0 to {last}")]
    NoCpu {
        /// The server, or the dispatcher.
        who: String,
        /// As it was given.
        cpu: u16,
        /// The last that there is.
        last: u16,
    },
    /// Threads would run too long before their slots.
    #[error(
        "a lead of {0} ns lets threads run too long before their slots: give {MAX_LEAD_NS} at most"
    )]
    Lead(u64),
    /// What will be changed cannot be noted down.
    #[error("changes cannot be noted in {}: {source}: run as root, or name a directory of this user", path.display())]
    State {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The guard could not be started.
    #[error("the guard process cannot be started: {0}")]
    Guard(io::Error),
    /// There is no freezer that could be used.
    #[error("threads cannot be kept from running: {0}: run as root, where a cgroup freezer is mounted (mount -t cgroup -o freezer none /sys/fs/cgroup/freezer, or cgroup2)")]
    NoFreezer(String),
    /// The dispatcher could not be started.
    #[error("the dispatcher's thread cannot be started: {0}")]
    Dispatcher(io::Error),
    /// The dispatcher may not have its CPU.
    #[error(
        "the dispatcher cannot run on CPU {cpu}: {source}: name a CPU that this process may use"
    )]
    DispatcherCpu {
        /// As it was given.
        cpu: u16,
        /// What the system said.
        source: io::Error,
    },
    /// The dispatcher may not have its priority.
    #[error("the dispatcher cannot have real-time priority {priority}: {source}: priorities are 1 to 99, and need root or CAP_SYS_NICE")]
    DispatcherPriority {
        /// As it was given.
        priority: u8,
        /// What the system said.
        source: io::Error,
    },
}

/// Why a thread was not taken. It is then as it was.
#[derive(Debug, Error)]
pub enum AssignError {
    /// There is no such server.
    #[error("there is no server {0:?}")]
    UnknownServer(String),
    /// The thread has ended, or never was.
    #[error("there is no thread {0} (any more)")]
    Vanished(u32),
    /// The thread is this reservation's own.
    #[error("thread {0} is the dispatcher, which cannot be gated")]
    Own(u32),
    /// It was given away before.
    #[error("thread {tid} is already {place}: release it first")]
    Already {
        /// The thread.
        tid: u32,
        /// Where it is.
        place: String,
    },
    /// Another reservation has it.
    #[error("thread {tid} belongs to another reservation ({holder}): end that one first")]
    Taken {
        /// The thread.
        tid: u32,
        /// The other one's name, with the id of its process.
        holder: String,
    },
    /// Its state could not be told.
    #[error("what thread {tid} is like cannot be told: {source}")]
    Read {
        /// The thread.
        tid: u32,
        /// What the system said.
        source: io::Error,
    },
    /// It may not have its policy or priority.
    #[error("thread {tid} cannot have real-time priority {priority}: {source}: priorities are 0 to 99, and need root or CAP_SYS_NICE")]
    Priority {
        /// The thread.
        tid: u32,
        /// As it was to be.
        priority: u8,
        /// What the system said.
        source: io::Error,
    },
    /// It may not have its CPU.
    #[error("thread {tid} cannot run on CPU {cpu}: {source}: the CPU has to be online, and allowed by the thread's cpuset")]
    Cpu {
        /// The thread.
        tid: u32,
        /// As it was to be.
        cpu: u16,
        /// What the system said.
        source: io::Error,
    },
    /// It could not be put behind the gate.
    #[error("thread {tid} cannot be put behind a gate: {source}")]
    Gate {
        /// The thread.
        tid: u32,
        /// What failed.
        source: GateError,
    },
    /// The change could not be noted, and was not made.
    #[error("the change of thread {tid} cannot be noted down: {source}")]
    Note {
        /// The thread.
        tid: u32,
        /// What the system said.
        source: io::Error,
    },
    /// Nobody would put things back.
    #[error(
        "the guard process is gone, and nobody would put thread {0} back: stop, and start again"
    )]
    NoGuard(u32),
}

/// Why a thread was not put back as it was.
#[derive(Debug, Error)]
pub enum ReleaseError {
    /// It was not taken.
    #[error("thread {0} belongs to no server here")]
    NotHeld(u32),
    /// The system refused; stopping tries again.
    #[error("thread {tid} cannot be put back: {source}")]
    Restore {
        /// The thread.
        tid: u32,
        /// What the system said.
        source: io::Error,
    },
}

/// What is not as it should be, though the table runs.
#[derive(Debug, Clone, PartialEq)]
pub enum Warning {
    /// The slots leave the CPU less than the kernel takes from real-time threads.
    RealTimeLimit {
        /// The CPU.
        cpu: u16,
        /// Share of the cycle in the slots of real-time servers.
        share: f64,
        /// What the kernel allows them.
        limit: f64,
    },
    /// Memory may be paged.
    MemoryNotLocked(String),
    /// The dispatcher runs where a server's threads do, and takes time from them.
    DispatcherAmongServers {
        /// The CPU.
        cpu: u16,
    },
    /// A reservation that was killed had left something, which is put back now.
    Recovered {
        /// Threads that were put back.
        threads: usize,
        /// Cgroups that were removed.
        groups: usize,
    },
    /// A reservation that was killed has left something that cannot be put back.
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

/// What a reservation did, and what it put back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The dispatcher's work.
    pub stats: Stats,
    /// What was put back.
    pub restored: Restored,
}
