//! Forgets what ended long ago: entities, nodes and names.

use super::{Endpoints, Entities, Role};
use crate::ids::{EntityId, NodeId, ProcessIndex};
use crate::index::VertexId;
use crate::marks::Marks;

/// The maximum number of original names that are kept for one name that onbeat changed. If there
/// are more, all of them are dropped, and only their number is kept.
const RENAMED_MAX: usize = 256;

impl Entities {
    /// Frees the entities that ended before `time`. The caller must then call
    /// [`Entities::take_freed`] to get them.
    pub(crate) fn free_ended(&mut self, time: u64) {
        while self.ended.dead.front().is_some_and(|dead| dead.0 < time) {
            self.free_oldest();
        }
    }

    /// Ends the nodes that running processes destroyed before `time`. A node stays while the
    /// process has an endpoint or timer of this node. Endpoints that rcl makes for each node end
    /// with the node.
    pub(crate) fn end_destroyed(&mut self, time: u64) {
        for p in (0..self.processes.list.len()).map(ProcessIndex::new) {
            let nodes = &self.nodes;
            let of_process = self.process(p).nodes.iter().copied();
            let destroyed = of_process.filter(|&node| nodes.destroyed_before(node, time).is_some());
            for node in destroyed.collect::<Vec<_>>() {
                self.end_node(p, node, time);
            }
        }
    }

    fn end_node(&mut self, p: ProcessIndex, node: NodeId, time: u64) {
        let entities = self.process(p).entities.iter();
        let of_node = entities.filter(|&e| self.node_of_entity(e) == Some(node));
        let own: Vec<EntityId> = of_node.collect();
        let has_handle = self.process(p).node_handles.has(node);
        if has_handle || own.iter().any(|&e| !self.get(e).infrastructure) {
            return;
        }
        self.process_mut(p).forget_node(node);
        for e in own {
            self.leave_process(p, e);
            self.end_entity(e);
            // The node ended long ago, and so did the endpoint.
            if self.ended.dead.back().is_some_and(|dead| dead.1 == e) {
                self.ended.dead.pop_back();
                self.ended.freed.push(e);
                self.ended.free.push(e);
            }
        }
        let ended_ns = self.nodes.destroyed_before(node, time).unwrap_or(time);
        self.nodes.set_dead(node, ended_ns);
    }

    /// Removes the references from processes to freed entities. Also removes the references from
    /// freed entities to nodes, names and vertices, so that these nodes, names and vertices can be
    /// forgotten.
    pub(crate) fn clear_freed(&mut self) {
        let freed = self.is_freed();
        for process in &mut self.processes.list {
            process.handles.retain(|_, e| !freed.has(e.index()));
            let rings = &mut process.rings;
            for list in [&mut rings.found, &mut rings.nameless] {
                list.retain(|e| !freed.has(e.index()));
            }
        }
        for &e in &self.ended.free {
            let entity = &mut self.list[e.index()];
            (entity.looks.node, entity.looks.name) = (None, None);
            (entity.action, entity.symbol, entity.vertex) = (None, None, None);
            entity.role = Role::Task;
            entity.callers = Vec::new();
        }
    }

    pub(crate) fn is_freed(&self) -> Marks {
        let mut freed = Marks::default();
        for e in &self.ended.free {
            freed.add(e.index());
        }
        freed
    }

    pub(crate) fn kept(&self) -> impl Iterator<Item = (EntityId, &super::Entity)> {
        let freed = self.is_freed();
        let all = self.list.iter().enumerate();
        let kept = all.filter(move |(i, _)| !freed.has(*i));
        kept.map(|(i, entity)| (EntityId::new(i), entity))
    }

