//! Cuts one execution of a chain into stretches that follow one another without gap or overlap.
//!
//! The steps of the execution give the places: each callback's share from its start to its
//! publication, and each item's share from its publication to the start of the next callback. The
//! history of the threads says what happened in each share.

use crate::facts::Facts;
use crate::history::{History, Ran, Sleep, Slice, State};
use crate::kind::{Kind, Reason};
use onbeat_document::schema::CallbackType;
use onbeat_synth::followed::ChainStep;
use onbeat_trace::CallKind;
use rustc_hash::FxHashMap;

/// The longest time in ns from the end of one execution to the start of the next one in the same
/// callback group. The executor needs this time to look for work and to wake up a thread. After a
/// longer time, the second execution does not count as waiting for the first one.
const TURN_NS: u64 = 10_000_000;

/// The shortest transport in ns for which a full socket can be the cause. The middleware needs at
/// least this time to find out that a datagram is missing, and to send it again.
const REPEATED_NS: u64 = 2_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum By {
    Nobody,
    Callback(u32),
    Thread(u32),
    Owner(u32),
    Waker(u32),
    /// The kind of call in which the thread slept. Nobody in its process woke it up.
    Call(CallKind),
    /// The port of a socket that dropped datagrams, because it was full.
    Socket(u16),
    Reason(Reason),
}

/// The cause of a piece, whatever its culprit did meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Cause {
    pub(crate) kind: Kind,
    pub(crate) place: u32,
    pub(crate) by: By,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Meanwhile {
    pub(crate) kind: Kind,
    pub(crate) by: By,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) begin: u64,
    pub(crate) end: u64,
    /// The number of the callback to whose part of the latency the stretch belongs.
    pub(crate) place: u32,
    pub(crate) kind: Kind,
    pub(crate) by: By,
    pub(crate) meanwhile: Option<Meanwhile>,
    /// The CPU on which the callback's thread ran, or for which it waited.
    pub(crate) cpu: Option<u16>,
}

impl Piece {
    fn on(self, slice: &Slice) -> Piece {
        Piece {
            cpu: slice.cpu,
            ..self
        }
    }

    fn is_like(&self, other: &Piece) -> bool {
        let what = |p: &Piece| (p.place, p.kind, p.by, p.meanwhile, p.cpu);
        what(self) == what(other)
    }
}

/// For each join, given by the synchroniser's number and the time of the join: the steps of the
/// chain that brought the last input.
pub(crate) type Joins = FxHashMap<(u32, u64), Vec<ChainStep>>;

pub(crate) struct Known<'a, F> {
    pub(crate) history: &'a History,
    pub(crate) facts: &'a F,
    pub(crate) joins: &'a Joins,
}

struct Pieces {
    at: u64,
    list: Vec<Piece>,
}

impl Pieces {
    fn until(&mut self, end: u64, piece: Piece) {
        if end <= self.at {
            return;
        }
        let begin = self.at;
        let piece = Piece {
            begin,
            end,
            ..piece
        };
        match self.list.last_mut() {
            Some(last) if last.is_like(&piece) => last.end = end,
            _ => self.list.push(piece),
        }
        self.at = end;
    }
}

fn piece(place: u32, kind: Kind, by: By, meanwhile: Option<Meanwhile>) -> Piece {
    Piece {
        begin: 0,
        end: 0,
        place,
        kind,
        by,
        meanwhile,
        cpu: None,
    }
}

fn of_state(state: State) -> (Kind, By) {
    match state {
        State::Running => (Kind::Runs, By::Nobody),
        State::Stolen => (Kind::Stolen, By::Nobody),
        State::Preempted { by } => (Kind::Preempted, By::Thread(by)),
        State::Queued { by } => (Kind::Queued, By::Thread(by)),
        State::Throttled => (Kind::Throttled, By::Nobody),
        State::Asleep {
            within: Some(Sleep::Mutex(owner)),
            ..
        } => (Kind::Sleeps, By::Owner(owner)),
        State::Asleep {
            waker: Some(waker), ..
        } => (Kind::Sleeps, By::Waker(waker)),
        State::Asleep {
            within: Some(Sleep::Call(call)),
            ..
        } => (Kind::Sleeps, By::Call(call)),
        State::Asleep { .. } => (Kind::Sleeps, By::Nobody),
        State::Unknown(reason) => (Kind::Unknown, By::Reason(reason)),
    }
}

