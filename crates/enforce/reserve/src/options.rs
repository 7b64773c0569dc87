//! The settings of a reservation.

use crate::ledger;
use crate::waiting::{GateKind, Waiting};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// The longest lead: the time by which a thread may run before its slot.
pub(crate) const MAX_LEAD_NS: u64 = 300_000;
/// The shortest cycle. In a shorter one, opening and closing gates would take all the time.
pub(crate) const MIN_CYCLE_NS: u64 = 1_000_000;

/// The kernel mechanism that keeps threads from running outside of their slots.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Choice {
    /// The freezer of cgroup v1 if it can be used, otherwise the freezer of cgroup v2.
    #[default]
    Auto,
    CgroupV1,
    CgroupV2,
    /// A sched_ext scheduler. Threads then have no real-time priority: the kernel runs every normal
    /// thread of their CPU first. The priorities of servers only order the threads of servers among
    /// themselves.
    SchedExt,
}

/// A function that the dispatcher calls each time it wakes up, with the current time
/// (CLOCK_MONOTONIC, in ns). See [`Options::on_wake`].
pub type OnWake = Arc<dyn Fn(u64) + Send + Sync>;

#[allow(missing_docs)] // the names say what they are
#[derive(Clone)]
pub struct Options {
    /// The CPU of the dispatcher. Choose one that no server uses, if possible.
    pub dispatcher_cpu: u16,
    /// The dispatcher's SCHED_FIFO priority. It must be above the priorities of all servers and of
    /// threads that [`Reservation::place`](crate::Reservation::place) has pinned.
    pub dispatcher_priority: u8,
    /// The time in ns by which a gate opens before its slot, because opening takes time. At most
    /// 0.3 ms.
    pub lead_ns: u64,
    pub backend: Choice,
    pub gate: GateKind,
    /// The source that reports whether threads wait for work. Without it a soft gate freezes
    /// nothing, and its threads have a normal priority between slots.
    pub waiting: Option<Arc<dyn Waiting>>,
    /// Whether the reservation locks the process's memory while it runs (mlockall). Each page is
    /// locked at its first use. If locking is not allowed, the reservation gives a
    /// [`Warning`](crate::Warning).
    pub lock_memory: bool,
    /// The path of the table of mounts, which lists the cgroup hierarchies. The default is
    /// `/proc/self/mountinfo`.
    pub mount_table: PathBuf,
    /// The directory of the ledgers. It must be the same for all reservations of a machine:
    /// [`recover`](crate::recover) looks there, and reservations find threads of other reservations
    /// there.
    pub state_dir: PathBuf,
    /// A function that the dispatcher thread calls before its first event. It must be real-time
    /// safe.
    pub on_dispatcher: fn(),
    /// A function that the dispatcher thread calls each time it wakes, at least four times per
    /// cycle, with the current time (CLOCK_MONOTONIC) in ns. It must be real-time safe. A sched_ext
    /// scheduler has no dispatcher and calls nothing.
    pub on_wake: Option<OnWake>,
}

impl Options {
    /// Returns default settings: the dispatcher runs on `dispatcher_cpu` at priority 98, and hard
    /// gates open 0.05 ms before their slots.
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
            on_wake: None,
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
