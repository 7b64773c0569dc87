//! Follows work and results of work that a callback hands on within its process. They carry the
//! callback's lineages.

use super::graph::Route;
use super::lineage::Incoming;
use super::Flow;
use crate::chains::Lineages;
use crate::ids::{HandId, InstanceId};
use crate::index::VertexId;
use crate::marks::Marks;
use std::collections::VecDeque;

#[derive(Debug, Clone, Copy)]
pub(super) struct Kept {
    hand: HandId,
    pub(super) from: VertexId,
    time: u64,
    pub(super) lineages: Lineages,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Made(VecDeque<Kept>);

const MAX_HANDED: usize = 1024;

impl Made {
    pub(super) fn mark_vertices(&self, marks: &mut Marks) {
        for kept in &self.0 {
            marks.add(kept.from.index());
        }
    }
}

impl Flow {
    pub(super) fn drop_old_hands(&mut self, time: u64) {
        let made = &mut self.ways.made.0;
        let old = made.iter().take_while(|kept| kept.time < time).count();
        for mut kept in made.drain(..old) {
            self.lineage.steps.release_all(&mut kept.lineages);
        }
    }

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

    pub(super) fn take_hand(&mut self, hand: HandId) -> Option<Kept> {
        let at = self.ways.made.0.iter().position(|kept| kept.hand == hand)?;
        self.ways.made.0.remove(at)
    }

    pub(super) fn take_made(&mut self, hand: HandId, to: VertexId) -> Option<Incoming> {
        let kept = self.take_hand(hand)?;
        let hop = self.ways.links.hop(to, Route::Made);
        let figures = self.graph.sent(kept.from, hop, kept.time);
        figures.published += 1;
        figures.taken += 1;
        Some(Incoming {
            ambiguous: false,
            vertex: Some(kept.from),
            time: kept.time,
            name: hop.name,
            route: hop.route,
            lineages: kept.lineages,
        })
    }
}
