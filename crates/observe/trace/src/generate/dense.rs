//! Generates the trace of a dense graph: layers of nodes that each take the topics of all nodes of
//! the layer before, with the truth about every output.
//!
//! The number of paths grows with `width` to the power of `layers`. The number of sources and of
//! sinks stays `width`. A node publishes when the message of its own column arrives, with the
//! latest values of the other columns. A simulated message carries the starts of all executions of
//! sources on which it depends.
use super::random::Random;
use super::MS;
use crate::event::{Event, EventKind};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

const START_NS: u64 = 1_000_000 * MS;
const PERIOD_NS: u64 = 100 * MS;
/// The distance in ns between the starts of the sources of two neighbouring columns. It is longer
/// than the time that a message needs through all layers, so messages always arrive in the same
/// order.
const PHASE_NS: u64 = 3 * MS;

const NODE: u64 = 0x1000;
const PUBLISHER: u64 = 0x2000;
const TIMER: u64 = 0x3000;
const SUBSCRIPTION: u64 = 0x4000;
const OBJECT: u64 = 0x5000;
const CALLBACK: u64 = 0x6000;
const RMW: u64 = 0x10000;

/// The shape of a generated dense graph and the length of its run.
#[derive(Debug, Clone, Copy)]
pub struct Dense {
    /// The number of layers of nodes. The first layer has the sources.
    pub layers: usize,
    /// The number of nodes in each layer, at most 30.
    pub width: usize,
    /// The number of executions of each source. A source runs every 100 ms.
    pub rounds: u64,
    /// The seed of the random numbers. Equal seeds give equal traces.
    pub seed: u64,
}

/// An output of a sink, and the executions of one source on which the output depends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DenseOutput {
    /// The time of the output's publication, in ns of CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// The start of the oldest execution of the source on which the output depends, in ns.
    pub oldest_ns: u64,
    /// The start of the newest execution of the source on which the output depends, in ns.
    pub newest_ns: u64,
}

/// The outputs for each pair of a source and a sink, in order of time. The key is the column of the
/// source and the column of the sink.
pub type DenseTruth = BTreeMap<(usize, usize), Vec<DenseOutput>>;

type Starts = Rc<BTreeMap<usize, BTreeSet<u64>>>;

#[derive(Clone)]
struct Message {
    published_ns: u64,
    starts: Starts,
}

struct Graph {
    shape: Dense,
    random: Random,
    events: Vec<Event>,
    stored: Vec<Vec<Vec<Option<Starts>>>>,
    truth: DenseTruth,
}

impl Dense {
    /// Returns the name of a node. The node's topic has the same name after a slash.
    pub fn node(layer: usize, column: usize) -> String {
        format!("n{layer}_{column}")
    }

    fn pid(self, layer: usize, column: usize) -> u32 {
        1000 + (self.width * layer + column) as u32
    }

    /// Passes the events in order of time to `push`, and returns on which executions of the sources
    /// each output depends.
    ///
    /// # Errors
    ///
    /// Stops at the first error of `push`.
    pub fn generate<E>(
        self,
        mut push: impl FnMut(&Event) -> Result<(), E>,
    ) -> Result<DenseTruth, E> {
        let mut graph = Graph {
            shape: self,
            random: Random(self.seed),
            events: Vec::new(),
            stored: vec![vec![vec![None; self.width]; self.width]; self.layers],
            truth: DenseTruth::new(),
        };
        for layer in 0..self.layers {
            for column in 0..self.width {
                graph.begin(layer, column);
            }
        }
        for round in 0..self.rounds {
            graph.round(START_NS + (round + 1) * PERIOD_NS);
            graph.events.sort_by_key(|e| e.time_ns);
            graph.events.iter().try_for_each(&mut push)?;
            graph.events.clear();
        }
        Ok(graph.truth)
    }
}

impl Graph {
    fn push(&mut self, time_ns: u64, pid: u32, kind: EventKind) {
        self.events.push(Event {
            time_ns,
            cpu: (pid % 4) as u16,
            pid,
            tid: pid,
            kind,
        });
    }

    fn begin(&mut self, layer: usize, column: usize) {
        let pid = self.shape.pid(layer, column);
        let name = |name: String| name.into_boxed_str();
        let mut push = |kind| self.push(START_NS, pid, kind);
        push(EventKind::NodeInit {
            node: NODE,
            rmw: NODE + RMW,
            name: name(Dense::node(layer, column)),
            namespace: name("/".into()),
        });
        push(EventKind::PublisherInit {
            publisher: PUBLISHER,
            node: NODE,
            rmw: PUBLISHER + RMW,
            topic: name(format!("/{}", Dense::node(layer, column))),
            depth: 10,
        });
        let Some(before) = layer.checked_sub(1) else {
            push(EventKind::TimerInit {
                timer: TIMER,
                period_ns: PERIOD_NS as i64,
            });
            push(EventKind::TimerCallback {
                timer: TIMER,
                callback: CALLBACK,
            });
            push(EventKind::TimerNode {
                timer: TIMER,
                node: NODE,
            });
            return;
        };
        for from in 0..self.shape.width {
            let i = from as u64;
            self.push(
                START_NS,
                pid,
                EventKind::SubscriptionInit {
                    subscription: SUBSCRIPTION + i,
                    node: NODE,
                    rmw: SUBSCRIPTION + RMW + i,
                    topic: name(format!("/{}", Dense::node(before, from))),
                    depth: 10,
                },
            );
            let object = OBJECT + i;
            let subscription = SUBSCRIPTION + i;
            let of = EventKind::SubscriptionObject {
                subscription,
                object,
            };
            self.push(START_NS, pid, of);
            let callback = CALLBACK + i;
            let kind = EventKind::SubscriptionCallback { object, callback };
            self.push(START_NS, pid, kind);
        }
    }

