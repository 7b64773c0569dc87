//! Follows messages through the ring buffers of intra-process subscriptions. A message is taken at
//! the index at which it was put.

use super::graph::{Hop, NodeBy, Route};
use super::lineage::{Awaited, Incoming};
use super::Flow;
use crate::chains::Lineages;
use crate::events::Enqueue;
use crate::ids::EntityId;
use crate::index::{NameId, VertexId};
use crate::marks::Marks;
use crate::notes::Note;
use crate::outcomes::{Loss, Outcome};
use crate::Context;
use rustc_hash::FxHashMap;

#[derive(Debug, Clone, Copy)]
struct Slot {
    time: u64,
    vertex: Option<VertexId>,
    lineages: Lineages,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Rings(FxHashMap<EntityId, FxHashMap<u64, Slot>>);

impl Rings {
    pub(super) fn mark_vertices(&self, marks: &mut Marks) {
        let slots = self.0.values().flat_map(|slots| slots.values());
        for vertex in slots.filter_map(|slot| slot.vertex) {
            marks.add(vertex.index());
        }
    }

    pub(super) fn awaited(
        &self,
        subscription: EntityId,
        name: NameId,
    ) -> impl Iterator<Item = Awaited> + '_ {
        let slots = self.0.get(&subscription).into_iter().flatten();
        slots.filter_map(move |(_, slot)| {
            Some(Awaited {
                from: slot.vertex?,
                time: slot.time,
                name,
                route: Route::Intra,
                lineages: slot.lineages,
                skipped: None,
            })
        })
    }
}

const MAX_RING: usize = 4096;

