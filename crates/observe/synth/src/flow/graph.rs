//! The vertices and edges that synthesis builds: callbacks, synchronisers, and the data between
//! them.

use super::Flow;
use crate::batch_means::BatchMeans;
use crate::causes::Waits;
use crate::entities::{EntityKind, Slot};
use crate::ids::{EdgeId, EntityId, NodeId};
use crate::index::{NameId, VertexId};
use crate::marks::Marks;
use crate::mode_rules::{PerMode, Switches};
use crate::options::CALLBACK_COST;
use crate::running_median::RunningMedian;
use crate::values::{Cpus, ThreadId, ThreadProfile};
use crate::Context;
use onbeat_document::dist::Dist;
use onbeat_document::evidence::Figures;
use onbeat_document::schema::{CallbackFigures, CallbackType, EdgeFigures};
use rustc_hash::FxHashMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Route {
    Topic,
    Intra,
    /// Data goes through a node's memory, as the user stated with a link.
    Link,
    /// Data goes through a node's memory to a callback that waited for the data and then continued.
    Waited,
    /// Data goes within the process to a thread that was woken up or created for it.
    HandedOver,
    /// Data goes through a node's memory to a task that a callback created.
    Made,
}

/// The end of an edge: the callback that takes the data, the topic, and the way of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hop {
    pub(super) to: VertexId,
    pub(super) name: NameId,
    pub(super) route: Route,
}

#[derive(Debug, Clone)]
pub(crate) struct EdgeData {
    pub(crate) from: VertexId,
    pub(crate) to: VertexId,
    pub(crate) name: NameId,
    pub(crate) route: Route,
    pub(crate) figures: PerMode<EdgeFigures>,
    /// The usual transport time of items over this edge, in ns. Only items that arrived while the
    /// executor slept count.
    pub(super) usual_transport: RunningMedian,
}

#[derive(Debug, Clone)]
pub(crate) struct Use {
    pub(crate) profile: ThreadProfile,
    pub(crate) cpus: Cpus,
}

#[derive(Debug, Clone)]
pub(crate) struct VertexLooks {
    pub(crate) kind: CallbackType,
    pub(crate) node: Option<NodeId>,
    pub(crate) name: Option<NameId>,
    pub(crate) caller: Option<NodeId>,
    pub(crate) period_ns: Option<u64>,
}

/// The maximum number of threads that are kept per vertex. Pools of threads are smaller. The limit
/// protects the memory from programs that create a thread for each task.
pub(super) const THREADS_MAX: usize = 256;

#[derive(Debug, Clone, Default)]
pub(crate) struct Executions {
    pub(crate) measured: PerMode<Measured>,
    pub(crate) count: u64,
    /// The number of executions whose input was not published by a known callback.
    pub(crate) sourced: u64,
    pub(crate) inferred: bool,
    pub(crate) uses: Vec<Use>,
    pub(crate) threads: Vec<ThreadId>,
    pub(super) last_start: u64,
    /// For each publisher of items: the latest publication time of those items whose executions
    /// have ended.
    ended: Vec<(VertexId, u64)>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Measured {
    pub(crate) figures: CallbackFigures,
    pub(crate) batches: Batches,
    pub(crate) waits: Waits,
}

/// The maximum number of publishers per vertex for which onbeat checks whether items are executed
/// in the order of their publication.
const PUBLISHERS_MAX: usize = 16;

impl Executions {
    /// Records the end of an execution whose item `publisher` published at `time`. Returns true if
    /// an execution with a later item of this publisher had ended before.
    pub(super) fn item_ends(&mut self, publisher: VertexId, time: u64) -> bool {
        let Some(last) = self.ended.iter_mut().find(|e| e.0 == publisher) else {
            if self.ended.len() < PUBLISHERS_MAX {
                self.ended.push((publisher, time));
            }
            return false;
        };
        let overtaken = time < last.1;
        last.1 = last.1.max(time);
        overtaken
    }

