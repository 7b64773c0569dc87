//! A running reservation: starts the servers, assigns threads, and puts everything back at the end.

use crate::assign::{self, Changer, Destination};
use crate::backend::{self, Witness};
use crate::check;
use crate::dispatcher::{Closing, Dispatcher, Failure, Shared, Task};
use crate::enforcer::dispatched::Dispatched;
use crate::enforcer::sched_ext::SchedExt;
use crate::enforcer::{Class, Enforcer, Pulse};
use crate::error::{AssignError, ReleaseError, Report, StartError, SwapError, Warning};
use crate::gate::{Change, Gate, Move};
use crate::guard::{self, Guard};
use crate::heartbeat::Heartbeat;
use crate::identity::{identity, Seen};
use crate::ledger::{self, Entry, Ledger, Ledgers, Restored, Thread};
use crate::memory;
use crate::options::{Choice, Options};
use crate::server::{RunningServer, Server};
use crate::stats::{Pauses, Stats};
use crate::sys::Scheduling;
use crate::table::Table;
use crate::waiting::GateKind;
use onbeat_time::clock::monotonic_ns;
use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

struct AssignedThread {
    was: Thread,
    place: String,
    gate: Option<usize>,
}

#[derive(Default)]
struct Assigned {
    threads: HashMap<u32, AssignedThread>,
    /// Threads of the servers that have ended. A running thread that one of them started may have
    /// inherited its state.
    ended: Vec<Thread>,
    since_compacted: usize,
}

impl Assigned {
    fn changed(&self) -> impl Iterator<Item = &Thread> {
        self.threads.values().map(|a| &a.was).chain(&self.ended)
    }
}

const COMPACT_AFTER: usize = 128;

/// A running set of reservation servers.
pub struct Reservation {
    servers: Vec<RunningServer>,
    enforcer: Box<dyn Enforcer>,
    cycle_ns: u64,
    lead_ns: u64,
    ledger: Ledger,
    ledgers: Ledgers,
    guard: Option<Guard>,
    assigned: Mutex<Assigned>,
    warnings: Vec<Warning>,
    memory_locked: bool,
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation")
            .field("enforcer", &self.enforcer.name())
            .field("warnings", &self.warnings)
            .finish_non_exhaustive()
    }
}

impl Reservation {
    /// Starts the servers, without threads. A cycle begins at `origin_ns` (CLOCK_MONOTONIC) and
    /// then every `cycle_ns`. Changes of reservations that were killed are undone first.
    ///
    /// Forks a guard process. An early call keeps the guard small, because the guard shares the
    /// memory that this process has at that time.
    ///
    /// # Errors
    ///
    /// Returns a [`StartError`] with the reason. Nothing has been changed then.
    pub fn start(
        cycle_ns: u64,
        servers: &[Server],
        origin_ns: u64,
        options: Options,
    ) -> Result<Reservation, StartError> {
        check::refuse(cycle_ns, servers, &options)?;
        let lead_ns = match options.backend {
            // The timers run on the CPUs of the threads, so no lead is needed.
            Choice::SchedExt => 0,
            _ => options.lead_ns,
        };
        let table = Table::new(cycle_ns, lead_ns, servers)?;
        let mut warnings = check::warnings(cycle_ns, servers, &options)?;
        let running = |(i, s)| RunningServer::new(s, table.is_gated(i));
        let servers: Vec<RunningServer> = servers.iter().enumerate().map(running).collect();
        let ledgers = Ledgers::open(&options.state_dir).map_err(state_error(&options))?;
        recover_into(&ledgers, &options, &mut warnings)?;
        let name = unique_name();
        let ledger = ledgers.create(&name).map_err(state_error(&options))?;
        let (guard, heartbeat) = match start_guard(&ledger, &table, &options) {
            Ok(started) => started,
            Err(e) => {
                ledger.restore();
                return Err(StartError::Guard(e));
            }
        };
        let witness = LedgerAndGuard {
            ledger: &ledger,
            guard: &guard,
        };
        let watch = (heartbeat, guard.pid());
        let named = (&*name, &*servers);
        let enforcer = match start_enforcer(table, origin_ns, named, &options, (&witness, watch)) {
            Ok(enforcer) => enforcer,
            Err(error) => {
                ledger.restore();
                guard.done();
                return Err(error);
            }
        };
        let memory_locked = options.lock_memory
            && memory::lock().unwrap_or_else(|e| {
                warnings.push(Warning::MemoryNotLocked(e.to_string()));
                false
            });
        Ok(Reservation {
            servers,
            enforcer,
            cycle_ns,
            lead_ns,
            ledger,
            ledgers,
            guard: Some(guard),
            assigned: Mutex::default(),
            warnings,
            memory_locked,
        })
    }