impl Flow {
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
            let home = self.home_of(cx, publisher);
            self.published_by(cx, owner, vertex, name, (NodeBy::Topic, home), time);
            let message = event.message;
            let beyond =
                self.publish_synchronised(cx, owner, (node, name), time, message, &mut lineages);
            if self.cuts.end_at(name) {
                let all = [own.as_slice(), lineages.as_slice(), &beyond];
                self.lineage.end_cut(all, name, time);
                self.end_output(owner, (name, true), time, &lineages);
            }
            for step in beyond {
                self.lineage.steps.release(step);
            }
            self.ways.topics.set_intra(subscription, publisher);
        }
        let to = self.vertex(cx, subscription);
        let hop = Hop {
            to,
            name,
            route: Route::Intra,
        };
        if let Some(vertex) = vertex {
            self.graph.count_published(vertex, hop, time);
        }
        let ring = self.ways.rings.0.entry(subscription).or_default();
        if ring.len() >= MAX_RING && !ring.contains_key(&event.index) {
            self.lineage.steps.release_all(&mut lineages);
            cx.notes.count(Note::Capped(to), 1);
            return;
        }
        let slot = Slot {
            time,
            vertex,
            lineages,
        };
        if let Some(mut old) = ring.insert(event.index, slot) {
            // The old message is overwritten, even if the event does not report it.
            self.lose((old.vertex, old.lineages, old.time), hop, 1, true);
            let loss = Loss::Overwritten {
                depth: cx.entities.get(subscription).depth(),
                replaced_ns: time,
            };
            self.outcome((old.vertex, hop), old.time, Outcome::Lost(loss));
            self.lineage.steps.release_all(&mut old.lineages);
        }
    }

    pub(super) fn take_ring(
        &mut self,
        cx: &mut Context,
        subscription: EntityId,
        index: u64,
    ) -> Option<Incoming> {
        let slot = self.ways.rings.0.get_mut(&subscription)?.remove(&index)?;
        let name = cx.entities.get(subscription).name()?;
        let to = self.vertex(cx, subscription);
        let route = Route::Intra;
        let hop = Hop { to, name, route };
        self.outcome((slot.vertex, hop), slot.time, Outcome::Executed);
        if let Some(vertex) = slot.vertex {
            self.graph.count_taken(vertex, hop, slot.time);
        }
        Some(Incoming {
            ambiguous: false,
            vertex: slot.vertex,
            time: slot.time,
            name,
            route,
            lineages: slot.lineages,
        })
    }

    pub(super) fn clear_ring(&mut self, cx: &Context, subscription: EntityId) {
        self.drop_ring(cx, subscription, Loss::SubscriptionEnded);
    }

    pub(super) fn settle_rings(&mut self, cx: &Context) {
        let mut all: Vec<EntityId> = self.ways.rings.0.keys().copied().collect();
        all.sort_unstable();
        for subscription in all {
            self.drop_ring(cx, subscription, Loss::RecordingEnded);
        }
    }

    fn drop_ring(&mut self, cx: &Context, subscription: EntityId, loss: Loss) {
        let Some(ring) = self.ways.rings.0.remove(&subscription) else {
            return;
        };
        let entity = cx.entities.get(subscription);
        let mut slots: Vec<Slot> = ring.into_values().collect();
        slots.sort_by_key(|slot| slot.time);
        for mut slot in slots {
            if let (Some(to), Some(name)) = (entity.vertex, entity.name()) {
                let route = Route::Intra;
                let way = (slot.vertex, Hop { to, name, route });
                self.outcome(way, slot.time, Outcome::Lost(loss));
            }
            self.lineage.steps.release_all(&mut slot.lineages);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::Harness;

    const INTRA: &str = "
1ms cpu0 10/10 node_init node=0x1 rmw=0x1001 name=a
1ms cpu0 10/10 node_init node=0x2 rmw=0x1002 name=b
1ms cpu0 10/10 publisher_init publisher=0x10 node=0x1 rmw=0x1010 topic=/t
1ms cpu0 10/10 timer_init timer=0x50 period_ns=10ms
1ms cpu0 10/10 timer_node timer=0x50 node=0x1
1ms cpu0 10/10 timer_callback timer=0x50 callback=0x60
1ms cpu0 10/10 subscription_init subscription=0x20 node=0x2 rmw=0x1020 topic=/t
1ms cpu0 10/10 subscription_object subscription=0x20 object=0x25
1ms cpu0 10/10 ring_buffer_intra_buffer buffer=0x90 ipb=0x91
1ms cpu0 10/10 intra_buffer_subscription ipb=0x91 object=0x25
";

    fn put(t: u64, index: u64) -> String {
        format!(
            "{t}us cpu0 10/10 timer_call timer=0x50
{t}us cpu0 10/10 callback_start callback=0x60
{t}us cpu0 10/10 intra_publish publisher=0x10
{t}us cpu0 10/10 ring_buffer_enqueue buffer=0x90 index={index}
{t}us cpu0 10/10 callback_end callback=0x60
"
        )
    }

    fn take(t: u64, index: u64) -> String {
        format!(
            "{t}us cpu1 10/11 ring_buffer_dequeue buffer=0x90 index={index}
{t}us cpu1 10/11 executor_next_ready
"
        )
    }

    const EDGE: &str = "/a:timer(10ms) -> /b:subscription(/t)";

    #[test]
    fn a_message_in_a_ring_buffer_is_taken_from_its_index_or_overwritten_there() {
        let trace = [INTRA, &put(11_000, 0), &put(21_000, 0), &take(21_500, 0)].concat();
        let mut harness = Harness::new(&trace);
        // Only `callback_start` shows which callback follows the read.
        harness.push(
            "22000us cpu1 10/11 subscription_callback object=0x25 callback=0x61
31500us cpu1 10/11 ring_buffer_dequeue buffer=0x90 index=0
31500us cpu1 10/11 callback_start callback=0x61
31600us cpu1 10/11 callback_end callback=0x61",
        );
        assert_eq!(harness.edges(), [format!("{EDGE}: 2/1/0/1")]);
    }

    #[test]
    fn nothing_is_taken_from_a_cleared_ring_buffer() {
        let mut harness = Harness::new(&[INTRA, &put(11_000, 0)].concat());
        harness.push(
            "22000us cpu1 10/11 ring_buffer_clear buffer=0x90
22000us cpu1 10/11 subscription_callback object=0x25 callback=0x61
31500us cpu1 10/11 ring_buffer_dequeue buffer=0x90 index=0
31500us cpu1 10/11 callback_start callback=0x61
31600us cpu1 10/11 callback_end callback=0x61",
        );
        assert_eq!(harness.edges(), [format!("{EDGE}: 1/0/0/0")]);
    }
}
