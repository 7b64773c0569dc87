//! Handles inputs that a running callback takes itself: items that it polls and responses that it
//! waits for.

use super::graph::{Hop, Route};
use super::lineage::{Awaited, Lineage};
use super::Flow;
use crate::chains::{Lineages, Steps};
use crate::events::{Input, OwnInput};
use crate::ids::{EntityId, InstanceId};
use crate::index::VertexId;
use crate::notes::Note;
use crate::Context;

#[derive(Debug, Clone, Copy)]
struct Polled {
    instance: InstanceId,
    entity: EntityId,
    time: u64,
    steps: Lineages,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Polls(Vec<Polled>);

impl Polls {
    pub(super) fn end(&mut self, instance: InstanceId) {
        self.0.retain(|p| p.instance != instance);
    }
}

impl Flow {
    /// Drops the lineages of an item that a running instance took earlier, when the same instance
    /// takes a later item of the same subscription.
    fn overtake(&mut self, cx: &mut Context, event: &OwnInput, lineages: &mut Lineages) {
        let same = |p: &Polled| p.instance == event.instance && p.entity == event.entity;
        let Some(at) = self.ways.polls.0.iter().position(same) else {
            return;
        };
        let old = self.ways.polls.0.swap_remove(at);
        let Lineage { paths, steps, .. } = &mut self.lineage;
        let stays = |_: &Steps, step| !old.steps.as_slice().contains(&step);
        steps.retain(lineages, paths, stays);
        let output = self.instances.get(event.instance).and_then(|it| it.output);
        let unused = output.is_none_or(|(time, _)| time < old.time);
        if let (true, Some(name)) = (unused, cx.entities.get(event.entity).name()) {
            cx.notes.count(Note::Overtaken(name), 1);
        }
    }

    pub(super) fn own_input(&mut self, cx: &mut Context, event: &OwnInput) {
        let Some(it) = self.instances.get(event.instance).copied() else {
            return;
        };
        let own = self.redirect(cx, event.entity, it.vertex);
        let incoming = match event.input {
            Input::Message { source_ns } => self.take(cx, event.entity, source_ns, true),
            Input::Ring { index } => self.take_ring(cx, event.entity, index),
            Input::Response { sequence, at } => {
                self.take_response(cx, event.entity, (sequence, at))
            }
            Input::Handed { .. }
            | Input::Made { .. }
            | Input::Unknown
            | Input::Ambiguous
            | Input::Timer
            | Input::Request { .. } => None,
        };
        if let Some(from) = &incoming {
            let by = (it.vertex, it.thread, event.time);
            self.detail_taken(by, from, event.input, None);
        }
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
            let figures = self.graph.sent(publisher, hop, incoming.time);
            if !own {
                figures.published += 1;
                figures.taken += 1;
            }
            let latency = event.time.saturating_sub(incoming.time);
            figures.latency_ns.record(latency);
            let mut lineages = it.lineages;
            if it.unseen && cx.entities.get(event.entity).link.is_some() {
                self.unroot(event.instance, &mut lineages);
            }
            if matches!(event.input, Input::Message { .. }) {
                self.overtake(cx, event, &mut lineages);
            }
            let before = lineages.as_slice().len();
            let data = (&incoming.lineages, incoming.name, incoming.time);
            let at = (it.vertex, it.start.max(incoming.time), it.began());
            self.lineage
                .extend(&mut cx.notes, &mut lineages, data, at, false);
            if let Some(it) = self.instances.get_mut(event.instance) {
                it.lineages = lineages;
            }
            let mut steps = Lineages::default();
            for &step in &lineages.as_slice()[before..] {
                steps.push(step);
            }
            self.ways.polls.0.push(Polled {
                instance: event.instance,
                entity: event.entity,
                time: event.time,
                steps,
            });
        }
        self.lineage.steps.release_all(&mut incoming.lineages);
    }

    /// Removes the lineage that begins at an instance without a known input, because the instance
    /// has now received an item from a link. This item is the instance's input.
    fn unroot(&mut self, instance: InstanceId, lineages: &mut Lineages) {
        let Some(it) = self.instances.get_mut(instance) else {
            return;
        };
        it.unseen = false;
        let runs = &mut self.graph.vertex_mut(it.vertex).runs;
        runs.sourced = runs.sourced.saturating_sub(1);
        let root = self.lineage.paths.root(it.vertex);
        let Lineage { paths, steps, .. } = &mut self.lineage;
        let stays = |steps: &Steps, step| Some(steps.path(step)) != root;
        steps.retain(lineages, paths, stays);
    }

    /// Redirects the items of the subscription `polled` to the callback `to`, which polls it. Does
    /// nothing if the subscription's own callback has run, or if another callback polls it. Returns
    /// true if items of the subscription now go to `to`.
    fn redirect(&mut self, cx: &mut Context, polled: EntityId, to: VertexId) -> bool {
        let own = self.vertex(cx, polled);
        if own == to {
            return true;
        }
        if cx.entities.get(polled).nests.polled || self.graph.vertex(own).runs.count > 0 {
            return false;
        }
        cx.entities.get_mut(polled).nests.polled = true;
        cx.entities.set_vertex(polled, to);
        self.graph.redirect(own, to);
        true
    }

    /// Directs the items of a subscription to its own callback, because that callback has run. This
    /// includes items that are not taken yet and were directed to a polling callback.
    pub(super) fn end_poll(&mut self, cx: &mut Context, e: EntityId) {
        let entity = cx.entities.get_mut(e);
        if !std::mem::take(&mut entity.nests.polled) {
            return;
        }
        let polling = entity.vertex.take();
        let own = self.vertex(cx, e);
        let Some(polling) = polling.filter(|&v| v != own) else {
            return;
        };
        for awaited in self.awaited(cx, e) {
            let hop = |to| Hop {
                to,
                name: awaited.name,
                route: awaited.route,
            };
            let (from, time) = (awaited.from, awaited.time);
            let figures = self.graph.sent(from, hop(polling), time);
            figures.published = figures.published.saturating_sub(1);
            self.graph.count_published(from, hop(own), time);
            if let Some(overwritten) = awaited.skipped {
                let item = (Some(from), awaited.lineages, time);
                self.lose(item, hop(polling), -1, overwritten);
                self.lose(item, hop(own), 1, overwritten);
            }
        }
    }

    fn awaited(&self, cx: &Context, e: EntityId) -> Vec<Awaited> {
        let entity = cx.entities.get(e);
        let mut all = Vec::new();
        if let Some(name) = entity.name() {
            all.extend(self.ways.topics.awaited(e, name));
            all.extend(self.ways.rings.awaited(e, name));
        }
        if let Some(names) = entity.service_names() {
            all.extend(self.ways.services.awaited(e, names.response));
        }
        all
    }

    pub(super) fn continue_by(&mut self, instance: InstanceId, client: InstanceId, time: u64) {
        let vertex = |i| self.instances.get(i).map(|it| (it.vertex, it.start));
        let (Some((to, _)), Some((from, start))) = (vertex(instance), vertex(client)) else {
            return;
        };
        let hop = self.ways.links.hop(to, Route::Waited);
        let figures = self.graph.sent(from, hop, start);
        figures.published += 1;
        figures.taken += 1;
        figures.latency_ns.record(time.saturating_sub(start));
    }
}
