//! Measures, for each source, how old the data is at the ends of chains: the time since the newest
//! and since the oldest execution of the source on which an output depends.

use crate::chains::{Lineages, Paths, Steps};
use crate::index::{NameId, VertexId};
use crate::marks::Marks;
use crate::mode_rules::{ModeId, PerMode};
use crate::origins::Origin;
use onbeat_document::evidence::PathFigures;
use rustc_hash::FxHashMap;

/// A source, the callback at the end of a chain, and the topic of its output. The topic is `None`
/// if the callback published nothing.
pub(crate) type Pair = (VertexId, VertexId, Option<NameId>);

#[derive(Debug, Clone, Default)]
pub(crate) struct PairFigures {
    /// The figures of early outputs. The data of such an output passed a junction when the junction
    /// had too few outputs to show which inputs it joins.
    pub(crate) early: PerMode<PathFigures>,
    pub(crate) figures: PerMode<PathFigures>,
    newest: Option<u64>,
    /// The start of the latest execution in these figures, if the user cuts chains at this output.
    counted: Option<u64>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Ends {
    pub(crate) pairs: FxHashMap<Pair, PairFigures>,
    pub(crate) refused: u64,
}

const MAX_PAIRS: usize = 16_384;

#[derive(Clone, Copy)]
pub(super) struct ChainEnd {
    pub(super) vertex: VertexId,
    pub(super) output: Option<NameId>,
    pub(super) time: u64,
    /// The start of the execution if the user cuts chains at this output, otherwise `None`.
    pub(super) cut: Option<u64>,
}

impl Ends {
    pub(super) fn forget(&mut self, vertices: &Marks) {
        let is_gone = |v: VertexId| vertices.has(v.index());
        self.pairs
            .retain(|pair, _| !is_gone(pair.0) && !is_gone(pair.1));
    }

    pub(super) fn count(
        &mut self,
        (paths, steps): (&Paths, &Steps),
        end: ChainEnd,
        lineages: &Lineages,
    ) {
        let Some(id) = lineages.origins() else {
            return;
        };
        if end.cut.is_none() && paths.is_extended(end.vertex) {
            return;
        }
        let origins = &steps.origins;
        let early = origins.is_early(id);
        for of_root in origins.get(id).chunk_by(|a, b| a.root == b.root) {
            let known = of_root.iter().all(|o| origins.is_known(o));
            let (Some(all), true) = (Origin::all(of_root), known) else {
                continue;
            };
            let key = (all.root, end.vertex, end.output);
            if self.pairs.len() >= MAX_PAIRS && !self.pairs.contains_key(&key) {
                self.refused += 1;
                continue;
            }
            let modes = [all.newest, end.time].map(|t| paths.switches.at(t));
            let pair = self.pairs.entry(key).or_default();
            pair.count(end, all, early, modes);
        }
    }
}

impl PairFigures {
    /// Counts an output as a result of the source `of`. `mode` was active when the newest data
    /// started at the source, and `now` when the output was published.
    fn count(&mut self, end: ChainEnd, of: Origin, early: bool, [mode, now]: [ModeId; 2]) {
        if end.cut.is_some() && std::mem::replace(&mut self.counted, end.cut) == end.cut {
            return;
        }
        let figures = match early {
            true => self.early.of(mode),
            false => self.figures.of(mode),
        };
        let since = |start: u64| end.time.saturating_sub(start);
        let differs = of.reread || of.oldest < of.newest;
        if differs && figures.age_ns.is_none() {
            figures.age_ns = Some(figures.latency_ns.clone());
        }
        if let Some(ages) = &mut figures.age_ns {
            ages.record(since(of.oldest));
        }
        if of.reread {
            return;
        }
        figures.latency_ns.record(since(of.newest));
        figures.crossed += u64::from(now != mode);
        match self.newest {
            Some(before) if before >= of.newest => {}
            before => {
                // Data that came just after the earlier start appears first in this output.
                if let Some(before) = before {
                    figures.reaction_ns.record(since(before));
                }
                self.newest = Some(of.newest);
            }
        }
    }
}