    /// Assigns a thread to a server. The thread is scheduled round-robin at the server's priority
    /// (SCHED_OTHER for priority 0) on the server's CPU, and runs only in the server's slots. The
    /// thread's previous state is recorded first.
    ///
    /// The thread may belong to this process, but must not be the dispatcher. If a thread is frozen
    /// while it calls into this reservation, other callers wait until it runs again.
    ///
    /// # Errors
    ///
    /// Returns an [`AssignError`] with the reason. The thread is unchanged then.
    pub fn assign(&self, tid: u32, server: &str) -> Result<(), AssignError> {
        self.assign_if(tid, None, server)
    }

    /// Assigns a thread that was seen running some time ago. Another thread that has the same id by
    /// now is not changed.
    ///
    /// # Errors
    ///
    /// Returns an [`AssignError`]. It is [`AssignError::Vanished`] if the thread with this id is,
    /// or may be, another one. The thread is unchanged then.
    pub fn assign_seen(&self, seen: Seen, server: &str) -> Result<(), AssignError> {
        self.assign_if(seen.tid, Some(seen), server)
    }

    fn assign_if(&self, tid: u32, seen: Option<Seen>, server: &str) -> Result<(), AssignError> {
        let index = self.servers.iter().position(|s| s.name == server);
        let index = index.ok_or_else(|| AssignError::UnknownServer(server.into()))?;
        let to = &self.servers[index];
        self.change_thread(
            (tid, seen),
            Destination {
                description: format!("in server {server:?}"),
                scheduling: match (self.enforcer.class(), to.priority) {
                    (Class::RealTime, 0) => Scheduling::other(),
                    (Class::RealTime, priority) => Scheduling::round_robin(priority),
                    (Class::SchedExt, _) => Scheduling::ext(),
                },
                cpu: to.cpu,
                gate: (to.is_gated || self.enforcer.class() == Class::SchedExt).then_some(index),
            },
        )
    }

    /// Pins a thread and schedules it SCHED_FIFO at a priority of 1 to 99, outside of all servers.
    /// This is for threads of the middleware, which must also run between slots. The state of the
    /// thread is recorded first.
    ///
    /// # Errors
    ///
    /// Returns an [`AssignError`] with the reason. The thread is unchanged then.
    pub fn place(&self, tid: u32, cpu: u16, priority: u8) -> Result<(), AssignError> {
        self.change_thread(
            (tid, None),
            Destination {
                description: format!("placed on CPU {cpu}"),
                scheduling: Scheduling::fifo(priority),
                cpu,
                gate: None,
            },
        )
    }

    /// Gives a thread the state that it had before [`assign`](Reservation::assign) or
    /// [`place`](Reservation::place). A thread that has ended does not cause an error.
    ///
    /// # Errors
    ///
    /// Returns a [`ReleaseError`] if the thread was not assigned or cannot be put back.
    pub fn release(&self, tid: u32) -> Result<(), ReleaseError> {
        let mut assigned = self.assigned();
        let thread = assigned
            .threads
            .get(&tid)
            .ok_or(ReleaseError::NotAssigned(tid))?;
        if let Some(server) = thread.gate {
            self.enforcer.evict(tid, server);
        }
        let was = &thread.was;
        let restored = was.restore().and_then(|_| {
            let entry = Entry::Released(tid, was.start);
            self.ledger.note(&entry)
        });
        restored.map_err(|source| ReleaseError::Restore { tid, source })?;
        assigned.threads.remove(&tid);
        Ok(())
    }

