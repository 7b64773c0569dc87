//! A running table: starts it, gives threads to its servers, puts everything back.

use crate::backend::{Backend, GateError};
use crate::cgroup::{V1, V2};
use crate::dispatcher::{Dispatcher, Failure};
use crate::guard::Guard;
use crate::ledger::{self, Entry, Ledger, Restored, Thread};
use crate::options::{
    AssignError, Choice, Options, ReleaseError, Report, StartError, Warning, MAX_LEAD_NS,
    MIN_CYCLE_NS,
};
use crate::proc::{self, Identity};
use crate::stats::Stats;
use crate::sys::{self, Scheduling};
use crate::table::Table;
use onbeat_plan::schema::{Server, MAX_PRIORITY};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A server as threads are given to it.
struct Place {
    name: String,
    cpu: u16,
    priority: u8,
    gated: bool,
}

/// A thread that was taken, and where it is.
struct Held {
    was: Thread,
    place: String,
}

/// A running table of reservation servers.
pub struct Reservation {
    places: Vec<Place>,
    backend: Arc<dyn Backend>,
    dispatcher: Dispatcher,
    begin_ns: u64,
    ledger: Ledger,
    state_dir: PathBuf,
    guard: Option<Guard>,
    held: Mutex<HashMap<u32, Held>>,
    warnings: Vec<Warning>,
    memory_locked: bool,
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation")
            .field("backend", &self.backend.name())
            .field("warnings", &self.warnings)
            .finish_non_exhaustive()
    }
}

impl Reservation {
    /// Starts the servers, with no threads yet. Cycles begin `cycle_ns` apart; `origin_ns` is an instant
    /// of CLOCK_MONOTONIC at which one does. What killed reservations have left is put back first.
    ///
    /// Forks a guard process: the earlier this is called, the less that one shares with this.
    ///
    /// # Errors
    ///
    /// [`StartError`]; nothing is changed then.
    pub fn start(
        cycle_ns: u64,
        servers: &[Server],
        origin_ns: u64,
        options: Options,
    ) -> Result<Reservation, StartError> {
        let mut warnings = check(cycle_ns, servers, &options)?;
        let table = Table::new(cycle_ns, options.lead_ns, servers)?;
        let places: Vec<Place> = servers
            .iter()
            .enumerate()
            .map(|(i, s)| Place {
                name: s.name.clone(),
                cpu: s.cpu,
                priority: s.priority,
                gated: table.is_gated(i),
            })
            .collect();

        let state = |source| StartError::State {
            path: options.state_dir.clone(),
            source,
        };
        ledger::prepare(&options.state_dir).map_err(state)?;
        let recovered = ledger::recover(&options.state_dir).map_err(state)?;
        if recovered.threads + recovered.groups > 0 {
            warnings.push(Warning::Recovered {
                threads: recovered.threads,
                groups: recovered.groups,
            });
        }
        warnings.extend(recovered.failures.into_iter().map(Warning::NotRecovered));

        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let pid = std::process::id();
        let start = proc::identity(pid).map_or(0, |i| i.start);
        let name = format!("onbeat-{pid}-{start}-{}", NUMBER.fetch_add(1, Relaxed));
        let ledger = Ledger::create(&options.state_dir, &name).map_err(state)?;
        let guard = match Guard::start(&ledger, options.dispatcher_priority) {
            Ok(guard) => guard,
            Err(e) => {
                ledger.restore();
                return Err(StartError::Guard(e));
            }
        };
        let begin_ns = sys::now_ns();
        let started = backend(&options, &name, &places, &ledger).and_then(|backend| {
            let dispatcher = Dispatcher::start(
                table,
                backend.clone(),
                origin_ns,
                options.dispatcher_cpu,
                options.dispatcher_priority,
                options.on_dispatcher,
            );
            let dispatcher = dispatcher.map_err(|failure| match failure {
                Failure::Spawn(e) => StartError::Dispatcher(e),
                Failure::Cpu(source) => StartError::DispatcherCpu {
                    cpu: options.dispatcher_cpu,
                    source,
                },
                Failure::Priority(source) => StartError::DispatcherPriority {
                    priority: options.dispatcher_priority,
                    source,
                },
            })?;
            Ok((backend, dispatcher))
        });
        let (backend, dispatcher) = match started {
            Ok(both) => both,
            Err(error) => {
                ledger.restore();
                guard.done();
                return Err(error);
            }
        };
        let mut memory_locked = false;
        if options.lock_memory {
            match memory::lock() {
                Ok(locked) => memory_locked = locked,
                Err(e) => warnings.push(Warning::MemoryNotLocked(e.to_string())),
            }
        }
        Ok(Reservation {
            places,
            backend,
            dispatcher,
            begin_ns,
            ledger,
            state_dir: options.state_dir,
            guard: Some(guard),
            held: Mutex::default(),
            warnings,
            memory_locked,
        })
    }

