//! Evidence: the measurements of runs, before any conclusion. Synthesis produces it from events,
//! merging adds it up, and `conclude` makes a model of it.

mod figures;
mod hidden;
mod note;
mod together;

pub use figures::{add_all, add_causes, total, Figures};
pub use hidden::{Hidden, HiddenEnds, HiddenPath};
pub use note::Note;
pub use together::Together;

use crate::cuts::Cut;
use crate::dist::Dist;
use crate::schema::{ActionFigures, Callback, Edge, Endpoint, EndpointKind, Qos, Run, ThreadUse};
use crate::schema::{Helper, HelperFigures};
use crate::stated::StatedJunction;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The topic of an edge that the user's `--link` makes.
pub const MEMORY: &str = "(memory)";

/// The measurements of one or more runs, from which a model is made.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Evidence {
    /// The measured runs, by run id.
    pub runs: BTreeMap<String, Run>,
    /// The callbacks by id. Their figures are in `modes` only, and their periods are those of
    /// timers.
    pub callbacks: BTreeMap<String, Callback>,
    /// The edges. Their figures are in `modes` only.
    pub edges: BTreeMap<EdgeKey, Edge>,
    pub paths: BTreeMap<PathKey, PathEvidence>,
    /// The age of the data at the ends of chains, per mode. Paths through all callbacks count, even
    /// those that are not in `paths`.
    pub ends: BTreeMap<EndsKey, BTreeMap<String, PathFigures>>,
    /// The number of items lost on the way to a path's last callback, by mode.
    pub lost: BTreeMap<PathKey, BTreeMap<String, u64>>,
    /// The number of lineages dropped at the end of a path because there were too many, by mode.
    pub dropped: BTreeMap<PathKey, BTreeMap<String, u64>>,
    /// The figures by action and mode.
    pub actions: BTreeMap<String, BTreeMap<String, ActionFigures>>,
    /// The QoS settings of publishers and subscriptions.
    pub endpoints: BTreeMap<EndpointKey, BTreeSet<Qos>>,
    /// The threads without callbacks.
    pub helpers: BTreeMap<HelperKey, HelperEvidence>,
    /// The evidence of synchronisation by id of the sync vertex.
    pub syncs: BTreeMap<String, SyncEvidence>,
    /// The number of executions per callback that no item of another callback triggered.
    pub sourced: BTreeMap<String, u64>,
    /// The callbacks that each thread ran, by run. Runs from models of older versions are missing.
    pub together: BTreeMap<String, Vec<Together>>,
    /// The timers whose period was not seen.
    pub unknown_periods: BTreeSet<String>,
    /// The count of each note. For [`Note::Stolen`] it is the sum in ns.
    pub notes: BTreeMap<Note, u64>,
}

/// The key of an edge: the publishing callback, the taking callback and the topic.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct EdgeKey {
    pub from: String,
    pub to: String,
    pub topic: String,
}

impl EdgeKey {
    /// Returns the key of an edge.
    pub fn of(edge: &Edge) -> Self {
        EdgeKey {
            from: edge.from.clone(),
            to: edge.to.clone(),
            topic: edge.topic.clone(),
        }
    }
}

/// The key of the two ends of chains: the callback with which they begin, the callback that
/// publishes at their end, and the topic. The topic is empty if the last callback publishes
/// nothing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndsKey {
    pub from: String,
    pub to: String,
    pub topic: String,
}

/// The key of the publishers or the subscriptions of a node on a topic.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndpointKey {
    pub node: String,
    pub topic: String,
    pub kind: EndpointKind,
}

impl EndpointKey {
    /// Builds the endpoint with these settings.
    pub fn endpoint(self, qos: BTreeSet<Qos>) -> Endpoint {
        Endpoint {
            node: self.node,
            topic: self.topic,
            kind: self.kind,
            qos: qos.into_iter().collect(),
        }
    }
}

/// The key of equally named threads that run no callback.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HelperKey {
    /// The nodes of the threads' process, sorted.
    pub nodes: Vec<String>,
    pub name: String,
}

