//! The field `evidence` of `model.json`: evidence that a model does not show, but that a later
//! conclusion from more runs may need.

use super::{Evidence, Note, PathEvidence, PathFigures, PathKey, SyncEvidence, Together};
use crate::dist::Dist;
use crate::schema::{Callback, Edge};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Evidence that the visible part of a model does not show.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Hidden {
    pub(crate) callbacks: Vec<Callback>,
    pub(crate) edges: Vec<Edge>,
    pub(crate) paths: Vec<HiddenPath>,
    /// Last outputs of the visible chains, by their id.
    pub(crate) outputs: BTreeMap<String, BTreeMap<String, u64>>,
    /// Ids of the visible chains whose figures are those of several paths, or of a path that leads
    /// past a sync vertex: the paths are kept here.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) derived: BTreeSet<String>,
    pub(crate) lost: Vec<CountedOnPath>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) dropped: Vec<CountedOnPath>,
    pub(crate) syncs: BTreeMap<String, SyncEvidence>,
    pub(crate) sourced: BTreeMap<String, u64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) together: BTreeMap<String, Vec<Together>>,
    pub(crate) unknown_periods: BTreeSet<String>,
    pub(crate) notes: Vec<CountedNote>,
}

/// A path that is no chain of the model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct HiddenPath {
    pub(crate) callbacks: Vec<String>,
    pub(crate) topics: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) own: Vec<usize>,
    pub(crate) outputs: BTreeMap<String, u64>,
    pub(crate) modes: BTreeMap<String, PathFigures>,
    /// Left out where there is one run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) per_run: BTreeMap<String, Dist>,
}

impl HiddenPath {
    /// The path as it is written.
    pub(crate) fn new(key: PathKey, path: PathEvidence) -> Self {
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

/// Items lost on the way to a path's last callback, or lineages dropped there.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CountedOnPath {
    pub(crate) callbacks: Vec<String>,
    pub(crate) topics: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) own: Vec<usize>,
    pub(crate) modes: BTreeMap<String, u64>,
}

/// A note, and how often it applies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct CountedNote {
    #[serde(flatten)]
    pub(crate) note: Note,
    pub(crate) count: u64,
}

impl Hidden {
    /// Takes over the part of the evidence that no model shows.
    pub(crate) fn keep(&mut self, evidence: Evidence) {
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