    /// Gives a thread to a server: it is scheduled round-robin at the server's priority on the server's
    /// CPU (priority 0: SCHED_OTHER), and runs in the server's slots only. What it was like is noted before.
    ///
    /// A thread of this process may be given too, except the dispatcher; one that calls into this
    /// reservation keeps other callers waiting while it is frozen.
    ///
    /// # Errors
    ///
    /// [`AssignError`]; the thread is then as it was.
    pub fn assign(&self, tid: u32, server: &str) -> Result<(), AssignError> {
        let index = self.places.iter().position(|p| p.name == server);
        let index = index.ok_or_else(|| AssignError::UnknownServer(server.into()))?;
        let place = &self.places[index];
        let scheduling = match place.priority {
            0 => Scheduling::other(),
            priority => Scheduling::round_robin(priority),
        };
        let gate = place.gated.then_some(index);
        self.take(
            tid,
            &format!("in server {server:?}"),
            &scheduling,
            place.cpu,
            gate,
        )
    }

    /// Pins a thread, and schedules it SCHED_FIFO at this priority (1 to 99): threads of the middleware,
    /// which go on outside of slots. What it was like is noted before.
    ///
    /// # Errors
    ///
    /// [`AssignError`]; the thread is then as it was.
    pub fn place(&self, tid: u32, cpu: u16, priority: u8) -> Result<(), AssignError> {
        let scheduling = Scheduling::fifo(priority);
        self.take(tid, &format!("placed on CPU {cpu}"), &scheduling, cpu, None)
    }

    /// Puts a thread back as it was before [`assign`](Reservation::assign) or
    /// [`place`](Reservation::place). A thread that has ended is no error.
    ///
    /// # Errors
    ///
    /// [`ReleaseError`].
    pub fn release(&self, tid: u32) -> Result<(), ReleaseError> {
        let mut held = self.held();
        let was = &held.get(&tid).ok_or(ReleaseError::NotHeld(tid))?.was;
        let restored = was.restore().and_then(|_| {
            let entry = Entry::Released(tid, was.start);
            self.ledger.note(&entry)
        });
        restored.map_err(|source| ReleaseError::Restore { tid, source })?;
        held.remove(&tid);
        Ok(())
    }

    /// Moves the cycles' phase: one begins at `origin_ns` (CLOCK_MONOTONIC), and `cycle_ns` later, and so
    /// on. Takes effect between two cycles, at most two cycles from now, the shorter way round, in as
    /// many steps as are needed to skip or double no slot ([`Walk::advance`](crate::table::Walk::advance)).
    /// Real-time safe: one store.
    pub fn set_origin(&self, origin_ns: u64) {
        self.dispatcher.shared().origin_ns.store(origin_ns, Relaxed);
    }

    /// What the dispatcher has done so far. Read while it writes: counters may be one event apart.
    pub fn stats(&self) -> Stats {
        let elapsed_ns = sys::now_ns() - self.begin_ns;
        self.dispatcher.shared().counters.read(elapsed_ns)
    }

