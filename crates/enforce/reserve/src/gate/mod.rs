//! Gates as the dispatcher moves them: hard ones freeze a thread wherever it is, soft ones only
//! while it waits.
//!
//! At the end of a slot a soft gate looks at the server's threads. If all wait, it freezes them. If
//! one is at work, all of them drop to a normal priority and run on, because what they hold (a
//! mutex, an interpreter) others may need; the gate looks again until all wait, and freezes then.
//! If it is not known whether a thread waits, none is frozen. At the begin of the slot the priority
//! comes back.
//!
//! Between looking and freezing a thread may wake up: the gate looks once more after the freeze, and
//! takes it back if a thread is still at work [`FIRST_PAUSE_NS`] later.

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

/// The first pause between two looks at threads that are at work.
const FIRST_PAUSE_NS: u64 = 200_000;
/// The longest: each pause is twice the one before, so that a look is late by no more than the time
/// that has passed.
const LONGEST_PAUSE_NS: u64 = 2_000_000;

/// What the dispatcher shares with its owner about one server's gate.
pub(crate) struct Gate {
    pub(crate) members: Members,
    pub(crate) counters: GateCounters,
    /// A thread has joined: the gate may be shut, and the thread at work.
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

    /// A thread that is a member now has been put behind the gate: the dispatcher looks at it at its
    /// next wake-up.
    pub(crate) fn joined(&self) {
        self.has_joined.store(true, SeqCst);
    }
}

/// Where a soft gate is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// In a slot.
    Open,
    /// The slot is over, but a thread is at work. Looked at again at an instant.
    Draining {
        since_ns: u64,
        look_ns: u64,
        pause_ns: u64,
    },
    /// The slot is over, but it is not known what a thread does.
    Loose,
    /// The threads are frozen. If one was at work just after, it is looked at again at an instant.
    Frozen { look_ns: Option<u64> },
    /// The slot is over, and nobody was behind the gate: the kernel's gate was not moved.
    Empty,
}

/// All gates, in the dispatcher's hands. Real-time safe: no method allocates, takes a lock, or loops
/// over more than a server's threads.
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
    /// Whether the threads have a normal priority.
    is_dropped: bool,
    /// Whether a group of the gate may be frozen: also one of several, where another failed.
    may_be_shut: bool,
}

impl<'a> Gates<'a> {
    /// All gates are open.
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

    /// Whether nobody was ever behind the server's gate: it need not be moved.
    pub(crate) fn is_unused(&self, server: usize) -> bool {
        !self.gates[server].members.were_there()
    }

    /// A slot of a server begins or ends whose gate is unused: only noted, for a thread that joins.
    pub(crate) fn pass(&mut self, server: usize, open: bool) {
        self.states[server].phase = match open {
            true => Phase::Open,
            false => Phase::Empty,
        };
    }

    /// A slot begins: the server's threads run, at its priority. Where the priority cannot be given
    /// back they run all the same; it is tried again with the returned failure.
    pub(crate) fn open(&mut self, server: usize) -> io::Result<()> {
        let raised = match self.states[server].is_dropped {
            true => self.give(server, true),
            false => Ok(()),
        };
        self.let_run(server)?;
        if matches!(self.states[server].phase, Phase::Draining { .. }) {
            self.gates[server].counters.unfinished.fetch_add(1, Relaxed);
        }
        self.states[server].phase = Phase::Open;
        raised
    }

    /// Opens the kernel's gate if any part of it may be shut.
    fn let_run(&mut self, server: usize) -> io::Result<()> {
        if self.states[server].may_be_shut {
            self.backend.open(server)?;
            self.states[server].may_be_shut = false;
        }
        Ok(())
    }

    /// Shuts the kernel's gate. If that fails, a part of it may be shut.
    fn shut(&mut self, server: usize) -> io::Result<()> {
        self.states[server].may_be_shut = true;
        self.backend.close(server)
    }

    /// All threads are to run, whatever this side believes of the gate: who watches it may have
    /// opened it, and a write of ours may have come later. First they run, then they have their
    /// priority.
    pub(crate) fn open_anyway(&mut self, server: usize) -> io::Result<()> {
        self.backend.open(server)?;
        self.states[server].may_be_shut = false;
        self.states[server].phase = Phase::Open;
        match self.states[server].is_dropped {
            true => self.give(server, true),
            false => Ok(()),
        }
    }

