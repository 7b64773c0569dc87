//! Cuts every execution of every chain into stretches, for tables and for live models.

use crate::cut::{By, Piece};
use crate::facts::Facts;
pub use crate::facts::{Copied, News, Watch};
use crate::follow::{Ended, Follow};
use crate::history::Room;
use crate::kind::{Kind, Reason};
use onbeat_synth::detail::ExecutionSeen;
use onbeat_synth::followed::{Asked, ChainEnd, Held, Joined, Shaped};
use onbeat_synth::Synth;
use onbeat_trace::{CallKind, Event};

/// The longest latency for which onbeat keeps the history of threads. In longer executions, the
/// stretches before that history are unknown.
const LONGEST_NS: u64 = 60_000_000_000;

/// The culprit of a [`Cut`], as a number that the synthesis has given it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CulpritId {
    /// A callback, as an index into [`Synth::callback_ids`].
    Callback(u32),
    /// The component that had the CPU, as an index into [`Synth::components`].
    Thread(u32),
    /// The component that held the mutex, as an index into [`Synth::components`].
    MutexOf(u32),
    /// The component that woke up the thread, as an index into [`Synth::components`].
    WokenBy(u32),
    /// The kind of call in which the thread slept.
    Call(CallKind),
    /// The port of the socket that was full.
    Socket(u16),
}

/// A stretch of an execution. It contains numbers of the synthesis instead of names.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// The instant at which the stretch begins, CLOCK_MONOTONIC.
    pub begin_ns: u64,
    pub end_ns: u64,
    /// The number of the callback to whose part of the latency the stretch belongs.
    pub place: u32,
    pub kind: Kind,
    /// The callback, thread or mutex owner that caused the stretch. `None` if stretches of this
    /// kind have no culprit, or if the culprit is unknown.
    pub by: Option<CulpritId>,
    /// The state of the culprit during the stretch, and the culprit of this state. `None` if the
    /// culprit ran on a CPU without interruption.
    pub during: Option<(Kind, Option<CulpritId>)>,
    /// The reason why the kind is unknown. `None` for all other kinds.
    pub reason: Option<Reason>,
}

/// Cuts all executions of all chains into stretches while the caller makes a model from the same
/// events. `T` is data that the caller adds to each execution and gets back with its stretches.
#[derive(Debug, Clone)]
pub struct Every<T> {
    follow: Follow<T>,
}

impl<T> Default for Every<T> {
    fn default() -> Every<T> {
        Every {
            follow: Follow::new(LONGEST_NS),
        }
    }
}

impl<T> Every<T> {
    /// Returns an object that cuts the executions of a running system. Its memory grows for some
    /// minutes and then stays flat.
    pub fn of_running() -> Every<T> {
        Every {
            follow: Follow::with_room(LONGEST_NS, Room::OF_RUNNING),
        }
    }

    /// Processes the next event. Afterwards the caller must push the event to the synthesis.
    pub fn push(&mut self, event: &Event) {
        self.follow.push(event);
    }

    /// Takes the waits and joins out of the synthesis. The caller must have called
    /// [`Synth::detail`] before. If the synthesis has reported executions at the same time, the
    /// caller must call this function before it passes these executions to [`Every::ended`].
    pub fn take(&mut self, synth: &mut Synth) {
        self.take_seeing(synth, |_| {});
    }

    /// Does the same as [`Every::take`], and calls `seen` with each wait for a CPU.
    pub fn take_seeing(&mut self, synth: &mut Synth, mut seen: impl FnMut(&Held)) {
        // The parts of one wait are reported latest first, and the history takes parts in order faster.
        let mut all_held: Vec<Held> = synth.drain_held().collect();
        all_held.sort_by_key(|held| held.begin_ns);
        for held in all_held {
            seen(&held);
            self.held(held);
        }
        for joined in synth.drain_joins() {
            self.joined(joined);
        }
        for asked in synth.drain_asked() {
            self.asked(asked);
        }
        for shaped in synth.drain_shaped() {
            self.shaped(shaped);
        }
        synth.drain_arrivals();
    }