    /// What is not as it should be.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// What keeps threads from running.
    pub fn backend(&self) -> &'static str {
        self.backend.name()
    }

    /// Id of the dispatcher's thread.
    pub fn dispatcher_tid(&self) -> u32 {
        self.dispatcher.tid
    }

    /// Ends the table and puts every thread back as it was. Dropping does the same.
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
        self.dispatcher.stop();
        let restored = self.ledger.restore();
        guard.done();
        if self.memory_locked {
            memory::unlock();
        }
        restored
    }

    fn held(&self) -> MutexGuard<'_, HashMap<u32, Held>> {
        // Whoever panicked with it had not changed it.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(
        &self,
        tid: u32,
        place: &str,
        scheduling: &Scheduling,
        cpu: u16,
        gate: Option<usize>,
    ) -> Result<(), AssignError> {
        if tid == self.dispatcher.tid {
            return Err(AssignError::Own(tid));
        }
        let mut held = self.held();
        if !self.guard.as_ref().is_some_and(Guard::is_running) {
            return Err(AssignError::NoGuard(tid));
        }
        let identity = proc::identity(tid).ok_or(AssignError::Vanished(tid))?;
        match held.get(&tid) {
            Some(before) if before.was.start == identity.start => {
                return Err(AssignError::Already {
                    tid,
                    place: before.place.clone(),
                });
            }
            _ => {}
        }
        let bound = held.values().map(|h| &h.was);
        let taken = self.note_and_change(tid, identity, scheduling, cpu, gate, bound);
        // Whatever failed: if the thread has ended meanwhile, that is why.
        let was = taken.map_err(|error| match proc::identity(tid) {
            Some(now) if now == identity => error,
            _ => AssignError::Vanished(tid),
        })?;
        let place = place.into();
        held.insert(tid, Held { was, place });
        Ok(())
    }

    /// Takes down what the thread is like, and changes it; or leaves it as it is. `bound` are the threads
    /// that were changed before.
    fn note_and_change<'t>(
        &self,
        tid: u32,
        identity: Identity,
        scheduling: &Scheduling,
        cpu: u16,
        gate: Option<usize>,
        bound: impl Iterator<Item = &'t Thread>,
    ) -> Result<Thread, AssignError> {
        let note = |source| AssignError::Note { tid, source };
        let read = |source| AssignError::Read { tid, source };
        let gating = |source| AssignError::Gate { tid, source };
        let _all = ledger::lock_all(&self.state_dir).map_err(note)?;
        if let Some(holder) = ledger::holder(&self.state_dir, &self.ledger, tid, identity.start) {
            return Err(AssignError::Taken { tid, holder });
        }
        let home = match gate {
            Some(_) => self.backend.home(tid).map_err(gating)?,
            None => None,
        };
        let cpus = sys::affinity(tid).map_err(read)?;
        let theirs = ledger::inherited(bound, identity.tgid, identity.start, &cpus);
        let cpus = theirs.map_or(cpus.clone(), <[u16]>::to_vec);
        let was = Thread {
            tid,
            tgid: identity.tgid,
            start: identity.start,
            scheduling: sys::scheduling(tid).map_err(read)?,
            cpus,
            home,
            bound: Some((cpu, sys::ticks())),
        };
        let entry = Entry::Thread(was.clone());
        self.ledger.note(&entry).map_err(note)?;
        let changed = || {
            // The policy first: SCHED_DEADLINE does not let itself be pinned.
            sys::schedule(tid, scheduling).map_err(|source| AssignError::Priority {
                tid,
                priority: scheduling.priority as u8,
                source,
            })?;
            sys::set_affinity(tid, &[cpu]).map_err(|source| AssignError::Cpu {
                tid,
                cpu,
                source,
            })?;
            if let Some(server) = gate {
                let mut note = |entry| self.ledger.note(&entry);
                self.backend.add(server, tid, &mut note).map_err(gating)?;
            }
            Ok(())
        };
        if let Err(error) = changed() {
            // What could not be put back either stays noted, and stopping tries again.
            if was.restore().is_ok() {
                let released = Entry::Released(tid, was.start);
                self.ledger.note(&released).map_err(note)?;
            }
            return Err(error);
        }
        Ok(was)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.end();
    }
}

/// Puts back what reservations have left whose process and guard were both killed. Reservations that
/// run are left alone.
///
/// # Errors
///
/// Where their notes in `Options::state_dir` cannot be read.
pub fn recover() -> io::Result<Restored> {
    ledger::recover(&ledger::default_dir())
}

fn check(cycle_ns: u64, servers: &[Server], options: &Options) -> Result<Vec<Warning>, StartError> {
    if cycle_ns < MIN_CYCLE_NS {
        return Err(StartError::Cycle(cycle_ns));
    }
    if options.lead_ns > MAX_LEAD_NS {
        return Err(StartError::Lead(options.lead_ns));
    }
    let last = sys::cpus() - 1;
    let cpu_exists = |who: String, cpu| match cpu <= last {
        true => Ok(()),
        false => Err(StartError::NoCpu { who, cpu, last }),
    };
    cpu_exists("the dispatcher".into(), options.dispatcher_cpu)?;
    for (i, server) in servers.iter().enumerate() {
        if servers[..i].iter().any(|s| s.name == server.name) {
            return Err(StartError::Name(server.name.clone()));
        }
        if server.priority > MAX_PRIORITY || server.priority >= options.dispatcher_priority {
            return Err(StartError::ServerPriority {
                server: server.name.clone(),
                priority: server.priority,
                dispatcher: options.dispatcher_priority,
            });
        }
        cpu_exists(format!("server {:?}", server.name), server.cpu)?;
    }
    let mut warnings = Vec::new();
    let real_time = servers.iter().filter(|s| s.priority > 0);
    if real_time.clone().any(|s| s.cpu == options.dispatcher_cpu) {
        warnings.push(Warning::DispatcherAmongServers {
            cpu: options.dispatcher_cpu,
        });
    }
    // Slots of servers together, on each CPU. A server without slots has no share that could be told.
    let mut together: BTreeMap<u16, Server> = BTreeMap::new();
    for server in real_time {
        let union = together.entry(server.cpu).or_insert_with(|| Server {
            slots_ms: Vec::new(),
            ..server.clone()
        });
        union.slots_ms.extend(&server.slots_ms);
    }
    let limit = proc::real_time_share().unwrap_or(f64::INFINITY);
    for (cpu, union) in together {
        let table = Table::new(cycle_ns, 0, std::slice::from_ref(&union))?;
        let share = match (union.slots_ms.is_empty(), table.is_gated(0)) {
            (true, _) => continue,
            (_, false) => 1.0,
            _ => share_of(&table),
        };
        if share > limit {
            warnings.push(Warning::RealTimeLimit { cpu, share, limit });
        }
    }
    Ok(warnings)
}

