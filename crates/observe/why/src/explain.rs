//! Follows one chain through a recording: cuts each execution, keeps those that the caller asked
//! for, and sums up all.

use crate::compare::{Comparison, Sums};
use crate::cut::Piece;
use crate::follow::{Ended, Follow};
use crate::overview::{Collector, Overview};
use crate::stretch::{Execution, Names};
use onbeat_document::schema::Chain;
use onbeat_synth::followed::{Arrival, Asked, ChainEnd, ChainStep, Held, Joined, PathStep, Shaped};
use onbeat_synth::named::Named;
use onbeat_synth::observe::Observation;
use onbeat_synth::{Synth, SynthOptions};
use onbeat_trace::Event;
use rustc_hash::FxHashMap;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;

/// The maximum number of executions whose stretches are kept.
pub const KEPT_MAX: usize = 10_000;

/// The chain or callback whose executions are explained.
#[derive(Debug, Clone)]
pub enum Target {
    /// The executions of a chain of the model.
    Chain {
        /// The ids of the callbacks, first to last.
        callbacks: Vec<String>,
        /// The topics between the callbacks, in order, and the output's topic if the chain has one.
        topics: Vec<String>,
        /// The user cut the chain. Only executions that end at the topic of the cut count.
        cut: bool,
    },
    /// The executions of the callback with this id. The latency of each execution counts from the
    /// time at which its input was published or its timer was due.
    Callback(String),
}

impl Target {
    /// Returns the target for a chain. The explanation must use the options with which the chain's
    /// model was made. `cut_to` contains the topics at which these options let chains end.
    pub fn chain(chain: &Chain, cut_to: &[&str]) -> Target {
        let output = chain.topics.get(chain.callbacks.len().max(1) - 1);
        Target::Chain {
            callbacks: chain.callbacks.clone(),
            topics: chain.topics.clone(),
            cut: output.is_some_and(|o| cut_to.contains(&o.as_str())),
        }
    }
}

/// The executions whose stretches are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// This number of executions, those with the largest latencies.
    Worst(usize),
    /// The executions with a latency above this limit, ns.
    Over(u64),
    /// The executions that run at this instant, CLOCK_MONOTONIC.
    At(u64),
    /// All executions, at most 10,000.
    All,
}

/// A request to explain why executions of one chain or callback took long.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone)]
pub struct Question {
    pub target: Target,
    pub choice: Choice,
    /// The latency in ns above which an execution is late.
    pub limit_ns: u64,
    /// The largest latency in the model, in ns. It determines for how long the history of threads
    /// is kept.
    pub longest_ns: u64,
}

#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Default, Serialize)]
pub struct Explanation {
    /// The latency in ns above which an execution is late.
    pub limit_ns: u64,
    /// The number of all executions, also of those that are not kept.
    pub count: u64,
    pub longest_ns: u64,
    /// The executions that the question chose, with their stretches. The longest come first. If the
    /// question names an instant or asks for all executions, the order is that of time.
    pub executions: Vec<Execution>,
    /// The number of chosen executions beyond 10,000, which `executions` leaves out.
    pub left_out: u64,
    /// The share of the latency of all executions whose cause is unknown, from 0 to 1.
    pub unknown_share: f64,
    /// The start of the execution nearest to the question's instant, CLOCK_MONOTONIC. `None` if the
    /// question names no instant, or if an execution ran at that instant.
    pub nearest_ns: Option<u64>,
    /// The comparison of late executions with the other executions. `None` if no execution is late,
    /// or if all are late.
    pub comparison: Option<Comparison>,
    pub overview: Overview,
}

#[derive(Debug, Clone)]
struct Kept {
    start: u64,
    latency: u64,
    pieces: Vec<Piece>,
}

struct Subject {
    target: Target,
    choice: Choice,
    sums: Sums,
    kept: Keeper,
    overview: Collector,
}

/// Explains the executions of chains or callbacks while it processes the events of a recording.
pub struct Why {
    synth: Synth,
    subjects: Subjects,
}

impl Why {
    /// Starts an explanation of one chain or callback. `options` must be the options of the pass
    /// that made the model, and `ids` are the callback ids of that pass. An execution with a
    /// latency above `limit_ns` is late. `longest_ns` is the largest latency in the model.
    pub fn new(
        options: SynthOptions,
        target: Target,
        choice: Choice,
        (limit_ns, longest_ns): (u64, u64),
    ) -> Why {
        Why::of_all(
            options,
            vec![Question {
                target,
                choice,
                limit_ns,
                longest_ns,
            }],
        )
    }