/// The figures and scheduling of the threads of one [`HelperKey`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HelperEvidence {
    pub figures: HelperFigures,
    pub threads: Vec<ThreadUse>,
}

impl HelperKey {
    /// Builds the helper with this evidence.
    pub fn helper(self, of: HelperEvidence) -> Helper {
        Helper {
            nodes: self.nodes,
            name: self.name,
            figures: of.figures,
            threads: of.threads,
        }
    }
}

impl HelperEvidence {
    /// Adds figures and threads of another observation.
    pub fn add(&mut self, figures: &HelperFigures, threads: Vec<ThreadUse>) {
        self.figures.add(figures);
        let old = std::mem::take(&mut self.threads).into_iter();
        self.threads = unite_threads(old.chain(threads));
    }
}

/// The key of a path: its callbacks and the topics between them.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PathKey {
    pub callbacks: Vec<String>,
    /// The topics, one fewer than callbacks.
    pub topics: Vec<String>,
    /// The positions of sync vertices that the path reaches from the publishing callback. The path
    /// skips them if that callback does not wait for others.
    pub own: Vec<usize>,
}

impl PathKey {
    /// Iterates over the path's edges as (from, to, topic).
    pub fn edges(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        let pairs = self.callbacks.windows(2).zip(&self.topics);
        pairs.map(|(pair, topic)| (pair[0].as_str(), pair[1].as_str(), topic.as_str()))
    }
}

/// The evidence of a path on which executions ended.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PathEvidence {
    /// The number of times each topic was the last output. An empty topic means no output.
    pub outputs: BTreeMap<String, u64>,
    pub modes: BTreeMap<String, PathFigures>,
    /// The end-to-end latency by run. Runs from models of older versions are missing.
    pub per_run: BTreeMap<String, Dist>,
}

/// The figures in one mode of a path, or of all paths between two ends. Those between two ends have
/// no `sums`. Their latency begins with the newest and their age with the oldest start on which an
/// output depends.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PathFigures {
    /// The end-to-end latencies of the executions of the path.
    pub latency_ns: Dist,
    /// The reaction time: from the start behind the previous output to the next output.
    #[serde(default)]
    pub reaction_ns: Dist,
    /// The end-to-end latency including data that were read again. `None` if no data were read
    /// again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_ns: Option<Dist>,
    /// The number of executions that ended in another mode than they began in.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub crossed: u64,
    /// The part of each callback and edge in the latency, alternating. Each is a sum over the
    /// executions, ns.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "decimal")]
    pub sums: Vec<u128>,
}

/// The evidence whether subscriptions wait for one another, per node and topic.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SyncEvidence {
    pub node: String,
    pub topic: String,
    /// The number of publications on the topic by the node's subscriptions.
    pub outputs: u64,
    /// The number of publications on the topic by callbacks other than the node's subscriptions.
    pub foreign: u64,
    /// The synchroniser joined items by the time at which their chains began.
    #[serde(default)]
    pub nearest: bool,
    /// The number of outputs for which the publishing callback had several new inputs. The data do
    /// not show which of them was used.
    #[serde(default)]
    pub chosen: u64,
    /// A synchroniser by approximate time explains the outputs, and one of equal stamps does not.
    #[serde(default, skip_serializing_if = "is_false")]
    pub approximate: bool,
    /// The number of publications at which a synchroniser of all subscriptions would publish. 0 if
    /// the publications are not those of a synchroniser.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub predicted: u64,
    /// The number of executions without the output at which such a synchroniser would publish.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub missing: u64,
    /// The number of executions of publishing subscriptions without the output at which such a
    /// synchroniser would not publish either.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub held: u64,
    /// The evidence by id of the subscription's callback.
    pub members: BTreeMap<String, MemberEvidence>,
}

