//! What a callback hands on within its process: work to be done later, or the result of work. It
//! carries the callback's lineages.

use super::graph::Route;
use super::lineage::Incoming;
use super::Flow;
use crate::chains::Lineages;
use crate::ids::{HandId, InstanceId};
use crate::index::VertexId;
use std::collections::VecDeque;

/// Something that an instance handed on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kept {
    hand: HandId,
    pub(super) from: VertexId,
    time: u64,
    pub(super) lineages: Lineages,
}

/// What was handed on and not taken yet, oldest first.
#[derive(Debug, Clone, Default)]
pub(super) struct Made(VecDeque<Kept>);

/// Most of it that is kept.
const MAX_HANDED: usize = 1024;

impl Flow {
    /// A running instance hands something on.
    pub(super) fn hand(&mut self, instance: InstanceId, hand: HandId, time: u64) {
        let Some(it) = self.instances.get(instance) else {
            return;
        };
        let from = it.vertex;
        let lineages = self.lineage.steps.share(&it.lineages);
        if self.ways.made.0.len() >= MAX_HANDED {
            if let Some(mut old) = self.ways.made.0.pop_front() {
                self.lineage.steps.release_all(&mut old.lineages);
            }
        }
        self.ways.made.0.push_back(Kept {
            hand,
            from,
            time,
            lineages,
        });
    }

    /// Takes what was handed on. Its lineages are the caller's.
    pub(super) fn take_hand(&mut self, hand: HandId) -> Option<Kept> {
        let at = self.ways.made.0.iter().position(|kept| kept.hand == hand)?;
        self.ways.made.0.remove(at)
    }

    /// A callback begins that does work handed to it.
    pub(super) fn take_made(&mut self, hand: HandId, to: VertexId) -> Option<Incoming> {
        let kept = self.take_hand(hand)?;
        let hop = self.ways.links.hop(to, Route::Made);
        let figures = self.graph.sent(kept.from, hop, kept.time);
        figures.published += 1;
        figures.taken += 1;
        Some(Incoming {
            untold: false,
            vertex: Some(kept.from),
            time: kept.time,
            name: hop.name,
            route: hop.route,
            lineages: kept.lineages,
        })
    }
}