    /// Starts an explanation of several chains or callbacks in one pass. `options` must be the
    /// options of the pass that made the model, with the callback ids of that pass.
    pub fn of_all(options: SynthOptions, questions: Vec<Question>) -> Why {
        let ids = options.ids.clone();
        let mut synth = Synth::new(options);
        synth.observe_executions();
        synth.follow();
        Why {
            synth,
            subjects: Subjects::new(ids, questions),
        }
    }

    /// Processes the next event. The caller must pass events in time order.
    pub fn push(&mut self, event: &Event) {
        self.subjects.advance(&mut self.synth, event.time_ns);
        self.subjects.event(event);
        self.synth.push(event);
        self.observe();
    }

    /// Declares the events complete and returns the explanation of the first chain or callback.
    pub fn finish(self) -> Explanation {
        self.finish_all().into_iter().next().unwrap_or_default()
    }

    /// Ends the events and returns the explanations in the order of the questions.
    pub fn finish_all(mut self) -> Vec<Explanation> {
        self.synth.end_of_events();
        self.observe();
        self.subjects.finish(&mut self.synth)
    }

    fn observe(&mut self) {
        if !self.synth.has_followed() {
            return;
        }
        for held in self.synth.drain_held() {
            self.subjects.held(held);
        }
        for joined in self.synth.drain_joins() {
            self.subjects.joined(joined);
        }
        for shaped in self.synth.drain_shaped() {
            self.subjects.shaped(shaped);
        }
        for asked in self.synth.drain_asked() {
            self.subjects.asked(asked);
        }
        for arrival in self.synth.drain_arrivals() {
            self.subjects.arrived(&arrival);
        }
        for observation in self.synth.drain_observations() {
            if let Observation::Execution {
                callback,
                tid,
                start_ns,
                end_ns,
                ..
            } = observation
            {
                self.subjects.ran(callback, tid, (start_ns, end_ns));
            }
        }
        let ends: Vec<ChainEnd> = self.synth.drain_chain_ends().collect();
        for end in ends {
            self.subjects.chain_ended(&self.synth, end);
        }
    }
}

/// The chains and callbacks whose executions are explained, and the observations that the
/// explanations need.
pub(crate) struct Subjects {
    ids: Vec<Option<String>>,
    list: Vec<Subject>,
    callbacks: bool,
    /// The executions that are not cut into pieces yet, each with the indices of the subjects to
    /// which it belongs.
    follow: Follow<Rc<[usize]>>,
    /// The key is the callback, the thread and the start of an execution. The value is the time
    /// from which on the callback could have started.
    arrivals: FxHashMap<(u32, u32, u64), u64>,
    /// For each path of the synthesis: the indices of the subjects with this path. The flag is true
    /// if the user cut the chain.
    paths: FxHashMap<(u32, bool), Rc<[usize]>>,
    /// For each callback: the indices of the subjects that ask about this callback.
    ran: FxHashMap<u32, Rc<[usize]>>,
}

/// The minimum time in ns for which the arrival of an execution is kept after the execution's
/// start. Later the arrival is dropped, because the execution probably never ends.
const LONGEST_NS: u64 = 600_000_000_000;

impl Subjects {
    pub(crate) fn new(ids: Vec<Option<String>>, questions: Vec<Question>) -> Subjects {
        let longest_ns = questions.iter().map(|q| q.longest_ns).max();
        let subject = |question: Question| Subject {
            target: question.target,
            choice: question.choice,
            sums: Sums::new(question.limit_ns),
            kept: Keeper::default(),
            overview: Collector::default(),
        };
        let list: Vec<Subject> = questions.into_iter().map(subject).collect();
        let is_callback = |s: &Subject| matches!(s.target, Target::Callback(_));
        Subjects {
            ids,
            callbacks: list.iter().any(is_callback),
            list,
            follow: Follow::new(longest_ns.unwrap_or_default()),
            arrivals: FxHashMap::default(),
            paths: FxHashMap::default(),
            ran: FxHashMap::default(),
        }
    }

    /// From now on, takes the names of threads from [`Subjects::named`] instead of the synthesis.
    pub(crate) fn name_threads(&mut self) {
        self.follow.keep_names();
    }

    /// Sets the time of the reports that follow, and cuts the executions that these reports cannot
    /// change.
    pub(crate) fn advance(&mut self, synth: &mut Synth, time: u64) {
        if self.follow.advance(time) {
            self.cut(synth, false);
            if let Some(from) = self.follow.forget() {
                let from = from.saturating_sub(LONGEST_NS);
                self.arrivals.retain(|key, _| key.2 >= from);
            }
        }
    }

    pub(crate) fn event(&mut self, event: &Event) {
        self.follow.event(event);
    }