/// The evidence how one subscription of a node is related to one topic that the node publishes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MemberEvidence {
    /// The number of executions of the subscription's callback.
    pub instances: u64,
    /// The number of executions that published anything.
    pub productive: u64,
    /// The number of executions that passed their input to a synchroniser.
    pub synchronised: u64,
    /// The number of outputs that the subscription published itself.
    pub published: u64,
    /// The number of outputs for which the subscription had an unused input.
    pub fresh: u64,
    /// The number of outputs before which the subscription had exactly one input.
    pub once: u64,
    /// The number of outputs through a synchroniser that the subscription also feeds.
    pub shared: u64,
    /// The number of outputs that the subscription published itself although another publishing one
    /// had no input left.
    #[serde(default)]
    pub alone: u64,
    /// The number of executions without the output, although each other awaited subscription had an
    /// input since the last output. Counting starts with the subscription's first output.
    #[serde(default)]
    pub held: u64,
    /// The number of executions of others without the output while only this subscription lacked an
    /// input since the last one.
    #[serde(default)]
    pub awaited: u64,
    /// The number of outputs published on another input into whose ends (`ends`) this one's input
    /// went.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub followed: u64,
    /// The number of outputs published on another input for which this one had an input that did
    /// not go into `ends`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub passed_over: u64,
    /// The node's subscriptions from which this one's inputs descend.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub after: BTreeSet<String>,
}

/// Returns how many exceptions among the outputs are allowed for the start of a recording and for
/// lost events.
pub fn few(outputs: u64) -> u64 {
    (outputs / 20).max(1)
}

impl Evidence {
    /// Counts a note `n` more times.
    pub fn note(&mut self, note: Note, n: u64) {
        self.notes.entry(note).or_default().add(&n);
    }

    /// Returns the junctions that the user states.
    pub fn stated_junctions(&self) -> Vec<StatedJunction> {
        let stated = self.notes.keys().filter_map(|note| match note {
            Note::Junction(text) => text.parse().ok(),
            _ => None,
        });
        stated.collect()
    }

    /// Returns the topics that make no chains and from which a callback took something.
    pub fn ignored(&self) -> BTreeSet<&str> {
        let notes = self.notes.keys();
        notes
            .filter_map(|note| match note {
                Note::Ignored(topic) => Some(topic.as_str()),
                _ => None,
            })
            .collect()
    }

    /// Returns the ends at which the user cuts chains.
    pub fn cuts(&self) -> Vec<Cut> {
        let cuts = self.notes.keys().filter_map(|note| match note {
            Note::Cut(text) => Cut::parse(text),
            _ => None,
        });
        cuts.collect()
    }

    /// Returns the topics that the user named as inputs and from which a callback took something.
    pub fn inputs(&self) -> BTreeSet<&str> {
        let notes = self.notes.keys();
        notes
            .filter_map(|note| match note {
                Note::Input(topic) => Some(topic.as_str()),
                _ => None,
            })
            .collect()
    }
}

/// Unites threads of the same name, policy and priority, with the CPUs of all their occurrences.
pub fn unite_threads(threads: impl Iterator<Item = ThreadUse>) -> Vec<ThreadUse> {
    let mut all: BTreeMap<(String, String, u8), BTreeSet<u16>> = BTreeMap::new();
    for t in threads {
        all.entry((t.comm, t.policy, t.priority))
            .or_default()
            .extend(t.cpus);
    }
    all.into_iter()
        .map(|((comm, policy, priority), cpus)| ThreadUse {
            comm,
            policy,
            priority,
            cpus: cpus.into_iter().collect(),
        })
        .collect()
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

fn is_false(it: &bool) -> bool {
    !it
}

/// Writes sums as decimal text, because JSON numbers lose digits above 2^53.
mod decimal {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(v: &[u128], s: S) -> Result<S::Ok, S::Error> {
        v.iter()
            .map(u128::to_string)
            .collect::<Vec<_>>()
            .serialize(s)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<u128>, D::Error> {
        Vec::<String>::deserialize(d)?
            .iter()
            .map(|t| t.parse().map_err(serde::de::Error::custom))
            .collect()
    }
}