impl<F: Facts> Known<'_, F> {
    /// Cuts the time from the start of the first step to `end` into pieces. The pieces cover this
    /// time without gaps or overlaps. `list` must be empty; its memory is used.
    pub(crate) fn cut(&self, steps: &[ChainStep], end: u64, list: Vec<Piece>) -> Vec<Piece> {
        self.cut_with(steps, end, true, list)
    }

    fn cut_with(
        &self,
        steps: &[ChainStep],
        end: u64,
        upstream: bool,
        list: Vec<Piece>,
    ) -> Vec<Piece> {
        let Some(first) = steps.first() else {
            return list;
        };
        let mut pieces = Pieces {
            at: first.start_ns,
            list,
        };
        for (i, step) in steps.iter().enumerate() {
            let until = steps.get(i + 1).map_or(end, |next| next.published_ns);
            let begins = step.began_ns.min(until);
            if self.facts.kind_of(step.callback) == CallbackType::Sync {
                self.inputs(&mut pieces, step, step.start_ns.min(until), upstream);
            } else {
                self.arrives(&mut pieces, step, begins);
            }
            self.runs(&mut pieces, step, until);
        }
        pieces.list
    }

    /// Adds the pieces of an execution of a callback, from its start to the publication at `until`.
    fn runs(&self, pieces: &mut Pieces, step: &ChainStep, until: u64) {
        let begin = pieces.at;
        let mut nested = self.history.executions(step.tid, begin, until);
        nested.retain(|&(from, to, c)| from > step.began_ns && to <= until && c != step.callback);
        let nested = Executions::new(nested);
        for slice in self.history.states(step.tid, begin, until) {
            let (kind, by) = of_state(slice.state);
            match (kind, by) {
                (Kind::Runs, _) => split(&slice, &nested, |end, inner| {
                    let by = inner.map_or(By::Nobody, By::Callback);
                    pieces.until(end, piece(step.callback, Kind::Runs, by, None).on(&slice));
                }),
                (Kind::Sleeps, By::Owner(owner)) => {
                    self.owner(pieces, step.callback, owner, slice.end);
                }
                (Kind::Sleeps, _) => {
                    let service = self.service(step.callback, &slice, by, until);
                    let by = service.unwrap_or(by);
                    pieces.until(slice.end, piece(step.callback, kind, by, None));
                }
                _ => pieces.until(slice.end, piece(step.callback, kind, by, None).on(&slice)),
            }
        }
    }

    /// Returns the service for whose response the callback slept, or `None` if it slept for another
    /// reason. `by` is what the history says about the sleep.
    /// The callback ends or publishes at `until`.
    fn service(&self, callback: u32, slice: &Slice, by: By, until: u64) -> Option<By> {
        let until = match by {
            // The response comes with another thread of the process, or to this one.
            By::Waker(_) | By::Call(CallKind::Futex | CallKind::Poll) => Some(until),
            By::Nobody => None,
            _ => return None,
        };
        let at = (slice.begin, slice.end);
        let service = self.history.service_of(callback, at, until);
        service.map(By::Callback)
    }

    /// Adds the pieces of a sleep that ends at `end`. The thread sleeps because it waits for a
    /// mutex. Each piece shows one state of the mutex's owner during the sleep.
    fn owner(&self, pieces: &mut Pieces, place: u32, owner: u32, end: u64) {
        let begin = pieces.at;
        let ran = Executions::new(self.history.executions(owner, begin, end));
        for slice in self.history.states(owner, begin, end) {
            let (kind, by) = of_state(slice.state);
            split(&slice, &ran, |end, callback| {
                let by = match (kind, callback) {
                    (Kind::Runs, Some(callback)) => By::Callback(callback),
                    _ => by,
                };
                let meanwhile = Some(Meanwhile { kind, by });
                let sleeps = piece(place, Kind::Sleeps, By::Owner(owner), meanwhile);
                pieces.until(end, sleeps);
            });
        }
    }

    /// Adds the pieces of the time from an item's publication to `until`, the start of the
    /// callback.
    fn arrives(&self, pieces: &mut Pieces, step: &ChainStep, until: u64) {
        let sent = |name| self.history.sent_at(name, step.published_ns, until);
        if let Some(sent) = step.name.and_then(sent) {
            let held = piece(step.callback, Kind::Held, By::Nobody, None);
            pieces.until(sent, held);
        }
        let is_timer = self.facts.kind_of(step.callback) == CallbackType::Timer;
        let stored = step.name.is_some_and(|n| self.facts.is_memory(n));
        let waits = piece(step.callback, Kind::Timer, By::Nobody, None);
        if let (true, true, Some(due)) = (is_timer, stored, step.released_ns) {
            pieces.until(due.min(until), waits);
        }
        let asleep = match (is_timer, stored) {
            (true, true) if step.released_ns.is_none() => Kind::Timer,
            (true, _) => Kind::Executor,
            (false, _) => Kind::Transport,
        };
        let dropped_at = match asleep {
            Kind::Transport if until.saturating_sub(pieces.at) >= REPEATED_NS => {
                self.history.dropped_at(step.tid, pieces.at, until)
            }
            _ => None,
        };
        let asleep = (asleep, dropped_at.map_or(By::Nobody, By::Socket));
        if let Some((from, _, outer)) = self.outer(step) {
            let by = match asleep.0 {
                Kind::Transport => By::Callback(outer),
                _ => By::Nobody,
            };
            self.waits(pieces, step, from.min(until), (asleep.0, by));
        }
        self.waits(pieces, step, until, asleep);
    }

    /// Returns the outermost callback that ran on the same thread when the callback of `step`
    /// began. The outer callback spins an executor in its execution, or takes the item itself.
    fn outer(&self, step: &ChainStep) -> Option<Ran> {
        let at = step.began_ns;
        let ran = self.history.executions(step.tid, at, at + 1);
        let outer = ran.into_iter().filter(|r| r.0 < at && r.2 != step.callback);
        outer.min_by_key(|r| r.0)
    }

    /// Adds the pieces of a wait for the callback's thread. The wait ends at `until`. `asleep`
    /// gives the kind and the culprit of a piece during which this thread sleeps.
    fn waits(&self, pieces: &mut Pieces, step: &ChainStep, until: u64, asleep: (Kind, By)) {
        let begin = pieces.at;
        let ran = Executions::new(self.history.executions(step.tid, begin, until));
        let group = Executions::new(self.group(step, begin, until));
        for slice in self.history.states(step.tid, begin, until) {
            let (kind, by) = of_state(slice.state);
            let waits = |behind: Option<u32>| match (behind, kind) {
                (_, Kind::Unknown) => piece(step.callback, kind, by, None),
                (Some(behind), _) => {
                    let meanwhile = (kind != Kind::Runs).then_some(Meanwhile { kind, by });
                    let by = By::Callback(behind);
                    piece(step.callback, Kind::Executor, by, meanwhile)
                }
                (None, Kind::Runs) => piece(step.callback, Kind::Library, By::Nobody, None),
                (None, Kind::Sleeps) => piece(step.callback, asleep.0, asleep.1, None),
                (None, _) => piece(step.callback, kind, by, None),
            };
            split(&slice, &ran, |end, behind| {
                if kind == Kind::Unknown || (behind.is_none() && kind != Kind::Sleeps) {
                    return pieces.until(end, waits(behind).on(&slice));
                }
                let part = Slice {
                    begin: pieces.at,
                    end,
                    ..slice
                };
                split(&part, &group, |end, holder| match (holder, behind, by) {
                    (Some(holder), _, _) => {
                        let by = By::Callback(holder);
                        pieces.until(end, piece(step.callback, Kind::Executor, by, None));
                    }
                    (None, None, By::Waker(waker)) if asleep == (Kind::Transport, By::Nobody) => {
                        self.carried(pieces, step.callback, waker, end);
                    }
                    _ => pieces.until(end, waits(behind).on(&slice)),
                });
            });
        }
    }

    /// Adds the pieces of an item's way to the callback's thread. The way ends at `end`. The thread
    /// `waker` of the middleware or the executor brought the item and woke up the callback's
    /// thread. Each piece shows one state of `waker`.
    fn carried(&self, pieces: &mut Pieces, place: u32, waker: u32, end: u64) {
        let begin = pieces.at;
        for slice in self.history.states(waker, begin, end) {
            let transport = match of_state(slice.state) {
                (Kind::Unknown, _) => piece(place, Kind::Transport, By::Nobody, None),
                (kind, by) => {
                    let meanwhile = Some(Meanwhile { kind, by });
                    piece(place, Kind::Transport, By::Waker(waker), meanwhile)
                }
            };
            pieces.until(slice.end, transport);
        }
    }

    /// Returns the executions on other threads for which the callback of `step` waited, because
    /// they occupied its callback group.
    ///
    /// The recording does not show groups. Two callbacks of one node that never ran at the same
    /// time count as members of one group. The callback waited for an execution if it began right
    /// after that execution. It also waited if only other executions of the group lie between the
    /// two, without a gap.
    fn group(&self, step: &ChainStep, begin: u64, until: u64) -> Vec<Ran> {
        let mut beside = self.history.executions_beside(step.tid, begin, until);
        beside.retain(|&(_, _, other)| {
            self.history.exclude_each_other(other, step.callback)
                && self.facts.are_of_same_node(other, step.callback)
        });
        beside.sort_unstable_by_key(|ran| std::cmp::Reverse(ran.1));
        let mut next = until;
        beside.retain(|&(from, to, _)| {
            let is_before = from < next && to.abs_diff(next) <= TURN_NS;
            if is_before {
                next = from;
            }
            is_before
        });
        beside
    }

    /// Adds the pieces of the time that a synchroniser waits for its other inputs. The last input
    /// comes at `until`. If `upstream` is set, adds pieces for the time from the start of the last
    /// input's chain to `until` as well.
    fn inputs(&self, pieces: &mut Pieces, step: &ChainStep, until: u64, upstream: bool) {
        let by = step.last_input.map_or(By::Nobody, By::Callback);
        let waits = |meanwhile| piece(step.callback, Kind::Inputs, by, meanwhile);
        if upstream && pieces.at < until {
            let key = (step.callback, step.start_ns);
            let steps = self.joins.get(&key).map_or(&[][..], Vec::as_slice);
            for other in self.cut_with(steps, until, false, Vec::new()) {
                // Before its source began, nothing delayed the other input.
                pieces.until(other.begin.min(until), waits(None));
                let meanwhile = match (other.kind, other.by) {
                    (Kind::Runs, By::Nobody) => Meanwhile {
                        kind: Kind::Runs,
                        by: By::Callback(other.place),
                    },
                    (kind, by) => Meanwhile { kind, by },
                };
                pieces.until(other.end.min(until), waits(Some(meanwhile)));
            }
        }
        pieces.until(until, waits(None));
    }
}