    pub(crate) fn past_event(&mut self, event: &Event) {
        self.follow.past(event);
    }

    pub(crate) fn named(&mut self, named: &Named) {
        self.follow.named(named);
    }

    pub(crate) fn moved(&mut self, tid: u32, time: u64, cpu: u16) {
        self.follow.moved(tid, time, cpu);
    }

    pub(crate) fn held(&mut self, held: Held) {
        self.follow.held(held);
    }

    pub(crate) fn joined(&mut self, joined: Joined) {
        self.follow.joined(joined);
    }

    pub(crate) fn shaped(&mut self, shaped: Shaped) {
        self.follow.shaped(shaped);
    }

    pub(crate) fn asked(&mut self, asked: Asked) {
        self.follow.asked(asked);
    }

    pub(crate) fn arrived(&mut self, arrival: &Arrival) {
        if self.callbacks {
            let key = (arrival.callback, arrival.tid, arrival.start_ns);
            self.arrivals.insert(key, arrival.since_ns);
        }
    }

    pub(crate) fn ran(&mut self, callback: u32, tid: u32, (start_ns, end_ns): (u64, u64)) {
        self.follow.ran(tid, (start_ns, end_ns, callback));
        if !self.callbacks {
            return;
        }
        let (subjects, ids) = (&self.list, &self.ids);
        let of = self.ran.entry(callback).or_insert_with(|| {
            let id = ids.get(callback as usize).and_then(Option::as_ref);
            of_which(subjects, |target| match target {
                Target::Callback(wanted) => id == Some(wanted),
                Target::Chain { .. } => false,
            })
        });
        if of.is_empty() {
            return;
        }
        let of = Rc::clone(of);
        let since = self.arrivals.remove(&(callback, tid, start_ns));
        let since = since.unwrap_or(start_ns);
        let step = ChainStep {
            callback,
            name: None,
            own: false,
            published_ns: since,
            start_ns: since,
            began_ns: start_ns,
            released_ns: None,
            last_input: None,
            pid: 0,
            tid,
        };
        self.follow.ended(Ended {
            steps: vec![step],
            end: end_ns.max(start_ns),
            what: of,
        });
    }

    /// Returns an empty list of steps.
    pub(crate) fn spare(&mut self) -> Vec<ChainStep> {
        self.follow.spare()
    }

    pub(crate) fn asks_for(
        &mut self,
        synth: &Synth,
        path: (u32, bool),
        steps: impl ExactSizeIterator<Item = PathStep> + Clone,
    ) -> bool {
        !self.of_path(synth, path, steps).is_empty()
    }

    fn of_path(
        &mut self,
        synth: &Synth,
        path: (u32, bool),
        steps: impl ExactSizeIterator<Item = PathStep> + Clone,
    ) -> &Rc<[usize]> {
        let (ids, subjects) = (&self.ids, &self.list);
        self.paths.entry(path).or_insert_with(|| {
            of_which(subjects, |target| match target {
                Target::Chain {
                    callbacks,
                    topics,
                    cut,
                } => {
                    let chain = (callbacks.as_slice(), topics.as_slice());
                    *cut == path.1 && is_path(steps.clone(), chain, ids, |n| synth.name(n))
                }
                Target::Callback(_) => false,
            })
        })
    }

    pub(crate) fn chain_ended(&mut self, synth: &Synth, end: ChainEnd) {
        let steps = end.steps.iter().map(PathStep::of);
        let of = self.of_path(synth, (end.path, end.cut), steps);
        if !of.is_empty() {
            let what = Rc::clone(of);
            self.follow.ended(Ended {
                steps: end.steps,
                end: end.end_ns,
                what,
            });
        }
    }

    fn cut(&mut self, synth: &mut Synth, all: bool) {
        while let Some((ended, pieces)) = self.follow.cut_next(synth, all) {
            let start = ended.start();
            let latency = ended.end - start;
            for &i in ended.what.iter() {
                let Some(subject) = self.list.get_mut(i) else {
                    continue;
                };
                subject.sums.add(latency, &pieces);
                subject.overview.add(start, latency);
                subject
                    .kept
                    .offer(subject.choice, (start, latency), &pieces);
            }
            self.follow.take_back(ended.steps, pieces);
        }
    }

    pub(crate) fn finish(mut self, synth: &mut Synth) -> Vec<Explanation> {
        self.cut(synth, true);
        let names = Names {
            ids: synth.callback_ids(),
            components: synth.components(),
        };
        let subjects = self.list.into_iter();
        subjects.map(|s| s.explanation(&names)).collect()
    }
}

