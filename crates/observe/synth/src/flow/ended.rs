//! Finds the callbacks whose endpoint or timer ended long ago although their node still runs, and
//! removes references to them.

use super::naming::Ids;
use super::Flow;
use crate::index::{NameId, VertexId};
use crate::marks::Marks;
use crate::Context;
use onbeat_document::schema::CallbackType;
use std::collections::BTreeMap;

impl Flow {
    /// Updates for each callback the time at which its last endpoint or timer ended. A callback
    /// that has an endpoint or timer gets `None`. If the end was not recorded, the time is that of
    /// the first call that found no endpoint or timer: `now`.
    pub(crate) fn note_ends(&mut self, cx: &Context, now: u64) {
        let mut living = Marks::default();
        let mut ends: BTreeMap<VertexId, u64> = BTreeMap::new();
        cx.entities.mark_living(&mut living, |v, at| {
            let end = ends.entry(v).or_default();
            *end = at.max(*end);
        });
        for (i, vertex) in self.graph.vertices.iter_mut().enumerate() {
            let end = ends.get(&VertexId::new(i)).copied();
            vertex.ended_ns = match living.has(i) || vertex.is_forgotten {
                true => None,
                false => end.or(vertex.ended_ns).or(Some(now)),
            };
        }
    }

    /// Returns the callbacks whose endpoints or timers ended before `time`, and the synchronisers
    /// of topics whose endpoints are not kept. Callbacks whose ids differ only in the ordinal are
    /// in one list. If one callback of a list stays, the whole list is left out, so that ordinals
    /// do not change.
    ///
    /// `names` are the names of all endpoints that are kept.
    pub(crate) fn ended_callbacks(
        &self,
        cx: &Context,
        time: u64,
        names: &Marks,
    ) -> Vec<Vec<VertexId>> {
        let has_ended = |v: VertexId| {
            let vertex = self.graph.vertex(v);
            match vertex.kind() {
                CallbackType::Sync => vertex.looks.name.is_some_and(|n| !names.has(n.index())),
                _ => vertex.ended_ns.is_some_and(|ended| ended < time),
            }
        };
        if !self.graph.kept().any(|(v, _)| has_ended(v)) {
            return Vec::new();
        }
        let ids = Ids {
            entities: &cx.entities,
            vertices: &self.graph.vertices,
        };
        let mut alike: BTreeMap<String, Vec<VertexId>> = BTreeMap::new();
        for (v, vertex) in self.graph.kept() {
            alike.entry(ids.base(vertex)).or_default().push(v);
        }
        let all_ended = |list: &Vec<VertexId>| list.iter().all(|&v| has_ended(v));
        alike.into_values().filter(all_ended).collect()
    }

    /// Removes the outputs on topics that are not in `names`, which has the names of all endpoints
    /// that are kept.
    pub(crate) fn forget_outputs(&mut self, names: &Marks) {
        for vertex in &mut self.graph.vertices {
            vertex.outputs.retain(|name| names.has(name.index()));
        }
        let is_kept = |name: Option<NameId>| name.is_none_or(|name| names.has(name.index()));
        self.lineage.ends.pairs.retain(|pair, _| is_kept(pair.2));
        self.lineage.paths.forget_outputs(is_kept);
    }

    /// Removes the callbacks and synchronisers in `vertices`, which are forgotten, from the groups.
    /// A group has the subscriptions of one node and their outputs.
    pub(super) fn leave_groups(&mut self, vertices: &Marks) {
        let is_gone = |v: VertexId| vertices.has(v.index());
        for group in self.groups.values_mut() {
            group.remove(&mut self.lineage.steps, is_gone);
        }
    }
}