    /// Marks the vertices of the entities that exist. Calls `ended` for the vertices of each entity
    /// that has ended but is not freed yet, with the time of its end in ns.
    pub(crate) fn mark_living(&self, marks: &mut Marks, mut ended: impl FnMut(VertexId, u64)) {
        for entity in self.list.iter().filter(|entity| entity.live) {
            entity.vertices().for_each(|v| {
                marks.add(v.index());
            });
        }
        for &(time, e) in &self.ended.dead {
            self.get(e).vertices().for_each(|v| ended(v, time));
        }
    }

    pub(crate) fn mark_nodes(&self, marks: &mut Marks) {
        for process in &self.processes.list {
            let clocks = process.clocks.values().filter_map(|clock| clock.node);
            let handles = process.node_handles.nodes();
            let nodes = process.nodes.iter().chain(&process.fallback).copied();
            for node in nodes.chain(handles).chain(clocks) {
                self.nodes.mark(node, marks);
            }
        }
        for (_, entity) in self.kept() {
            if let Some(node) = entity.looks.node {
                self.nodes.mark(node, marks);
            }
        }
    }

    pub(crate) fn forget_vertices(&mut self, forgotten: &Marks) {
        let is_gone = |v: VertexId| forgotten.has(v.index());
        self.holders.retain(|&v, _| !is_gone(v));
        for entity in &mut self.list {
            if entity.vertex.is_some_and(is_gone) {
                entity.vertex = None;
            }
            entity.callers.retain(|caller| !is_gone(caller.1));
        }
    }

    pub(crate) fn mark_qos_nodes(&self, ended: &Marks, marks: &mut Marks) {
        for (_, node, _) in self.qos.keys() {
            if !ended.has(self.nodes.settled(*node).index()) {
                self.nodes.mark(*node, marks);
            }
        }
    }

    /// Forgets the nodes in `ended`, and the stand-ins that are not in `used`. Returns the number
    /// of nodes in `ended`.
    pub(crate) fn forget_nodes(&mut self, ended: &Marks, used: &Marks) -> u64 {
        let nodes = &self.nodes;
        let stays = |node: NodeId| !ended.has(nodes.settled(node).index());
        self.qos.retain(|key, _| stays(key.1));
        self.nodes.forget(ended, used)
    }

    pub(crate) fn forget_qos(&mut self, names: &Marks) {
        self.qos.retain(|key, _| names.has(key.2.index()));
    }

    pub(crate) fn mark_names(&self, names: &mut Marks) {
        self.nodes.mark_names(names);
        let commands = self.processes.list.iter().filter_map(|p| p.command);
        let of_qos = self.qos.keys().map(|key| key.2);
        for name in commands.chain(of_qos) {
            names.add(name.index());
        }
        self.mark_entity_names(names);
    }

    /// Marks the names of all entities that are kept: of those that exist, and of those that have
    /// ended but are not freed yet.
    pub(crate) fn mark_entity_names(&self, names: &mut Marks) {
        for (_, entity) in self.kept() {
            let of_service = entity.service_names();
            let of_service = of_service.map(|of| [of.request, of.response]);
            let of_action = entity.action.map(|of| of.action);
            let own = [entity.name(), entity.symbol, of_action];
            for name in own
                .into_iter()
                .flatten()
                .chain(of_service.into_iter().flatten())
            {
                names.add(name.index());
            }
        }
    }

    pub(crate) fn forget_names(&mut self, mut used: Marks) -> Vec<u32> {
        self.renamed.retain(|name, _| used.has(name.index()));
        for renamed in self.renamed.values_mut() {
            if renamed.from.len() > RENAMED_MAX {
                renamed.forgotten += std::mem::take(&mut renamed.from).len() as u64;
            }
            for name in &renamed.from {
                used.add(name.index());
            }
        }
        let forgotten = self.names.forget_unused(&used);
        for name in &forgotten {
            if let Some(endpoints) = self.endpoints.get_mut(name.index()) {
                *endpoints = Endpoints::default();
            }
        }
        let numbers = forgotten.iter().map(|name| name.index() as u32);
        numbers.collect()
    }
}
