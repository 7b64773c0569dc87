//! Executions of chains, joined from what was seen of their callbacks and from what the shapers say
//! they published. Pure.
//!
//! Where an output is held back, its data goes through a process that knows nothing of the chain:
//! the source time stamp under which it came tells what was published when. Where the chain goes on
//! behind it (logical execution time per callback), the interval of the publishing call tells which
//! item the next callback took. Where its input is throttled, a chain begins when that is let in.

use crate::watch::Sight;
use onbeat_plan::schema::Hold;
use onbeat_plan::Plan;
use std::collections::{HashMap, VecDeque};

/// Most items that wait to be joined.
const MOST: usize = 4096;

/// An output that a shaper has let go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Release {
    /// Index into [`Plan::outputs`].
    pub output: usize,
    /// Source time stamp under which it came, CLOCK_REALTIME.
    pub source_ns: i64,
    /// When the call began that published it, CLOCK_MONOTONIC; 0: it was discarded.
    pub published_ns: u64,
    /// When the call ended.
    pub done_ns: u64,
    /// It came after the last slot of its cycle.
    pub late: bool,
}

/// One execution of a chain, from its first callback's start (or its throttled input) to its output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Execution {
    /// Index into [`Plan::chains`].
    pub chain: usize,
    /// Start of the first callback, CLOCK_MONOTONIC; where its input is throttled, when that was let in.
    pub start_ns: u64,
    /// When the last callback published.
    pub left_ns: u64,
    /// When the output left; the same where nothing holds it back.
    pub output_ns: u64,
    /// The output was discarded: it came too late.
    pub dropped: bool,
    /// The output came after the last slot of its cycle.
    pub late: bool,
}

impl Execution {
    /// End-to-end latency.
    pub fn latency_ns(&self) -> u64 {
        self.output_ns.saturating_sub(self.start_ns)
    }
}

/// An item at an output.
#[derive(Debug, Clone, Copy)]
struct Held {
    source_ns: i64,
    /// Where it comes from, once known.
    origin: Option<Origin>,
    release: Option<Release>,
}

/// Where an item at an output comes from.
#[derive(Debug, Clone, Copy)]
struct Origin {
    /// Start of the chain's first callback.
    start_ns: u64,
    /// When the item came.
    left_ns: u64,
    /// Who published it.
    callback: usize,
}

/// Joins sights and releases.
pub struct Executions {
    /// By the topic on which the callback publishes: output.
    held_topics: HashMap<String, usize>,
    /// By the topic on which a shaper publishes: output.
    topics: HashMap<String, usize>,
    /// Per chain: first callback, last one, output's topic as the last callback publishes it, and
    /// the output that holds it.
    ends: Vec<End>,
    /// Topics of throttled inputs.
    inputs: Vec<String>,
    held: Vec<VecDeque<Held>>,
    /// By the start of a callback: where the chain began whose held or throttled item it took.
    bridges: VecDeque<(u64, u64)>,
    /// The last ones found: where several ways lead from a start to an output, it is one execution.
    last: VecDeque<Execution>,
}

/// So many executions are remembered to tell one that is found again.
const LAST: usize = 64;

struct End {
    first: usize,
    last: usize,
    topic: Option<String>,
    output: Option<usize>,
}

impl Executions {
    /// For a plan; `callbacks` as [`crate::watch::Watcher::callbacks`] has them.
    pub fn new(plan: &Plan, callbacks: &[String]) -> Executions {
        let index = |id: &String| callbacks.iter().position(|c| c == id);
        let republished = || {
            plan.outputs
                .iter()
                .enumerate()
                .filter(|(_, o)| o.hold == Hold::Republish)
        };
        let ends = plan
            .chains
            .iter()
            .filter_map(|chain| {
                let mut known = chain.callbacks.iter().filter_map(index);
                let first = known.next()?;
                let last = known.next_back().unwrap_or(first);
                let output = republished()
                    .find(|(_, o)| Some(&o.topic) == chain.output.as_ref())
                    .map(|(i, _)| i);
                let held = output.and_then(|i| plan.outputs[i].held_topic.clone());
                Some(End {
                    first,
                    last,
                    topic: held.or_else(|| chain.output.clone()),
                    output,
                })
            })
            .collect();
        // Where several callbacks publish one topic, its first output stands for all.
        let (mut held_topics, mut topics) = (HashMap::new(), HashMap::new());
        for (i, o) in republished() {
            if let Some(held) = &o.held_topic {
                held_topics.entry(held.clone()).or_insert(i);
            }
            topics.entry(o.topic.clone()).or_insert(i);
        }
        Executions {
            held_topics,
            topics,
            ends,
            inputs: plan.inputs.iter().map(|i| i.topic.clone()).collect(),
            held: vec![VecDeque::new(); plan.outputs.len()],
            bridges: VecDeque::new(),
            last: VecDeque::new(),
        }
    }

