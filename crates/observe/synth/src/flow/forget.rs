//! Forgets vertices, and finds those to which data in flight refers.

use super::lineage::Lineage;
use super::Flow;
use crate::chains::{Lineages, Steps};
use crate::entities::Nodes;
use crate::ids::NodeId;
use crate::index::{PathId, VertexId};
use crate::marks::Marks;
use crate::Context;

impl Flow {
    pub(crate) fn drop_old(&mut self, cx: &mut Context, time: u64, freed: &Marks) {
        self.drop_old_calls(cx, time, freed);
        self.drop_old_answers(time);
        self.drop_old_hands(time);
        self.drop_old_work(time);
    }

    /// Drops the lineages of data from before `time` that came through nodes in `ended`, or through
    /// `vertices`.
    pub(crate) fn drop_old_lineages(
        &mut self,
        nodes: &Nodes,
        (ended, vertices): (&Marks, &Marks),
        time: u64,
    ) {
        let graph = &self.graph;
        let Lineage { paths, steps, .. } = &mut self.lineage;
        let is_ended = |v: VertexId| {
            let node = graph.vertex(v).node();
            vertices.has(v.index()) || ended.has(nodes.settled(node).index())
        };
        let is_stale = |steps: &Steps, at: u64, lineages: &Lineages| {
            at < time && steps.lead_through(lineages, paths, is_ended)
        };
        for group in self.groups.values_mut() {
            group.drop_lineages(steps, is_stale);
        }
        self.ways.topics.drop_lineages(steps, is_stale);
    }

    pub(crate) fn mark_in_flight(&self, nodes: &Nodes, marks: (&mut Marks, &mut Marks)) {
        let (vertices, of_nodes) = marks;
        self.lineage
            .steps
            .mark_vertices(&self.lineage.paths, vertices);
        self.ways.topics.mark_vertices(vertices);
        self.ways.rings.mark_vertices(vertices);
        self.ways.services.mark_vertices(vertices);
        self.ways.links.mark_vertices(vertices);
        self.ways.handed.mark_vertices(vertices);
        self.ways.made.mark_vertices(vertices);
        self.instances.mark(nodes, (vertices, of_nodes));
    }

    pub(crate) fn mark_group_nodes(&self, nodes: &Nodes, ended: &Marks, marks: &mut Marks) {
        for &node in self.groups.keys() {
            if !ended.has(nodes.settled(node).index()) {
                nodes.mark(node, marks);
            }
        }
    }

    /// Forgets `vertices`, all paths through them, and the groups of subscriptions of the nodes in
    /// `ended`. Returns the forgotten paths.
    pub(crate) fn forget_vertices(
        &mut self,
        cx: &Context,
        vertices: &Marks,
        ended: &Marks,
    ) -> Vec<PathId> {
        let nodes = &cx.entities.nodes;
        let is_gone = |node: &NodeId| ended.has(nodes.settled(*node).index());
        self.groups.retain(|node, _| !is_gone(node));
        self.callers.forget(&cx.entities);
        if vertices.is_empty() {
            return Vec::new();
        }
        self.leave_groups(vertices);
        self.graph.forget(vertices);
        self.lineage.ends.forget(vertices);
        self.lineage.steps.origins.forget(vertices);
        self.lineage.paths.forget(vertices)
    }

    pub(crate) fn mark_names(&self, names: &mut Marks) {
        self.graph.mark_names(names);
        self.lineage.paths.mark_names(names);
        self.lineage.inputs.mark_names(names);
        self.ways.links.mark_names(names);
        self.ways.services.mark_names(names);
        self.cuts.mark_names(names);
        self.callers.mark_names(names);
        let outputs = self.lineage.ends.pairs.keys().filter_map(|pair| pair.2);
        let of_groups = self.groups.values().flat_map(|group| &group.outputs);
        let ignored = self.lineage.ignored.iter().copied();
        for name in outputs.chain(of_groups.map(|o| o.topic)).chain(ignored) {
            names.add(name.index());
        }
        self.instances.mark_names(names);
    }

    pub(crate) fn forget_names(&mut self, used: &Marks) {
        self.ways.services.forget_names(used);
    }
}
