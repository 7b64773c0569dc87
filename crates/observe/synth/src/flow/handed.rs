//! Follows work that a callback hands to a thread of the application by waking it up or creating
//! it.
//!
//! A wake-up is not a message. An execution that begins with one continues the callback's lineages
//! and also begins a lineage of its own. Over the run it becomes visible whether the thread's work
//! always comes from that callback; `conclude` then keeps one of the two.

use super::graph::{Hop, Route};
use super::lineage::Incoming;
use super::Flow;
use crate::chains::Lineages;
use crate::ids::{HandedId, InstanceId};
use crate::index::VertexId;
use crate::marks::Marks;
use rustc_hash::FxHashMap;

#[derive(Debug, Clone, Copy)]
struct Work {
    from: VertexId,
    time: u64,
    lineages: Lineages,
}

/// Wake-ups of threads by callbacks. Each may begin an execution on the thread that was woken up.
#[derive(Debug, Clone, Default)]
pub(super) struct HandedWork(FxHashMap<HandedId, Work>);

/// The maximum number of wake-ups that are kept because the woken thread may begin an execution
/// with them.
const MAX_KEPT: usize = 4096;

impl HandedWork {
    pub(super) fn mark_vertices(&self, marks: &mut Marks) {
        for work in self.0.values() {
            marks.add(work.from.index());
        }
    }
}

impl Flow {
    pub(super) fn drop_old_work(&mut self, time: u64) {
        let works = self.ways.handed.0.iter();
        let old = works.filter(|(_, work)| work.time < time);
        let old: Vec<HandedId> = old.map(|(&id, _)| id).collect();
        old.into_iter().for_each(|id| self.drop_work(id));
    }

    pub(super) fn hand_work(&mut self, work: HandedId, instance: InstanceId, time: u64) {
        let Some(&it) = self.instances.get(instance) else {
            return;
        };
        if self.ways.handed.0.len() < MAX_KEPT {
            let kept = Work {
                from: it.vertex,
                time,
                lineages: self.lineage.steps.share(&it.lineages),
            };
            self.ways.handed.0.insert(work, kept);
        }
    }

    pub(super) fn drop_work(&mut self, work: HandedId) {
        if let Some(mut kept) = self.ways.handed.0.remove(&work) {
            self.lineage.steps.release_all(&mut kept.lineages);
        }
    }

    pub(super) fn take_work(&mut self, work: HandedId, to: VertexId) -> Option<Incoming> {
        let kept = self.ways.handed.0.remove(&work)?;
        let Hop { name, route, .. } = self.ways.links.hop(to, Route::HandedOver);
        let hop = Hop { to, name, route };
        self.graph.count_published(kept.from, hop, kept.time);
        self.graph.count_taken(kept.from, hop, kept.time);
        Some(Incoming {
            ambiguous: false,
            vertex: Some(kept.from),
            time: kept.time,
            name,
            route,
            lineages: kept.lineages,
        })
    }
}
