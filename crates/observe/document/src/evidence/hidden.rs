//! The field `evidence` of `model.json`. It holds evidence that the model does not show but that
//! merging with more runs may need.

use super::{EndsKey, Evidence, Note, PathEvidence, PathFigures, PathKey, SyncEvidence, Together};
use crate::dist::Dist;
use crate::schema::{ByMode, Callback, Edge};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Evidence that merging needs, and that the visible part of a model does not show.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Hidden {
    pub callbacks: Vec<Callback>,
    pub edges: Vec<Edge>,
    pub paths: Vec<HiddenPath>,
    /// For each visible chain (by id) and topic: the number of executions of the chain whose last
    /// output was published on this topic.
    pub outputs: BTreeMap<String, BTreeMap<String, u64>>,
    /// The ids of visible chains that sum up several paths, or whose path skips a sync vertex.
    /// Their single paths are in the field `paths`.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub derived: BTreeSet<String>,
    /// For each visible chain (by id): the positions, among the chain's callbacks, of the sync
    /// vertices to which the chain leads from the callback that publishes the synchroniser's
    /// output.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub own: BTreeMap<String, Vec<usize>>,
    /// The figures between a source and a sink that the model shows only as a part of a sum.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ends: Vec<HiddenEnds>,
    pub lost: Vec<CountedOnPath>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<CountedOnPath>,
    pub syncs: BTreeMap<String, SyncEvidence>,
    pub sourced: BTreeMap<String, u64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub together: BTreeMap<String, Vec<Together>>,
    pub unknown_periods: BTreeSet<String>,
    pub notes: Vec<CountedNote>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HiddenPath {
    pub callbacks: Vec<String>,
    pub topics: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub own: Vec<usize>,
    pub outputs: BTreeMap<String, u64>,
    pub modes: ByMode<PathFigures>,
    /// The end-to-end latencies of the path by run id. Empty if the model is made from one run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub per_run: BTreeMap<String, Dist>,
}

impl HiddenPath {
    pub fn new(key: PathKey, path: PathEvidence) -> Self {
        HiddenPath {
            callbacks: key.callbacks,
            topics: key.topics,
            own: key.own,
            outputs: path.outputs,
            modes: path.modes,
            per_run: path.per_run,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HiddenEnds {
    pub from: String,
    pub to: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub topic: String,
    pub modes: ByMode<PathFigures>,
}

impl HiddenEnds {
    pub fn new(key: EndsKey, modes: ByMode<PathFigures>) -> Self {
        HiddenEnds {
            from: key.from,
            to: key.to,
            topic: key.topic,
            modes,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CountedOnPath {
    pub callbacks: Vec<String>,
    pub topics: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub own: Vec<usize>,
    pub modes: BTreeMap<String, u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CountedNote {
    #[serde(flatten)]
    pub note: Note,
    pub count: u64,
}

impl Hidden {
    pub fn keep(&mut self, evidence: Evidence) {
        let counted = |(key, modes): (PathKey, _)| CountedOnPath {
            callbacks: key.callbacks,
            topics: key.topics,
            own: key.own,
            modes,
        };
        self.lost = evidence.lost.into_iter().map(counted).collect();
        self.dropped = evidence.dropped.into_iter().map(counted).collect();
        self.syncs = evidence.syncs;
        self.sourced = evidence.sourced;
        self.together = evidence.together;
        self.unknown_periods = evidence.unknown_periods;
        let counted = |(note, count)| CountedNote { note, count };
        self.notes = evidence.notes.into_iter().map(counted).collect();
    }
}
