//! Ring buffers of intra-process subscriptions: a message is taken from the place in which it was
//! put.

use super::graph::{Hop, Route};
use super::lineage::Incoming;
use super::Flow;
use crate::chains::Lineages;
use crate::index::VertexId;
use crate::synth::events::Enqueue;
use crate::synth::ids::EntityId;
use crate::synth::notes::Note;
use crate::synth::Context;
use rustc_hash::FxHashMap;

/// A message in a ring buffer.
#[derive(Debug, Clone, Copy)]
struct Slot {
    time: u64,
    vertex: Option<VertexId>,
    lineages: Lineages,
}

/// The ring buffers, by subscription, and their messages by place.
#[derive(Debug, Clone, Default)]
pub(super) struct Rings(FxHashMap<EntityId, FxHashMap<u64, Slot>>);

/// Places of one ring buffer, at most.
const MAX_RING: usize = 4096;

impl Flow {
    /// A message is put into a ring buffer.
    pub(super) fn enqueue(&mut self, cx: &mut Context, event: &Enqueue) {
        let (subscription, time) = (event.subscription, event.time);
        let Some(name) = cx.entities.get(subscription).name() else {
            return;
        };
        let owner = self.resolve(event.owner);
        let (vertex, own) = self.source(owner);
        let mut lineages = self.lineage.steps.share(&own);
        if let Some(publisher) = event.publisher {
            let node = self.node_of(cx, publisher);
            self.published_by(cx, owner, vertex, name, node, time);
            let message = event.message;
            let beyond =
                self.publish_synchronised(cx, owner, (node, name), time, message, &mut lineages);
            for step in beyond {
                self.lineage.steps.release(step);
            }
            self.topics.set_intra(subscription, publisher);
        }
        let to = self.vertex(cx, subscription);
        let hop = Hop {
            to,
            name,
            route: Route::Intra,
        };
        if let Some(vertex) = vertex {
            self.graph.count_published(vertex, hop);
        }
        let ring = self.rings.0.entry(subscription).or_default();
        if ring.len() >= MAX_RING && !ring.contains_key(&event.index) {
            self.lineage.steps.release_all(&mut lineages);
            cx.notes.count(Note::Capped, 1);
            return;
        }
        let slot = Slot {
            time,
            vertex,
            lineages,
        };
        if let Some(mut old) = ring.insert(event.index, slot) {
            // Overwritten, whether or not the event says so.
            self.lose((old.vertex, old.lineages), hop, 1, true);
            self.lineage.steps.release_all(&mut old.lineages);
        }
    }

    /// A subscription takes the message in a place of its ring buffer.
    pub(super) fn take_ring(
        &mut self,
        cx: &mut Context,
        subscription: EntityId,
        index: u64,
    ) -> Option<Incoming> {
        let slot = self.rings.0.get_mut(&subscription)?.remove(&index)?;
        let name = cx.entities.get(subscription).name()?;
        let to = self.vertex(cx, subscription);
        let route = Route::Intra;
        if let Some(vertex) = slot.vertex {
            self.graph.count_taken(vertex, Hop { to, name, route });
        }
        Some(Incoming {
            vertex: slot.vertex,
            time: slot.time,
            name,
            route,
            lineages: slot.lineages,
        })
    }

    /// A ring buffer is emptied.
    pub(super) fn clear_ring(&mut self, subscription: EntityId) {
        for (_, mut slot) in self.rings.0.remove(&subscription).into_iter().flatten() {
            self.lineage.steps.release_all(&mut slot.lineages);
        }
    }
}
