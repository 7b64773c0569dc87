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
use crate::schema::{
    ActionFigures, ByMode, Callback, Edge, Endpoint, EndpointKind, Qos, Run, ThreadUse,
};
use crate::schema::{Helper, HelperFigures};
use crate::stated::StatedJunction;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The topic of an edge that the user added with `--link`.
pub const MEMORY: &str = "(memory)";

/// The measurements of one or more runs, from which onbeat makes a model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Evidence {
    pub runs: BTreeMap<String, Run>,
    /// The callbacks by id. A callback's figures are in `modes` only. Only timers have a period.
    pub callbacks: BTreeMap<String, Callback>,
    /// The edges by key. An edge's figures are in `modes` only.
    pub edges: BTreeMap<EdgeKey, Edge>,
    pub paths: BTreeMap<PathKey, PathEvidence>,
    /// The figures between the ends of chains, by mode. They cover all paths between the ends, also
    /// those that are not in `paths`.
    pub ends: BTreeMap<EndsKey, ByMode<PathFigures>>,
    /// For each path and mode: the number of items that were lost on the way to the last callback.
    pub lost: BTreeMap<PathKey, BTreeMap<String, u64>>,
    /// For each path and mode: the number of lineages that were dropped at the path's end, because
    /// there were too many.
    pub dropped: BTreeMap<PathKey, BTreeMap<String, u64>>,
    pub actions: BTreeMap<String, ByMode<ActionFigures>>,
    pub endpoints: BTreeMap<EndpointKey, BTreeSet<Qos>>,
    pub helpers: BTreeMap<HelperKey, HelperEvidence>,
    pub syncs: BTreeMap<String, SyncEvidence>,
    pub sourced: BTreeMap<String, u64>,
    /// The callbacks that each thread ran, by run id. Runs from models of older versions are
    /// missing.
    pub together: BTreeMap<String, Vec<Together>>,
    pub unknown_periods: BTreeSet<String>,
    /// The count of each note. For [`Note::Stolen`] and other notes about time it is a sum in ns.
    pub notes: BTreeMap<Note, u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct EdgeKey {
    pub from: String,
    pub to: String,
    pub topic: String,
}

impl EdgeKey {
    pub fn of(edge: &Edge) -> Self {
        EdgeKey {
            from: edge.from.clone(),
            to: edge.to.clone(),
            topic: edge.topic.clone(),
        }
    }
}

/// The key of two ends of chains: the first callback, the callback that publishes at the end, and
/// the topic. The topic is empty if the last callback publishes nothing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndsKey {
    pub from: String,
    pub to: String,
    pub topic: String,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndpointKey {
    pub node: String,
    pub topic: String,
    pub kind: EndpointKind,
}

