//! The enforcer on sched_ext: BPF programs hold the table, and the kernel asks them which thread
//! runs.
//!
//! A timer on each CPU opens and closes slots, without a dispatcher. Threads are SCHED_EXT
//! threads. The scheduler is a BPF link of this process. When the process ends for any reason, the
//! kernel removes the scheduler at once, and its threads return to the fair class before anything
//! else is put back.

mod layout;
mod load;

use super::{AdmitError, Class, Enforcer, Pulse};
use crate::backend::{GateError, Witness};
use crate::gate::Change;
use crate::server::RunningServer;
use crate::stats::{GateStats, Histogram, Pauses, Stats};
use crate::sys;
use crate::table::Table;
use layout::{Control, Counted};
use libbpf_rs::{MapCore, MapFlags};
pub use load::find_sched_ext;
use load::Programs;
use onbeat_time::clock::monotonic_ns;
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use thiserror::Error;

/// The longest allowed time between two slots of a server. The kernel removes a scheduler that lets
/// a thread wait for 30 s.
const LONGEST_PAUSE_NS: u64 = 20_000_000_000;

/// The reason why the enforcer on sched_ext cannot be used. Nothing has been changed then.
#[derive(Debug, Error)]
#[allow(missing_docs)] // The messages say the rest.
pub enum SchedExtError {
    #[error("this kernel has no sched_ext (it needs Linux 6.13 or newer with CONFIG_SCHED_CLASS_EXT). Use cgroup freezers.")]
    None,
    #[error(
        "another sched_ext scheduler, {0:?}, is running, and the kernel allows only one scheduler of this kind. End the running scheduler first."
    )]
    Taken(String),
    #[error("server {0:?} has no slot for more than 20 s, and the kernel ends a sched_ext scheduler if a thread waits for 30 s. Use cgroup freezers, or add a slot.")]
    Pause(String),
    #[error("onbeat's sched_ext scheduler has no room for {0}. Use cgroup freezers.")]
    Room(String),
    #[error(
        "the kernel refused onbeat's sched_ext scheduler: {0}. Run as root, on Linux 6.13 or newer."
    )]
    Load(String),
}

/// The number (0 or 1) of the table in the kernel that the BPF programs use now, or from the next
/// round on.
struct Given {
    table: u32,
}

pub(crate) struct SchedExt {
    programs: Mutex<Option<Programs>>,
    control: Control,
    given: Mutex<Given>,
    cpus: Vec<u16>,
    servers: Vec<(String, u16, bool)>,
    cycle_ns: u64,
    is_soft: bool,
    guard: libc::pid_t,
    begin_ns: u64,
}

impl SchedExt {
    /// Loads the scheduler and starts its timers. Soft and hard gates differ as they do with cgroup
    /// freezers (see `docs/how-to/shape.md`).
    pub(crate) fn start(
        table: &Table,
        origin_ns: u64,
        servers: &[RunningServer],
        (is_soft, guard): (bool, libc::pid_t),
    ) -> Result<SchedExt, SchedExtError> {
        refuse(table, servers)?;
        let mut programs = Programs::load()?;
        let mut cpus: Vec<u16> = servers.iter().map(|s| s.cpu).collect();
        cpus.sort_unstable();
        cpus.dedup();
        let control = Control::new(&programs.control, table.cycle_ns(), origin_ns, is_soft)
            .map_err(|e| SchedExtError::Load(e.to_string()))?;
        let places: Vec<(u16, u8, bool)> = servers
            .iter()
            .map(|s| (s.cpu, s.priority, s.is_gated))
            .collect();
        programs.give_servers(&places, &cpus)?;
        programs.give_table(0, table, &cpus, &places)?;
        // Loading may take cycles.
        let begin_ns = monotonic_ns();
        programs.begin(layout::first_round(table, origin_ns, begin_ns), &cpus)?;
        programs.attach(&cpus)?;
        Ok(SchedExt {
            programs: Mutex::new(Some(programs)),
            control,
            given: Mutex::new(Given { table: 0 }),
            cpus,
            servers: servers
                .iter()
                .map(|s| (s.name.clone(), s.cpu, s.is_gated))
                .collect(),
            cycle_ns: table.cycle_ns(),
            is_soft,
            guard,
            begin_ns,
        })
    }

    fn with<T>(&self, act: impl FnOnce(&mut Programs) -> T) -> Option<T> {
        let mut programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        programs.as_mut().map(act)
    }

    fn counted(&self) -> Counted {
        self.with(|programs| programs.counted(&self.cpus))
            .unwrap_or_default()
    }

    fn is_other_free(&self, current: u32) -> bool {
        let tables = self.with(|programs| programs.tables(&self.cpus));
        self.control.next_table().load(SeqCst) == 0
            && tables.is_none_or(|tables| tables.iter().all(|&t| t == current))
    }
}

