//! Vertices and edges in the making: callbacks, synchronisers, and what goes between them.

use super::Flow;
use crate::causes::Waits;
use crate::course::Course;
use crate::entities::{EntityKind, Slot};
use crate::ids::{EdgeId, EntityId, NodeId};
use crate::index::{NameId, VertexId};
use crate::mode_rules::{PerMode, Switches};
use crate::running_median::RunningMedian;
use crate::values::{Cpus, ThreadId, ThreadProfile};
use crate::Context;
use onbeat_document::dist::Dist;
use onbeat_document::evidence::Figures;
use onbeat_document::schema::{CallbackFigures, CallbackType, EdgeFigures};
use rustc_hash::FxHashMap;

/// How data goes along an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Route {
    /// Through the middleware.
    Topic,
    /// Within the process.
    Intra,
    /// Through a node's memory, as the user states.
    Link,
    /// Through a node's memory, to a callback that waited for it and went on then.
    Waited,
    /// Within the process, to a thread that was woken up or made for it.
    HandedOver,
    /// Through a node's memory, to a task that a callback made.
    Made,
}

/// Where data goes: an edge without its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hop {
    pub(super) to: VertexId,
    pub(super) name: NameId,
    pub(super) route: Route,
}

/// An edge in the making.
#[derive(Debug, Clone)]
pub(crate) struct EdgeData {
    pub(crate) from: VertexId,
    pub(crate) to: VertexId,
    pub(crate) name: NameId,
    pub(crate) route: Route,
    /// By the mode in which the items were published.
    pub(crate) figures: PerMode<EdgeFigures>,
    /// The usual transport time, for items that arrived while nobody waited.
    pub(super) usual_transport: RunningMedian,
}

/// Which thread ran a callback, and where.
#[derive(Debug, Clone)]
pub(crate) struct Use {
    pub(crate) profile: ThreadProfile,
    pub(crate) cpus: Cpus,
}

/// What distinguishes a vertex.
#[derive(Debug, Clone)]
pub(crate) struct VertexLooks {
    pub(crate) kind: CallbackType,
    pub(crate) node: Option<NodeId>,
    /// Topic or service; none for timers.
    pub(crate) name: Option<NameId>,
    /// A service's caller, if known.
    pub(crate) caller: Option<NodeId>,
    /// Of a timer, as far as known.
    pub(crate) period_ns: Option<u64>,
}

/// Most threads of a vertex that are kept: more than any pool has. Programs that make a thread for
/// each task would fill memory.
pub(super) const THREADS_MAX: usize = 256;

/// The executions of a vertex.
#[derive(Debug, Clone, Default)]
pub(crate) struct Executions {
    /// By the mode in which the executions began.
    pub(crate) measured: PerMode<Measured>,
    pub(crate) count: u64,
    /// Executions on nothing that a callback published.
    pub(crate) sourced: u64,
    /// Some ends were inferred.
    pub(crate) inferred: bool,
    pub(crate) uses: Vec<Use>,
    /// Which threads ran it, [`THREADS_MAX`] at most.
    pub(crate) threads: Vec<ThreadId>,
    pub(super) last_start: u64,
}

/// What the executions of a vertex took.
#[derive(Debug, Clone, Default)]
pub(crate) struct Measured {
    pub(crate) figures: CallbackFigures,
    pub(crate) courses: Courses,
    pub(crate) waits: Waits,
}

impl Executions {
    /// Start to start, over all modes.
    pub(crate) fn interarrival(&self) -> Dist {
        let mut all = Dist::new();
        for (_, measured) in self.measured.iter() {
            all.merge(&measured.figures.interarrival_ns);
        }
        all
    }
}

/// The order in which the executions' figures came.
#[derive(Debug, Clone, Default)]
pub(crate) struct Courses {
    pub(crate) exec: Course,
    pub(crate) response: Course,
    pub(crate) interarrival: Course,
}

