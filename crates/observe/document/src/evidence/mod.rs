//! Evidence: the measurements of runs, before any conclusion. Synthesis produces it from events,
//! merging adds it up, and `conclude` makes a model of it, of one run or of fifty.

mod figures;
mod hidden;
mod note;
mod together;

pub use figures::{add_all, add_causes, total, Figures};
pub use hidden::{Hidden, HiddenPath};
pub use note::Note;
pub use together::Together;

use crate::cuts::Cut;
use crate::dist::Dist;
use crate::schema::{ActionFigures, Callback, Edge, Endpoint, EndpointKind, Qos, Run, ThreadUse};
use crate::schema::{Helper, HelperFigures};
use crate::stated::StatedJunction;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Name of the edge that a link makes.
pub const MEMORY: &str = "(memory)";

/// The measurements of runs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Evidence {
    /// By id.
    pub runs: BTreeMap<String, Run>,
    /// By id. Their figures are in `modes` only, and their periods are those that were set.
    pub callbacks: BTreeMap<String, Callback>,
    /// Figures are in `modes` only.
    pub edges: BTreeMap<EdgeKey, Edge>,
    pub paths: BTreeMap<PathKey, PathEvidence>,
    /// Items lost on the way to a path's last callback, by mode.
    pub lost: BTreeMap<PathKey, BTreeMap<String, u64>>,
    /// Lineages dropped at the end of a path because there were too many, by mode.
    pub dropped: BTreeMap<PathKey, BTreeMap<String, u64>>,
    /// By action, by mode.
    pub actions: BTreeMap<String, BTreeMap<String, ActionFigures>>,
    /// QoS settings of publishers and subscriptions.
    pub endpoints: BTreeMap<EndpointKey, BTreeSet<Qos>>,
    /// Threads without callbacks.
    pub helpers: BTreeMap<HelperKey, HelperEvidence>,
    /// By id of the sync vertex.
    pub syncs: BTreeMap<String, SyncEvidence>,
    /// By callback: executions that no callback's item triggered.
    pub sourced: BTreeMap<String, u64>,
    /// By run: which callbacks each thread ran. Without the runs of models of versions that did not
    /// keep them.
    pub together: BTreeMap<String, Vec<Together>>,
    /// Timers whose period was not seen.
    pub unknown_periods: BTreeSet<String>,
    /// How often each applies; for [`Note::Stolen`] the sum in ns.
    pub notes: BTreeMap<Note, u64>,
}

/// An edge: which callback gives which topic's items to which.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct EdgeKey {
    pub from: String,
    pub to: String,
    pub topic: String,
}

impl EdgeKey {
    /// The key of an edge.
    pub fn of(edge: &Edge) -> Self {
        EdgeKey {
            from: edge.from.clone(),
            to: edge.to.clone(),
            topic: edge.topic.clone(),
        }
    }
}

/// The publishers, or the subscriptions, of a node on a topic.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndpointKey {
    pub node: String,
    pub topic: String,
    pub kind: EndpointKind,
}

impl EndpointKey {
    /// With their settings.
    pub fn endpoint(self, qos: BTreeSet<Qos>) -> Endpoint {
        Endpoint {
            node: self.node,
            topic: self.topic,
            kind: self.kind,
            qos: qos.into_iter().collect(),
        }
    }
}

/// Threads of one name that run no callback.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HelperKey {
    /// The nodes of their process, sorted.
    pub nodes: Vec<String>,
    pub name: String,
}

/// What is known of them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HelperEvidence {
    pub figures: HelperFigures,
    pub threads: Vec<ThreadUse>,
}

impl HelperKey {
    /// With what is known of them.
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
    /// Adds what else is known.
    pub fn add(&mut self, figures: &HelperFigures, threads: Vec<ThreadUse>) {
        self.figures.add(figures);
        let old = std::mem::take(&mut self.threads).into_iter();
        self.threads = unite_threads(old.chain(threads));
    }
}

/// A path: callbacks, and the topics between them.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PathKey {
    pub callbacks: Vec<String>,
    /// One fewer than callbacks.
    pub topics: Vec<String>,
    /// Positions of the sync vertices that the path reaches from the callback that published.
    /// Where that callback waits for no other, the path leads past them.
    pub own: Vec<usize>,
}

