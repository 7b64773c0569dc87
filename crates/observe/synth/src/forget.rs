//! Forgets what ended long ago, so that the memory for a running system stays flat.
//!
//! [`Synth::forget`] finds the nodes whose processes ended long ago, or destroyed them long ago, and to which
//! nothing refers any more. It removes these nodes with everything that belongs to them. It also removes the
//! callbacks of living nodes whose endpoints or timers ended long ago. Their numbers are used again. A model of a
//! recording forgets nothing.

use crate::ids::NodeId;
use crate::index::VertexId;
use crate::marks::Marks;
use crate::Synth;
use onbeat_document::schema::CallbackType;
use std::collections::{BTreeMap, BTreeSet};

/// The numbers of the callbacks, paths, names and components that [`Synth::forget`] has forgotten.
/// The synthesis gives these numbers to new objects later.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Forgotten {
    pub nodes: u64,
    /// The number of forgotten callbacks whose nodes stay.
    pub lone_callbacks: u64,
    /// The forgotten callbacks and synchronisers, as indices into [`Synth::callback_ids`].
    pub callbacks: Vec<u32>,
    /// The numbers of the forgotten paths, as in
    /// [`ChainEnd::path`](crate::followed::ChainEnd::path).
    pub paths: Vec<u32>,
    /// The numbers of the forgotten names, as in [`Synth::name`].
    pub names: Vec<u32>,
    /// The components that were merged into others, as indices into [`Synth::components`].
    pub components: Vec<u32>,
}