impl EndpointKey {
    pub fn endpoint(self, qos: BTreeSet<Qos>) -> Endpoint {
        Endpoint {
            node: self.node,
            topic: self.topic,
            kind: self.kind,
            qos: qos.into_iter().collect(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HelperKey {
    pub nodes: Vec<String>,
    pub name: String,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct HelperEvidence {
    pub figures: HelperFigures,
    pub threads: Vec<ThreadUse>,
}

impl HelperKey {
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
    pub fn add(&mut self, figures: &HelperFigures, threads: Vec<ThreadUse>) {
        self.figures.add(figures);
        let old = std::mem::take(&mut self.threads).into_iter();
        self.threads = unite_threads(old.chain(threads));
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PathKey {
    pub callbacks: Vec<String>,
    pub topics: Vec<String>,
    /// The positions in `callbacks` of the sync vertices to which the path leads from the callback
    /// that publishes the synchroniser's output. If this callback does not wait for other
    /// callbacks, the model's path leads around these vertices.
    pub own: Vec<usize>,
}

impl PathKey {
    pub fn edges(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        let pairs = self.callbacks.windows(2).zip(&self.topics);
        pairs.map(|(pair, topic)| (pair[0].as_str(), pair[1].as_str(), topic.as_str()))
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct PathEvidence {
    /// For each topic: the number of executions whose last output was published on this topic. The
    /// empty topic counts executions without an output.
    pub outputs: BTreeMap<String, u64>,
    pub modes: ByMode<PathFigures>,
    /// The end-to-end latency by run id. Runs from models of older versions are missing.
    pub per_run: BTreeMap<String, Dist>,
}

/// The figures of one path in one mode, or of all paths between two ends in one mode.
///
/// For all paths between two ends, `sums` is empty. The latency then begins with the newest start
/// of the first callback on which an output depends, and the data age with the oldest start.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PathFigures {
    pub latency_ns: Dist,
    /// The reaction time: one output depends on a start of the first callback, and the time lasts
    /// from this start to the next output that depends on a later start.
    #[serde(default)]
    pub reaction_ns: Dist,
    /// The data age. In contrast to the latency, it also covers outputs for which stored data were
    /// read again. `None` if no data were read again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_ns: Option<Dist>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub crossed: u64,
    /// The parts of the latency: of the first callback, the first edge, the second callback and so
    /// on. Each part is a sum over all executions, in ns.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "decimal")]
    pub sums: Vec<u128>,
}

/// The evidence that shows whether the subscriptions of a node wait for one another before they
/// publish a topic.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SyncEvidence {
    pub node: String,
    pub topic: String,
    pub outputs: u64,
    /// The number of publications on the topic by other callbacks than the node's subscriptions.
    pub foreign: u64,
    /// Whether the synchroniser joined the items whose chains began closest together.
    #[serde(default)]
    pub nearest: bool,
    /// The number of outputs for which the data do not show which items the synchroniser joined.
    /// Either the publishing callback had skipped an unused input, or a synchroniser by approximate
    /// time would have joined other inputs.
    #[serde(default)]
    pub chosen: u64,
    /// Whether a synchroniser by approximate time explains the outputs, and a synchroniser of equal
    /// time stamps does not.
    #[serde(default, skip_serializing_if = "is_false")]
    pub approximate: bool,
    /// The number of observed outputs that a synchroniser of all subscriptions would have published
    /// at the same instants. 0 if no synchroniser explains the outputs.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub predicted: u64,
    /// The number of executions of publishing subscriptions that did not publish the output,
    /// although a synchroniser would have published it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub missing: u64,
    /// The number of executions of publishing subscriptions that did not publish, and at which a
    /// synchroniser would not have published either.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub held: u64,
    pub members: BTreeMap<String, MemberEvidence>,
}

/// The evidence that shows how one subscription of a node is related to a topic that the node
/// publishes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MemberEvidence {
    pub instances: u64,
    /// The number of executions of this subscription that published on any topic.
    pub productive: u64,
    /// The number of executions of this subscription that passed their message to a
    /// `message_filters` synchroniser.
    pub synchronised: u64,
    pub published: u64,
    /// The number of outputs for which this subscription had an input that no earlier output used.
    pub fresh: u64,
    /// The number of outputs before which this subscription had exactly one new input.
    pub once: u64,
    /// The number of outputs of a `message_filters` synchroniser to which this subscription passes
    /// its messages.
    pub shared: u64,
    /// The number of outputs that this subscription published although another publishing
    /// subscription had no unused input.
    #[serde(default)]
    pub alone: u64,
    /// The number of executions of this subscription that did not publish the output, although
    /// every other awaited subscription had an input since the last output. Executions before this
    /// subscription's first output do not count.
    #[serde(default)]
    pub held: u64,
    /// The number of executions of other subscriptions that did not publish the output, while only
    /// this subscription had no input since the last output.
    #[serde(default)]
    pub awaited: u64,
    /// The number of outputs that another subscription published and that the synthesis linked to
    /// this subscription's input. The figures of these outputs in [`Evidence::ends`] include the
    /// origins of this input.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub followed: u64,
    /// The number of outputs that another subscription published and that the synthesis did not
    /// link to this subscription's input, although this subscription had an unused input.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub passed_over: u64,
    /// Those other subscriptions of the same node from whose data this subscription's inputs were
    /// computed.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub after: BTreeSet<String>,
}

/// Returns the largest number of outputs that may contradict a conclusion about `outputs` outputs.
/// Some outputs contradict it because a recording begins in the middle and events get lost.
pub fn few(outputs: u64) -> u64 {
    (outputs / 20).max(1)
}

impl Evidence {
    pub fn note(&mut self, note: Note, n: u64) {
        self.notes.entry(note).or_default().add(&n);
    }

    pub fn stated_junctions(&self) -> Vec<StatedJunction> {
        let stated = self.notes.keys().filter_map(|note| match note {
            Note::Junction(text) => text.parse().ok(),
            _ => None,
        });
        stated.collect()
    }

    pub fn ignored(&self) -> BTreeSet<&str> {
        let notes = self.notes.keys();
        notes
            .filter_map(|note| match note {
                Note::Ignored(topic) => Some(topic.as_str()),
                _ => None,
            })
            .collect()
    }

    pub fn cuts(&self) -> Vec<Cut> {
        let cuts = self.notes.keys().filter_map(|note| match note {
            Note::Cut(text) => Cut::parse(text),
            _ => None,
        });
        cuts.collect()
    }

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

/// Writes and reads sums as decimal text, because JSON numbers above 2^53 lose digits.
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
