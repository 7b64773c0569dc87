//! Joins observations of callbacks and reports of shapers into executions of chains. Pure.
//!
//! A shaper that holds an output back has no information about the chain. The source time stamp of
//! the message identifies it before and after the shaper. A chain can continue after the shaper
//! (logical execution time per callback). Then the interval of the publishing call identifies the
//! message that the next callback took. If a chain's input is throttled, the chain begins when the
//! throttler publishes it.

use crate::observe::PlanObservation;
use onbeat_plan::schema::{ChainRef, Hold, Output};
use onbeat_plan::Plan;
use std::collections::{HashMap, VecDeque};

const MAX_WAITING_ITEMS: usize = 4096;

/// A message that a shaper has published or discarded.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Release {
    pub output: usize,
    /// The source time stamp of the message that the shaper received (CLOCK_REALTIME).
    pub source_ns: i64,
    /// The time at which the shaper had completely received the message (CLOCK_MONOTONIC), in ns.
    pub arrival_ns: u64,
    /// The time at which the call that published the message began (CLOCK_MONOTONIC), in ns. 0 if
    /// the message was discarded.
    pub published_ns: u64,
    /// The time at which the call that published the message ended (CLOCK_MONOTONIC), in ns.
    pub done_ns: u64,
    pub late: bool,
    pub refused: bool,
    /// The start of the execution that produced the message (CLOCK_MONOTONIC), in ns, according to
    /// the message's lineage. `None` if the shaper inferred the cycle from the time of arrival.
    pub born_ns: Option<u64>,
}

/// The outcome of an execution's output.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Delivered,
    /// The output was too late and was not published.
    Discarded,
    Refused,
}

/// The source from which onbeat knows to which cycle an output belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Attribution {
    /// No shaper held the output back, so the recording shows the output's cycle.
    #[default]
    NotHeld,
    /// The output's lineage shows its cycle.
    Lineage,
    /// The shaper inferred the output's cycle from the time of its arrival.
    Arrival,
    /// The output's lineage and the recording show different cycles.
    Disputed,
}

/// One execution of a chain, from its first callback's start (or its throttled input) to its
/// output.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Execution {
    pub chain: usize,
    /// The start of the first callback (CLOCK_MONOTONIC), in ns. If the chain's input is throttled:
    /// the time at which the throttler published the input.
    pub start_ns: u64,
    /// The time at which the last callback published (CLOCK_MONOTONIC), in ns. Without a shaper,
    /// the output would have left at this time.
    pub left_ns: u64,
    /// The time at which the output left (CLOCK_MONOTONIC), in ns. Equals `left_ns` if no shaper
    /// holds the output back.
    pub output_ns: u64,
    pub fate: Fate,
    pub late: bool,
    pub attribution: Attribution,
}

impl Execution {
    /// Returns the time from the start of the execution to the departure of its output, in ns.
    pub fn latency_ns(&self) -> u64 {
        self.output_ns.saturating_sub(self.start_ns)
    }

    /// Returns the latency that the execution would have had without a shaper, in ns.
    pub fn unshaped_ns(&self) -> u64 {
        self.left_ns.saturating_sub(self.start_ns)
    }

    /// Reports whether the output was published.
    pub fn is_delivered(&self) -> bool {
        self.fate == Fate::Delivered
    }
}

#[derive(Debug, Clone, Copy)]
struct ShaperItem {
    source_ns: i64,
    origin: Option<Origin>,
    release: Option<Release>,
}

#[derive(Debug, Clone, Copy)]
struct Origin {
    start_ns: u64,
    left_ns: u64,
    callback: usize,
}

/// Joins the runs of callbacks and the shapers' reports into executions of chains.
pub struct Executions {
    cycle_ns: u64,
    output_by_held_topic: HashMap<String, usize>,
    output_by_topic: HashMap<String, usize>,
    ends: Vec<ChainEnds>,
    inputs: Vec<String>,
    items: Vec<VecDeque<ShaperItem>>,
    /// The starts of callbacks that took a message from a shaper. Each entry contains such a start,
    /// and the start of the chain's execution that produced the message. Times are in ns of
    /// CLOCK_MONOTONIC.
    bridges: VecDeque<(u64, u64)>,
    last: VecDeque<Execution>,
}

