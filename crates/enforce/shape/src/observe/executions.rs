//! Executions of chains, joined from observations of their callbacks and reports of the shapers.
//! Pure.
//!
//! An output that is held back goes through a shaper, which knows nothing of the chain. The source
//! time stamp of the message identifies it before and after. If the chain continues after the
//! shaper (logical execution time per callback), the interval of the publishing call identifies the
//! message that the next callback took. If a chain's input is throttled, the chain begins when the
//! throttler publishes it.

use crate::observe::PlanObservation;
use onbeat_plan::schema::{ChainRef, Hold, Output};
use onbeat_plan::Plan;
use std::collections::{HashMap, VecDeque};

/// Most messages that wait to be joined, per output.
const MOST: usize = 4096;

/// A message that a shaper has published or discarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Release {
    /// Index into [`Plan::outputs`].
    pub output: usize,
    /// Source time stamp under which the shaper received it, CLOCK_REALTIME.
    pub source_ns: i64,
    /// When the shaper had taken it, CLOCK_MONOTONIC.
    pub arrival_ns: u64,
    /// When the publishing call began, CLOCK_MONOTONIC. 0: the message was discarded.
    pub published_ns: u64,
    /// When the publishing call ended.
    pub done_ns: u64,
    /// Whether it arrived after the last slot of its cycle.
    pub late: bool,
    /// Whether the middleware refused to publish it.
    pub refused: bool,
    /// When its execution began, by its lineage, CLOCK_MONOTONIC. `None`: the shaper inferred its
    /// cycle from when it came.
    pub born_ns: Option<u64>,
}

/// What became of an execution's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It was published.
    Delivered,
    /// It was too late, and was not published.
    Discarded,
    /// The middleware refused it.
    Refused,
}

/// How the cycle is known in which an output had to leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Attribution {
    /// No shaper held it back.
    #[default]
    NotHeld,
    /// It came with the output.
    Lineage,
    /// It was inferred from when the output came.
    Arrival,
    /// The shaper took it for another cycle's than the recording does.
    Disputed,
}

/// One execution of a chain, from its first callback's start (or its throttled input) to its
/// output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Execution {
    /// Index into [`Plan::chains`].
    pub chain: usize,
    /// Start of the first callback, CLOCK_MONOTONIC. If its input is throttled, when the throttler
    /// published it.
    pub start_ns: u64,
    /// When the last callback published: the output was ready. Without a shaper it would have left.
    pub left_ns: u64,
    /// When the output left. The same as `left_ns` if no shaper holds it back.
    pub output_ns: u64,
    /// What became of the output.
    pub fate: Fate,
    /// Whether the output came after the last slot of its cycle.
    pub late: bool,
    /// How its cycle is known.
    pub attribution: Attribution,
}

impl Execution {
    /// End-to-end latency, ns.
    pub fn latency_ns(&self) -> u64 {
        self.output_ns.saturating_sub(self.start_ns)
    }

    /// The latency that it would have had if its output had not been held back, ns.
    pub fn unshaped_ns(&self) -> u64 {
        self.left_ns.saturating_sub(self.start_ns)
    }

    /// Whether the output was published.
    pub fn is_delivered(&self) -> bool {
        self.fate == Fate::Delivered
    }
}

/// A message on its way through a shaper.
#[derive(Debug, Clone, Copy)]
struct OutputItem {
    source_ns: i64,
    /// Once the callback that published it is known.
    origin: Option<Origin>,
    /// Once the shaper has reported it.
    release: Option<Release>,
}

/// Where a message comes from.
#[derive(Debug, Clone, Copy)]
struct Origin {
    /// Start of the chain's first callback.
    start_ns: u64,
    /// When the callback published it.
    left_ns: u64,
    /// The callback that published it.
    callback: usize,
}

/// Joins observations and releases.
pub struct Executions {
    cycle_ns: u64,
    /// Output by the topic on which the callback publishes.
    held_topics: HashMap<String, usize>,
    /// Output by the topic on which the shaper publishes.
    topics: HashMap<String, usize>,
    /// By chain.
    ends: Vec<End>,
    /// Topics of throttled inputs.
    inputs: Vec<String>,
    /// By output.
    items: Vec<VecDeque<OutputItem>>,
    /// Start of a callback that took a message of a shaper, and start of that message's chain.
    bridges: VecDeque<(u64, u64)>,
    /// The last executions found: several paths from a start to an output are one execution.
    last: VecDeque<Execution>,
}

/// Number of executions that are remembered to recognise one that is found again.
const LAST: usize = 64;

/// Both ends of a chain: its first and last callback and its output.
struct End {
    first: usize,
    last: usize,
    /// The output's topic, as the last callback publishes it.
    topic: Option<String>,
    /// The output in the plan, if a shaper holds it back.
    output: Option<usize>,
}