/// What the user stated of a vertex: the links, by number, that start and end at it, and a cut.
#[derive(Debug, Clone, Default)]
pub(crate) struct LinkEnds {
    pub(crate) from: Vec<usize>,
    pub(crate) to: Vec<usize>,
    /// Chains begin here as well: the user cut them.
    pub(super) cut: bool,
}

/// What told the node of a callback that did not have one when it was found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum NodeBy {
    #[default]
    Nothing,
    /// The client by which it sent a request: often one of a node that is there for calls alone.
    Request,
    /// The publisher by which it published.
    Topic,
    /// Publishers of several nodes, which tells nothing.
    Several,
}

/// A vertex in the making.
#[derive(Debug, Clone)]
pub(crate) struct Vertex {
    pub(crate) looks: VertexLooks,
    /// Stands in while the node is unknown.
    stand_in: NodeId,
    node_by: NodeBy,
    /// Of a timer: its clock's address, which in rclpy is one per node; 0 while unknown.
    clock: u64,
    /// Order among those that look alike: their entities' slot, then of their making.
    pub(crate) rank: (Slot, u64),
    pub(crate) runs: Executions,
    /// Topics that it published.
    pub(crate) outputs: Vec<NameId>,
    pub(crate) symbol: Option<NameId>,
    pub(crate) links: LinkEnds,
}

impl Vertex {
    pub(crate) fn kind(&self) -> CallbackType {
        self.looks.kind
    }

    /// Its node, or the one that stands in for it.
    pub(crate) fn node(&self) -> NodeId {
        self.looks.node.unwrap_or(self.stand_in)
    }

    /// It sent something by an endpoint of this node, which is its own if nothing else told it
    /// and nothing contradicts. `same` tells whether two nodes are one.
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

    /// What told its node is not the program's own word.
    pub(crate) fn node_is_told_by_output(&self) -> bool {
        matches!(self.node_by, NodeBy::Request | NodeBy::Topic)
    }

    /// Adds a topic to what it publishes.
    pub(super) fn add_output(&mut self, name: NameId) {
        if !self.outputs.contains(&name) {
            self.outputs.push(name);
        }
    }
}

/// Vertices and edges.
#[derive(Debug, Clone, Default)]
pub(crate) struct Graph {
    pub(crate) vertices: Vec<Vertex>,
    pub(crate) edges: Vec<EdgeData>,
    /// Which mode was active when.
    pub(crate) switches: Switches,
    edge_of: FxHashMap<(VertexId, VertexId, NameId, Route), EdgeId>,
}

impl Graph {
    pub(crate) fn vertex(&self, v: VertexId) -> &Vertex {
        &self.vertices[v.index()]
    }

    /// States whether chains begin at a vertex.
    pub(crate) fn set_cut(&mut self, v: VertexId, begins: bool) {
        if let Some(vertex) = self.vertices.get_mut(v.index()) {
            vertex.links.cut = begins;
        }
    }

    pub(super) fn vertex_mut(&mut self, v: VertexId) -> &mut Vertex {
        &mut self.vertices[v.index()]
    }

    /// The edge from a vertex, made when new.
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

    /// The figures of an edge for items that were published at `time`.
    pub(super) fn sent(&mut self, from: VertexId, hop: Hop, time: u64) -> &mut EdgeFigures {
        let mode = self.switches.at(time);
        self.edge(from, hop).figures.of(mode)
    }

    /// Counts an item as published on an edge.
    pub(super) fn count_published(&mut self, from: VertexId, hop: Hop, time: u64) {
        self.sent(from, hop, time).published += 1;
    }

    /// Moves what goes to one vertex to another.
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

    /// Counts an item as taken from an edge.
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
        self.vertices.push(Vertex {
            looks,
            stand_in,
            node_by: NodeBy::default(),
            clock: 0,
            rank: (slot, self.vertices.len() as u64 + 1),
            runs: Executions::default(),
            outputs: Vec::new(),
            symbol,
            links: LinkEnds::default(),
        });
        VertexId::new(self.vertices.len() - 1)
    }
}

