//! Counts how old the data is at the ends of chains, per source: from the start of the newest and
//! of the oldest execution of the source on which an output depends.

use super::lineage::Lineage;
use crate::chains::Lineages;
use crate::index::{NameId, VertexId};
use crate::mode_rules::PerMode;
use onbeat_document::evidence::PathFigures;
use rustc_hash::FxHashMap;

/// A source, the callback at the end, and the topic of its outputs. Without a topic, the callback
/// published nothing.
pub(crate) type Pair = (VertexId, VertexId, Option<NameId>);

#[derive(Debug, Clone, Default)]
pub(crate) struct PairFigures {
    /// The figures of data that passed a junction which could not be read reliably yet.
    pub(crate) early: PerMode<PathFigures>,
    pub(crate) figures: PerMode<PathFigures>,
    newest: Option<u64>,
    /// At a cut: the start of the last execution that counted.
    counted: Option<u64>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Ends {
    pub(crate) pairs: FxHashMap<Pair, PairFigures>,
    /// Counts outputs of pairs that are not in `pairs` because there are too many.
    pub(crate) refused: u64,
}

/// Maximum number of pairs.
const MAX_PAIRS: usize = 16_384;

/// An output at which chains end.
#[derive(Clone, Copy)]
pub(super) struct ChainEnd {
    pub(super) vertex: VertexId,
    pub(super) output: Option<NameId>,
    pub(super) time: u64,
    /// The start of the execution, if the user cuts chains at this output.
    pub(super) cut: Option<u64>,
}

impl Lineage {
    /// Counts an output with these lineages, if chains end there.
    pub(super) fn end_at(&mut self, end: ChainEnd, lineages: &Lineages) {
        let Some(id) = lineages.origins() else {
            return;
        };
        if end.cut.is_none() && self.paths.is_extended(end.vertex) {
            return;
        }
        let origins = &self.steps.origins;
        let early = origins.is_early(id);
        let mut all = origins.get(id);
        while let Some(first) = all.first().copied() {
            let of_root = all.iter().take_while(|o| o.root == first.root).count();
            let (same, rest) = all.split_at(of_root);
            all = rest;
            if !same.iter().all(|o| origins.is_known(o)) {
                continue;
            }
            let newest = same.iter().max_by_key(|o| (o.newest, !o.reread));
            let newest = newest.unwrap_or(&first);
            let oldest = same.iter().map(|o| o.oldest).min().unwrap_or(first.oldest);
            let key = (first.root, end.vertex, end.output);
            if self.ends.pairs.len() >= MAX_PAIRS && !self.ends.pairs.contains_key(&key) {
                self.ends.refused += 1;
                continue;
            }
            let modes = [newest.newest, end.time].map(|t| self.paths.switches.at(t));
            let pair = self.ends.pairs.entry(key).or_default();
            if end.cut.is_some() && std::mem::replace(&mut pair.counted, end.cut) == end.cut {
                continue;
            }
            let before = pair.newest;
            pair.newest = before.max(Some(newest.newest));
            let figures = match early {
                true => pair.early.of(modes[0]),
                false => pair.figures.of(modes[0]),
            };
            let age = end.time.saturating_sub(oldest);
            if newest.reread {
                let latencies = &figures.latency_ns;
                let ages = figures.age_ns.get_or_insert_with(|| latencies.clone());
                ages.record(age);
                continue;
            }
            if oldest < newest.newest && figures.age_ns.is_none() {
                figures.age_ns = Some(figures.latency_ns.clone());
            }
            if let Some(ages) = &mut figures.age_ns {
                ages.record(age);
            }
            let latency = end.time.saturating_sub(newest.newest);
            figures.latency_ns.record(latency);
            figures.crossed += u64::from(modes[1] != modes[0]);
            // Data that came just after the earlier start appears first in this output.
            if let Some(before) = before.filter(|&b| b < newest.newest) {
                let reaction = end.time.saturating_sub(before);
                figures.reaction_ns.record(reaction);
            }
        }
    }
}
