//! The thread that opens and closes the gates at the instants of the table.

use crate::backend::Backend;
use crate::gate::{Changes, Gate, Gates, Move, Moves};
use crate::heartbeat::Heartbeat;
use crate::leads::Leads;
use crate::next_table::NextTable;
use crate::options::OnWake;
use crate::stats::Counters;
use crate::sys::{self, Scheduling};
use crate::table::{Table, Walk};
use crate::waiting::{GateKind, Waiting};
use onbeat_time::clock::{monotonic_ns, thread_cpu_ns};
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{mpsc, Arc};
use std::thread::JoinHandle;

pub(crate) struct Shared {
    pub(crate) counters: Counters,
    pub(crate) origin_ns: AtomicU64,
    pub(crate) gates: Box<[Gate]>,
    pub(crate) changes: Changes,
    pub(crate) next_table: NextTable,
    pub(crate) moves: Moves,
    stop: AtomicU32,
}

pub(crate) struct Dispatcher {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    pub(crate) tid: u32,
}

#[derive(Clone)]
pub(crate) struct Closing {
    pub(crate) kind: GateKind,
    pub(crate) waiting: Option<Arc<dyn Waiting>>,
}

impl Shared {
    pub(crate) fn new(gates: Box<[Gate]>, origin_ns: u64) -> Shared {
        Shared {
            counters: Counters::new(),
            origin_ns: AtomicU64::new(origin_ns),
            gates,
            changes: Changes::new(),
            next_table: NextTable::default(),
            moves: Moves::new(),
            stop: AtomicU32::new(0),
        }
    }

    pub(crate) fn joined(&self, server: usize) {
        self.gates[server].joined();
        sys::wake(&self.stop);
    }
}

pub(crate) struct Task {
    pub(crate) table: Table,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) closing: Closing,
    pub(crate) heartbeat: Arc<Heartbeat>,
    pub(crate) guard: libc::pid_t,
    pub(crate) on_wake: Option<OnWake>,
}

pub(crate) enum Failure {
    Spawn(io::Error),
    Cpu(io::Error),
    Priority(io::Error),
}

/// The size of the part of the dispatcher's stack that the dispatcher touches before its first
/// event, so that no page fault delays it later. The dispatcher uses only a few hundred bytes of
/// its stack.
const STACK_BYTES: usize = 32 << 10;

impl Dispatcher {
    /// Starts the dispatcher's thread and waits until the thread has its CPU and priority. The
    /// thread calls the function `watch` before its first event.
    pub(crate) fn start(
        task: Task,
        shared: Shared,
        (cpu, priority): (u16, u8),
        watch: fn(),
    ) -> Result<Dispatcher, Failure> {
        let shared = Arc::new(shared);
        let theirs = shared.clone();
        let (send, receive) = mpsc::channel();
        let body = move || {
            let prepare = || {
                sys::set_affinity(0, &[cpu]).map_err(Failure::Cpu)?;
                touch_stack(STACK_BYTES);
                sys::schedule(0, &Scheduling::fifo(priority)).map_err(Failure::Priority)?;
                Ok(sys::gettid())
            };
            let prepared = prepare();
            let fine = prepared.is_ok();
            let mut run = Run::new(&task, &theirs);
            let _ = send.send(prepared);
            drop(send);
            if fine {
                watch();
                run.until_stopped();
            }
        };
        let thread = std::thread::Builder::new()
            .name("onbeat-dispatch".into())
            .spawn(body)
            .map_err(Failure::Spawn)?;
        match receive.recv() {
            Ok(Ok(tid)) => Ok(Dispatcher {
                shared,
                thread: Some(thread),
                tid,
            }),
            Ok(Err(failure)) => Err(failure),
            Err(_) => Err(Failure::Spawn(io::Error::other(
                "the dispatcher thread ended before it was ready",
            ))),
        }
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    pub(crate) fn stop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.shared.stop.store(1, Relaxed);
            sys::wake(&self.shared.stop);
            let _ = thread.join();
        }
    }
}