const DUPLICATE_WINDOW: usize = 64;

struct ChainEnds {
    first: usize,
    last: usize,
    topic: Option<String>,
    output: Option<usize>,
}

fn republished(plan: &Plan) -> impl Iterator<Item = (usize, &Output)> {
    let outputs = plan.outputs.iter().enumerate();
    outputs.filter(|(_, o)| o.hold == Hold::Republish)
}

fn end(plan: &Plan, chain: &ChainRef, callbacks: &[String]) -> Option<ChainEnds> {
    let index = |id: &String| callbacks.iter().position(|c| c == id);
    let mut known = chain.callbacks.iter().filter_map(index);
    let first = known.next()?;
    let last = known.next_back().unwrap_or(first);
    let held = republished(plan).find(|(_, o)| Some(&o.topic) == chain.output.as_ref());
    let held_topic = held.and_then(|(_, o)| o.held_topic.clone());
    Some(ChainEnds {
        first,
        last,
        topic: held_topic.or_else(|| chain.output.clone()),
        output: held.map(|(i, _)| i),
    })
}

impl Executions {
    /// Creates a value without executions. `callbacks` are the ids that
    /// [`crate::observe::Watcher::callbacks`] returns.
    pub fn new(plan: &Plan, callbacks: &[String]) -> Executions {
        // If several callbacks publish on one topic, the topic's first output stands for all.
        let (mut output_by_held_topic, mut output_by_topic) = (HashMap::new(), HashMap::new());
        for (i, o) in republished(plan) {
            if let Some(held) = &o.held_topic {
                output_by_held_topic.entry(held.clone()).or_insert(i);
            }
            output_by_topic.entry(o.topic.clone()).or_insert(i);
        }
        let ends = plan.chains.iter().filter_map(|c| end(plan, c, callbacks));
        Executions {
            cycle_ns: plan.cycle_ms.0,
            output_by_held_topic,
            output_by_topic,
            ends: ends.collect(),
            inputs: plan.inputs.iter().map(|i| i.topic.clone()).collect(),
            items: vec![VecDeque::new(); plan.outputs.len()],
            bridges: VecDeque::new(),
            last: VecDeque::new(),
        }
    }

    /// Adds an observation of a callback. Appends the executions that are now complete to `found`.
    pub fn see(&mut self, observation: &PlanObservation, found: &mut Vec<Execution>) {
        match observation {
            PlanObservation::Taken {
                topic,
                published_ns,
                start_ns,
            } => self.taken(topic, *published_ns, *start_ns),
            PlanObservation::Left {
                callback,
                topic,
                time_ns,
                source_ns,
                from,
                start_ns,
            } => {
                let Some(start_ns) = self.chain_start(*from, *start_ns) else {
                    return;
                };
                let origin = Origin {
                    start_ns,
                    left_ns: *time_ns,
                    callback: *callback,
                };
                self.left(topic.as_deref(), *source_ns, origin, found);
            }
            PlanObservation::Ran { .. } => {}
        }
    }

    fn taken(&mut self, topic: &str, published_ns: u64, start_ns: u64) {
        let began_ns = match self.output_by_topic.get(topic) {
            Some(&output) => {
                let covers = |i: &&ShaperItem| {
                    i.release
                        .is_some_and(|r| (r.published_ns..=r.done_ns).contains(&published_ns))
                };
                let item = self.items[output].iter().rev().find(covers);
                item.and_then(|i| i.origin).map(|o| o.start_ns)
            }
            None => self
                .inputs
                .iter()
                .any(|i| i == topic)
                .then_some(published_ns),
        };
        if let Some(began_ns) = began_ns {
            self.bridges.push_back((start_ns, began_ns));
            if self.bridges.len() > MAX_WAITING_ITEMS {
                self.bridges.pop_front();
            }
        }
    }

