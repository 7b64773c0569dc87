//! The gates as the dispatcher moves them. Hard gates freeze a thread wherever it is, soft gates
//! only while it waits.
//!
//! At the end of a slot a soft gate looks at the server's threads. If all of them wait, the gate
//! freezes them. If one is working, all of them drop to a normal priority and run on, because other
//! threads may need what they hold (a mutex, an interpreter). The gate looks again until all wait,
//! and then freezes them. If it is unknown whether a thread waits, no thread is frozen. At the
//! beginning of the slot the threads get their priority back.
//!
//! A thread may wake up between the look and the freeze. The gate therefore looks once more after
//! the freeze, and undoes it if a thread is still working [`FIRST_PAUSE_NS`] later.

mod changes;
mod members;
mod moves;

pub use changes::Change;
pub(crate) use changes::Changes;
pub(crate) use members::{Look, Members};
pub use moves::Move;
pub(crate) use moves::Moves;

use crate::backend::Backend;
use crate::server::RunningServer;
use crate::stats::GateCounters;
use crate::sys::{self, Scheduling};
use crate::waiting::{GateKind, Waiting};
use onbeat_time::clock::monotonic_ns;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};

const FIRST_PAUSE_NS: u64 = 200_000;
/// The longest pause between two checks of a thread that still works after its slot. Each pause is
/// twice the previous one. A check is therefore late by at most the time for which the thread has
/// worked since the slot's end.
const LONGEST_PAUSE_NS: u64 = 2_000_000;

pub(crate) struct Gate {
    pub(crate) members: Members,
    pub(crate) counters: GateCounters,
    /// Set when a thread has joined the gate. The thread may be working although the gate is shut.
    has_joined: AtomicBool,
    priority: u8,
}

impl Gate {
    pub(crate) fn new(server: &RunningServer) -> Gate {
        Gate {
            members: Members::default(),
            counters: GateCounters::new(),
            has_joined: AtomicBool::new(false),
            priority: server.priority,
        }
    }

    /// Makes the dispatcher check a new thread of the gate at its next wake-up. The thread must
    /// already be behind the gate.
    pub(crate) fn joined(&self) {
        self.has_joined.store(true, SeqCst);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    /// The slot is over, but a thread is still working. The gate checks its threads again at
    /// `look_ns`.
    Draining {
        since_ns: u64,
        look_ns: u64,
        pause_ns: u64,
    },
    /// The slot is over, and the state of a thread is unknown. No thread is frozen.
    Loose,
    /// The threads are frozen. If a thread still worked just after the freeze, the gate checks it
    /// again at `look_ns`.
    Frozen {
        look_ns: Option<u64>,
    },
    /// The slot is over, and the gate has no threads. The gate's cgroups were therefore not frozen.
    Empty,
}

/// The gates of all servers, for the dispatcher. Real-time safe: no method allocates, waits for a
/// lock, or loops over more than a server's threads.
pub(crate) struct Gates<'a> {
    backend: &'a dyn Backend,
    gates: &'a [Gate],
    kind: GateKind,
    waiting: Option<&'a dyn Waiting>,
    changes: &'a Changes,
    states: Box<[State]>,
    schedule: fn(u32, &Scheduling) -> io::Result<()>,
}

#[derive(Debug, Clone, Copy)]
struct State {
    phase: Phase,
    is_dropped: bool,
    /// Whether at least one cgroup of the gate may be frozen. After a failure, one cgroup can be
    /// frozen and another not.
    may_be_shut: bool,
}

impl<'a> Gates<'a> {
    pub(crate) fn new(
        backend: &'a dyn Backend,
        gates: &'a [Gate],
        (kind, waiting): (GateKind, Option<&'a dyn Waiting>),
        changes: &'a Changes,
    ) -> Gates<'a> {
        let open = State {
            phase: Phase::Open,
            is_dropped: false,
            may_be_shut: false,
        };
        Gates {
            backend,
            gates,
            kind,
            waiting,
            changes,
            states: vec![open; gates.len()].into(),
            schedule: sys::schedule,
        }
    }

    /// Reports whether the server's gate never had a thread. The dispatcher need not open or close
    /// such a gate.
    pub(crate) fn is_unused(&self, server: usize) -> bool {
        !self.gates[server].members.had_threads()
    }