/// Executions of callbacks, latest begin first. A binary search finds the executions that overlap a
/// slice, because a long wait has thousands of slices and executions.
struct Executions {
    all: Vec<Ran>,
    /// For each execution in `all`: the latest end of this execution and of all that come after it
    /// in the list.
    latest_ends: Vec<u64>,
}

impl Executions {
    /// Creates the list from `all`, which must be sorted by begin, latest first.
    fn new(all: Vec<Ran>) -> Executions {
        let mut latest_ends = vec![0; all.len()];
        let mut latest = 0;
        for (end, ran) in latest_ends.iter_mut().zip(&all).rev() {
            latest = ran.1.max(latest);
            *end = latest;
        }
        Executions { all, latest_ends }
    }

    fn near(&self, slice: &Slice) -> &[Ran] {
        let from = self.all.partition_point(|ran| ran.0 >= slice.end);
        let until = self.latest_ends.partition_point(|end| *end > slice.begin);
        self.all.get(from..until).unwrap_or(&[])
    }
}

/// Splits a slice at the begins and ends of the executions that overlap it. Calls `report` for each
/// part, with its end and the innermost callback that ran in it.
fn split(slice: &Slice, ran: &Executions, mut report: impl FnMut(u64, Option<u32>)) {
    let ran = ran.near(slice);
    if ran.is_empty() {
        return report(slice.end, None);
    }
    let within = |t: &u64| slice.begin < *t && *t < slice.end;
    let ends = ran.iter().flat_map(|r| [r.0, r.1]).filter(within);
    let mut ends: Vec<u64> = ends.chain([slice.end]).collect();
    ends.sort_unstable();
    ends.dedup();
    let mut at = slice.begin;
    for end in ends {
        let covers = ran.iter().filter(|r| r.0 <= at && end <= r.1);
        let inner = covers.max_by_key(|r| (r.0, std::cmp::Reverse(r.1)));
        report(end, inner.map(|r| r.2));
        at = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(slice: &Slice, ran: &Executions) -> Vec<(u64, Option<u32>)> {
        let mut parts = Vec::new();
        split(slice, ran, |end, callback| parts.push((end, callback)));
        parts
    }

    #[test]
    fn a_slice_of_a_threads_time_is_split_by_all_executions_that_overlap_it() {
        let mut seed = 7u64;
        let mut next = |most: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % most
        };
        for _ in 0..200 {
            let mut all: Vec<Ran> = (0..next(40))
                .map(|callback| {
                    let begin = next(100);
                    // A few executions are long and contain others.
                    let length = next(if callback % 8 == 0 { 60 } else { 5 });
                    (begin, begin + length, callback as u32)
                })
                .collect();
            all.sort_by_key(|ran| std::cmp::Reverse(ran.0));
            let begin = next(110);
            let slice = Slice {
                begin,
                end: begin + 1 + next(9),
                state: State::Running,
                cpu: None,
            };
            let ran = Executions::new(all.clone());
            let innermost = |at: u64| {
                let covers = all.iter().filter(|r| r.0 <= at && at < r.1);
                let inner = covers.max_by_key(|r| (r.0, std::cmp::Reverse(r.1)));
                inner.map(|r| r.2)
            };
            let mut at = slice.begin;
            for (end, callback) in parts(&slice, &ran) {
                assert!(
                    (at..end).all(|t| innermost(t) == callback),
                    "{all:?} {slice:?}"
                );
                at = end;
            }
            assert_eq!(at, slice.end);
        }
    }
}