/// Outputs that a shaper holds back, with their indices.
fn republished(plan: &Plan) -> impl Iterator<Item = (usize, &Output)> {
    let outputs = plan.outputs.iter().enumerate();
    outputs.filter(|(_, o)| o.hold == Hold::Republish)
}

/// Both ends of a chain; `None` if none of its callbacks is watched.
fn end(plan: &Plan, chain: &ChainRef, callbacks: &[String]) -> Option<End> {
    let index = |id: &String| callbacks.iter().position(|c| c == id);
    let mut known = chain.callbacks.iter().filter_map(index);
    let first = known.next()?;
    let last = known.next_back().unwrap_or(first);
    let held = republished(plan).find(|(_, o)| Some(&o.topic) == chain.output.as_ref());
    let held_topic = held.and_then(|(_, o)| o.held_topic.clone());
    Some(End {
        first,
        last,
        topic: held_topic.or_else(|| chain.output.clone()),
        output: held.map(|(i, _)| i),
    })
}

impl Executions {
    /// For a plan; `callbacks` as [`crate::observe::Watcher::callbacks`] has them.
    pub fn new(plan: &Plan, callbacks: &[String]) -> Executions {
        // If several callbacks publish one topic, its first output stands for all.
        let (mut held_topics, mut topics) = (HashMap::new(), HashMap::new());
        for (i, o) in republished(plan) {
            if let Some(held) = &o.held_topic {
                held_topics.entry(held.clone()).or_insert(i);
            }
            topics.entry(o.topic.clone()).or_insert(i);
        }
        let ends = plan.chains.iter().filter_map(|c| end(plan, c, callbacks));
        Executions {
            cycle_ns: plan.cycle_ms.0,
            held_topics,
            topics,
            ends: ends.collect(),
            inputs: plan.inputs.iter().map(|i| i.topic.clone()).collect(),
            items: vec![VecDeque::new(); plan.outputs.len()],
            bridges: VecDeque::new(),
            last: VecDeque::new(),
        }
    }

    /// Takes an observation. Appends executions that are complete with it.
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

    /// A callback started with a message: remembers where the chain began, if a shaper published
    /// the message.
    fn taken(&mut self, topic: &str, published_ns: u64, start_ns: u64) {
        let began_ns = match self.topics.get(topic) {
            Some(&output) => {
                let covers = |i: &&OutputItem| {
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
            if self.bridges.len() > MOST {
                self.bridges.pop_front();
            }
        }
    }

    /// Where the chain began that reached the callback `from`, started at `start_ns`.
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

    /// A callback published: a message for a shaper, or the output of a chain.
    fn left(
        &mut self,
        topic: Option<&str>,
        source_ns: Option<i64>,
        origin: Origin,
        found: &mut Vec<Execution>,
    ) {
        let output = topic.and_then(|t| self.held_topics.get(t)).copied();
        if let (Some(output), Some(source_ns)) = (output, source_ns) {
            // If several paths lead here from one start, the first is as good as any.
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
                once(&mut self.last, execution, found);
            }
        }
    }

    /// A shaper published or discarded a message. Appends executions that are complete with it.
    pub fn released(&mut self, release: Release, found: &mut Vec<Execution>) {
        if release.output < self.items.len() {
            self.join(release.output, release.source_ns, |i| {
                i.release = Some(release);
            });
            self.complete(release.output, release.source_ns, found);
        }
    }

    fn join(&mut self, output: usize, source_ns: i64, with: impl FnOnce(&mut OutputItem)) {
        let list = &mut self.items[output];
        if let Some(item) = list.iter_mut().rev().find(|i| i.source_ns == source_ns) {
            with(item);
            return;
        }
        let mut item = OutputItem {
            source_ns,
            origin: None,
            release: None,
        };
        with(&mut item);
        list.push_back(item);
        if list.len() > MOST {
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
        let ends_here = |end: &&End| end.output == Some(output);
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
                once(&mut self.last, execution, found);
            }
        }
    }
}

/// How the cycle of an execution that began at `start_ns` was known to the shaper.
fn attribution(release: Release, start_ns: u64, cycle_ns: u64) -> Attribution {
    match release.born_ns {
        None => Attribution::Arrival,
        Some(born_ns) if born_ns.abs_diff(start_ns) <= cycle_ns / 2 => Attribution::Lineage,
        Some(_) => Attribution::Disputed,
    }
}

/// Appends an execution unless it was found before.
fn once(last: &mut VecDeque<Execution>, execution: Execution, found: &mut Vec<Execution>) {
    if last.contains(&execution) {
        return;
    }
    if last.len() == LAST {
        last.pop_front();
    }
    last.push_back(execution);
    found.push(execution);
}