    /// Records that a slot has begun (`open`) or ended while the gate had no thread, so that the
    /// gate itself did not move. From this record the dispatcher knows whether a slot is open when
    /// a thread joins the gate later.
    pub(crate) fn note_unmoved(&mut self, server: usize, open: bool) {
        self.states[server].phase = match open {
            true => Phase::Open,
            false => Phase::Empty,
        };
    }

    /// Begins a slot: raises the priority of the server's threads and lets them run. If their
    /// priority cannot be raised, they still run, and the returned error makes the dispatcher try
    /// again.
    pub(crate) fn open(&mut self, server: usize) -> io::Result<()> {
        let raised = match self.states[server].is_dropped {
            true => self.set_priorities(server, true),
            false => Ok(()),
        };
        self.thaw(server)?;
        if matches!(self.states[server].phase, Phase::Draining { .. }) {
            self.gates[server].counters.unfinished.fetch_add(1, Relaxed);
        }
        self.states[server].phase = Phase::Open;
        raised
    }

    fn thaw(&mut self, server: usize) -> io::Result<()> {
        if self.states[server].may_be_shut {
            self.backend.open(server)?;
            self.states[server].may_be_shut = false;
        }
        Ok(())
    }

    fn shut(&mut self, server: usize) -> io::Result<()> {
        self.states[server].may_be_shut = true;
        self.backend.close(server)
    }

    /// Opens the kernel's gate even if it should already be open. The guard may have opened it, and
    /// a late write of the dispatcher may then have shut it again. The threads run first and get
    /// their priority afterwards.
    pub(crate) fn open_anyway(&mut self, server: usize) -> io::Result<()> {
        self.backend.open(server)?;
        self.states[server].may_be_shut = false;
        self.states[server].phase = Phase::Open;
        match self.states[server].is_dropped {
            true => self.set_priorities(server, true),
            false => Ok(()),
        }
    }

    /// Ends a slot: freezes the threads, or lets them finish their work at a normal priority.
    pub(crate) fn close(&mut self, server: usize) -> io::Result<()> {
        let look = self.look(server);
        let is_hard = self.kind == GateKind::Hard;
        if is_hard {
            self.shut(server)?;
            self.states[server].phase = Phase::Frozen { look_ns: None };
        } else {
            match look {
                Look::AllWait => self.freeze(server)?,
                Look::OneWorks => self.begin_draining(server)?,
                Look::OneUnknown => self.run_at_normal_priority(server)?,
            }
        }
        let counters = &self.gates[server].counters;
        counters.ends.fetch_add(1, Relaxed);
        match look {
            Look::AllWait => {}
            Look::OneWorks => {
                counters.working.fetch_add(1, Relaxed);
                counters.hard.fetch_add(is_hard.into(), Relaxed);
            }
            Look::OneUnknown => {
                counters.unknown.fetch_add(1, Relaxed);
            }
        }
        Ok(())
    }

    /// Returns the instant at which [`look_again`](Gates::look_again) is due, or `u64::MAX` if no
    /// thread needs it.
    pub(crate) fn next_look_ns(&self) -> u64 {
        let looks = self.states.iter().map(|s| match s.phase {
            Phase::Draining { look_ns, .. } => look_ns,
            Phase::Frozen { look_ns } => look_ns.unwrap_or(u64::MAX),
            Phase::Open | Phase::Loose | Phase::Empty => u64::MAX,
        });
        looks.min().unwrap_or(u64::MAX)
    }

    /// Checks again the threads of gates that should be shut. Returns the number of operations that
    /// failed. The dispatcher tries them again.
    pub(crate) fn look_again(&mut self, now_ns: u64) -> u64 {
        let mut failures = 0;
        for server in 0..self.gates.len() {
            let joined = self.gates[server].has_joined.swap(false, SeqCst);
            let moved = match self.states[server].phase {
                Phase::Empty if joined => self.close(server),
                Phase::Open | Phase::Empty => Ok(()),
                _ if self.kind == GateKind::Hard => Ok(()),
                Phase::Draining { .. } | Phase::Loose if joined => self
                    .set_priorities(server, false)
                    .and_then(|()| self.begin_draining(server)),
                Phase::Loose => Ok(()),
                Phase::Draining { look_ns, .. } if look_ns > now_ns => Ok(()),
                Phase::Draining { .. } => self.look_while_draining(server, now_ns),
                Phase::Frozen { .. } if joined => self.joined_frozen(server),
                Phase::Frozen { look_ns: Some(at) } if at <= now_ns => {
                    self.look_after_freeze(server, now_ns)
                }
                Phase::Frozen { .. } => Ok(()),
            };
            failures += u64::from(moved.is_err());
        }
        failures
    }

