//! Cuts every execution of every chain into stretches, for tables.

use crate::cut::{By, Piece};
use crate::follow::{Ended, Follow};
use crate::kind::{Kind, Reason};
use onbeat_synth::detail::ExecutionSeen;
use onbeat_synth::followed::{ChainEnd, Held};
use onbeat_synth::Synth;
use onbeat_trace::Event;

/// Executions with larger latencies are cut with less history than [`Why`](crate::Why) keeps for
/// them. What lies before it is unknown then.
const LONGEST_NS: u64 = 60_000_000_000;

/// The culprit of a [`Cut`], as a number of the synthesis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whom {
    /// A callback: an index into [`Synth::callback_ids`].
    Callback(u32),
    /// The component that had the CPU: an index into [`Synth::components`].
    Thread(u32),
    /// The component that held the mutex.
    MutexOf(u32),
    /// The component that woke up the thread.
    WokenBy(u32),
}

/// A stretch with numbers in place of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// The start, CLOCK_MONOTONIC.
    pub begin_ns: u64,
    /// The end.
    pub end_ns: u64,
    /// The number of the callback in whose share the stretch lies.
    pub place: u32,
    /// The kind of stretch.
    pub kind: Kind,
    /// The culprit.
    pub by: Option<Whom>,
    /// The culprit's state meanwhile, if it did not simply run, with the culprit of that state.
    pub during: Option<(Kind, Option<Whom>)>,
    /// Why the kind is unknown.
    pub reason: Option<Reason>,
}

/// Cuts all executions of all chains while the caller synthesises a model. `T` is what the caller
/// knows of an execution.
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
    /// Processes the next event. The caller must push it to the synthesis after that.
    pub fn push(&mut self, event: &Event) {
        self.follow.push(event);
    }

    /// Takes waits and joins out of the synthesis, which must keep details. The caller must call this
    /// before it passes on the executions that were reported beside them.
    pub fn take(&mut self, synth: &mut Synth) {
        self.take_seeing(synth, |_| {});
    }

    /// Does the same as [`Every::take`], and shows each wait to `seen`.
    pub fn take_seeing(&mut self, synth: &mut Synth, mut seen: impl FnMut(&Held)) {
        for held in synth.drain_held() {
            seen(&held);
            self.follow.held(held);
        }
        for joined in synth.drain_joins() {
            self.follow.joined(joined);
        }
        synth.drain_arrivals();
    }

    /// Adds an execution of a callback.
    pub fn ran(&mut self, ran: &ExecutionSeen) {
        let times = (ran.start_ns, ran.end_ns, ran.callback);
        self.follow.ran(ran.tid, times);
    }

    /// Adds an execution of a chain, with the caller's knowledge of it.
    pub fn ended(&mut self, end: ChainEnd, what: T) {
        self.follow.ended(Ended {
            steps: end.steps,
            end: end.end_ns,
            what,
        });
    }

    /// Passes the stretches of each execution whose time is over to `report`, with the caller's
    /// knowledge of it. At the end of the events, `all` are passed.
    pub fn cut(&mut self, synth: &mut Synth, all: bool, mut report: impl FnMut(T, &[Cut])) {
        let mut cuts = Vec::new();
        while let Some((ended, pieces)) = self.follow.cut_next(synth, all) {
            cuts.clear();
            cuts.extend(pieces.iter().map(Cut::of));
            report(ended.what, &cuts);
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
            by: whom(piece.by),
            during: piece.meanwhile.map(|m| (m.kind, whom(m.by))),
            reason: match piece.by {
                By::Reason(reason) => Some(reason),
                _ => None,
            },
        }
    }
}

fn whom(by: By) -> Option<Whom> {
    match by {
        By::Nobody | By::Reason(_) => None,
        By::Callback(callback) => Some(Whom::Callback(callback)),
        By::Thread(n) => Some(Whom::Thread(n)),
        By::Owner(n) => Some(Whom::MutexOf(n)),
        By::Waker(n) => Some(Whom::WokenBy(n)),
    }
}