#[inline(never)]
fn touch_stack(bytes: usize) {
    let mut page = [0u8; 4096];
    std::hint::black_box(&mut page);
    if bytes > page.len() {
        touch_stack(bytes - page.len());
    }
    std::hint::black_box(&mut page);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Permission {
    Given,
    /// All gates are open, because the guard has opened them or does not run.
    Withdrawn,
    /// The guard has granted a new lease. All gates stay open until the current round (one pass
    /// through the table of slots) ends.
    Returning,
    /// All gates are open for good, because the guard is dead.
    Lost,
}

/// The state of the dispatcher's thread. All of it is allocated before the first event, because
/// allocation is not real-time safe.
struct Run<'a> {
    table: Box<Table>,
    is_swap_due: bool,
    gates: Gates<'a>,
    heartbeat: &'a Heartbeat,
    on_wake: Option<&'a OnWake>,
    guard: libc::pid_t,
    shared: &'a Shared,
    walk: Walk,
    permission: Permission,
    is_leased: bool,
    is_guard_heard: bool,
    wanted: Box<[bool]>,
    /// For each server, whether its gate is open. `None` if opening or closing it failed, or if the
    /// guard may have opened the gate.
    actual: Box<[Option<bool>]>,
    leads: Leads,
    asked_ns: u64,
}