impl Forgotten {
    /// Returns true if nothing was forgotten.
    pub fn is_empty(&self) -> bool {
        *self == Forgotten::default()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct KeptCounts {
    pub nodes: usize,
    pub processes: usize,
    pub callbacks: usize,
    pub edges: usize,
    pub paths: usize,
    pub names: usize,
}

impl Synth {
    /// Returns how many nodes, processes, callbacks, edges, paths and names the synthesis keeps.
    pub fn kept(&self) -> KeptCounts {
        let entities = &self.cx.entities;
        KeptCounts {
            nodes: entities.nodes.count(),
            processes: entities.processes.count(),
            callbacks: self.flow.graph.kept().count(),
            edges: self.flow.graph.edges.len(),
            paths: self.flow.lineage.paths.count(),
            names: entities.names.count(),
        }
    }

    /// Forgets the nodes that ended more than `after_ns` before the latest event, with their
    /// callbacks, edges and chains. A node has ended if its process ended or destroyed it. A node
    /// stays while items that it published are not taken yet, or while a node with the same name
    /// runs.
    ///
    /// Also forgets callbacks of running nodes if their endpoint or timer ended more than
    /// `after_ns` before the latest event. Such a callback stays while its items are not taken yet.
    /// It also stays while a callback exists whose id differs only in the ordinal.
    ///
    /// The figures of everything that stays do not change.
    ///
    /// Before this call, the caller must drain everything that the synthesis keeps for it. After
    /// the call and before the next event, the caller must drop everything that refers to the
    /// returned numbers.
    pub fn forget(&mut self, after_ns: u64) -> Forgotten {
        let Some(before) = self.recording.now.checked_sub(after_ns) else {
            return Forgotten::default();
        };
        self.cx.entities.processes.pass_minute();
        self.cx.entities.end_destroyed(before);
        self.flow.note_ends(&self.cx, self.recording.now);
        self.cx.entities.free_ended(before);
        let freed = self.cx.entities.is_freed();
        self.flow.drop_old(&mut self.cx, before, &freed);
        self.forget_ended();
        self.cx.entities.clear_freed();
        let mut names = Marks::default();
        self.cx.entities.mark_entity_names(&mut names);
        self.cx.entities.forget_qos(&names);
        self.flow.forget_outputs(&names);
        let alone = self.flow.ended_callbacks(&self.cx, before, &names);
        let (vertices, ended, used) = self.ended_before(before, alone);
        let is_alone = |v: usize| {
            let vertex = self.flow.graph.vertex(VertexId::new(v));
            let node = self.cx.entities.nodes.settled(vertex.node());
            vertex.kind() != CallbackType::Sync && !ended.has(node.index())
        };
        let lone_callbacks = vertices.iter().filter(|&v| is_alone(v)).count() as u64;
        let paths = self.flow.forget_vertices(&self.cx, &vertices, &ended);
        self.cx.entities.forget_vertices(&vertices);
        let components = self.forget_processes(before);
        let nodes = self.cx.entities.forget_nodes(&ended, &used);
        let names = self.forget_names(&vertices);
        Forgotten {
            nodes,
            lone_callbacks,
            callbacks: vertices.iter().map(|v| v as u32).collect(),
            paths: paths.into_iter().map(|path| path.index() as u32).collect(),
            names,
            components,
        }
    }

    /// Returns three sets: the vertices to forget, the nodes to forget, and the nodes that are in
    /// use. The nodes and vertices to forget ended before `time`, and nothing refers to them.
    /// `alone` has lists of vertices that ended before their nodes. If data in flight comes from
    /// one vertex of a list, all vertices of this list stay.
    fn ended_before(&mut self, time: u64, alone: Vec<Vec<VertexId>>) -> (Marks, Marks, Marks) {
        let nodes = &self.cx.entities.nodes;
        let mut used = Marks::default();
        self.cx.entities.mark_nodes(&mut used);
        let ended = nodes.ended_before(time, &used);
        let mut lone = Marks::default();
        for v in alone.iter().flatten() {
            lone.add(v.index());
        }
        self.flow.drop_old_lineages(nodes, (&ended, &lone), time);
        let mut pinned = Marks::default();
        let marks = (&mut pinned, &mut used);
        self.flow.mark_in_flight(nodes, marks);
        for vertex in self.cx.entities.kept().filter_map(|(_, e)| e.vertex) {
            pinned.add(vertex.index());
        }
        let mut lone = Marks::default();
        let stays = |v: &VertexId| pinned.has(v.index());
        for v in alone
            .iter()
            .filter(|list| !list.iter().any(stays))
            .flatten()
        {
            lone.add(v.index());
        }
        // A vertex that stays keeps the nodes to which it refers, and these keep further vertices. The loop
        // ends when no further node is in use.
        let mut ended = nodes.ended_before(time, &used);
        let gone = loop {
            let mut gone = Marks::default();
            let before = used.clone();
            for (v, vertex) in self.flow.graph.kept() {
                let is_ended = |node: NodeId| ended.has(nodes.settled(node).index());
                let has_ended = lone.has(v.index())
                    || is_ended(vertex.node())
                    || vertex.looks.caller.is_some_and(is_ended);
                match has_ended && !pinned.has(v.index()) {
                    true => {
                        gone.add(v.index());
                    }
                    false => vertex.nodes().for_each(|node| nodes.mark(node, &mut used)),
                }
            }
            if used == before {
                break gone;
            }
            ended = nodes.ended_before(time, &used);
        };
        self.cx.entities.mark_qos_nodes(&ended, &mut used);
        self.flow.mark_group_nodes(nodes, &ended, &mut used);
        (gone, ended, used)
    }

    /// Forgets the processes that ended before `time`. If a process still runs and has the same
    /// nodes, it takes over their figures. A process stays if no process continues it and callbacks
    /// still refer to it.
    ///
    /// Returns the numbers of the components that were merged into others.
    fn forget_processes(&mut self, time: u64) -> Vec<u32> {
        let nodes = &self.cx.entities.nodes;
        let mut nodes_of: BTreeMap<u32, BTreeSet<NodeId>> = BTreeMap::new();
        for (_, vertex) in self.flow.graph.kept() {
            for thread in &vertex.runs.threads {
                let of = nodes_of.entry(thread.pid).or_default();
                of.insert(nodes.settled(vertex.node()));
            }
        }
        let processes = &self.cx.entities.processes;
        let continued = |pid: u32| {
            let mine = nodes_of.get(&pid)?;
            let mut others = nodes_of
                .iter()
                .filter(|(other, _)| processes.known(**other).is_some());
            others.find(|(_, of)| *of == mine).map(|(other, _)| *other)
        };
        let (mut gone, mut kept) = (BTreeMap::new(), BTreeSet::new());
        for pid in processes.ended_before(time) {
            match continued(pid) {
                None if nodes_of.contains_key(&pid) => {
                    kept.insert(pid);
                }
                by => {
                    gone.insert(pid, by);
                }
            }
        }
        self.cx.entities.processes.forget_ends(time, &kept);
        if gone.is_empty() {
            return Vec::new();
        }
        let all = &mut self.flow.graph.vertices;
        for vertex in all.iter_mut() {
            let threads = &mut vertex.runs.threads;
            threads.retain(|thread| !gone.contains_key(&thread.pid));
        }
        let measured = all
            .iter_mut()
            .flat_map(|vertex| vertex.runs.measured.values_mut());
        let waits = measured.map(|measured| &mut measured.waits);
        let spans = &self.spans;
        let components = self
            .cx
            .causes
            .forget(&gone, |tid| spans.is_alive(tid), waits);
        for (&pid, &to) in &gone {
            self.cx.helpers.forget(pid, to);
        }
        components
    }

    fn forget_names(&mut self, vertices: &Marks) -> Vec<u32> {
        let mut used = Marks::default();
        self.cx.entities.mark_names(&mut used);
        self.cx.causes.mark_names(&mut used);
        self.cx.helpers.mark_names(&mut used);
        self.spans.mark_names(&mut used);
        self.flow.mark_names(&mut used);
        self.flow.forget_names(&used);
        self.cx.notes.forget(vertices, &used);
        self.cx.entities.forget_names(used)
    }
}