    /// Adds a thread's wait for a CPU to its history.
    pub fn held(&mut self, held: Held) {
        self.follow.held(held);
    }

    /// Adds an answered request.
    pub fn asked(&mut self, asked: Asked) {
        self.follow.asked(asked);
    }

    /// Adds an item that a shaper held back and sent.
    pub fn shaped(&mut self, shaped: Shaped) {
        self.follow.shaped(shaped);
    }

    /// Adds a join of a synchroniser.
    pub fn joined(&mut self, joined: Joined) {
        self.follow.joined(joined);
    }

    /// Forgets the callbacks for which `is_gone` returns true, because the synthesis uses their
    /// numbers for other callbacks from now on.
    pub fn forget(&mut self, is_gone: impl Fn(u32) -> bool) {
        self.follow.forget_callbacks(is_gone);
    }

    /// Adds a callback's execution to the history of its thread.
    pub fn ran(&mut self, ran: &ExecutionSeen) {
        let times = (ran.start_ns, ran.end_ns, ran.callback);
        self.follow.ran(ran.tid, times);
    }

    /// Adds an execution of a chain. The caller gets `what` back together with the stretches of
    /// this execution.
    pub fn ended(&mut self, end: ChainEnd, what: T) {
        self.follow.ended(Ended {
            steps: end.steps,
            end: end.end_ns,
            what,
        });
    }

    /// Adds a copy of an execution of a chain, as [`Every::ended`] does.
    pub fn ended_like(&mut self, end: &ChainEnd, what: T) {
        let mut steps = self.follow.spare();
        steps.extend_from_slice(&end.steps);
        self.follow.ended(Ended {
            steps,
            end: end.end_ns,
            what,
        });
    }

    /// Calls `report` for each execution that later events cannot change. `report` gets the
    /// caller's data and the execution's stretches. At the end of the events, set `all` to report
    /// the rest.
    pub fn cut(&mut self, synth: &mut Synth, all: bool, report: impl FnMut(T, &[Cut])) {
        self.cut_by(synth, all, report);
    }

    /// Reports whether later events cannot change the next execution, so that it can be cut.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.follow.is_due()
    }

    /// Does the same as [`Every::cut`], with a copy of the synthesis's facts. The culprits of the
    /// stretches have the numbers of the copy's components.
    pub fn cut_apart(&mut self, facts: &mut Copied, all: bool, report: impl FnMut(T, &[Cut])) {
        self.cut_by(facts, all, report);
    }

    fn cut_by(&mut self, facts: &mut impl Facts, all: bool, mut report: impl FnMut(T, &[Cut])) {
        let mut cuts = Vec::new();
        while let Some((ended, pieces)) = self.follow.cut_next(facts, all) {
            cuts.clear();
            cuts.extend(pieces.iter().map(Cut::of));
            report(ended.what, &cuts);
            self.follow.take_back(ended.steps, pieces);
        }
        self.follow.forget();
    }
}

impl Cut {
    fn of(piece: &Piece) -> Cut {
        Cut {
            begin_ns: piece.begin,
            end_ns: piece.end,
            place: piece.place,
            kind: piece.kind,
            by: culprit_id(piece.by),
            during: piece.meanwhile.map(|m| (m.kind, culprit_id(m.by))),
            reason: match piece.by {
                By::Reason(reason) => Some(reason),
                _ => None,
            },
        }
    }
}

fn culprit_id(by: By) -> Option<CulpritId> {
    match by {
        By::Nobody | By::Reason(_) => None,
        By::Callback(callback) => Some(CulpritId::Callback(callback)),
        By::Thread(n) => Some(CulpritId::Thread(n)),
        By::Owner(n) => Some(CulpritId::MutexOf(n)),
        By::Waker(n) => Some(CulpritId::WokenBy(n)),
        By::Call(call) => Some(CulpritId::Call(call)),
        By::Socket(port) => Some(CulpritId::Socket(port)),
    }
}
