//! Inputs that a running callback takes itself: items that it polls, responses that it waits for.

use super::graph::{Hop, Route};
use super::Flow;
use crate::index::VertexId;
use crate::synth::events::{Input, OwnInput};
use crate::synth::ids::{EntityId, InstanceId};
use crate::synth::notes::Note;
use crate::synth::Context;

impl Flow {
    /// A running instance takes one more input: what it publishes from now on descends from that
    /// too.
    pub(super) fn own_input(&mut self, cx: &mut Context, event: &OwnInput) {
        let Some(it) = self.instances.get(event.instance).copied() else {
            return;
        };
        let own = self.redirect(cx, event.entity, it.vertex);
        let incoming = match event.input {
            Input::Message { source_ns } => self.take(cx, event.entity, source_ns, true),
            Input::Ring { index } => self.take_ring(cx, event.entity, index),
            Input::Response { sequence, .. } => self.take_response(cx, event.entity, sequence),
            Input::Handed { .. } | Input::Unknown | Input::Timer | Input::Request { .. } => None,
        };
        let Some(mut incoming) = incoming else {
            if let (Input::Message { .. }, Some(name)) =
                (event.input, cx.entities.get(event.entity).name())
            {
                cx.notes.count(Note::Foreign(name), 1);
            }
            return;
        };
        if let Some(publisher) = incoming.vertex {
            let hop = Hop {
                to: it.vertex,
                name: incoming.name,
                route: incoming.route,
            };
            let figures = &mut self.graph.edge(publisher, hop).figures;
            if !own {
                figures.published += 1;
                figures.taken += 1;
            }
            let latency = event.time.saturating_sub(incoming.time);
            figures.latency_ns.record(latency);
            let mut lineages = it.lineages;
            let data = (&incoming.lineages, incoming.name, incoming.time);
            let at = (it.vertex, it.start.max(incoming.time));
            self.lineage.extend(&mut cx.notes, &mut lineages, data, at);
            if let Some(it) = self.instances.get_mut(event.instance) {
                it.lineages = lineages;
            }
        }
        self.lineage.steps.release_all(&mut incoming.lineages);
    }

    /// Where the items of a subscription go that a callback polls: to that callback, unless the
    /// subscription's own has run. True if they do.
    fn redirect(&mut self, cx: &mut Context, polled: EntityId, to: VertexId) -> bool {
        let own = self.vertex(cx, polled);
        if own == to {
            return true;
        }
        if cx.entities.get(polled).nests.polled || self.graph.vertex(own).runs.count > 0 {
            return false;
        }
        let entity = cx.entities.get_mut(polled);
        entity.nests.polled = true;
        entity.vertex = Some(to);
        self.graph.redirect(own, to);
        true
    }

    /// A callback of an entity runs: its items go to itself, and no longer to who polled it.
    pub(super) fn end_poll(&mut self, cx: &mut Context, e: EntityId) {
        let entity = cx.entities.get_mut(e);
        if std::mem::take(&mut entity.nests.polled) {
            entity.vertex = None;
        }
    }

    /// A client's instance ended within another one, which waited for the response and goes on.
    pub(super) fn continue_by(&mut self, instance: InstanceId, client: InstanceId, time: u64) {
        let vertex = |i| self.instances.get(i).map(|it| (it.vertex, it.start));
        let (Some((to, _)), Some((from, start))) = (vertex(instance), vertex(client)) else {
            return;
        };
        let hop = self.links.hop(to, Route::Waited);
        let figures = &mut self.graph.edge(from, hop).figures;
        figures.published += 1;
        figures.taken += 1;
        figures.latency_ns.record(time.saturating_sub(start));
    }
}
