//! The paths of the evidence as the graph has them: past the sync vertices of subscriptions that do
//! not wait for one another.

use super::groups::Groups;
use crate::evidence::{add_all, Evidence, HiddenPath, PathEvidence, PathFigures, PathKey};
use std::collections::BTreeMap;

/// Paths as the graph has them.
pub(super) struct Paths {
    /// The executions that ended on each.
    pub(super) ended: BTreeMap<PathKey, Ended>,
    /// Items lost on the way to a path's last callback, by mode.
    lost: Counts,
    /// Lineages dropped there, by mode.
    dropped: Counts,
    /// Paths that the graph does not have.
    pub(super) unread: Vec<HiddenPath>,
}

type Counts = BTreeMap<PathKey, BTreeMap<String, u64>>;

/// The executions that ended on a path, and the paths of the evidence that they were followed on.
#[derive(Default)]
pub(super) struct Ended {
    pub(super) all: PathEvidence,
    parts: Vec<(PathKey, PathEvidence)>,
}

impl Ended {
    /// Whether the evidence has exactly this path.
    pub(super) fn is_plain(&self) -> bool {
        matches!(self.parts.as_slice(), [(key, _)] if key.own.is_empty())
    }

    /// The evidence's paths.
    pub(super) fn into_hidden(self) -> impl Iterator<Item = HiddenPath> {
        let parts = self.parts.into_iter();
        parts.map(|(key, path)| HiddenPath::new(key, path))
    }
}

impl Paths {
    /// Reads the evidence's paths. Its counts stay there.
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
            let ended = paths.ended.entry(read.key).or_default();
            add_all(&mut ended.all.outputs, &path.outputs);
            add_all(&mut ended.all.per_run, &path.per_run);
            add_all(&mut ended.all.modes, &without(&path.modes, &read.passed));
            ended.parts.push((key, path));
        }
        paths
    }

    /// Items lost on any part of a path, by mode.
    pub(super) fn lost_on(&self, path: &PathKey) -> BTreeMap<String, u64> {
        on(&self.lost, path)
    }

    /// Lineages dropped on any part of a path, by mode.
    pub(super) fn dropped_on(&self, path: &PathKey) -> BTreeMap<String, u64> {
        on(&self.dropped, path)
    }
}

/// A path of the evidence as the graph has it.
struct Read {
    key: PathKey,
    /// Positions in the path of the evidence that it leads past.
    passed: Vec<usize>,
}

impl Read {
    /// Whether the path ends at a sync vertex that the graph does not have. The same executions
    /// ended on the path to the callback before it.
    fn ends_unjoined(&self, of: &PathKey) -> bool {
        self.passed
            .last()
            .is_some_and(|&i| i + 1 == of.callbacks.len())
    }
}

/// A path as the graph has it: where the callback that published waits for no other, past the sync
/// vertex.
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

/// The figures of a path with the vertices at these positions counted to those before them.
fn without(
    modes: &BTreeMap<String, PathFigures>,
    passed: &[usize],
) -> BTreeMap<String, PathFigures> {
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

/// The sum over all beginnings of a path, by mode.
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