impl Flow {
    /// The vertex of a timer, subscription or client; of a publisher that of the threads of one's
    /// own that publish by it.
    pub(crate) fn vertex(&mut self, cx: &mut Context, e: EntityId) -> VertexId {
        let it = cx.entities.get(e);
        if let Some(v) = it.vertex {
            return v;
        }
        let kind = match it.kind() {
            EntityKind::Timer => CallbackType::Timer,
            EntityKind::Client => CallbackType::Client,
            // What a thread of one's own publishes tells it from others.
            EntityKind::Publisher => CallbackType::Thread,
            EntityKind::Task => CallbackType::Task,
            _ => CallbackType::Subscription,
        };
        // A timer of a process with several nodes shows its node by what it publishes.
        let alone = cx.entities.process(it.process).made_only_node();
        if alone || kind != CallbackType::Timer {
            self.node_of(cx, e);
        }
        let v = self.find_or_insert(cx, kind, e, None);
        cx.entities.get_mut(e).vertex = Some(v);
        v
    }

    /// The vertex of a service for a caller's node, as far as that is known.
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
        cx.entities.get_mut(e).callers.push((caller, v));
        v
    }

    /// A vertex for the output of synchronised subscriptions.
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

    /// The node of an entity, as far as known by now; one that stands in for it where it is not.
    pub(super) fn node_of(&mut self, cx: &mut Context, e: EntityId) -> NodeId {
        let it = cx.entities.get(e);
        let node = match it.node() {
            Some(node) => node,
            None => {
                let node = cx.entities.stand_in(it.process);
                cx.entities.get_mut(e).looks.node = Some(node);
                node
            }
        };
        cx.entities.nodes.settled(node)
    }

    /// The node of an entity under the name that it was given first, so that it follows what is
    /// known later.
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

    /// The vertex that an entity of a restarted process continues: same node, type and name, of
    /// an entity that is gone.
    fn find_vertex(&self, cx: &Context, looks: &VertexLooks, e: EntityId) -> Option<VertexId> {
        let nodes = &cx.entities.nodes;
        let settled = |node: Option<NodeId>| node.map(|n| nodes.settled(n));
        // Late attach: a timer that is made again and again, by a node that is not known.
        let remade = looks.kind == CallbackType::Timer && looks.period_ns.is_some();
        let guess = || cx.entities.guessed_node(cx.entities.get(e).process);
        let node = looks.node.or_else(|| guess().filter(|_| remade));
        let node = settled(node)?;
        let slot = cx.entities.get(e).slot;
        let clock = cx.entities.clock_of(e);
        // Its node was told since by what it published; the clock says that this is of the same.
        let told = |v: &Vertex| {
            looks.node.is_none()
                && clock != 0
                && v.clock == clock
                && v.node_by != NodeBy::Nothing
                && nodes.settled(v.stand_in) == node
        };
        let alike = |v: &Vertex| {
            v.rank.0.number == slot.number
                && v.looks.kind == looks.kind
                && (nodes.settled(v.node()) == node || told(v))
                && v.looks.name == looks.name
                && v.looks.period_ns == looks.period_ns
                && settled(v.looks.caller) == settled(looks.caller)
        };
        let found = VertexId::new(self.graph.vertices.iter().position(alike)?);
        // Unless a live entity has it.
        let has_it = |&other: &EntityId| {
            let o = cx.entities.get(other);
            let lives = other != e && !o.is_spent();
            lives && (o.vertex == Some(found) || o.callers.contains(&(looks.caller, found)))
        };
        let process = cx.entities.process(cx.entities.get(e).process);
        (!process.entities.iter().any(has_it)).then_some(found)
    }

    /// The symbol of an entity's callback is known.
    pub(crate) fn set_symbol(&mut self, cx: &Context, e: EntityId, symbol: NameId) {
        let it = cx.entities.get(e);
        let callers = it.callers.iter().map(|c| c.1);
        let own = it.vertex.filter(|_| !it.nests.polled);
        for v in own.into_iter().chain(callers) {
            self.graph.vertex_mut(v).symbol = Some(symbol);
        }
    }
}