    fn look_while_draining(&mut self, server: usize, now_ns: u64) -> io::Result<()> {
        let Phase::Draining {
            since_ns, pause_ns, ..
        } = self.states[server].phase
        else {
            return Ok(());
        };
        let pause_ns = (2 * pause_ns).min(LONGEST_PAUSE_NS);
        self.states[server].phase = Phase::Draining {
            since_ns,
            look_ns: now_ns + pause_ns,
            pause_ns,
        };
        match self.look(server) {
            Look::AllWait => {
                self.freeze(server)?;
                let waited = &self.gates[server].counters.waited;
                waited.record(now_ns.saturating_sub(since_ns));
                Ok(())
            }
            Look::OneWorks => Ok(()),
            Look::OneUnknown => self.run_at_normal_priority(server),
        }
    }

    /// Sets the priority of a thread that joined a frozen gate to that of the gate's other threads.
    /// Otherwise the thread would run at its server's priority outside of the slot once it is
    /// released.
    fn joined_frozen(&mut self, server: usize) -> io::Result<()> {
        let given = match self.states[server].is_dropped {
            true => self.set_priorities(server, false),
            false => Ok(()),
        };
        if given.is_err() {
            self.gates[server].joined();
        }
        self.confirm(server);
        given
    }

    /// Checks a thread again that was working just after it was frozen. Such a thread had woken up
    /// between the check and the freeze, or the kernel let it run on until it froze.
    fn look_after_freeze(&mut self, server: usize, now_ns: u64) -> io::Result<()> {
        let look = self.look(server);
        let again = look != Look::AllWait;
        // If the freeze cannot be undone, it is tried again.
        let look_ns = again.then_some(now_ns + LONGEST_PAUSE_NS);
        self.states[server].phase = Phase::Frozen { look_ns };
        match look {
            Look::AllWait => return Ok(()),
            Look::OneWorks => self.begin_draining(server)?,
            Look::OneUnknown => self.run_at_normal_priority(server)?,
        }
        let counters = &self.gates[server].counters;
        counters.taken_back.fetch_add(1, Relaxed);
        Ok(())
    }

    fn freeze(&mut self, server: usize) -> io::Result<()> {
        self.shut(server)?;
        self.confirm(server);
        Ok(())
    }

    fn confirm(&mut self, server: usize) {
        let doubt = self.look(server) != Look::AllWait;
        let look_ns = doubt.then(|| monotonic_ns() + FIRST_PAUSE_NS);
        self.states[server].phase = Phase::Frozen { look_ns };
    }

    fn begin_draining(&mut self, server: usize) -> io::Result<()> {
        self.run_at_normal_priority(server)?;
        let now_ns = monotonic_ns();
        self.states[server].phase = Phase::Draining {
            since_ns: now_ns,
            look_ns: now_ns + FIRST_PAUSE_NS,
            pause_ns: FIRST_PAUSE_NS,
        };
        Ok(())
    }

    fn run_at_normal_priority(&mut self, server: usize) -> io::Result<()> {
        if !self.states[server].is_dropped {
            self.set_priorities(server, false)?;
        }
        self.thaw(server)?;
        self.states[server].phase = Phase::Loose;
        Ok(())
    }

    /// With `is_raised`, raises the priority of all the gate's threads to the server's, otherwise
    /// drops it to a normal one. Tries all threads, then returns the last failure.
    fn set_priorities(&mut self, server: usize, is_raised: bool) -> io::Result<()> {
        let gate = &self.gates[server];
        let scheduling = match (gate.priority, is_raised) {
            (0, _) => return Ok(()),
            (priority, true) => Scheduling::round_robin(priority),
            (_, false) => Scheduling::other(),
        };
        let mut result = Ok(());
        gate.members.for_each(|tid| {
            if let Err(e) = (self.schedule)(tid, &scheduling) {
                // ESRCH: the thread has ended meanwhile.
                if e.raw_os_error() != Some(libc::ESRCH) {
                    result = Err(e);
                }
            }
        });
        self.changes.note(server, monotonic_ns(), is_raised);
        if result.is_ok() {
            self.states[server].is_dropped = !is_raised;
        }
        result
    }

    fn look(&self, server: usize) -> Look {
        self.gates[server].members.look(self.waiting)
    }
}

#[cfg(test)]
mod tests;
