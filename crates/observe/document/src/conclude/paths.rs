//! Reads the paths of the evidence as the graph has them. They skip sync vertices whose
//! subscriptions do not wait for one another.

use super::groups::Groups;
use crate::evidence::{add_all, Evidence, HiddenPath, PathEvidence, PathFigures, PathKey};
use crate::schema::ByMode;
use std::collections::BTreeMap;

pub(super) struct Paths {
    pub(super) ended: BTreeMap<PathKey, Ended>,
    lost: Counts,
    dropped: Counts,
    pub(super) unread: Vec<HiddenPath>,
}

type Counts = BTreeMap<PathKey, BTreeMap<String, u64>>;

/// The executions that ended on one path of the model's graph. Such a path can join several paths
/// of the evidence.
#[derive(Default)]
pub(super) struct Ended {
    pub(super) all: PathEvidence,
    vertices: usize,
    parts: Vec<(PathKey, PathEvidence)>,
}

impl Ended {
    /// Returns the positions, on the path, of the sync vertices to which the path leads from the
    /// callback that publishes the synchroniser's output. Returns `None` if the path joins several
    /// paths of the evidence, or leaves out vertices of its path of the evidence.
    pub(super) fn plain(&self) -> Option<&[usize]> {
        match self.parts.as_slice() {
            [(key, _)] if self.vertices == key.callbacks.len() => Some(&key.own),
            _ => None,
        }
    }

    pub(super) fn into_hidden(self) -> impl Iterator<Item = HiddenPath> {
        let parts = self.parts.into_iter();
        parts.map(|(key, path)| HiddenPath::new(key, path))
    }
}

impl Paths {
    /// Moves the paths out of the evidence, and returns the paths of the graph to which they
    /// belong. The counts of lost and dropped items stay in the evidence.
    pub(super) fn of(evidence: &mut Evidence, groups: &Groups) -> Self {
        let mut paths = Paths {
            ended: BTreeMap::new(),
            lost: counts(&evidence.lost, groups),
            dropped: counts(&evidence.dropped, groups),
            unread: Vec::new(),
        };
        for (key, path) in std::mem::take(&mut evidence.paths) {
            let read = read(&key, groups);
            if read.ends_unjoined(&key) {
                paths.unread.push(HiddenPath::new(key, path));
                continue;
            }
            let vertices = read.key.callbacks.len();
            let ended = paths.ended.entry(read.key).or_default();
            ended.vertices = vertices;
            add_all(&mut ended.all.outputs, &path.outputs);
            add_all(&mut ended.all.per_run, &path.per_run);
            add_all(&mut ended.all.modes, &without(&path.modes, &read.passed));
            ended.parts.push((key, path));
        }
        paths
    }

    pub(super) fn lost_on(&self, path: &PathKey) -> BTreeMap<String, u64> {
        on(&self.lost, path)
    }

    pub(super) fn dropped_on(&self, path: &PathKey) -> BTreeMap<String, u64> {
        on(&self.dropped, path)
    }
}

struct Read {
    key: PathKey,
    passed: Vec<usize>,
}

impl Read {
    /// Reports whether the path `of` ends at a sync vertex that is not in the graph. Its executions
    /// then also ended on the shorter path to the callback before that sync vertex.
    fn ends_unjoined(&self, of: &PathKey) -> bool {
        self.passed
            .last()
            .is_some_and(|&i| i + 1 == of.callbacks.len())
    }
}

/// Converts a path of the evidence to the graph's form. Skips sync vertices whose publishing
/// callback does not wait for other callbacks.
fn read(path: &PathKey, groups: &Groups) -> Read {
    let joined = |i: usize| {
        let group = groups.get(path.callbacks.get(i)?)?;
        Some(group.members.contains(path.callbacks.get(i - 1)?))
    };
    let passed: Vec<usize> = path
        .own
        .iter()
        .copied()
        .filter(|&i| joined(i) != Some(true))
        .collect();
    let mut key = PathKey {
        own: Vec::new(),
        ..path.clone()
    };
    for &i in passed.iter().rev() {
        key.callbacks.remove(i);
        key.topics.remove(i - 1);
    }
    Read { key, passed }
}

fn without(modes: &ByMode<PathFigures>, passed: &[usize]) -> ByMode<PathFigures> {
    let mut modes = modes.clone();
    for figures in modes.values_mut() {
        for &i in passed.iter().rev() {
            if 2 * i >= figures.sums.len() {
                continue;
            }
            let part: u128 = figures.sums.drain(2 * i - 1..=2 * i).sum();
            figures.sums[2 * i - 2] += part;
        }
    }
    modes
}

fn counts(evidence: &Counts, groups: &Groups) -> Counts {
    let mut counts = Counts::new();
    for (key, modes) in evidence {
        let read = read(key, groups);
        add_all(counts.entry(read.key).or_default(), modes);
    }
    counts
}

fn on(counts: &Counts, path: &PathKey) -> BTreeMap<String, u64> {
    let mut sum = BTreeMap::new();
    for n in 1..=path.callbacks.len() {
        let part = PathKey {
            callbacks: path.callbacks[..n].to_vec(),
            topics: path.topics[..n - 1].to_vec(),
            own: Vec::new(),
        };
        if let Some(modes) = counts.get(&part) {
            add_all(&mut sum, modes);
        }
    }
    sum
}