    /// Finds threads and processes that gated threads have started, moves them out of the gates,
    /// and returns their number. Such threads and processes inherit the gate although they belong
    /// to no server. A closed gate would freeze them with all the locks that they hold.
    ///
    /// Each freed thread gets the cgroup, the CPUs and the nice value of the thread that started
    /// it. Call this about once a second, and when a gated thread was seen to start another.
    pub fn free_heirs(&self) -> usize {
        let assigned = self.assigned();
        let is_heir = |tid: &u32| {
            let member = assigned.threads.get(tid).filter(|a| a.gate.is_some());
            !member.is_some_and(|a| a.was.lives())
        };
        let heirs: Vec<u32> = self.enforcer.inside().into_iter().filter(is_heir).collect();
        if heirs.is_empty() {
            return 0;
        }
        let changed: Vec<Thread> = assigned.changed().cloned().collect();
        let free = |tid: &u32| {
            let way_out = self.enforcer.way_out(*tid);
            // A thread that cannot be moved now is tried again at the next call.
            way_out.is_some_and(|out| assign::free(&changed, *tid, &out).unwrap_or(false))
        };
        heirs.iter().filter(|tid| free(tid)).count()
    }

    /// Forgets threads that have ended and returns their ids. Call it now and then, so that memory
    /// and ledger do not grow if the reservation runs for days. The ledger shrinks if the file
    /// system can take back space. At every instant, the ledger still lists all changes that must
    /// be undone.
    pub fn forget_ended(&self) -> Vec<u32> {
        let mut assigned = self.assigned();
        let is_ended = |(_, a): &(&u32, &AssignedThread)| !a.was.lives();
        let ended: Vec<u32> = assigned
            .threads
            .iter()
            .filter(is_ended)
            .map(|(&t, _)| t)
            .collect();
        for tid in &ended {
            let Some(thread) = assigned.threads.remove(tid) else {
                continue;
            };
            if let Some(server) = thread.gate {
                self.enforcer.evict(*tid, server);
            }
            assigned.ended.push(thread.was);
        }
        ledger::keep_one_per_process_and_cpu(&mut assigned.ended);
        assigned.since_compacted += ended.len();
        if assigned.since_compacted >= COMPACT_AFTER {
            assigned.since_compacted = 0;
            // The lock keeps others from searching the ledger meanwhile. If compacting fails, the
            // ledger stays longer.
            let _ = self
                .ledgers
                .lock_all()
                .and_then(|_all| self.ledger.compact());
        }
        ended
    }

    /// Shifts the cycles so that one of them begins at `origin_ns` (CLOCK_MONOTONIC). The shift
    /// begins at most two cycles from now. It happens only between two cycles and in the shorter
    /// direction. It takes so many steps that no slot is skipped or repeated
    /// ([`Walk::advance`](crate::table::Walk::advance)). Real-time safe: one store.
    pub fn set_origin(&self, origin_ns: u64) {
        self.enforcer.set_origin(origin_ns);
    }

    /// Gives the servers other slots when the current round (one pass through the table of slots)
    /// ends. Threads stay in their servers. A thread whose slot is open before and after the change
    /// is not interrupted. Names, CPUs and priorities must be the same. [`Pulse::swaps`] counts the
    /// tables that came into effect.
    ///
    /// # Errors
    ///
    /// Returns a [`SwapError`] with the reason. The reservation continues as before.
    pub fn swap_table(&self, servers: &[Server]) -> Result<(), SwapError> {
        let is_same = |(running, new): (&RunningServer, &Server)| {
            (&running.name, running.cpu, running.priority) == (&new.name, new.cpu, new.priority)
        };
        if self.servers.len() != servers.len() || !self.servers.iter().zip(servers).all(is_same) {
            return Err(SwapError::Servers);
        }
        let table = Table::new(self.cycle_ns, self.lead_ns, servers)?;
        let without = |(i, s): &(usize, &RunningServer)| table.is_gated(*i) && !s.is_gated;
        if let Some((_, server)) = self.servers.iter().enumerate().find(without) {
            return Err(SwapError::NoGate(server.name.clone()));
        }
        self.enforcer.swap_table(table);
        Ok(())
    }

    /// Reads the counters of the enforcer. The enforcer may write them during the call, so that
    /// some counters can include one event more than others.
    pub fn stats(&self) -> Stats {
        self.enforcer.stats()
    }

    /// Returns the priority changes of soft gates that happened after the first `seen` ones, and
    /// sets `seen` to the number of all changes. If there are more than about two thousand, the
    /// oldest are left out.
    pub fn changes_since(&self, seen: &mut u64) -> Vec<Change> {
        self.enforcer.changes_since(seen)
    }