    fn round(&mut self, at_ns: u64) {
        let mut messages: Vec<Message> = (0..self.shape.width)
            .map(|column| self.source(column, at_ns + PHASE_NS * column as u64))
            .collect();
        for layer in 1..self.shape.layers {
            messages = (0..self.shape.width)
                .map(|column| self.node(layer, column, &messages))
                .collect();
        }
        for (sink, message) in messages.iter().enumerate() {
            for (&source, starts) in message.starts.iter() {
                let (Some(&oldest_ns), Some(&newest_ns)) = (starts.first(), starts.last()) else {
                    continue;
                };
                self.truth
                    .entry((source, sink))
                    .or_default()
                    .push(DenseOutput {
                        time_ns: message.published_ns,
                        oldest_ns,
                        newest_ns,
                    });
            }
        }
    }

    fn source(&mut self, column: usize, due_ns: u64) -> Message {
        let pid = self.shape.pid(0, column);
        let at = due_ns + self.random.between(10_000, 90_000);
        self.push(at, pid, EventKind::TimerCall { timer: TIMER });
        let start = at + 1_000;
        let starts = BTreeMap::from([(column, BTreeSet::from([start]))]);
        let published_ns = self.execute(pid, 0, start, true);
        Message {
            published_ns,
            starts: Rc::new(starts),
        }
    }

    fn execute(&mut self, pid: u32, input: usize, start: u64, publishes: bool) -> u64 {
        let callback = CALLBACK + input as u64;
        let intra_process = false;
        self.push(
            start,
            pid,
            EventKind::CallbackStart {
                callback,
                intra_process,
            },
        );
        let done = start + self.random.between(8_000, 30_000);
        if publishes {
            let publish = EventKind::Publish {
                rmw: PUBLISHER + RMW,
                message: 2,
                source_ns: Some(done as i64),
            };
            self.push(done, pid, publish);
        }
        self.push(done + 1_000, pid, EventKind::CallbackEnd { callback });
        done
    }

    fn node(&mut self, layer: usize, column: usize, inputs: &[Message]) -> Message {
        let pid = self.shape.pid(layer, column);
        let arrive = |m: &Message| m.published_ns + self.random.between(30_000, 90_000);
        let mut arrivals: Vec<(u64, usize)> =
            inputs.iter().map(arrive).zip(0..self.shape.width).collect();
        arrivals.sort_unstable();
        let (mut free_ns, mut output) = (0, None);
        for (arrival, from) in arrivals {
            let at = arrival.max(free_ns);
            let take = EventKind::Take {
                rmw: SUBSCRIPTION + RMW + from as u64,
                message: 1,
                source_ns: inputs[from].published_ns as i64,
                taken: true,
            };
            self.push(at, pid, take);
            self.stored[layer][column][from] = Some(inputs[from].starts.clone());
            let publishes = from == column;
            let published_ns = self.execute(pid, from, at + 1_000, publishes);
            free_ns = published_ns + 2_000;
            if publishes {
                let starts = Rc::new(self.joined(layer, column));
                output = Some(Message {
                    published_ns,
                    starts,
                });
            }
        }
        // A node takes a message of each column, so its own is among them.
        output.unwrap_or_else(|| inputs[column].clone())
    }

    fn joined(&self, layer: usize, column: usize) -> BTreeMap<usize, BTreeSet<u64>> {
        let mut all: BTreeMap<usize, BTreeSet<u64>> = BTreeMap::new();
        for starts in self.stored[layer][column].iter().flatten() {
            for (&source, times) in starts.iter() {
                all.entry(source).or_default().extend(times);
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_of_a_generated_graph_depend_on_older_executions() {
        let shape = Dense {
            layers: 4,
            width: 3,
            rounds: 30,
            seed: 1,
        };
        let mut events = Vec::new();
        let truth = shape.generate(|e| {
            events.push(e.clone());
            Ok::<(), ()>(())
        });
        let truth = truth.unwrap();
        assert!(events.is_sorted_by_key(|e| e.time_ns));
        assert_eq!(truth.len(), 9);
        let last = |source, sink| *truth[&(source, sink)].last().unwrap();
        // The last column comes last, so it takes what the others have published in this round.
        let (own, newest) = (last(2, 2), PERIOD_NS / 2);
        assert!(own.time_ns - own.newest_ns < newest, "{own:?}");
        // The first column takes what the others had published in the round before.
        let other = last(2, 0);
        assert!(other.time_ns - other.newest_ns > newest, "{other:?}");
        assert!(
            other.newest_ns - other.oldest_ns > PERIOD_NS / 2,
            "{other:?}"
        );
    }
}