    /// Something was seen; executions that are complete with it are appended to `found`.
    pub fn see(&mut self, sight: &Sight, found: &mut Vec<Execution>) {
        match sight {
            Sight::Taken {
                topic,
                published_ns,
                start_ns,
            } => {
                let origin = match self.topics.get(topic.as_str()) {
                    Some(&output) => {
                        let covers = |h: &&Held| {
                            h.release.is_some_and(|r| {
                                (r.published_ns..=r.done_ns).contains(published_ns)
                            })
                        };
                        let item = self.held[output].iter().rev().find(covers);
                        item.and_then(|h| h.origin).map(|o| o.start_ns)
                    }
                    None => self.inputs.contains(topic).then_some(*published_ns),
                };
                if let Some(origin) = origin {
                    self.bridges.push_back((*start_ns, origin));
                    if self.bridges.len() > MOST {
                        self.bridges.pop_front();
                    }
                }
            }
            Sight::Left {
                callback,
                topic,
                time_ns,
                source_ns,
                from,
                start_ns,
            } => {
                let bridge = self.bridges.iter().rev().find(|b| b.0 == *start_ns);
                let origin_ns = match bridge {
                    Some(&(_, origin)) => origin,
                    None if self.ends.iter().any(|e| e.first == *from) => *start_ns,
                    None => return,
                };
                if let (Some(&output), Some(source_ns)) = (
                    topic.as_deref().and_then(|t| self.held_topics.get(t)),
                    *source_ns,
                ) {
                    self.join(output, source_ns, |h| {
                        // Several ways from one start: the first is as good as any.
                        h.origin.get_or_insert(Origin {
                            start_ns: origin_ns,
                            left_ns: *time_ns,
                            callback: *callback,
                        });
                    });
                    self.complete(output, source_ns, found);
                    return;
                }
                for (chain, end) in self.ends.iter().enumerate() {
                    if end.last == *callback && end.output.is_none() && end.topic == *topic {
                        let execution = Execution {
                            chain,
                            start_ns: origin_ns,
                            left_ns: *time_ns,
                            output_ns: *time_ns,
                            dropped: false,
                            late: false,
                        };
                        once(&mut self.last, execution, found);
                    }
                }
            }
            Sight::Ran { .. } => {}
        }
    }

    /// A shaper let something go, or discarded it.
    pub fn released(&mut self, release: Release, found: &mut Vec<Execution>) {
        if release.output < self.held.len() {
            self.join(release.output, release.source_ns, |h| {
                h.release = Some(release);
            });
            self.complete(release.output, release.source_ns, found);
        }
    }

    fn join(&mut self, output: usize, source_ns: i64, with: impl FnOnce(&mut Held)) {
        let list = &mut self.held[output];
        if let Some(held) = list.iter_mut().rev().find(|h| h.source_ns == source_ns) {
            with(held);
            return;
        }
        let mut held = Held {
            source_ns,
            origin: None,
            release: None,
        };
        with(&mut held);
        list.push_back(held);
        if list.len() > MOST {
            list.pop_front();
        }
    }

    fn complete(&mut self, output: usize, source_ns: i64, found: &mut Vec<Execution>) {
        let held = self.held[output]
            .iter()
            .rev()
            .find(|h| h.source_ns == source_ns);
        let Some((Some(origin), Some(release))) = held.map(|h| (h.origin, h.release)) else {
            return;
        };
        let Origin {
            start_ns, left_ns, ..
        } = origin;
        let here = |end: &&End| end.output == Some(output);
        let several = self.ends.iter().filter(here).count() > 1;
        for (chain, end) in self.ends.iter().enumerate() {
            if here(&end) && (!several || end.last == origin.callback) {
                let dropped = release.published_ns == 0;
                let execution = Execution {
                    chain,
                    start_ns,
                    left_ns,
                    output_ns: if dropped {
                        left_ns
                    } else {
                        release.published_ns
                    },
                    dropped,
                    late: release.late,
                };
                once(&mut self.last, execution, found);
            }
        }
    }
}

/// Appends an execution that was not found before.
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