impl PathKey {
    /// The path's edges: from, to, topic.
    pub fn edges(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        let pairs = self.callbacks.windows(2).zip(&self.topics);
        pairs.map(|(pair, topic)| (pair[0].as_str(), pair[1].as_str(), topic.as_str()))
    }
}

/// A path that executions ended on.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PathEvidence {
    /// How often each topic was the last output ("": nothing).
    pub outputs: BTreeMap<String, u64>,
    pub modes: BTreeMap<String, PathFigures>,
    /// End-to-end latency by run. Without the runs of models of versions that did not keep them.
    pub per_run: BTreeMap<String, Dist>,
}

/// A path's figures in one mode.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PathFigures {
    /// End-to-end latency.
    pub latency_ns: Dist,
    /// From the start that the output before stood on to the next output.
    #[serde(default)]
    pub reaction_ns: Dist,
    /// End-to-end latency with that of data that were read once more; none where none were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_ns: Option<Dist>,
    /// Executions that ended in another mode than they began in.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub crossed: u64,
    /// Each callback's and edge's part of the latency, alternating: sums over the executions, ns.
    #[serde(with = "decimal")]
    pub sums: Vec<u128>,
}

/// Evidence for subscriptions that wait for one another, per node and topic.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SyncEvidence {
    pub node: String,
    pub topic: String,
    /// Publications by the node's subscriptions.
    pub outputs: u64,
    /// Publications by others.
    pub foreign: u64,
    /// Its items were joined by the time at which their chains began.
    #[serde(default)]
    pub nearest: bool,
    /// Joined inputs of publishing callbacks between which other inputs were passed over: which of
    /// them was used does not show.
    #[serde(default)]
    pub chosen: u64,
    /// By id of the subscription's callback.
    pub members: BTreeMap<String, MemberEvidence>,
}

/// How one subscription of a node is related to one topic that the node publishes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MemberEvidence {
    /// Executions.
    pub instances: u64,
    /// Executions that published anything.
    pub productive: u64,
    /// Executions that handed their input to a synchroniser.
    pub synchronised: u64,
    /// Outputs that it published itself.
    pub published: u64,
    /// Outputs for which it had an unused input.
    pub fresh: u64,
    /// Outputs before which it had exactly one input.
    pub once: u64,
    /// Outputs through a synchroniser that it feeds too.
    pub shared: u64,
    /// Outputs that it published itself though another that publishes had no input left.
    #[serde(default)]
    pub alone: u64,
    /// Executions without the output, from its first output on, though each other that may be
    /// waited for had an input since the last output.
    #[serde(default)]
    pub held: u64,
    /// Executions of others without the output while this one alone had no input since the last.
    #[serde(default)]
    pub awaited: u64,
    /// Subscriptions of the node from which its inputs descend.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub after: BTreeSet<String>,
}

/// Exceptions among so many outputs that are allowed for the start of a recording and for lost
/// events.
pub fn few(outputs: u64) -> u64 {
    (outputs / 20).max(1)
}

impl Evidence {
    /// Counts a note `n` times more.
    pub fn note(&mut self, note: Note, n: u64) {
        self.notes.entry(note).or_default().add(&n);
    }

    /// Junctions that the user states.
    pub fn stated_junctions(&self) -> Vec<StatedJunction> {
        let stated = self.notes.keys().filter_map(|note| match note {
            Note::Junction(text) => text.parse().ok(),
            _ => None,
        });
        stated.collect()
    }

    /// Topics that make no chains, and of which a callback took something.
    pub fn ignored(&self) -> BTreeSet<&str> {
        let notes = self.notes.keys();
        notes
            .filter_map(|note| match note {
                Note::Ignored(topic) => Some(topic.as_str()),
                _ => None,
            })
            .collect()
    }

    /// Where the user cuts chains.
    pub fn cuts(&self) -> Vec<Cut> {
        let cuts = self.notes.keys().filter_map(|note| match note {
            Note::Cut(text) => Cut::parse(text),
            _ => None,
        });
        cuts.collect()
    }

    /// Topics at which chains begin: the user named them, and a callback took something from them.
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

/// Threads that differ by name, policy or priority, each with the CPUs of all its occurrences.
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

/// Whether a count is left out.
fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// Sums as decimal text: JSON numbers lose digits above 2^53.
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