    fn chain_start(&self, from: usize, start_ns: u64) -> Option<u64> {
        let bridge = self.bridges.iter().rev().find(|b| b.0 == start_ns);
        match bridge {
            Some(&(_, began_ns)) => Some(began_ns),
            None => self
                .ends
                .iter()
                .any(|e| e.first == from)
                .then_some(start_ns),
        }
    }

    fn left(
        &mut self,
        topic: Option<&str>,
        source_ns: Option<i64>,
        origin: Origin,
        found: &mut Vec<Execution>,
    ) {
        let output = topic
            .and_then(|t| self.output_by_held_topic.get(t))
            .copied();
        if let (Some(output), Some(source_ns)) = (output, source_ns) {
            // If several paths lead here from one start, any of them will do.
            self.join(output, source_ns, |i| {
                i.origin.get_or_insert(origin);
            });
            self.complete(output, source_ns, found);
            return;
        }
        for (chain, end) in self.ends.iter().enumerate() {
            let is_end = end.last == origin.callback && end.topic.as_deref() == topic;
            if is_end && end.output.is_none() {
                let execution = Execution {
                    chain,
                    start_ns: origin.start_ns,
                    left_ns: origin.left_ns,
                    output_ns: origin.left_ns,
                    fate: Fate::Delivered,
                    late: false,
                    attribution: Attribution::NotHeld,
                };
                push_unless_found(&mut self.last, execution, found);
            }
        }
    }

    /// Adds a shaper's report about a message. Appends the executions that are now complete to
    /// `found`.
    pub fn released(&mut self, release: Release, found: &mut Vec<Execution>) {
        if release.output < self.items.len() {
            self.join(release.output, release.source_ns, |i| {
                i.release = Some(release);
            });
            self.complete(release.output, release.source_ns, found);
        }
    }

    fn join(&mut self, output: usize, source_ns: i64, with: impl FnOnce(&mut ShaperItem)) {
        let list = &mut self.items[output];
        if let Some(item) = list.iter_mut().rev().find(|i| i.source_ns == source_ns) {
            with(item);
            return;
        }
        let mut item = ShaperItem {
            source_ns,
            origin: None,
            release: None,
        };
        with(&mut item);
        list.push_back(item);
        if list.len() > MAX_WAITING_ITEMS {
            list.pop_front();
        }
    }

    fn complete(&mut self, output: usize, source_ns: i64, found: &mut Vec<Execution>) {
        let mut items = self.items[output].iter().rev();
        let item = items.find(|i| i.source_ns == source_ns);
        let Some((Some(origin), Some(release))) = item.map(|i| (i.origin, i.release)) else {
            return;
        };
        let (start_ns, left_ns) = (origin.start_ns, origin.left_ns);
        let ends_here = |end: &&ChainEnds| end.output == Some(output);
        let several = self.ends.iter().filter(ends_here).count() > 1;
        for (chain, end) in self.ends.iter().enumerate() {
            if ends_here(&end) && (!several || end.last == origin.callback) {
                let (fate, output_ns) = match release {
                    Release {
                        published_ns: 0, ..
                    } => (Fate::Discarded, left_ns),
                    Release { refused: true, .. } => (Fate::Refused, release.published_ns),
                    Release { .. } => (Fate::Delivered, release.published_ns),
                };
                let execution = Execution {
                    chain,
                    start_ns,
                    left_ns,
                    output_ns,
                    fate,
                    late: release.late,
                    attribution: attribution(release, start_ns, self.cycle_ns),
                };
                push_unless_found(&mut self.last, execution, found);
            }
        }
    }
}

fn attribution(release: Release, start_ns: u64, cycle_ns: u64) -> Attribution {
    match release.born_ns {
        None => Attribution::Arrival,
        Some(born_ns) if born_ns.abs_diff(start_ns) <= cycle_ns / 2 => Attribution::Lineage,
        Some(_) => Attribution::Disputed,
    }
}

fn push_unless_found(
    last: &mut VecDeque<Execution>,
    execution: Execution,
    found: &mut Vec<Execution>,
) {
    if last.contains(&execution) {
        return;
    }
    if last.len() == DUPLICATE_WINDOW {
        last.pop_front();
    }
    last.push_back(execution);
    found.push(execution);
}