impl Subject {
    fn explanation(self, names: &Names) -> Explanation {
        let limit = self.sums.limit_ns;
        let execution = |kept: &Kept| Execution {
            start_ns: kept.start,
            latency_ns: kept.latency,
            late: kept.latency > limit,
            stretches: kept
                .pieces
                .iter()
                .map(|p| names.stretch(p, kept.start))
                .collect(),
        };
        let nearest = self.kept.nearest.map(|n| n.1);
        let left_out = self.kept.left_out;
        let kept = self.kept.into_list(self.choice);
        Explanation {
            limit_ns: limit,
            count: self.sums.count(),
            longest_ns: self.sums.longest_ns,
            unknown_share: self.sums.unknown_share(),
            nearest_ns: nearest.filter(|_| kept.is_empty()),
            executions: kept.iter().map(execution).collect(),
            left_out,
            comparison: self.sums.compare(names),
            overview: self.overview.finish(),
        }
    }
}

fn of_which(subjects: &[Subject], fits: impl Fn(&Target) -> bool) -> Rc<[usize]> {
    let all = subjects.iter().enumerate();
    all.filter(|(_, s)| fits(&s.target)).map(|s| s.0).collect()
}

/// Reports whether the steps of an execution lead along the chain. `ids` contains the id of each
/// callback by its number. `name` returns the topic that has a number.
pub fn leads_along<'a>(
    chain: &Chain,
    steps: &[ChainStep],
    ids: &[Option<String>],
    name: impl Fn(u32) -> &'a str,
) -> bool {
    let steps = steps.iter().map(PathStep::of);
    is_path(steps, (&chain.callbacks, &chain.topics), ids, name)
}

/// Reports whether the steps lead along a chain. A synchroniser whose callback waits for no other
/// input is skipped, as in the model.
fn is_path<'a>(
    steps: impl ExactSizeIterator<Item = PathStep>,
    (callbacks, topics): (&[String], &[String]),
    ids: &[Option<String>],
    name: impl Fn(u32) -> &'a str,
) -> bool {
    let (mut at, count) = (0, steps.len());
    for (i, step) in steps.enumerate() {
        let id = ids.get(step.callback as usize).and_then(Option::as_deref);
        let via = step.name.map(&name);
        let over = at == 0 || via == topics.get(at - 1).map(String::as_str);
        if id.is_some() && id == callbacks.get(at).map(String::as_str) && over {
            at += 1;
        } else if !step.own || i + 1 == count {
            return false;
        }
    }
    at == callbacks.len()
}

#[derive(Debug, Default)]
struct Keeper {
    /// The latency and the number of each kept execution, the smallest latency first.
    heap: BinaryHeap<Reverse<(u64, u64)>>,
    list: FxHashMap<u64, Kept>,
    next: u64,
    left_out: u64,
    /// The execution nearest to the instant of the question: its distance in time from the instant,
    /// and its start.
    nearest: Option<(u64, u64)>,
}

impl Keeper {
    fn offer(&mut self, choice: Choice, (start, latency): (u64, u64), pieces: &[Piece]) {
        let (room, counts) = match choice {
            Choice::Worst(n) => (n.min(KEPT_MAX), false),
            Choice::Over(limit) if latency <= limit => return,
            Choice::At(at) => {
                let end = start + latency;
                let off = start.saturating_sub(at).max(at.saturating_sub(end));
                if self.nearest.is_none_or(|n| off < n.0) {
                    self.nearest = Some((off, start));
                }
                if off > 0 {
                    return;
                }
                (KEPT_MAX, true)
            }
            Choice::Over(_) | Choice::All => (KEPT_MAX, true),
        };
        // All kept executions have a higher latency.
        let is_least = |least: &Reverse<(u64, u64)>| latency < least.0 .0;
        if self.heap.len() >= room && self.heap.peek().is_none_or(is_least) {
            self.left_out += u64::from(counts);
            return;
        }
        let kept = Kept {
            start,
            latency,
            pieces: pieces.to_vec(),
        };
        let number = self.next;
        self.next += 1;
        self.heap.push(Reverse((latency, number)));
        self.list.insert(number, kept);
        if self.heap.len() > room {
            if let Some(Reverse((_, number))) = self.heap.pop() {
                self.list.remove(&number);
                self.left_out += u64::from(counts);
            }
        }
    }

    fn into_list(self, choice: Choice) -> Vec<Kept> {
        let mut list: Vec<Kept> = self.list.into_values().collect();
        match choice {
            Choice::Worst(_) | Choice::Over(_) => {
                list.sort_by_key(|k| (Reverse(k.latency), k.start));
            }
            Choice::At(_) | Choice::All => list.sort_by_key(|k| (k.start, k.latency)),
        }
        list
    }
}