impl<'a> Run<'a> {
    fn new(task: &'a Task, shared: &'a Shared) -> Run<'a> {
        let table = Box::new(task.table.clone());
        let mut wanted = vec![true; table.servers()].into_boxed_slice();
        let origin_ns = shared.origin_ns.load(Relaxed);
        let walk = Walk::new(&table, origin_ns, monotonic_ns(), &mut wanted);
        // Gates are open when they are created.
        let actual = vec![Some(true); table.servers()].into_boxed_slice();
        let closing = (task.closing.kind, task.closing.waiting.as_deref());
        Run {
            table,
            is_swap_due: false,
            gates: Gates::new(&*task.backend, &shared.gates, closing, &shared.changes),
            heartbeat: &task.heartbeat,
            on_wake: task.on_wake.as_ref(),
            guard: task.guard,
            shared,
            walk,
            permission: Permission::Given,
            is_leased: true,
            is_guard_heard: true,
            wanted,
            actual,
            leads: Leads::new(task.table.lead_ns()),
            asked_ns: monotonic_ns(),
        }
    }

    fn due_ns(&self) -> u64 {
        if self.is_swap_due {
            return self.walk.base_ns();
        }
        let early = |event| self.leads.early_ns(&self.table, event);
        self.walk
            .wake_ns(&self.table, |server| !self.gates.is_unused(server), early)
    }

    /// Runs the dispatcher's loop. Real-time safe: it does not allocate and waits for no lock.
    fn until_stopped(&mut self) {
        let counters = &self.shared.counters;
        self.renew_lease(monotonic_ns());
        self.set_gates();
        let mut looked_ns = 0;
        while self.shared.stop.load(Relaxed) == 0 {
            let due_ns = self.due_ns();
            let now_ns = monotonic_ns();
            let beat_ns = now_ns + self.heartbeat.look_ns();
            let look_ns = match self.permission {
                Permission::Given => self.gates.next_look_ns(),
                _ => u64::MAX,
            };
            let wake_ns = due_ns.min(beat_ns).min(look_ns);
            if now_ns < wake_ns {
                sys::sleep_until(&self.shared.stop, wake_ns);
            }
            let now_ns = monotonic_ns();
            if let Some(on_wake) = self.on_wake {
                on_wake(now_ns);
            }
            self.asked_ns = wake_ns.max(looked_ns);
            self.renew_lease(now_ns);
            self.look_again(now_ns);
            if now_ns >= due_ns {
                // Events that became due because a first thread joined do not count as late.
                let is_event = !self.is_swap_due && !self.table.events().is_empty();
                if is_event && due_ns >= looked_ns {
                    counters.lateness.record(now_ns - due_ns);
                }
                self.handle_due_events(now_ns);
                counters.cpu_ns.store(thread_cpu_ns(), Relaxed);
            }
            self.set_gates();
            looked_ns = now_ns;
        }
    }

    fn look_again(&mut self, now_ns: u64) {
        if self.permission != Permission::Given {
            return;
        }
        let failures = self.gates.look_again(now_ns);
        let counters = &self.shared.counters;
        counters.close_failures.fetch_add(failures, Relaxed);
        if !self.table.events().is_empty() && !self.heartbeat.is_leased(monotonic_ns()) {
            self.withdraw();
        }
    }

    /// Renews the lease and decides whether gates may be closed. A table without gates needs no
    /// lease.
    fn renew_lease(&mut self, now_ns: u64) {
        if self.permission == Permission::Lost || self.table.events().is_empty() {
            return;
        }
        let pauses = &self.shared.counters.pauses;
        let is_leased = self.heartbeat.renew(now_ns);
        if !is_leased && self.is_leased {
            pauses.thawed_by_guard.fetch_add(1, Relaxed);
        }
        self.is_leased = is_leased;
        let is_guard_heard = !self.heartbeat.guard_is_silent(now_ns);
        if !is_guard_heard && self.is_guard_heard {
            pauses.guard_silent.fetch_add(1, Relaxed);
        }
        self.is_guard_heard = is_guard_heard;
        if is_leased && is_guard_heard {
            if self.permission == Permission::Withdrawn {
                self.permission = Permission::Returning;
            }
            return;
        }
        self.withdraw();
        if !is_guard_heard && !sys::is_running(self.guard) {
            pauses.guard_lost.store(true, Relaxed);
            self.permission = Permission::Lost;
        }
    }

    /// Marks all gates to be opened again. Their state is unknown: the guard may have opened them,
    /// or a late write of the dispatcher may have opened or closed them.
    fn withdraw(&mut self) {
        if self.permission == Permission::Withdrawn {
            return;
        }
        self.permission = Permission::Withdrawn;
        for server in 0..self.actual.len() {
            if self.table.is_gated(server) {
                self.actual[server] = None;
            }
        }
    }

    fn swap_table(&mut self, now_ns: u64) {
        if !self.is_swap_due || self.walk.base_ns() > now_ns {
            return;
        }
        self.is_swap_due = false;
        if self.shared.next_table.take(&mut self.table) {
            self.walk.swap(&self.table, &mut self.wanted);
        }
    }

    fn handle_due_events(&mut self, now_ns: u64) {
        let counters = &self.shared.counters;
        let rounds = self.walk.catch_up(&self.table, now_ns);
        counters.cycles.fetch_add(rounds, Relaxed);
        let slots = self.table.events().len() as u64 / 2;
        counters.skipped.fetch_add(rounds * slots, Relaxed);
        self.swap_table(now_ns);
        while !self.is_swap_due {
            let early_ns = self.leads.early_ns(&self.table, self.walk.next_event());
            if self.walk.next_ns(&self.table) > now_ns + early_ns {
                break;
            }
            let origin_ns = self.shared.origin_ns.load(Relaxed);
            let (event, ended) = self.walk.advance(&self.table, origin_ns);
            if let Some(event) = event {
                let server = event.server;
                if self.gates.is_unused(server) {
                    self.note_unmoved(server, event.open);
                } else if !event.open && self.wanted[server] && self.actual[server] == Some(false) {
                    counters.skipped.fetch_add(1, Relaxed);
                }
                self.wanted[server] = event.open;
            }
            if ended && self.permission == Permission::Returning {
                self.permission = Permission::Given;
            }
            if ended {
                self.is_swap_due = self.shared.next_table.is_given();
                counters.cycles.fetch_add(1, Relaxed);
                counters.behind_ns.store(self.walk.behind_ns(), Relaxed);
            }
        }
    }

    fn note_unmoved(&mut self, server: usize, open: bool) {
        self.gates.note_unmoved(server, open);
        self.actual[server] = Some(open);
    }

    /// Opens and closes gates so that each has its wanted state. Closes gates before it opens
    /// others. The dispatcher tries a failed opening or closing again at the next event.
    fn set_gates(&mut self) {
        for open in [false, true] {
            for server in 0..self.wanted.len() {
                let wanted = self.wanted[server] || self.permission != Permission::Given;
                if wanted != open || self.actual[server] == Some(open) {
                    continue;
                }
                match self.gates.is_unused(server) {
                    true => self.note_unmoved(server, open),
                    false => self.set_gate(server, open),
                }
            }
        }
    }

    fn set_gate(&mut self, server: usize, open: bool) {
        let counters = &self.shared.counters;
        let begin_ns = monotonic_ns();
        let result = match (open, self.permission) {
            (true, Permission::Given) => self.gates.open(server),
            (true, _) => self.gates.open_anyway(server),
            (false, _) => self.gates.close(server),
        };
        let (took, failures) = match open {
            true => (&counters.opening, &counters.open_failures),
            false => (&counters.closing, &counters.close_failures),
        };
        if result.is_err() {
            // The move may have succeeded in part.
            self.actual[server] = None;
            failures.fetch_add(1, Relaxed);
            return;
        }
        let now_ns = monotonic_ns();
        took.record(now_ns - begin_ns);
        if self.permission == Permission::Given {
            let delay_ns = now_ns.saturating_sub(self.asked_ns);
            self.leads.moved(open, delay_ns);
            self.shared.moves.note(Move {
                at_ns: now_ns,
                delay_ns,
                server,
                open,
            });
            counters.set_leads(self.leads.now_ns());
        }
        self.actual[server] = Some(open);
        if !open && !self.heartbeat.is_leased(now_ns) {
            // The lease ran out during the move. This gate is opened with the others.
            self.withdraw();
        }
    }
}
