//! The thread that opens and closes the gates at the table's instants.

use crate::backend::Backend;
use crate::gate::{Changes, Gate, Gates};
use crate::stats::Counters;
use crate::sys::{self, Scheduling};
use crate::table::{Table, Walk};
use crate::waiting::{GateKind, Waiting};
use onbeat_time::clock::{monotonic_ns, thread_cpu_ns};
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{mpsc, Arc};
use std::thread::JoinHandle;

/// What the dispatcher shares with other threads. It contains no lock.
pub(crate) struct Shared {
    pub(crate) counters: Counters,
    pub(crate) origin_ns: AtomicU64,
    /// By server.
    pub(crate) gates: Box<[Gate]>,
    pub(crate) changes: Changes,
    /// The dispatcher ends when it is not 0.
    stop: AtomicU32,
}

/// The dispatcher's thread, as its owner has it.
pub(crate) struct Dispatcher {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    pub(crate) tid: u32,
}

/// How gates close.
#[derive(Clone)]
pub(crate) struct Closing {
    pub(crate) kind: GateKind,
    pub(crate) waiting: Option<Arc<dyn Waiting>>,
}

impl Shared {
    /// No event yet. A cycle begins at `origin_ns`.
    pub(crate) fn new(gates: Box<[Gate]>, origin_ns: u64) -> Shared {
        Shared {
            counters: Counters::new(),
            origin_ns: AtomicU64::new(origin_ns),
            gates,
            changes: Changes::new(),
            stop: AtomicU32::new(0),
        }
    }

    /// A thread was put behind the gate of a server: the dispatcher looks at it now.
    pub(crate) fn joined(&self, server: usize) {
        self.gates[server].joined();
        sys::wake(&self.stop);
    }
}

/// The step of the dispatcher's start that failed.
pub(crate) enum Failure {
    Spawn(io::Error),
    Cpu(io::Error),
    Priority(io::Error),
}

/// Stack that is touched before the first event. The dispatcher needs some hundred bytes.
const STACK_BYTES: usize = 32 << 10;

impl Dispatcher {
    /// Starts the thread and waits until it has its CPU and priority. The thread calls `watch`
    /// before its first event.
    pub(crate) fn start(
        table: Table,
        backend: Arc<dyn Backend>,
        shared: Shared,
        closing: Closing,
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
            let mut run = Run::new(&table, &*backend, &theirs, &closing);
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
            Err(_) => Err(Failure::Spawn(io::Error::other("it ended at once"))),
        }
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Ends the thread. Gates stay as they are.
    pub(crate) fn stop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.shared.stop.store(1, Relaxed);
            sys::wake(&self.shared.stop);
            let _ = thread.join();
        }
    }
}

/// Writes to this many bytes of the stack, so that no page of it is missing later.
#[inline(never)]
fn touch_stack(bytes: usize) {
    let mut page = [0u8; 4096];
    std::hint::black_box(&mut page);
    if bytes > page.len() {
        touch_stack(bytes - page.len());
    }
    std::hint::black_box(&mut page);
}

/// State of the dispatcher's thread, complete before the first event.
struct Run<'a> {
    table: &'a Table,
    gates: Gates<'a>,
    shared: &'a Shared,
    walk: Walk,
    /// By server: whether its gate should be open.
    wanted: Box<[bool]>,
    /// By server: whether its gate is open.
    actual: Box<[bool]>,
}

impl<'a> Run<'a> {
    fn new(
        table: &'a Table,
        backend: &'a dyn Backend,
        shared: &'a Shared,
        closing: &'a Closing,
    ) -> Run<'a> {
        let mut wanted = vec![true; table.servers()].into_boxed_slice();
        let origin_ns = shared.origin_ns.load(Relaxed);
        let walk = Walk::new(table, origin_ns, monotonic_ns(), &mut wanted);
        // Gates are open when they are created.
        let actual = vec![true; table.servers()].into_boxed_slice();
        let closing = (closing.kind, closing.waiting.as_deref());
        Run {
            table,
            gates: Gates::new(backend, &shared.gates, closing, &shared.changes),
            shared,
            walk,
            wanted,
            actual,
        }
    }

    /// The dispatcher's loop. Real-time safe: it does not allocate and takes no lock.
    fn until_stopped(&mut self) {
        let counters = &self.shared.counters;
        self.set_gates();
        while self.shared.stop.load(Relaxed) == 0 {
            let due_ns = self.walk.next_ns(self.table);
            let wake_ns = due_ns.min(self.gates.next_look_ns());
            if monotonic_ns() < wake_ns {
                sys::sleep_until(&self.shared.stop, wake_ns);
            }
            let now_ns = monotonic_ns();
            let failures = self.gates.look_again(now_ns);
            counters.close_failures.fetch_add(failures, Relaxed);
            if now_ns < due_ns {
                continue; // woken to look, to stop, or by a signal
            }
            if !self.table.events().is_empty() {
                counters.lateness.record(now_ns - due_ns);
            }
            self.take_due(now_ns);
            self.set_gates();
            counters.cpu_ns.store(thread_cpu_ns(), Relaxed);
        }
    }

    /// Takes all events that are due: at most two rounds of them.
    fn take_due(&mut self, now_ns: u64) {
        let counters = &self.shared.counters;
        let rounds = self.walk.catch_up(self.table, now_ns);
        counters.cycles.fetch_add(rounds, Relaxed);
        let slots = self.table.events().len() as u64 / 2;
        counters.skipped.fetch_add(rounds * slots, Relaxed);
        while self.walk.next_ns(self.table) <= now_ns {
            let origin_ns = self.shared.origin_ns.load(Relaxed);
            let (event, ended) = self.walk.advance(self.table, origin_ns);
            if let Some(event) = event {
                let server = event.server;
                if !event.open && self.wanted[server] && !self.actual[server] {
                    counters.skipped.fetch_add(1, Relaxed);
                }
                self.wanted[server] = event.open;
            }
            if ended {
                counters.cycles.fetch_add(1, Relaxed);
                counters.behind_ns.store(self.walk.behind_ns(), Relaxed);
            }
        }
    }

    /// Opens and closes gates as wanted: closes first. A failure is tried again at the next event.
    fn set_gates(&mut self) {
        let counters = &self.shared.counters;
        for open in [false, true] {
            for server in 0..self.wanted.len() {
                if self.wanted[server] != open || self.actual[server] == open {
                    continue;
                }
                let begin_ns = monotonic_ns();
                let (result, took, failures) = match open {
                    true => (
                        self.gates.open(server),
                        &counters.opening,
                        &counters.open_failures,
                    ),
                    false => (
                        self.gates.close(server),
                        &counters.closing,
                        &counters.close_failures,
                    ),
                };
                match result {
                    Ok(()) => {
                        took.record(monotonic_ns() - begin_ns);
                        self.actual[server] = open;
                    }
                    Err(_) => {
                        failures.fetch_add(1, Relaxed);
                    }
                }
            }
        }
    }
}