/// Refuses a table that is too large for the BPF programs. Also refuses a server that has no slot
/// for longer than [`LONGEST_PAUSE_NS`], because of the kernel's watchdog.
fn refuse(table: &Table, servers: &[RunningServer]) -> Result<(), SchedExtError> {
    if servers.len() > layout::MAX_SERVERS {
        return Err(SchedExtError::Room(format!(
            "{} servers, because it can manage at most {}",
            servers.len(),
            layout::MAX_SERVERS
        )));
    }
    if let Some(s) = servers
        .iter()
        .find(|s| usize::from(s.cpu) >= layout::MAX_CPUS)
    {
        return Err(SchedExtError::Room(format!(
            "servers on CPU {}, because it can use only CPUs 0 to {}",
            s.cpu,
            layout::MAX_CPUS - 1
        )));
    }
    for server in servers {
        let beside = servers.iter().filter(|s| s.cpu == server.cpu).count();
        if beside > layout::MAX_OF_CPU {
            return Err(SchedExtError::Room(format!(
                "{beside} servers on one CPU, because it can manage at most {} on each CPU",
                layout::MAX_OF_CPU
            )));
        }
    }
    if table.events().len() > layout::MAX_EVENTS {
        return Err(SchedExtError::Room(format!(
            "{} starts and ends of slots in a cycle, because it can manage at most {}",
            table.events().len(),
            layout::MAX_EVENTS
        )));
    }
    let long = |i: &usize| table.longest_closed_ns(*i) > LONGEST_PAUSE_NS;
    match (0..servers.len()).find(long) {
        Some(i) => Err(SchedExtError::Pause(servers[i].name.clone())),
        None => Ok(()),
    }
}

impl Enforcer for SchedExt {
    fn name(&self) -> &'static str {
        "sched_ext"
    }

    fn class(&self) -> Class {
        Class::SchedExt
    }

    fn home(&self, _: u32) -> Result<Option<PathBuf>, GateError> {
        Ok(None)
    }

    fn admit(&self, tid: u32, server: usize, _: &dyn Witness) -> Result<(), AdmitError> {
        let thread = sys::pidfd_of_thread(tid).map_err(AdmitError::Member)?;
        let key = thread.as_raw_fd().to_ne_bytes();
        let value = (server as u32).to_ne_bytes();
        let added = self.with(|p| p.members.update(&key, &value, MapFlags::ANY));
        let ended = || {
            AdmitError::Member(io::Error::other(
                "the kernel has ended the sched_ext scheduler",
            ))
        };
        let added = added.ok_or_else(ended)?;
        added.map_err(|e| AdmitError::Member(io::Error::other(format!("{e:#}"))))
    }

    fn evict(&self, tid: u32, _: usize) {
        // The entry of a thread that has ended is already gone.
        if let Ok(thread) = sys::pidfd_of_thread(tid) {
            let key = thread.as_raw_fd().to_ne_bytes();
            let _ = self.with(|p| p.members.delete(&key));
        }
    }

    fn swap_table(&self, table: Table) {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        let places: Vec<(u16, u8, bool)> = self.servers.iter().map(|s| (s.1, 0, s.2)).collect();
        // A table that was given before takes effect first. Without running timers no table takes
        // effect any more.
        let until_ns = monotonic_ns() + 4 * self.cycle_ns + 1_000_000_000;
        while !self.is_other_free(given.table) {
            if monotonic_ns() > until_ns {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let next = 1 - given.table;
        let written = self.with(|p| p.give_table(next, &table, &self.cpus, &places));
        if written.is_some_and(|written| written.is_ok()) {
            given.table = next;
            self.control.next_table().store(u64::from(next) + 1, SeqCst);
        }
    }

    fn set_origin(&self, origin_ns: u64) {
        self.control.origin_ns().store(origin_ns, SeqCst);
    }

    fn stats(&self) -> Stats {
        let counted = self.counted();
        let gates = self.servers.iter().zip(&counted.servers);
        let gates = gates.filter(|(server, _)| server.2);
        let read = |((name, ..), c): (&(String, u16, bool), &layout::Ends)| GateStats {
            server: name.clone(),
            ends: c.ends,
            working: c.working,
            hard: if self.is_soft { 0 } else { c.working },
            taken_back: c.strays,
            ..GateStats::default()
        };
        let [lateness, opening, closing] = counted.histograms.map(Histogram::of);
        Stats {
            gates: gates.map(read).collect(),
            elapsed_ns: monotonic_ns() - self.begin_ns,
            cycles: counted.rounds,
            lateness,
            opening,
            closing,
            behind_ns: counted.behind_ns,
            pauses: self.pulse().pauses,
            ..Stats::default()
        }
    }

    fn changes_since(&self, _: &mut u64) -> Vec<Change> {
        Vec::new()
    }

    fn pulse(&self) -> Pulse {
        let counted = self.counted();
        Pulse {
            rounds: counted.rounds,
            swaps: counted.swaps,
            pauses: Pauses {
                // Threads then run on as normal threads. Shaping must end, as it must without a
                // guard.
                guard_lost: self.with(|p| p.is_attached()) == Some(true)
                    && (!sys::is_running(self.guard) || self.control.exit_kind().load(SeqCst) != 0),
                ..Pauses::default()
            },
        }
    }

    fn own_thread(&self) -> Option<u32> {
        None
    }

    fn stop(&mut self) {
        // The counters stay readable until the programs themselves are dropped.
        let mut programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(programs) = programs.as_mut() {
            programs.detach();
        }
    }
}