    pub(crate) fn interarrival(&self) -> Dist {
        let mut all = Dist::new();
        for (_, measured) in self.measured.iter() {
            all.merge(&measured.figures.interarrival_ns);
        }
        all
    }
}

/// The figures of executions, in order of time. They are needed to compute how many independent
/// values the executions are equivalent to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Batches {
    pub(crate) exec: BatchMeans,
    pub(crate) response: BatchMeans,
    pub(crate) interarrival: BatchMeans,
}

/// The user's statements about a vertex: the indices of the links that start (`from`) or end (`to`)
/// at the vertex, and whether the user cuts chains at it (`cut`).
#[derive(Debug, Clone, Default)]
pub(crate) struct LinkEnds {
    pub(crate) from: Vec<usize>,
    pub(crate) to: Vec<usize>,
    pub(super) cut: bool,
}

/// The evidence from which the node of a callback was concluded, if its node was unknown at first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum NodeBy {
    #[default]
    Nothing,
    /// The callback sent a request with a client of this node. This is weak evidence, because a
    /// node with a client often exists for calls only.
    Request,
    Topic,
    Several,
}

#[derive(Debug, Clone)]
pub(crate) struct Vertex {
    pub(crate) looks: VertexLooks,
    stand_in: NodeId,
    node_by: NodeBy,
    /// The address of a timer's clock, or 0 if it is unknown. In rclpy, each node has its own
    /// clock.
    clock: u64,
    /// The rank among the vertices with equal `looks` (kind, node, name, caller and period). The
    /// slot of the vertex's entity decides, then the order of creation.
    pub(crate) rank: (Slot, u64),
    pub(crate) runs: Executions,
    pub(crate) outputs: Vec<NameId>,
    pub(crate) symbol: Option<NameId>,
    pub(crate) links: LinkEnds,
    pub(crate) is_forgotten: bool,
    /// The time in ns at which the last endpoint or timer of the vertex ended. If that end was not
    /// recorded: the time at which onbeat first found no endpoint or timer. `None` while one
    /// exists.
    pub(super) ended_ns: Option<u64>,
}

impl Vertex {
    pub(crate) fn kind(&self) -> CallbackType {
        self.looks.kind
    }

