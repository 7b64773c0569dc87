//! Follows all threads of a recording beside a synthesis, and cuts executions of chains into pieces.

use crate::cut::{By, Joins, Known, Meanwhile, Piece};
use crate::facts::Facts;
use crate::history::{History, Room, DEFERRAL_NS};
use onbeat_synth::followed::{Asked, ChainStep, Held, Joined, Shaped};
use onbeat_synth::named::{Named, ThreadNames};
use onbeat_trace::Event;
use std::collections::VecDeque;

/// An execution that has ended and is not cut into pieces yet. `what` is the caller's data.
#[derive(Debug, Clone)]
pub(crate) struct Ended<T> {
    pub(crate) steps: Vec<ChainStep>,
    pub(crate) end: u64,
    pub(crate) what: T,
}

impl<T> Ended<T> {
    pub(crate) fn start(&self) -> u64 {
        self.steps.first().map_or(self.end, |s| s.start_ns)
    }
}

/// Keeps the history of threads, the joins of synchronisers, and the ended executions that later
/// events may still change.
#[derive(Debug, Clone)]
pub(crate) struct Follow<T> {
    history: History,
    joins: Joins,
    waiting: VecDeque<Ended<T>>,
    now: Option<u64>,
    /// The time that was current before the latest call of [`Follow::advance`].
    last: u64,
    next_forget: u64,
    /// The current names of threads. `None` if the names in the synthesis are used.
    names: Option<ThreadNames>,
    spare: Spare,
}

/// Empty lists whose memory is used again.
#[derive(Debug, Clone, Default)]
struct Spare {
    steps: Vec<Vec<ChainStep>>,
    pieces: Vec<Piece>,
}

const SPARE_STEPS_MAX: usize = 1 << 12;

impl<T> Follow<T> {
    /// Creates a history of a recording that suffices for executions with latencies up to
    /// `longest_ns`.
    pub(crate) fn new(longest_ns: u64) -> Follow<T> {
        Follow::with_room(longest_ns, Room::OF_RECORDING)
    }

    pub(crate) fn with_room(longest_ns: u64, room: Room) -> Follow<T> {
        let window = longest_ns.saturating_add(2 * DEFERRAL_NS);
        Follow {
            history: History::new(window, room),
            joins: Joins::default(),
            waiting: VecDeque::new(),
            now: None,
            last: 0,
            next_forget: 0,
            names: None,
            spare: Spare::default(),
        }
    }

    /// Returns an empty list of steps.
    pub(crate) fn spare(&mut self) -> Vec<ChainStep> {
        self.spare.steps.pop().unwrap_or_default()
    }

    /// Takes back the lists of an execution that was cut.
    pub(crate) fn take_back(&mut self, mut steps: Vec<ChainStep>, mut pieces: Vec<Piece>) {
        if self.spare.steps.len() < SPARE_STEPS_MAX {
            steps.clear();
            self.spare.steps.push(steps);
        }
        pieces.clear();
        self.spare.pieces = pieces;
    }

    pub(crate) fn push(&mut self, event: &Event) {
        self.advance(event.time_ns);
        self.event(event);
    }

    /// Sets the time of the events that follow. Returns whether `time` is later than all times that
    /// were set before.
    pub(crate) fn advance(&mut self, time: u64) -> bool {
        let last = self.now.unwrap_or(time);
        let is_later = self.now.is_none_or(|now| now < time);
        self.last = last;
        self.now = Some(last.max(time));
        is_later
    }

    /// Adds an event to the history. The caller must have advanced the time to this event.
    pub(crate) fn event(&mut self, event: &Event) {
        self.history.drop_until(self.last);
        self.history.push(event, self.now.unwrap_or(0));
    }

    /// Adds an event at its own time, which may be earlier than the current time. The event must
    /// affect only its thread.
    pub(crate) fn past(&mut self, event: &Event) {
        self.history.push(event, event.time_ns);
    }

    pub(crate) fn keep_names(&mut self) {
        self.names.get_or_insert_default();
    }

    pub(crate) fn named(&mut self, named: &Named) {
        self.names.get_or_insert_default().set(named);
    }

    pub(crate) fn moved(&mut self, tid: u32, time: u64, cpu: u16) {
        self.history.moved(tid, time, cpu);
    }

    pub(crate) fn held(&mut self, held: Held) {
        self.history.held(held);
    }

    pub(crate) fn joined(&mut self, joined: Joined) {
        let key = (joined.synchroniser, joined.time_ns);
        self.joins.insert(key, joined.steps);
    }

    pub(crate) fn asked(&mut self, asked: Asked) {
        self.history.asked(asked);
    }

    pub(crate) fn shaped(&mut self, shaped: Shaped) {
        self.history.shaped(shaped);
    }

    pub(crate) fn ran(&mut self, tid: u32, ran: (u64, u64, u32)) {
        self.history.ran(tid, ran);
    }

    pub(crate) fn forget_callbacks(&mut self, is_gone: impl Fn(u32) -> bool) {
        self.history.forget_callbacks(is_gone);
    }

    /// Adds an execution that has ended. `cut_next` cuts it into pieces as soon as later events
    /// cannot change it.
    pub(crate) fn ended(&mut self, ended: Ended<T>) {
        self.waiting.push_back(ended);
    }

    /// Reports whether later events cannot change the next execution.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        let now = self.now.unwrap_or(0);
        let next = self.waiting.front();
        next.is_some_and(|ended| ended.end.saturating_add(DEFERRAL_NS) < now)
    }

    /// Returns the next execution that later events cannot change, with its pieces. A piece names a
    /// thread by the number of its component. After the last event, set `all` to get the remaining
    /// executions too.
    pub(crate) fn cut_next(
        &mut self,
        facts: &mut impl Facts,
        all: bool,
    ) -> Option<(Ended<T>, Vec<Piece>)> {
        if !all && !self.is_due() {
            return None;
        }
        let ended = self.waiting.pop_front()?;
        let known = Known {
            history: &self.history,
            facts,
            joins: &self.joins,
        };
        let spare = std::mem::take(&mut self.spare.pieces);
        let mut pieces = known.cut(&ended.steps, ended.end, spare);
        let names = self.names.as_ref();
        for piece in &mut pieces {
            piece.by = component(facts, names, piece.by);
            piece.meanwhile = piece.meanwhile.map(|m| Meanwhile {
                by: component(facts, names, m.by),
                ..m
            });
        }
        Some((ended, pieces))
    }

    /// Forgets the joins to which no execution can refer any more. Returns the time before which no
    /// joins are kept. Does nothing and returns `None` if this function forgot joins less than an
    /// eighth of the history's window ago.
    pub(crate) fn forget(&mut self) -> Option<u64> {
        let now = self.now.filter(|now| *now >= self.next_forget)?;
        let window = self.history.window_ns();
        self.next_forget = now + window / 8 + 1;
        let from = now.saturating_sub(window);
        self.joins.retain(|key, _| key.1 >= from);
        Some(from)
    }
}

fn component(facts: &mut impl Facts, names: Option<&ThreadNames>, by: By) -> By {
    let mut number = |tid| facts.component(names, tid);
    match by {
        By::Thread(tid) => By::Thread(number(tid)),
        By::Owner(tid) => By::Owner(number(tid)),
        By::Waker(tid) => By::Waker(number(tid)),
        By::Nobody | By::Callback(_) | By::Call(_) | By::Socket(_) | By::Reason(_) => by,
    }
}