    /// Returns the progress of the enforcer (the mechanism that limits threads to slots): its
    /// rounds, swapped tables and pauses.
    pub fn pulse(&self) -> Pulse {
        self.enforcer.pulse()
    }

    /// Returns the moves (openings and closings) of gates that happened after the first `seen`
    /// ones, and sets `seen` to the number of all moves. If there are more than about five hundred,
    /// the oldest are left out.
    pub fn moves_since(&self, seen: &mut u64) -> Vec<Move> {
        self.enforcer.moves_since(seen)
    }

    /// Returns how often gates stayed open so far although slots were over, by reason. If the guard
    /// process has ended, gates stay open for good, and this reservation should be stopped.
    pub fn pauses(&self) -> Pauses {
        self.pulse().pauses
    }

    /// Lists the reasons why the reservation may be less precise or complete than expected.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Returns the name of the mechanism that keeps threads from running outside of their slots.
    pub fn enforcer(&self) -> &'static str {
        self.enforcer.name()
    }

    /// Returns the id of the enforcer's own thread, if it has one: the dispatcher.
    pub fn own_thread(&self) -> Option<u32> {
        self.enforcer.own_thread()
    }

    /// Ends the reservation and puts every thread back. Dropping the reservation does the same.
    pub fn stop(mut self) -> Report {
        Report {
            restored: self.end(),
            stats: self.stats(),
        }
    }

    fn end(&mut self) -> Restored {
        let Some(guard) = self.guard.take() else {
            return Restored::default();
        };
        self.enforcer.stop();
        let restored = self.ledger.restore();
        guard.done();
        if self.memory_locked {
            memory::unlock();
        }
        restored
    }

    fn assigned(&self) -> MutexGuard<'_, Assigned> {
        // A thread that panicked while it held the lock had not changed the map.
        self.assigned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change_thread(
        &self,
        (tid, seen): (u32, Option<Seen>),
        to: Destination,
    ) -> Result<(), AssignError> {
        if self.enforcer.own_thread() == Some(tid) {
            return Err(AssignError::Own(tid));
        }
        let mut assigned = self.assigned();
        let guard = self.guard.as_ref().filter(|guard| guard.is_running());
        let guard = guard.ok_or(AssignError::NoGuard(tid))?;
        let before = identity(tid).filter(|&now| seen.is_none_or(|seen| seen.is(now)));
        let before = before.ok_or(AssignError::Vanished(tid))?;
        if let Some(same) = assigned
            .threads
            .get(&tid)
            .filter(|a| a.was.start == before.start)
        {
            let place = same.place.clone();
            return Err(AssignError::Already { tid, place });
        }
        let changer = Changer {
            ledger: &self.ledger,
            enforcer: &*self.enforcer,
            witness: &LedgerAndGuard {
                ledger: &self.ledger,
                guard,
            },
            ledgers: &self.ledgers,
        };
        let changed = changer.change(tid, before, &to, assigned.changed());
        let gate = to.gate;
        // If the thread has ended meanwhile, that is the reason for any failure.
        let was = changed.map_err(|error| match identity(tid) {
            Some(now) if now == before => error,
            _ => AssignError::Vanished(tid),
        })?;
        let place = to.description;
        let thread = AssignedThread { was, place, gate };
        // The map contained an ended thread with the same id.
        if let Some(ended) = assigned.threads.insert(tid, thread) {
            assigned.ended.push(ended.was);
        }
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.end();
    }
}

/// Undoes the changes of reservations whose process and guard were both killed. Running
/// reservations are not changed.
///
/// # Errors
///
/// Fails if the ledgers in the default `Options::state_dir` cannot be read.
pub fn recover() -> io::Result<Restored> {
    ledger::recover(&ledger::default_dir())
}

/// Returns the default directory of this user's ledgers: `/run/onbeat` for root.
pub fn ledgers() -> PathBuf {
    ledger::default_dir()
}

/// Describes the policy and priority of a thread in words. Returns `None` if it has ended.
pub fn scheduling(tid: u32) -> Option<String> {
    crate::sys::scheduling(tid).ok().map(|s| s.to_string())
}

fn state_error(options: &Options) -> impl Fn(io::Error) -> StartError + '_ {
    |source| StartError::State {
        path: options.state_dir.clone(),
        source,
    }
}

