//! Settings of a reservation.

use crate::ledger;
use crate::waiting::{GateKind, Waiting};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// Longest lead: how long before its slot a thread may run.
pub(crate) const MAX_LEAD_NS: u64 = 300_000;
/// Shortest cycle: in a shorter one, opening and closing gates takes all the time.
pub(crate) const MIN_CYCLE_NS: u64 = 1_000_000;

/// The kernel mechanism that keeps threads from running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Choice {
    /// The freezer of cgroup v1 where it is mounted, else that of v2.
    #[default]
    Auto,
    /// The freezer of cgroup v1.
    CgroupV1,
    /// The freezer of cgroup v2.
    CgroupV2,
    /// A sched_ext scheduler. Threads have no real-time priority then: every normal thread of their
    /// CPU goes before them, and among themselves the server's priority counts.
    SchedExt,
}

/// Settings of a reservation.
#[derive(Clone)]
pub struct Options {
    /// CPU of the dispatcher. Not one of the servers', if there is another.
    pub dispatcher_cpu: u16,
    /// The dispatcher's priority (SCHED_FIFO): above those of the servers and of placed threads.
    pub dispatcher_priority: u8,
    /// How long before its slot a gate opens, ns, because a thaw takes time. At most 0.3 ms.
    pub lead_ns: u64,
    /// The kernel mechanism that keeps threads from running.
    pub backend: Choice,
    /// What the end of a slot does to a thread that is at work.
    pub gate: GateKind,
    /// Says whether threads wait. Without it a soft gate freezes nothing: its threads have a normal
    /// priority between slots.
    pub waiting: Option<Arc<dyn Waiting>>,
    /// Whether to keep the process's memory from being paged while the reservation runs (mlockall
    /// of pages once they are used). If that is not allowed, there is a
    /// [`Warning`](crate::Warning).
    pub lock_memory: bool,
    /// Table of mounts in which the cgroup hierarchies are looked up.
    pub mount_table: PathBuf,
    /// Directory of the ledgers, from which changes are undone. It has to be the same for all
    /// reservations of a machine: [`recover`](crate::recover) looks there, and a thread that
    /// another reservation has is recognised there.
    pub state_dir: PathBuf,
    /// Called in the dispatcher's thread before its first event. Must be real-time safe.
    pub on_dispatcher: fn(),
}

impl Options {
    /// The dispatcher on this CPU at priority 98, hard gates that open 0.05 ms before their slots.
    pub fn new(dispatcher_cpu: u16) -> Options {
        Options {
            dispatcher_cpu,
            dispatcher_priority: 98,
            lead_ns: 50_000,
            backend: Choice::Auto,
            gate: GateKind::Hard,
            waiting: None,
            lock_memory: true,
            mount_table: "/proc/self/mountinfo".into(),
            state_dir: ledger::default_dir(),
            on_dispatcher: || (),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("dispatcher_cpu", &self.dispatcher_cpu)
            .field("dispatcher_priority", &self.dispatcher_priority)
            .field("lead_ns", &self.lead_ns)
            .field("backend", &self.backend)
            .field("gate", &self.gate)
            .field("knows_who_waits", &self.waiting.is_some())
            .field("lock_memory", &self.lock_memory)
            .field("mount_table", &self.mount_table)
            .field("state_dir", &self.state_dir)
            .finish_non_exhaustive()
    }
}