/// Share of the cycle in which the only server of the table is open.
fn share_of(table: &Table) -> f64 {
    let signed = |e: &crate::table::Event| match e.open {
        true => -(e.offset_ns as i64),
        false => e.offset_ns as i64,
    };
    let sum: i64 = table.events().iter().map(signed).sum();
    sum.rem_euclid(table.cycle_ns() as i64) as f64 / table.cycle_ns() as f64
}

/// The means that was chosen, with a gate for each server that needs one.
fn backend(
    options: &Options,
    name: &str,
    places: &[Place],
    ledger: &Ledger,
) -> Result<Arc<dyn Backend>, StartError> {
    let mounts = proc::mounts(&options.mount_table).map_err(|e| {
        StartError::NoFreezer(format!(
            "cannot read {}: {e}",
            options.mount_table.display()
        ))
    })?;
    let mut reasons = Vec::new();
    let mut candidates: Vec<Box<dyn Backend>> = Vec::new();
    if options.backend != Choice::CgroupV2 {
        match mounts.0 {
            Some(mount) => candidates.push(Box::new(V1::new(mount, name, places.len()))),
            None => reasons.push("the freezer of cgroup v1 is not mounted".into()),
        }
    }
    if options.backend != Choice::CgroupV1 {
        match mounts.1 {
            Some(mount) => candidates.push(Box::new(V2::new(mount, name, places.len()))),
            None => reasons.push("cgroup v2 is not mounted".into()),
        }
    }
    for mut candidate in candidates {
        match gates(&mut *candidate, places, ledger) {
            Ok(()) => return Ok(candidate.into()),
            Err(e) => reasons.push(e.to_string()),
        }
    }
    if !places.iter().any(|p| p.gated) {
        return Ok(Arc::new(NoGates));
    }
    Err(StartError::NoFreezer(reasons.join("; ")))
}

fn gates(backend: &mut dyn Backend, places: &[Place], ledger: &Ledger) -> Result<(), GateError> {
    let mut note = |entry| ledger.note(&entry);
    for (i, place) in places.iter().enumerate().filter(|(_, p)| p.gated) {
        backend.create(i, &label(i, &place.name), &mut note)?;
    }
    Ok(())
}

/// A server's name as a file's: names come from files that anybody may have written.
fn label(index: usize, name: &str) -> String {
    let fit = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let name: String = name
        .chars()
        .take(64)
        .map(|c| if fit(c) { c } else { '_' })
        .collect();
    format!("{index}-{name}")
}

/// What a table without gates needs.
struct NoGates;

impl Backend for NoGates {
    fn name(&self) -> &'static str {
        "none needed"
    }
    fn create(&mut self, _: usize, _: &str, _: crate::Note) -> Result<(), GateError> {
        Ok(())
    }
    fn open(&self, _: usize) -> io::Result<()> {
        Ok(())
    }
    fn close(&self, _: usize) -> io::Result<()> {
        Ok(())
    }
    fn home(&self, _: u32) -> Result<Option<PathBuf>, GateError> {
        Ok(None)
    }
    fn add(&self, _: usize, _: u32, _: crate::Note) -> Result<(), GateError> {
        Ok(())
    }
}

/// The process's memory, locked as long as any reservation wants it so.
mod memory {
    use super::{io, sys, Mutex, PoisonError};

    static USERS: Mutex<usize> = Mutex::new(0);

    /// Whether [`unlock`] has to be called: not where the process had memory locked on its own.
    pub(super) fn lock() -> io::Result<bool> {
        let mut users = USERS.lock().unwrap_or_else(PoisonError::into_inner);
        let status = std::fs::read_to_string("/proc/self/status")?;
        let locked = status.lines().find_map(|l| l.strip_prefix("VmLck:"));
        if *users == 0 && locked.is_some_and(|l| l.trim() != "0 kB") {
            return Ok(false);
        }
        sys::lock_memory()?;
        *users += 1;
        Ok(true)
    }

    pub(super) fn unlock() {
        let mut users = USERS.lock().unwrap_or_else(PoisonError::into_inner);
        *users -= 1;
        if *users == 0 {
            sys::unlock_memory();
        }
    }
}