fn recover_into(
    ledgers: &Ledgers,
    options: &Options,
    warnings: &mut Vec<Warning>,
) -> Result<(), StartError> {
    let recovered = ledgers.recover().map_err(state_error(options))?;
    if recovered.threads + recovered.groups > 0 {
        warnings.push(Warning::Recovered {
            threads: recovered.threads,
            groups: recovered.groups,
        });
    }
    let left = recovered.failures.into_iter().chain(recovered.remarks);
    warnings.extend(left.map(Warning::NotRecovered));
    Ok(())
}

fn unique_name() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let pid = std::process::id();
    let start = identity(pid).map_or(0, |i| i.start);
    format!("onbeat-{pid}-{start}-{}", NUMBER.fetch_add(1, Relaxed))
}

struct LedgerAndGuard<'r> {
    ledger: &'r Ledger,
    guard: &'r Guard,
}

impl Witness for LedgerAndGuard<'_> {
    fn note(&self, entry: Entry) -> io::Result<()> {
        self.ledger.note(&entry)
    }

    fn watch(&self, gate: &File, open: &[u8]) -> io::Result<()> {
        self.guard.take_gate(gate, open)
    }
}

fn start_guard(
    ledger: &Ledger,
    table: &Table,
    options: &Options,
) -> io::Result<(Guard, Arc<Heartbeat>)> {
    let heartbeat = Arc::new(Heartbeat::new(table.cycle_ns(), monotonic_ns())?);
    let guard = Guard::start(&guard::Start {
        ledger,
        heartbeat: &heartbeat,
        priority: options.dispatcher_priority,
        mount_table: &options.mount_table,
    })?;
    Ok((guard, heartbeat))
}

fn start_enforcer(
    table: Table,
    origin_ns: u64,
    named: (&str, &[RunningServer]),
    options: &Options,
    watched: (&dyn Witness, (Arc<Heartbeat>, libc::pid_t)),
) -> Result<Box<dyn Enforcer>, StartError> {
    if options.backend != Choice::SchedExt {
        return dispatched(table, origin_ns, named, options, watched);
    }
    let is_soft = options.gate == GateKind::Soft;
    let (_, (_, guard)) = watched;
    let started = SchedExt::start(&table, origin_ns, named.1, (is_soft, guard))?;
    Ok(Box::new(started))
}

/// Starts the dispatcher and the gates for the servers of the reservation `name`. `watch` has the
/// guard's process id, and the heartbeat that the guard checks.
fn dispatched(
    table: Table,
    origin_ns: u64,
    (name, servers): (&str, &[RunningServer]),
    options: &Options,
    (witness, watch): (&dyn Witness, (Arc<Heartbeat>, libc::pid_t)),
) -> Result<Box<dyn Enforcer>, StartError> {
    let begin_ns = monotonic_ns();
    let backend =
        backend::choose(options, name, servers, witness).map_err(StartError::NoFreezer)?;
    let shared = Shared::new(servers.iter().map(Gate::new).collect(), origin_ns);
    let closing = Closing {
        kind: options.gate,
        waiting: options.waiting.clone(),
    };
    let (heartbeat, guard) = watch;
    let task = Task {
        table,
        backend: backend.clone(),
        closing,
        heartbeat,
        guard,
        on_wake: options.on_wake.clone(),
    };
    let dispatcher = start_dispatcher(task, shared, options)?;
    let gated = servers.iter().map(|s| s.is_gated.then(|| s.name.clone()));
    let dispatched = Dispatched::new(backend, dispatcher, gated.collect(), begin_ns);
    Ok(Box::new(dispatched))
}

fn start_dispatcher(
    task: Task,
    shared: Shared,
    options: &Options,
) -> Result<Dispatcher, StartError> {
    let (cpu, priority) = (options.dispatcher_cpu, options.dispatcher_priority);
    let started = Dispatcher::start(task, shared, (cpu, priority), options.on_dispatcher);
    started.map_err(|failure| match failure {
        Failure::Spawn(e) => StartError::Dispatcher(e),
        Failure::Cpu(source) => StartError::DispatcherCpu { cpu, source },
        Failure::Priority(source) => StartError::DispatcherPriority { priority, source },
    })
}