    /// A slot ends.
    pub(crate) fn close(&mut self, server: usize) -> io::Result<()> {
        let look = self.look(server);
        let is_hard = self.kind == GateKind::Hard;
        if is_hard {
            self.shut(server)?;
            self.states[server].phase = Phase::Frozen { look_ns: None };
        } else {
            match look {
                Look::AllWait => self.freeze(server)?,
                Look::OneWorks => self.drain(server)?,
                Look::OneUnknown => self.loosen(server)?,
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

    /// When [`look_again`](Gates::look_again) has something to do; `u64::MAX`: never.
    pub(crate) fn next_look_ns(&self) -> u64 {
        let looks = self.states.iter().map(|s| match s.phase {
            Phase::Draining { look_ns, .. } => look_ns,
            Phase::Frozen { look_ns } => look_ns.unwrap_or(u64::MAX),
            Phase::Open | Phase::Loose | Phase::Empty => u64::MAX,
        });
        looks.min().unwrap_or(u64::MAX)
    }

    /// Looks at the threads of gates that should be shut. Returns the number of failures; each is
    /// tried again.
    pub(crate) fn look_again(&mut self, now_ns: u64) -> u64 {
        let mut failures = 0;
        for server in 0..self.gates.len() {
            let joined = self.gates[server].has_joined.swap(false, SeqCst);
            let moved = match self.states[server].phase {
                Phase::Empty if joined => self.close(server),
                Phase::Open | Phase::Empty => Ok(()),
                _ if self.kind == GateKind::Hard => Ok(()),
                Phase::Draining { .. } | Phase::Loose if joined => {
                    self.give(server, false).and_then(|()| self.drain(server))
                }
                Phase::Loose => Ok(()),
                Phase::Draining { look_ns, .. } if look_ns > now_ns => Ok(()),
                Phase::Draining { .. } => self.drained(server, now_ns),
                Phase::Frozen { .. } if joined => self.joined_frozen(server),
                Phase::Frozen { look_ns: Some(at) } if at <= now_ns => self.doubted(server, now_ns),
                Phase::Frozen { .. } => Ok(()),
            };
            failures += u64::from(moved.is_err());
        }
        failures
    }

    /// The threads were at work when they were last looked at.
    fn drained(&mut self, server: usize, now_ns: u64) -> io::Result<()> {
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
            Look::OneUnknown => self.loosen(server),
        }
    }

    /// A thread has joined others that are frozen: it has the priority that they have, so that it
    /// does not run at its server's outside the slot when it is let go.
    fn joined_frozen(&mut self, server: usize) -> io::Result<()> {
        let given = match self.states[server].is_dropped {
            true => self.give(server, false),
            false => Ok(()),
        };
        if given.is_err() {
            self.gates[server].joined();
        }
        self.confirm(server);
        given
    }

    /// A thread was at work just after it was frozen: it had woken up meanwhile, or the kernel let it
    /// run into the freezer.
    fn doubted(&mut self, server: usize, now_ns: u64) -> io::Result<()> {
        let look = self.look(server);
        let again = look != Look::AllWait;
        // If it cannot be taken back: tried again.
        let look_ns = again.then_some(now_ns + LONGEST_PAUSE_NS);
        self.states[server].phase = Phase::Frozen { look_ns };
        match look {
            Look::AllWait => return Ok(()),
            Look::OneWorks => self.drain(server)?,
            Look::OneUnknown => self.loosen(server)?,
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

    /// The threads are frozen: whether all of them waited is seen now, or a moment later.
    fn confirm(&mut self, server: usize) {
        let doubt = self.look(server) != Look::AllWait;
        let look_ns = doubt.then(|| monotonic_ns() + FIRST_PAUSE_NS);
        self.states[server].phase = Phase::Frozen { look_ns };
    }

    /// Lets the threads run at a normal priority until they wait.
    fn drain(&mut self, server: usize) -> io::Result<()> {
        self.loosen(server)?;
        let now_ns = monotonic_ns();
        self.states[server].phase = Phase::Draining {
            since_ns: now_ns,
            look_ns: now_ns + FIRST_PAUSE_NS,
            pause_ns: FIRST_PAUSE_NS,
        };
        Ok(())
    }

    /// Lets the threads run at a normal priority.
    fn loosen(&mut self, server: usize) -> io::Result<()> {
        if !self.states[server].is_dropped {
            self.give(server, false)?;
        }
        self.let_run(server)?;
        self.states[server].phase = Phase::Loose;
        Ok(())
    }

    /// Gives all threads the server's priority, or a normal one. The last failure is returned, after
    /// all were tried.
    fn give(&mut self, server: usize, is_raised: bool) -> io::Result<()> {
        let gate = &self.gates[server];
        let scheduling = match (gate.priority, is_raised) {
            (0, _) => return Ok(()),
            (priority, true) => Scheduling::round_robin(priority),
            (_, false) => Scheduling::other(),
        };
        let mut result = Ok(());
        gate.members.for_each(|tid| {
            if let Err(e) = (self.schedule)(tid, &scheduling) {
                // It has ended meanwhile.
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