    pub(crate) fn node(&self) -> NodeId {
        self.looks.node.unwrap_or(self.stand_in)
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = NodeId> {
        let others = self.looks.node.into_iter().chain(self.looks.caller);
        others.chain([self.stand_in])
    }

    /// Records that the callback sent something with an endpoint of `node`. If the callback's own
    /// node is unknown and no earlier evidence contradicts, `node` becomes the callback's node.
    /// `same` reports whether two nodes are the same.
    pub(super) fn sent_by(
        &mut self,
        by: NodeBy,
        node: NodeId,
        same: impl Fn(NodeId, NodeId) -> bool,
    ) {
        let other = |known: NodeId| !same(known, node);
        (self.looks.node, self.node_by) = match (self.node_by, self.looks.node, by) {
            (NodeBy::Nothing, None, _) => (Some(node), by),
            (NodeBy::Request, Some(_), NodeBy::Topic) => (Some(node), by),
            (NodeBy::Topic, Some(known), NodeBy::Topic) if other(known) => (None, NodeBy::Several),
            _ => return,
        };
    }

    pub(crate) fn node_follows_from_outputs(&self) -> bool {
        matches!(self.node_by, NodeBy::Request | NodeBy::Topic)
    }

    pub(super) fn add_output(&mut self, name: NameId) {
        if !self.outputs.contains(&name) {
            self.outputs.push(name);
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Graph {
    pub(crate) vertices: Vec<Vertex>,
    pub(crate) edges: Vec<EdgeData>,
    pub(crate) switches: Switches,
    free: Vec<VertexId>,
    made: u64,
    edge_of: FxHashMap<(VertexId, VertexId, NameId, Route), EdgeId>,
    /// The kept vertices with these properties, to find the one that a restarted entity continues.
    of_slot: FxHashMap<OfSlot, Vec<VertexId>>,
}

/// The properties of a vertex that stay as long as the vertex is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct OfSlot {
    kind: CallbackType,
    name: Option<NameId>,
    period_ns: Option<u64>,
    slot: u32,
}

impl VertexLooks {
    fn of_slot(&self, slot: Slot) -> OfSlot {
        OfSlot {
            kind: self.kind,
            name: self.name,
            period_ns: self.period_ns,
            slot: slot.number,
        }
    }
}

impl Graph {
    pub(crate) fn vertex(&self, v: VertexId) -> &Vertex {
        &self.vertices[v.index()]
    }

    pub(crate) fn set_cut(&mut self, v: VertexId, begins: bool) {
        if let Some(vertex) = self.vertices.get_mut(v.index()) {
            vertex.links.cut = begins;
        }
    }

    pub(super) fn vertex_mut(&mut self, v: VertexId) -> &mut Vertex {
        &mut self.vertices[v.index()]
    }

    pub(super) fn edge(&mut self, from: VertexId, hop: Hop) -> &mut EdgeData {
        let edges = &mut self.edges;
        let key = (from, hop.to, hop.name, hop.route);
        let id = *self.edge_of.entry(key).or_insert_with(|| {
            edges.push(EdgeData {
                from,
                to: hop.to,
                name: hop.name,
                route: hop.route,
                figures: PerMode::default(),
                usual_transport: RunningMedian::default(),
            });
            EdgeId::new(edges.len() - 1)
        });
        &mut edges[id.index()]
    }

    pub(super) fn sent(&mut self, from: VertexId, hop: Hop, time: u64) -> &mut EdgeFigures {
        let mode = self.switches.at(time);
        self.edge(from, hop).figures.of(mode)
    }

    pub(super) fn count_published(&mut self, from: VertexId, hop: Hop, time: u64) {
        self.sent(from, hop, time).published += 1;
    }

    pub(super) fn redirect(&mut self, from: VertexId, to: VertexId) {
        for i in 0..self.edges.len() {
            if self.edges[i].to != from {
                continue;
            }
            let (publisher, name, route) =
                (self.edges[i].from, self.edges[i].name, self.edges[i].route);
            let figures = std::mem::take(&mut self.edges[i].figures);
            let hop = Hop { to, name, route };
            let edge = self.edge(publisher, hop);
            for (mode, figures) in figures.iter() {
                edge.figures.of(mode).add(figures);
            }
        }
    }

    pub(super) fn count_taken(&mut self, from: VertexId, hop: Hop, time: u64) {
        self.sent(from, hop, time).taken += 1;
    }

    fn insert(
        &mut self,
        looks: VertexLooks,
        stand_in: NodeId,
        slot: Slot,
        symbol: Option<NameId>,
    ) -> VertexId {
        self.made += 1;
        let of_slot = looks.of_slot(slot);
        let vertex = Vertex {
            looks,
            stand_in,
            node_by: NodeBy::default(),
            clock: 0,
            rank: (slot, self.made),
            runs: Executions::default(),
            outputs: Vec::new(),
            symbol,
            links: LinkEnds::default(),
            is_forgotten: false,
            ended_ns: None,
        };
        let v = match self.free.pop() {
            Some(v) => {
                self.vertices[v.index()] = vertex;
                v
            }
            None => {
                self.vertices.push(vertex);
                VertexId::new(self.vertices.len() - 1)
            }
        };
        self.of_slot.entry(of_slot).or_default().push(v);
        v
    }

    pub(crate) fn kept(&self) -> impl Iterator<Item = (VertexId, &Vertex)> {
        let all = self.vertices.iter().enumerate();
        let kept = all.filter(|(_, vertex)| !vertex.is_forgotten);
        kept.map(|(i, vertex)| (VertexId::new(i), vertex))
    }

    pub(super) fn forget(&mut self, vertices: &Marks) {
        for v in vertices.iter() {
            let vertex = &mut self.vertices[v];
            (vertex.looks.kind, vertex.looks.node) = (CallbackType::Thread, None);
            (vertex.looks.name, vertex.looks.caller) = (None, None);
            vertex.runs = Executions::default();
            (vertex.outputs, vertex.symbol) = (Vec::new(), None);
            (vertex.links, vertex.is_forgotten) = (LinkEnds::default(), true);
            self.free.push(VertexId::new(v));
        }
        let is_gone = |v: VertexId| vertices.has(v.index());
        for vertex in &mut self.vertices {
            vertex.runs.ended.retain(|publisher| !is_gone(publisher.0));
        }
        self.of_slot.retain(|_, of| {
            of.retain(|&v| !is_gone(v));
            !of.is_empty()
        });
        self.edges
            .retain(|edge| !is_gone(edge.from) && !is_gone(edge.to));
        self.edge_of.clear();
        for (i, edge) in self.edges.iter().enumerate() {
            let key = (edge.from, edge.to, edge.name, edge.route);
            self.edge_of.insert(key, EdgeId::new(i));
        }
    }

    pub(super) fn mark_names(&self, names: &mut Marks) {
        for (_, vertex) in self.kept() {
            let comms = vertex.runs.uses.iter().filter_map(|u| u.profile.comm);
            let own = [vertex.looks.name, vertex.symbol].into_iter().flatten();
            for name in own.chain(comms).chain(vertex.outputs.iter().copied()) {
                names.add(name.index());
            }
        }
        for edge in &self.edges {
            names.add(edge.name.index());
        }
    }
}

impl Flow {
    /// Returns the vertex of a timer, subscription or client. For a publisher, returns the vertex
    /// of the application's threads that publish with it.
    pub(crate) fn vertex(&mut self, cx: &mut Context, e: EntityId) -> VertexId {
        let it = cx.entities.get(e);
        if let Some(v) = it.vertex {
            return v;
        }
        let kind = match it.kind() {
            EntityKind::Timer => CallbackType::Timer,
            EntityKind::Client => CallbackType::Client,
            // A thread of the application is distinguished by its publications.
            EntityKind::Publisher => CallbackType::Thread,
            EntityKind::Task => CallbackType::Task,
            _ => CallbackType::Subscription,
        };
        // In a process with several nodes, the node of a timer is found by its publications.
        let alone = cx.entities.process(it.process).made_only_node();
        if alone || kind != CallbackType::Timer {
            self.node_of(cx, e);
        }
        let v = self.find_or_insert(cx, kind, e, None);
        cx.entities.set_vertex(e, v);
        v
    }

    pub(super) fn service_vertex(
        &mut self,
        cx: &mut Context,
        e: EntityId,
        caller: Option<NodeId>,
    ) -> VertexId {
        let callers = &cx.entities.get(e).callers;
        let nodes = &cx.entities.nodes;
        let settled = |node: Option<NodeId>| node.map(|n| nodes.settled(n));
        let same = |c: &&(Option<NodeId>, VertexId)| {
            let guessed = || caller.is_some_and(|n| nodes.is_guessed(n));
            c.0 == caller || (settled(c.0) == settled(caller) && !guessed())
        };
        if let Some(&(_, v)) = callers.iter().find(same) {
            return v;
        }
        self.node_of(cx, e);
        let v = self.find_or_insert(cx, CallbackType::Service, e, caller);
        cx.entities.add_caller(e, caller, v);
        v
    }

    pub(super) fn sync_vertex(&mut self, node: NodeId, topic: NameId) -> VertexId {
        let looks = VertexLooks {
            kind: CallbackType::Sync,
            node: Some(node),
            name: Some(topic),
            caller: None,
            period_ns: None,
        };
        let v = self.graph.insert(looks, node, Slot::default(), None);
        self.graph.vertex_mut(v).outputs.push(topic);
        v
    }

    pub(super) fn node_of(&mut self, cx: &mut Context, e: EntityId) -> NodeId {
        let it = cx.entities.get(e);
        let node = match it.node() {
            Some(node) => node,
            None => {
                let node = cx.entities.stand_in(it.process);
                cx.entities.set_stand_in(e, node);
                node
            }
        };
        cx.entities.nodes.settled(node)
    }

    /// Returns the node that is assigned to an entity. If this node is a stand-in, `Nodes::settled`
    /// returns the node for which it stands, once that node is known.
    pub(super) fn home_of(&mut self, cx: &mut Context, e: EntityId) -> NodeId {
        let node = self.node_of(cx, e);
        cx.entities.get(e).node().unwrap_or(node)
    }

    fn find_or_insert(
        &mut self,
        cx: &mut Context,
        kind: CallbackType,
        e: EntityId,
        caller: Option<NodeId>,
    ) -> VertexId {
        let it = cx.entities.get(e);
        let looks = VertexLooks {
            kind,
            node: it.node(),
            name: it.name(),
            caller,
            period_ns: it.looks.period_ns,
        };
        if let Some(v) = self.find_vertex(cx, &looks, e) {
            return v;
        }
        let (process, symbol) = (it.process, it.symbol);
        cx.entities.processes.count_created(process, CALLBACK_COST);
        let it = cx.entities.get(e);
        let slot = it.slot;
        let stand_in = match looks.node {
            Some(node) => node,
            None => cx.entities.stand_in(process),
        };
        let clock = cx.entities.clock_of(e);
        let v = self.graph.insert(looks, stand_in, slot, symbol);
        self.graph.vertex_mut(v).clock = clock;
        self.tie_links(cx, v);
        self.tie_cuts(cx, v);
        v
    }

    /// Returns the vertex that an entity of a restarted process continues. That vertex has the same
    /// node, type and name, and its earlier entity has ended.
    fn find_vertex(&self, cx: &Context, looks: &VertexLooks, e: EntityId) -> Option<VertexId> {
        let nodes = &cx.entities.nodes;
        let settled = |node: Option<NodeId>| node.map(|n| nodes.settled(n));
        // Late attach: this is a timer that an unknown node creates again and again.
        let remade = looks.kind == CallbackType::Timer && looks.period_ns.is_some();
        let guess = || cx.entities.guessed_node(cx.entities.get(e).process);
        let node = looks.node.or_else(|| guess().filter(|_| remade));
        let node = settled(node)?;
        let slot = cx.entities.get(e).slot;
        let clock = cx.entities.clock_of(e);
        // The node was concluded later from publications. An equal clock shows that both timers
        // belong to it.
        let same_clock = |v: &Vertex| {
            looks.node.is_none()
                && clock != 0
                && v.clock == clock
                && v.node_by != NodeBy::Nothing
                && nodes.settled(v.stand_in) == node
        };
        let alike = |v: &Vertex| {
            (nodes.settled(v.node()) == node || same_clock(v))
                && settled(v.looks.caller) == settled(looks.caller)
        };
        let known = self.graph.of_slot.get(&looks.of_slot(slot))?;
        let known = known.iter().copied();
        let found = known.filter(|&v| alike(self.graph.vertex(v))).min()?;
        // A vertex of a live entity is not reused.
        let process = cx.entities.get(e).process;
        let mut holders = cx.entities.holders_of(process, found);
        let is_used = holders.any(|(other, o)| {
            let has_it = o.vertex == Some(found) || o.callers.contains(&(looks.caller, found));
            other != e && !o.is_spent() && has_it
        });
        (!is_used).then_some(found)
    }

    pub(crate) fn set_symbol(&mut self, cx: &Context, e: EntityId, symbol: NameId) {
        let it = cx.entities.get(e);
        let callers = it.callers.iter().map(|c| c.1);
        let own = it.vertex.filter(|_| !it.nests.polled);
        for v in own.into_iter().chain(callers) {
            self.graph.vertex_mut(v).symbol = Some(symbol);
        }
    }
}
