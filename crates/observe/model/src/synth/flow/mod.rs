//! The data flow's view: who takes whose items, and what that says about callbacks, edges and
//! chains. Works on facts in order; keeps what is in flight.

pub(in crate::synth) mod callers;
pub(in crate::synth) mod deferred;
pub(in crate::synth) mod synchronisers;

use super::entities::{Cursor, Kind};
use super::events::{Begin, End, Ending, Fact, Input, Owner};
use super::notes::Note;
use super::running_median::RunningMedian;
use super::{Synth, NONE};
use crate::chains::Lineages;
use crate::index::{NameId, VertexId};
use crate::schema::{CallbackFigures, CallbackType, EdgeFigures};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// A published item.
#[derive(Debug, Clone)]
struct Item {
    time: u64,
    /// The publishing call had returned by then.
    until: u64,
    source_ns: Option<i64>,
    vertex: u32,
    lineages: Lineages,
}

/// A publisher's items in flight.
#[derive(Debug, Clone, Default)]
struct Published {
    /// Sequence number of the first item kept.
    base: u64,
    items: VecDeque<Item>,
    /// It publishes without time stamps (Humble).
    unstamped: bool,
}

/// An item in a ring buffer.
#[derive(Debug, Clone, Copy)]
struct Slot {
    time: u64,
    vertex: u32,
    lineages: Lineages,
}

/// What an instance took: who published it, when, on what.
#[derive(Debug, Clone, Copy)]
struct Incoming {
    vertex: u32,
    time: u64,
    name: u32,
    way: Way,
    /// Shared by the receiver of this.
    lineages: Lineages,
}

/// How an edge comes about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::synth) enum Way {
    Topic,
    Intra,
    Link,
}

/// A request under way to its service.
#[derive(Debug, Clone)]
pub(in crate::synth) struct Sent {
    pub(in crate::synth) client: u32,
    pub(in crate::synth) time: u64,
    pub(in crate::synth) taken: bool,
    vertex: u32,
    to: u32,
    lineages: Lineages,
}

/// A request that a service has taken.
#[derive(Debug, Clone)]
struct Call {
    vertex: u32,
    /// NONE while unknown.
    client: u32,
    /// Still running.
    instance: u32,
    /// Last output or end, when it has ended without a response.
    ended: Option<(u64, u32)>,
    responded: Option<u64>,
    lineages: Lineages,
}

/// An edge in the making.
#[derive(Debug, Clone)]
pub(in crate::synth) struct EdgeData {
    pub(in crate::synth) from: u32,
    pub(in crate::synth) to: u32,
    pub(in crate::synth) name: u32,
    pub(in crate::synth) way: Way,
    pub(in crate::synth) figures: EdgeFigures,
    typical: RunningMedian,
}

/// Which thread ran a callback, and where.
#[derive(Debug, Clone)]
pub(in crate::synth) struct Use {
    pub(in crate::synth) thread: (u32, u8, u8),
    pub(in crate::synth) cpus: [u64; 4],
}

/// A vertex in the making.
#[derive(Debug, Clone)]
pub(in crate::synth) struct Vertex {
    pub(in crate::synth) kind: CallbackType,
    pub(in crate::synth) node: u32,
    /// Stands in while `node` is unknown.
    pub(in crate::synth) fallback_node: u32,
    pub(in crate::synth) name: u32,
    /// A service's caller: node, or NONE.
    pub(in crate::synth) caller: u32,
    pub(in crate::synth) period_ns: u64,
    /// Order among those that look alike.
    pub(in crate::synth) rank: (u64, u64),
    pub(in crate::synth) figures: CallbackFigures,
    pub(in crate::synth) executions: u64,
    /// Executions on nothing that a callback published.
    pub(in crate::synth) sourced: u64,
    pub(in crate::synth) outputs: Vec<u32>,
    pub(in crate::synth) inferred: bool,
    pub(in crate::synth) symbol: u32,
    pub(in crate::synth) uses: Vec<Use>,
    last_start: u64,
    /// Links that start here and end here: indices.
    pub(in crate::synth) links_from: Vec<u32>,
    pub(in crate::synth) links_to: Vec<u32>,
}

/// Lineages on the way through a node's memory.
#[derive(Debug, Clone, Default)]
struct Carried {
    time: u64,
    from: u32,
    /// Counted as published: the callback that takes it was known.
    counted: bool,
    lineages: Lineages,
}

/// Items, edges, vertices.
#[derive(Debug, Clone, Default)]
pub(in crate::synth) struct Flow {
    pub(in crate::synth) vertices: Vec<Vertex>,
    pub(in crate::synth) edges: Vec<EdgeData>,
    edge_of: FxHashMap<(u32, u32, u32, Way), u32>,
    published: Vec<Option<Box<Published>>>,
    /// Items by topic and time stamp; `twins` where several have the same.
    stamped: FxHashMap<(u32, i64), (u32, u64)>,
    twins: FxHashMap<(u32, i64), Vec<(u32, u64)>>,
    rings: FxHashMap<u32, FxHashMap<u64, Slot>>,
    pub(in crate::synth) sent: FxHashMap<(u32, i64), Vec<Sent>>,
    sent_order: VecDeque<(u32, i64, u32)>,
    calls: FxHashMap<(u32, [u8; 16], i64), Call>,
    call_order: VecDeque<(u32, [u8; 16], i64)>,
    call_of: FxHashMap<(u32, i64), (u32, [u8; 16], i64)>,
    carried: Vec<Option<Carried>>,
    creations: u64,
}

/// Items kept of a publisher for late subscribers, at most.
const MAX_LATCHED: u64 = 32;
/// Requests and calls in flight, at most.
const MAX_CALLS: usize = 8192;
/// Places of one ring buffer, at most.
const MAX_RING: usize = 4096;
/// An item that has been waiting so long at the end of the recording is lost.
const LONG_ENOUGH_NS: u64 = 1_000_000_000;
/// How far a time stamp may lie outside of its publishing call (clock offsets are sampled).
const STAMP_TOLERANCE_NS: u64 = 200_000;

impl Synth {
    /// Takes note of a fact.
    pub(in crate::synth) fn apply(&mut self, fact: &Fact) {
        match *fact {
            Fact::Begin(ref begin) => self.apply_begin(begin),
            Fact::End(ref end) => self.apply_end(end),
            Fact::Over { instance, time } => self.input_done(instance, time),
            Fact::Publish {
                owner,
                publisher,
                time,
                source_ns,
                message,
            } => self.apply_publish(owner, publisher, time, source_ns, message),
            Fact::PublishedBy { publisher, time } => {
                if let Some(Some(p)) = self.flow.published.get_mut(publisher as usize) {
                    if let Some(item) = p.items.back_mut() {
                        item.until = item.until.min(time);
                    }
                }
            }
            Fact::Enqueue {
                owner,
                publisher,
                subscription,
                index,
                time,
                message,
            } => self.apply_enqueue(owner, publisher, (subscription, index), time, message),
            Fact::Clear { subscription } => {
                for (_, mut slot) in self.flow.rings.remove(&subscription).into_iter().flatten() {
                    self.steps.release_all(&mut slot.lineages);
                }
            }
            Fact::Request {
                owner,
                client,
                sequence,
                time,
            } => self.apply_request(owner, client, sequence, time),
            Fact::Response {
                service,
                gid,
                sequence,
                time,
            } => self.apply_response(service, gid, sequence, time),
            Fact::TakeOnly {
                subscription,
                source_ns,
            } => {
                self.take(subscription, source_ns, false);
            }
            Fact::Sync {
                instance,
                filter,
                time,
            } => self.instances.get_mut(instance).synchronised = Some((time, filter)),
        }
    }

    // ---- vertices and edges

    fn new_vertex(&mut self, kind: CallbackType, node: u32, name: u32, entity: Option<u32>) -> u32 {
        self.flow.creations += 1;
        let creation = self.flow.creations;
        let (mut rank, mut period_ns, mut symbol) = (0, 0, NONE);
        let mut fallback_node = node;
        if let Some(e) = entity {
            rank = self.world.rank(e);
            let it = &self.world.entities[e as usize];
            (period_ns, symbol) = (it.period_ns, it.symbol);
            if node == NONE {
                fallback_node = self.world.fallback_node(it.process);
            }
        }
        self.flow.vertices.push(Vertex {
            kind,
            node,
            fallback_node,
            name,
            caller: NONE,
            period_ns,
            rank: (rank, creation),
            figures: CallbackFigures::default(),
            executions: 0,
            sourced: 0,
            outputs: Vec::new(),
            inferred: false,
            symbol,
            uses: Vec::new(),
            last_start: 0,
            links_from: Vec::new(),
            links_to: Vec::new(),
        });
        (self.flow.vertices.len() - 1) as u32
    }

    /// The vertex that an entity of a restarted process continues: same node, type and name, of
    /// an entity that is gone.
    fn find_vertex(&self, kind: CallbackType, entity: u32, caller: u32) -> Option<u32> {
        let it = &self.world.entities[entity as usize];
        if it.node == NONE {
            return None;
        }
        let rank = self.world.rank(entity);
        let alike = |v: &Vertex| {
            v.kind == kind
                && v.node == it.node
                && v.name == it.name
                && v.period_ns == it.period_ns
                && v.caller == caller
        };
        let found = self
            .flow
            .vertices
            .iter()
            .position(|v| alike(v) && v.rank.0 == rank)?;
        // Unless somebody alive has it.
        let taken = self.world.processes[it.process as usize]
            .entities
            .iter()
            .any(|&e| {
                let o = &self.world.entities[e as usize];
                e != entity
                    && (o.vertex == found as u32 || o.callers.contains(&(caller, found as u32)))
            });
        (!taken).then_some(found as u32)
    }

    /// The vertex of a timer, subscription or client.
    pub(in crate::synth) fn vertex(&mut self, entity: u32) -> u32 {
        let it = &self.world.entities[entity as usize];
        if it.vertex != NONE {
            return it.vertex;
        }
        let kind = match it.kind {
            Kind::Timer => CallbackType::Timer,
            Kind::Client => CallbackType::Client,
            _ => CallbackType::Subscription,
        };
        let (mut node, name, process) = (it.node, it.name, it.process);
        if node == NONE {
            let alone = self.world.processes[process as usize].nodes.len() == 1;
            if alone || kind != CallbackType::Timer {
                node = self.world.fallback_node(process);
                self.world.entities[entity as usize].node = node;
            }
        }
        let v = match self.find_vertex(kind, entity, NONE) {
            Some(v) => v,
            None => {
                let v = self.new_vertex(kind, node, name, Some(entity));
                self.tie_links(v);
                v
            }
        };
        self.world.entities[entity as usize].vertex = v;
        v
    }

    /// The vertex of a service for a caller's node (NONE: not known).
    fn service_vertex(&mut self, entity: u32, caller: u32) -> u32 {
        let it = &self.world.entities[entity as usize];
        if let Some(&(_, v)) = it.callers.iter().find(|c| c.0 == caller) {
            return v;
        }
        let (mut node, name, process) = (it.node, it.name, it.process);
        if node == NONE {
            node = self.world.fallback_node(process);
            self.world.entities[entity as usize].node = node;
        }
        let v = match self.find_vertex(CallbackType::Service, entity, caller) {
            Some(v) => v,
            None => {
                let v = self.new_vertex(CallbackType::Service, node, name, Some(entity));
                self.flow.vertices[v as usize].caller = caller;
                self.tie_links(v);
                v
            }
        };
        self.world.entities[entity as usize]
            .callers
            .push((caller, v));
        v
    }

    /// A vertex for the output of synchronised subscriptions.
    pub(in crate::synth) fn sync_vertex(&mut self, node: u32, topic: u32) -> u32 {
        let v = self.new_vertex(CallbackType::Sync, node, topic, None);
        self.flow.vertices[v as usize].outputs.push(topic);
        v
    }

    /// Finds the links that a new vertex is part of.
    fn tie_links(&mut self, v: u32) {
        if self.options.links.is_empty() {
            return;
        }
        self.flow.carried.resize(self.options.links.len(), None);
        let id = self.provisional_id(v);
        for i in 0..self.options.links.len() {
            if self.options.links[i].from == id {
                self.flow.vertices[v as usize].links_from.push(i as u32);
            }
            if self.options.links[i].to == id {
                self.flow.vertices[v as usize].links_to.push(i as u32);
            }
        }
    }

    fn edge(&mut self, from: u32, to: u32, name: u32, way: Way) -> &mut EdgeData {
        let edges = &mut self.flow.edges;
        let i = *self
            .flow
            .edge_of
            .entry((from, to, name, way))
            .or_insert_with(|| {
                edges.push(EdgeData {
                    from,
                    to,
                    name,
                    way,
                    figures: EdgeFigures::default(),
                    typical: RunningMedian::default(),
                });
                (edges.len() - 1) as u32
            });
        &mut edges[i as usize]
    }

    /// Adds a name to what a vertex publishes.
    fn add_output(&mut self, vertex: u32, name: u32) {
        let outputs = &mut self.flow.vertices[vertex as usize].outputs;
        if !outputs.contains(&name) {
            outputs.push(name);
        }
    }

    /// An item of `from` was lost on its way to `to` (`n` 1), or turned up after all (-1).
    fn lose(
        &mut self,
        item: (u32, Lineages),
        to: u32,
        name: u32,
        way: Way,
        n: i64,
        overwritten: bool,
    ) {
        let (from, lineages) = item;
        if from == NONE {
            return;
        }
        let figures = &mut self.edge(from, to, name, way).figures;
        figures.lost = figures.lost.saturating_add_signed(n);
        if overwritten {
            figures.overwritten = figures.overwritten.saturating_add_signed(n);
        }
        let (name, to) = (NameId::new(name as usize), VertexId::new(to as usize));
        for &s in lineages.as_slice() {
            self.paths.lose(self.steps.path(s), name, to, n);
        }
    }

    // ---- messages

    pub(in crate::synth) fn resolve(&self, owner: Owner) -> Owner {
        match owner {
            Owner::Undecided(slot) => self.decision(slot).unwrap_or(Owner::Outside),
            known => known,
        }
    }

    /// The vertex and lineages of an owner; the lineages are the instance's own.
    fn source(&self, owner: Owner) -> (u32, Lineages) {
        match self.resolve(owner) {
            Owner::Instance(i) => {
                let instance = self.instances.get(i);
                (instance.vertex, instance.lineages)
            }
            _ => (NONE, Lineages::default()),
        }
    }

    /// Common to all publications: output of the vertex, the instance's last output, its node.
    fn published_by(&mut self, owner: Owner, vertex: u32, name: u32, node: u32, time: u64) {
        if vertex == NONE {
            return;
        }
        self.add_output(vertex, name);
        self.saw_published(owner, name, time);
        if let Owner::Instance(i) = self.resolve(owner) {
            self.instances.get_mut(i).output = Some((time, name));
        }
        let v = &mut self.flow.vertices[vertex as usize];
        if v.node == NONE && node != NONE {
            v.node = node;
            self.notes.count(Note::TimerNode(vertex), 1);
        }
    }

    fn publisher_node(&mut self, publisher: u32) -> u32 {
        let it = &self.world.entities[publisher as usize];
        if it.node != NONE {
            return it.node;
        }
        let node = self.world.fallback_node(it.process);
        self.world.entities[publisher as usize].node = node;
        node
    }

    fn apply_publish(
        &mut self,
        owner: Owner,
        publisher: u32,
        time: u64,
        source_ns: Option<i64>,
        message: Option<u64>,
    ) {
        let name = self.world.entities[publisher as usize].name;
        let depth = self.world.entities[publisher as usize].depth;
        let node = self.publisher_node(publisher);
        let (vertex, own) = self.source(owner);
        if vertex == NONE && self.resolve(owner) == Owner::Outside {
            self.notes.count(Note::Outside(name), 1);
        }
        self.published_by(owner, vertex, name, node, time);
        let mut lineages = self.steps.share(&own);
        let mut beyond = Vec::new();
        if let Owner::Instance(i) = self.resolve(owner) {
            beyond = self.synchronise(i, node, name, time, message, &mut lineages);
        } else {
            self.publish_unsynchronised(node, name);
        }
        self.saw_left(lineages.as_slice(), Some(name), time, source_ns);
        // They are followed no further, but came this far.
        self.saw_left(&beyond, Some(name), time, source_ns);
        beyond.into_iter().for_each(|s| self.steps.release(s));
        if self.flow.published.len() <= publisher as usize {
            self.flow.published.resize(publisher as usize + 1, None);
        }
        let published = self.flow.published[publisher as usize].get_or_insert_with(Box::default);
        let sequence = published.base + published.items.len() as u64;
        published.unstamped |= source_ns.is_none();
        published.items.push_back(Item {
            time,
            until: u64::MAX,
            source_ns,
            vertex,
            lineages,
        });
        let mut keep = depth.clamp(1, MAX_LATCHED) as usize;
        let mut deepest = 0;
        let takers = self.world.endpoints(name).subscriptions.len();
        for i in 0..takers {
            let s = self.world.endpoints(name).subscriptions[i];
            let it = &mut self.world.entities[s as usize];
            deepest = deepest.max(if it.depth == 0 { 1024 } else { it.depth });
            let c = cursor(&mut it.cursors, publisher, sequence);
            if vertex != NONE && !it.cursors[c].intra {
                let to = self.vertex(s);
                self.edge(vertex, to, name, Way::Topic).figures.published += 1;
            }
        }
        if let Some(source_ns) = source_ns {
            self.stamp(name, source_ns, publisher, sequence);
        }
        // Let go of what everybody has taken, and of what nobody can take any more.
        let most = (2 * deepest + 64).min(2048) as usize;
        keep = keep.min(most);
        loop {
            let Some(Some(published)) = self.flow.published.get(publisher as usize) else {
                return;
            };
            if published.items.len() <= keep {
                return;
            }
            let base = published.base;
            let full = published.items.len() > most;
            if !full {
                let waiting = self.world.endpoints(name).subscriptions.iter().any(|&s| {
                    let cursors = &self.world.entities[s as usize].cursors;
                    cursors
                        .iter()
                        .any(|c| c.publisher == publisher && c.next <= base)
                });
                if waiting {
                    return;
                }
            }
            self.drop_item(publisher, name, true);
        }
    }

    /// Forgets a publisher's oldest item; who has not taken it has lost it, if `count`.
    fn drop_item(&mut self, publisher: u32, name: u32, count: bool) {
        let Some(Some(published)) = self.flow.published.get_mut(publisher as usize) else {
            return;
        };
        let Some(mut item) = published.items.pop_front() else {
            return;
        };
        let sequence = published.base;
        published.base += 1;
        if count {
            for i in 0..self.world.endpoints(name).subscriptions.len() {
                let s = self.world.endpoints(name).subscriptions[i];
                let it = &mut self.world.entities[s as usize];
                let c = cursor(&mut it.cursors, publisher, sequence + 1);
                let c = &mut it.cursors[c];
                if c.next <= sequence {
                    c.next = sequence + 1;
                    if !c.intra {
                        let to = self.vertex(s);
                        self.lose((item.vertex, item.lineages), to, name, Way::Topic, 1, false);
                    }
                }
            }
        }
        self.steps.release_all(&mut item.lineages);
        if let Some(stamp) = item.source_ns {
            let key = (name, stamp);
            if self.flow.stamped.get(&key) == Some(&(publisher, sequence)) {
                self.flow.stamped.remove(&key);
            }
            if !self.flow.twins.is_empty() {
                if let Some(twins) = self.flow.twins.get_mut(&key) {
                    twins.retain(|&t| t != (publisher, sequence));
                    if twins.is_empty() {
                        self.flow.twins.remove(&key);
                    }
                }
            }
        }
    }

    fn stamp(&mut self, name: u32, source_ns: i64, publisher: u32, sequence: u64) {
        let key = (name, source_ns);
        if let Some(old) = self.flow.stamped.insert(key, (publisher, sequence)) {
            self.flow.twins.entry(key).or_default().push(old);
        }
    }

    /// An item by its coordinates, if it is still kept.
    fn item(&self, publisher: u32, sequence: u64) -> Option<&Item> {
        let published = self.flow.published.get(publisher as usize)?.as_ref()?;
        let i = sequence.checked_sub(published.base)?;
        published.items.get(usize::try_from(i).ok()?)
    }

    /// Finds the item with a time stamp that a subscription has not yet taken.
    fn find_item(&mut self, subscription: u32, source_ns: i64) -> Option<(u32, u64)> {
        let name = self.world.entities[subscription as usize].name;
        let fresh = |synth: &Self, at: (u32, u64)| {
            let cursors = &synth.world.entities[subscription as usize].cursors;
            cursors
                .iter()
                .find(|c| c.publisher == at.0)
                .is_none_or(|c| {
                    at.1 >= c.next || at.1 < c.join || c.passed.iter().any(|p| p.0 == at.1)
                })
        };
        let key = (name, source_ns);
        if let Some(&at) = self.flow.stamped.get(&key) {
            if let Some(twins) = self.flow.twins.get(&key) {
                // The oldest that is not yet taken.
                let mut all: Vec<(u32, u64)> = twins.clone();
                all.push(at);
                return all.into_iter().find(|&at| fresh(self, at));
            }
            return Some(at);
        }
        self.find_unstamped(name, source_ns)
    }

    /// Humble: the time stamp lies within the call that published.
    fn find_unstamped(&mut self, name: u32, source_ns: i64) -> Option<(u32, u64)> {
        let publishers = &self.world.endpoints(name).publishers;
        let mut best: Option<(u64, u32, u64)> = None;
        for &offset in &self.offsets {
            let Some(at) = source_ns
                .checked_sub(offset)
                .and_then(|t| u64::try_from(t).ok())
            else {
                continue;
            };
            for &p in publishers {
                let Some(Some(published)) = self.flow.published.get(p as usize) else {
                    continue;
                };
                if !published.unstamped {
                    continue;
                }
                for (i, item) in published.items.iter().enumerate().rev() {
                    if item.source_ns.is_some() {
                        continue;
                    }
                    let early = item.time.saturating_sub(at);
                    let late = at.saturating_sub(item.until);
                    let off = early.max(late);
                    if off <= STAMP_TOLERANCE_NS && best.is_none_or(|b| off < b.0) {
                        best = Some((off, p, published.base + i as u64));
                    }
                    if at.saturating_sub(item.time) > 10 * LONG_ENOUGH_NS {
                        break;
                    }
                    if off == 0 {
                        break;
                    }
                }
            }
            if best.is_some() {
                break;
            }
        }
        let (_, publisher, sequence) = best?;
        let published = self.flow.published[publisher as usize].as_mut()?;
        let i = usize::try_from(sequence - published.base).ok()?;
        published.items.get_mut(i)?.source_ns = Some(source_ns);
        self.stamp(name, source_ns, publisher, sequence);
        Some((publisher, sequence))
    }

    /// A subscription takes an item: settles what it passed over, and returns who published it.
    /// The lineages of the result are shared. Without `callback`, the item counts as taken, but
    /// nothing ran on it.
    fn take(&mut self, subscription: u32, source_ns: i64, callback: bool) -> Option<Incoming> {
        let name = self.world.entities[subscription as usize].name;
        let (publisher, sequence) = self.find_item(subscription, source_ns)?;
        let item = self.item(publisher, sequence)?;
        let (vertex, time, own) = (item.vertex, item.time, item.lineages);
        let next = self.flow.published[publisher as usize]
            .as_ref()
            .map_or(0, |p| p.base + p.items.len() as u64);
        let it = &mut self.world.entities[subscription as usize];
        let c = cursor(&mut it.cursors, publisher, next);
        let c = &mut it.cursors[c];
        let (first, intra) = (!c.taken_any, c.intra);
        let mut passed = 0..0;
        let mut again = None;
        let mut latched = false;
        c.taken_any = true;
        if !it.live {
            // Already replaced: items are no longer counted for it as they are published.
            latched = true;
        } else if sequence >= c.next {
            passed = c.next..sequence;
            c.next = sequence + 1;
        } else if let Some(i) = c.passed.iter().position(|p| p.0 == sequence) {
            again = c.passed.remove(i);
        } else {
            // From before it existed, or once more: not one of those that it had to take.
            latched = true;
        }
        if intra {
            return None;
        }
        let to = self.vertex(subscription);
        if let Some((_, overwritten)) = again {
            self.lose((vertex, own), to, name, Way::Topic, -1, overwritten);
        }
        for p in passed {
            let Some(item) = self.item(publisher, p) else {
                continue;
            };
            let lost = (item.vertex, item.lineages);
            // Before the first take the two may not have been connected yet.
            self.lose(lost, to, name, Way::Topic, 1, !first);
            let it = &mut self.world.entities[subscription as usize];
            let c = cursor(&mut it.cursors, publisher, 0);
            let passed = &mut it.cursors[c].passed;
            if passed.len() >= 32 {
                passed.pop_front();
            }
            passed.push_back((p, !first));
        }
        if vertex != NONE {
            let figures = &mut self.edge(vertex, to, name, Way::Topic).figures;
            figures.published += u64::from(latched);
            figures.taken += 1;
        }
        callback.then(|| Incoming {
            vertex,
            time,
            name,
            way: Way::Topic,
            lineages: self.steps.share(&own),
        })
    }

    fn apply_enqueue(
        &mut self,
        owner: Owner,
        publisher: u32,
        (subscription, index): (u32, u64),
        time: u64,
        message: Option<u64>,
    ) {
        let name = self.world.entities[subscription as usize].name;
        let (vertex, own) = self.source(owner);
        let mut lineages = self.steps.share(&own);
        if publisher != NONE {
            let node = self.publisher_node(publisher);
            self.published_by(owner, vertex, name, node, time);
            match self.resolve(owner) {
                Owner::Instance(i) => {
                    let beyond = self.synchronise(i, node, name, time, message, &mut lineages);
                    beyond.into_iter().for_each(|s| self.steps.release(s));
                }
                _ => self.publish_unsynchronised(node, name),
            }
            let it = &mut self.world.entities[subscription as usize];
            let next = self
                .flow
                .published
                .get(publisher as usize)
                .and_then(|p| p.as_ref())
                .map_or(0, |p| p.base + p.items.len() as u64);
            let c = cursor(&mut it.cursors, publisher, next);
            it.cursors[c].intra = true;
        }
        let to = self.vertex(subscription);
        if vertex != NONE {
            self.edge(vertex, to, name, Way::Intra).figures.published += 1;
        }
        let ring = self.flow.rings.entry(subscription).or_default();
        if ring.len() >= MAX_RING && !ring.contains_key(&index) {
            self.steps.release_all(&mut lineages);
            self.notes.count(Note::Capped, 1);
            return;
        }
        let slot = Slot {
            time,
            vertex,
            lineages,
        };
        if let Some(mut old) = ring.insert(index, slot) {
            // Overwritten, whether or not the event says so.
            self.lose((old.vertex, old.lineages), to, name, Way::Intra, 1, true);
            self.steps.release_all(&mut old.lineages);
        }
    }

    fn take_ring(&mut self, subscription: u32, index: u64) -> Option<Incoming> {
        let slot = self.flow.rings.get_mut(&subscription)?.remove(&index)?;
        let name = self.world.entities[subscription as usize].name;
        let to = self.vertex(subscription);
        if slot.vertex != NONE {
            self.edge(slot.vertex, to, name, Way::Intra).figures.taken += 1;
        }
        Some(Incoming {
            vertex: slot.vertex,
            time: slot.time,
            name,
            way: Way::Intra,
            lineages: slot.lineages,
        })
    }

    // ---- services

    fn apply_request(&mut self, owner: Owner, client: u32, sequence: i64, time: u64) {
        let it = &self.world.entities[client as usize];
        let (name, request) = (it.name, it.request);
        let node = self.publisher_node(client);
        let (vertex, own) = self.source(owner);
        if vertex == NONE && self.resolve(owner) == Owner::Outside {
            self.notes.count(Note::Outside(request), 1);
        }
        self.published_by(owner, vertex, request, node, time);
        let mut to = NONE;
        if vertex != NONE {
            if let Some(&service) = self.world.endpoints(name).services.first() {
                to = self.service_vertex(service, node);
                self.edge(vertex, to, request, Way::Topic).figures.published += 1;
            }
        }
        let lineages = self.steps.share(&own);
        self.flow
            .sent
            .entry((name, sequence))
            .or_default()
            .push(Sent {
                client,
                time,
                taken: false,
                vertex,
                to,
                lineages,
            });
        self.flow.sent_order.push_back((name, sequence, client));
        if self.flow.sent_order.len() > MAX_CALLS {
            if let Some((name, sequence, client)) = self.flow.sent_order.pop_front() {
                self.drop_sent(name, sequence, client);
            }
        }
    }

    /// Forgets the oldest request of a client with this sequence number.
    fn drop_sent(&mut self, name: u32, sequence: i64, client: u32) {
        let Some(list) = self.flow.sent.get_mut(&(name, sequence)) else {
            return;
        };
        let Some(i) = list.iter().position(|s| s.client == client) else {
            return;
        };
        let mut sent = list.remove(i);
        if list.is_empty() {
            self.flow.sent.remove(&(name, sequence));
        }
        if !sent.taken && sent.to != NONE {
            let request = self.world.entities[client as usize].request;
            self.lose(
                (sent.vertex, sent.lineages),
                sent.to,
                request,
                Way::Topic,
                1,
                false,
            );
        }
        self.steps.release_all(&mut sent.lineages);
    }

    /// A service takes a request whose client is known, or is known not to be.
    fn take_request(
        &mut self,
        service: u32,
        client: Option<u32>,
        sequence: i64,
    ) -> (u32, Option<Incoming>) {
        let name = self.world.entities[service as usize].name;
        let Some(client) = client else {
            return (self.service_vertex(service, NONE), None);
        };
        let node = self.publisher_node(client);
        let to = self.service_vertex(service, node);
        let request = self.world.entities[client as usize].request;
        let sent = self
            .flow
            .sent
            .get_mut(&(name, sequence))
            .and_then(|list| list.iter_mut().find(|s| s.client == client && !s.taken));
        let Some(sent) = sent else {
            return (to, None);
        };
        sent.taken = true;
        let sent = sent.clone();
        if sent.vertex != NONE {
            let way = Way::Topic;
            if sent.to != to {
                // Of several servers another one took it.
                let figures = &mut self.edge(sent.vertex, to, request, way).figures;
                figures.published += 1;
                if sent.to != NONE {
                    let figures = &mut self.edge(sent.vertex, sent.to, request, way).figures;
                    figures.published = figures.published.saturating_sub(1);
                }
            }
            self.edge(sent.vertex, to, request, way).figures.taken += 1;
        }
        let lineages = self.steps.share(&sent.lineages);
        (
            to,
            Some(Incoming {
                vertex: sent.vertex,
                time: sent.time,
                name: request,
                way: Way::Topic,
                lineages,
            }),
        )
    }

    fn apply_response(&mut self, service: u32, gid: [u8; 16], sequence: i64, time: u64) {
        let it = &self.world.entities[service as usize];
        let (key, response) = ((it.name, gid, sequence), it.response);
        let Some(call) = self.flow.calls.get_mut(&key) else {
            return;
        };
        if call.responded.is_some() {
            return;
        }
        call.responded = Some(time);
        let (vertex, client, instance) = (call.vertex, call.client, call.instance);
        let ended = call.ended.is_some();
        let held = call.lineages;
        self.add_output(vertex, response);
        if instance != NONE {
            self.saw_published(Owner::Instance(instance), response, time);
            let running = self.instances.get_mut(instance);
            running.output = Some((time, response));
            let own = running.lineages;
            let shared = self.steps.share(&own);
            if let Some(call) = self.flow.calls.get_mut(&key) {
                call.lineages = shared;
            }
        } else if ended {
            for &s in held.as_slice() {
                let output = Some(NameId::new(response as usize));
                self.paths.finish(&self.steps, s, time, output);
            }
        }
        if client != NONE {
            let to = self.vertex(client);
            self.edge(vertex, to, response, Way::Topic)
                .figures
                .published += 1;
        }
    }

    /// Forgets a call.
    fn drop_call(&mut self, key: (u32, [u8; 16], i64), lost: bool) {
        let Some(mut call) = self.flow.calls.remove(&key) else {
            return;
        };
        if call.client != NONE && self.flow.call_of.get(&(call.client, key.2)) == Some(&key) {
            self.flow.call_of.remove(&(call.client, key.2));
        }
        if call.instance != NONE {
            self.instances.get_mut(call.instance).call = None;
        }
        match (call.responded, call.ended) {
            (Some(_), _) if lost && call.client != NONE => {
                let to = self.vertex(call.client);
                let response = self.world.entities[call.client as usize].response;
                self.lose(
                    (call.vertex, call.lineages),
                    to,
                    response,
                    Way::Topic,
                    1,
                    false,
                );
            }
            (None, Some((time, output))) => {
                let output = (output != NONE).then(|| NameId::new(output as usize));
                for &s in call.lineages.as_slice() {
                    self.paths.finish(&self.steps, s, time, output);
                }
            }
            _ => {}
        }
        self.steps.release_all(&mut call.lineages);
    }

    fn take_response(&mut self, client: u32, sequence: i64) -> Option<Incoming> {
        let key = *self.flow.call_of.get(&(client, sequence))?;
        let call = self.flow.calls.get(&key)?;
        let responded = call.responded?;
        let (vertex, own) = (call.vertex, call.lineages);
        let response = self.world.entities[client as usize].response;
        let to = self.vertex(client);
        self.edge(vertex, to, response, Way::Topic).figures.taken += 1;
        let lineages = self.steps.share(&own);
        self.drop_call(key, false);
        Some(Incoming {
            vertex,
            time: responded,
            name: response,
            way: Way::Topic,
            lineages,
        })
    }

    /// True when the response to a client's request is known.
    pub(in crate::synth) fn response_known(&self, client: u32, sequence: i64) -> bool {
        match self.flow.call_of.get(&(client, sequence)) {
            Some(key) => self
                .flow
                .calls
                .get(key)
                .is_none_or(|c| c.responded.is_some()),
            None => true,
        }
    }

    // ---- beginning and end

    fn apply_begin(&mut self, begin: &Begin) {
        let Begin {
            instance,
            input,
            idle,
            ..
        } = *begin;
        let (entity, start) = {
            let i = self.instances.get(instance);
            (i.entity, i.start)
        };
        let mut incoming = None;
        let mut call = None;
        let vertex = match input {
            Input::Request { gid, sequence, .. } => {
                let client = self.caller(entity, gid, sequence);
                let (v, taken) = self.take_request(entity, client, sequence);
                incoming = taken;
                call = Some((
                    client,
                    (self.world.entities[entity as usize].name, gid, sequence),
                ));
                v
            }
            _ if self.world.entities[entity as usize].kind == Kind::Service => {
                self.service_vertex(entity, NONE)
            }
            _ => self.vertex(entity),
        };
        match input {
            Input::Message { source_ns } => {
                incoming = self.take(entity, source_ns, true);
                if incoming.is_none() {
                    let name = self.world.entities[entity as usize].name;
                    self.notes.count(Note::Foreign(name), 1);
                }
            }
            Input::Ring { index } => incoming = self.take_ring(entity, index),
            Input::Response { sequence, .. } => incoming = self.take_response(entity, sequence),
            _ => {}
        }
        let mut ready = match (input, idle) {
            (Input::Timer, _) if begin.due != 0 => begin.due,
            (_, Some((_, woken))) if incoming.is_none() => woken,
            _ => start,
        };
        if let Some(from) = &incoming {
            self.saw_taken(instance, from.name, from.time);
            ready = self.arrival(vertex, from, start, idle);
        }
        let v = &mut self.flow.vertices[vertex as usize];
        if v.executions > 0 {
            v.figures
                .interarrival_ns
                .record(start.saturating_sub(v.last_start));
        }
        v.executions += 1;
        v.last_start = start;
        if begin.due != 0 {
            v.figures
                .release_jitter_ns
                .record(start.abs_diff(begin.due));
        }
        let lineages = self.lineages_of(vertex, start, incoming);
        let it = self.instances.get_mut(instance);
        it.vertex = vertex;
        it.ready = ready.min(start);
        it.lineages = lineages;
        if let Some((client, key)) = call {
            self.open_call(instance, vertex, client, key);
        }
        if self.flow.vertices[vertex as usize].kind == CallbackType::Subscription {
            self.enter_node(instance);
        }
    }

    /// Records an edge's latency; returns when the item had arrived.
    fn arrival(
        &mut self,
        vertex: u32,
        from: &Incoming,
        start: u64,
        idle: Option<(u64, u64)>,
    ) -> u64 {
        let latency = start.saturating_sub(from.time);
        let asleep = idle.filter(|i| i.0 <= from.time && from.time <= i.1 && i.1 <= start);
        if from.vertex == NONE {
            return asleep.map_or(from.time.min(start), |i| i.1);
        }
        let edge = self.edge(from.vertex, vertex, from.name, from.way);
        let transport = match asleep {
            Some((_, woken)) => {
                let transport = woken - from.time;
                edge.figures.transport_ns.record(transport);
                edge.typical.add(transport);
                transport
            }
            None => edge.typical.median().min(latency),
        };
        edge.figures.latency_ns.record(latency);
        edge.figures.waiting_ns.record(latency - transport);
        (from.time + transport).min(start)
    }

    /// An execution's lineages: those of what it took, or a new one.
    fn lineages_of(&mut self, vertex: u32, start: u64, incoming: Option<Incoming>) -> Lineages {
        let mut lineages = Lineages::default();
        let begins = incoming.is_some_and(|from| self.is_input(from.name));
        match incoming {
            Some(mut from) if from.vertex != NONE && !begins => {
                self.extend(
                    &mut lineages,
                    &from.lineages,
                    from.name,
                    vertex,
                    from.time,
                    start,
                );
                self.steps.release_all(&mut from.lineages);
            }
            other => {
                // From an input on, its way counts.
                let mut begin = start;
                if let Some(mut from) = other {
                    self.steps.release_all(&mut from.lineages);
                    if begins {
                        begin = from.time.min(start);
                    }
                }
                self.flow.vertices[vertex as usize].sourced += 1;
                match self.paths.root(VertexId::new(vertex as usize)) {
                    Some(path) => {
                        lineages.push(self.steps.root(path, begin));
                    }
                    None => self.notes.count(Note::Capped, 1),
                }
            }
        }
        for i in 0..self.flow.vertices[vertex as usize].links_to.len() {
            let link = self.flow.vertices[vertex as usize].links_to[i] as usize;
            if let Some(mut carried) = self.flow.carried.get_mut(link).and_then(Option::take) {
                let memory = self.memory;
                self.extend(
                    &mut lineages,
                    &carried.lineages,
                    memory,
                    vertex,
                    carried.time,
                    start,
                );
                self.steps.release_all(&mut carried.lineages);
                let figures = &mut self.edge(carried.from, vertex, memory, Way::Link).figures;
                figures.published += u64::from(!carried.counted);
                figures.taken += 1;
                figures
                    .latency_ns
                    .record(start.saturating_sub(carried.time));
            }
        }
        lineages
    }

    /// Do chains begin with what is taken under this name?
    fn is_input(&mut self, name: u32) -> bool {
        let input = self.inputs.iter_mut().find(|i| i.0 == name);
        input.map(|(_, taken)| *taken += 1).is_some()
    }

    /// Appends to `to` every lineage of `from`, continued by `vertex`.
    fn extend(
        &mut self,
        to: &mut Lineages,
        from: &Lineages,
        name: u32,
        vertex: u32,
        via: u64,
        start: u64,
    ) {
        let capped = self.paths.capped;
        let (name, vertex) = (NameId::new(name as usize), VertexId::new(vertex as usize));
        for &s in from.as_slice() {
            let parent = self.steps.path(s);
            let Some(path) = self.paths.child(parent, name, vertex) else {
                continue;
            };
            self.paths.set_extended(parent);
            let step = self.steps.extend(s, path, via, start);
            if !to.push(step) {
                self.steps.release(step);
                self.notes.count(Note::Capped, 1);
            }
        }
        self.notes.count(Note::Capped, self.paths.capped - capped);
    }

    fn open_call(
        &mut self,
        instance: u32,
        vertex: u32,
        client: Option<u32>,
        key: (u32, [u8; 16], i64),
    ) {
        self.drop_call(key, true);
        let client = client.unwrap_or(NONE);
        if client != NONE {
            self.flow.call_of.insert((client, key.2), key);
        }
        self.flow.calls.insert(
            key,
            Call {
                vertex,
                client,
                instance,
                ended: None,
                responded: None,
                lineages: Lineages::default(),
            },
        );
        self.instances.get_mut(instance).call = Some(key);
        self.flow.call_order.push_back(key);
        if self.flow.call_order.len() > MAX_CALLS {
            if let Some(old) = self.flow.call_order.pop_front() {
                self.drop_call(old, true);
            }
        }
    }

    fn apply_end(&mut self, end: &End) {
        let it = *self.instances.get(end.instance);
        let v = it.vertex as usize;
        let whole = match end.how {
            Ending::Exact | Ending::Inferred | Ending::Aborted => true,
            Ending::CutOff | Ending::Unfinished => false,
        };
        match end.how {
            Ending::Aborted => self.notes.count(Note::Aborted(it.vertex), 1),
            Ending::CutOff => self.notes.count(Note::CutOff(it.vertex), 1),
            _ => {}
        }
        let vertex = &mut self.flow.vertices[v];
        if whole {
            let figures = &mut vertex.figures;
            figures.exec_ns.record(end.spent.exec_ns);
            figures
                .response_ns
                .record(end.time.saturating_sub(it.ready));
            figures.preempted_ns.record(end.spent.preempted_ns);
            figures.blocked_ns.record(end.spent.blocked_ns);
            figures.preemptions += u64::from(end.spent.preemptions);
            figures.blockings += u64::from(end.spent.blockings);
            vertex.inferred |= end.how == Ending::Inferred;
        }
        match vertex.uses.iter_mut().find(|u| u.thread == end.thread) {
            Some(u) => {
                for (all, one) in u.cpus.iter_mut().zip(end.cpus) {
                    *all |= one;
                }
            }
            None => vertex.uses.push(Use {
                thread: end.thread,
                cpus: end.cpus,
            }),
        }
        if !end.scheduled {
            self.notes.count(Note::Unscheduled(it.vertex), 1);
        }
        self.leave_node(end.instance, end.time);
        self.carry(&it, end.time);
        let mut lineages = it.lineages;
        let (time, output) = it.output.unwrap_or((end.time, NONE));
        let waiting = it.call.and_then(|key| self.flow.calls.get_mut(&key));
        match waiting {
            Some(call) if call.responded.is_none() && whole => {
                // The response comes later; it is the output.
                call.instance = NONE;
                call.ended = Some((time, output));
                call.lineages = lineages;
            }
            waiting => {
                if let Some(call) = waiting {
                    call.instance = NONE;
                }
                if whole {
                    if output == NONE {
                        self.saw_left(lineages.as_slice(), None, time, None);
                    }
                    let output = (output != NONE).then(|| NameId::new(output as usize));
                    for &s in lineages.as_slice() {
                        self.paths.finish(&self.steps, s, time, output);
                    }
                }
                self.steps.release_all(&mut lineages);
            }
        }
        self.saw_execution(&it, end.time, end.spent.exec_ns);
        self.instances.remove(end.instance);
    }

    /// Puts an execution's lineages where its links lead.
    fn carry(&mut self, it: &super::events::Instance, time: u64) {
        for i in 0..self.flow.vertices[it.vertex as usize].links_from.len() {
            let link = self.flow.vertices[it.vertex as usize].links_from[i] as usize;
            let lineages = self.steps.share(&it.lineages);
            let to = self.link_end(link);
            let carried = Carried {
                time,
                from: it.vertex,
                counted: to.is_some(),
                lineages,
            };
            let old = self
                .flow
                .carried
                .get_mut(link)
                .and_then(|c| c.replace(carried));
            if let Some(to) = to {
                let memory = self.memory;
                let figures = &mut self.edge(it.vertex, to, memory, Way::Link).figures;
                figures.published += 1;
                if let Some(old) = old.as_ref().filter(|o| o.counted) {
                    let item = (old.from, old.lineages);
                    self.lose(item, to, memory, Way::Link, 1, true);
                }
            }
            if let Some(mut old) = old {
                self.steps.release_all(&mut old.lineages);
            }
        }
    }

    /// The vertex that a link leads to, once it is known.
    fn link_end(&self, link: usize) -> Option<u32> {
        self.flow
            .vertices
            .iter()
            .position(|v| v.links_to.contains(&(link as u32)))
            .map(|v| v as u32)
    }

    // ---- clearing up

    /// Drops what is kept for entities whose slot may be used again.
    pub(in crate::synth) fn free_entities(&mut self) {
        while let Some(e) = self.world.freed.pop() {
            if let Some(Some(_)) = self.flow.published.get(e as usize) {
                let name = self.world.entities[e as usize].name;
                while self.flow.published[e as usize]
                    .as_ref()
                    .is_some_and(|p| !p.items.is_empty())
                {
                    self.drop_item(e, name, false);
                }
                self.flow.published[e as usize] = None;
                for i in 0..self.world.endpoints(name).subscriptions.len() {
                    let s = self.world.endpoints(name).subscriptions[i];
                    self.world.entities[s as usize]
                        .cursors
                        .retain(|c| c.publisher != e);
                }
            }
            self.client_means.remove(&e);
            self.affinity.remove(&e);
            for known in self.affinity.values_mut() {
                known.retain(|k| k.0 != e);
            }
        }
        while let Some(e) = self.world.gone.pop() {
            self.apply(&Fact::Clear { subscription: e });
        }
    }

    /// At the end: what has been waiting for long is lost; everything is let go.
    pub(in crate::synth) fn settle(&mut self, now: u64) {
        for p in 0..self.flow.published.len() {
            let name = match self.world.entities.get(p) {
                Some(e) => e.name,
                None => continue,
            };
            while let Some(Some(published)) = self.flow.published.get(p) {
                let Some(item) = published.items.front() else {
                    break;
                };
                let old = now.saturating_sub(item.time) > LONG_ENOUGH_NS;
                self.drop_item(p as u32, name, old);
            }
        }
        while let Some((name, sequence, client)) = self.flow.sent_order.pop_front() {
            let old = self.flow.sent.get(&(name, sequence)).is_some_and(|list| {
                list.iter()
                    .any(|s| s.client == client && now.saturating_sub(s.time) > LONG_ENOUGH_NS)
            });
            if old {
                self.drop_sent(name, sequence, client);
            }
        }
        while let Some(key) = self.flow.call_order.pop_front() {
            let old = self.flow.calls.get(&key).is_some_and(|c| {
                c.responded
                    .is_some_and(|t| now.saturating_sub(t) > LONG_ENOUGH_NS)
            });
            self.drop_call(key, old);
        }
    }
}

/// The cursor for a publisher, made when missing: it joins at `join`.
fn cursor(cursors: &mut Vec<Cursor>, publisher: u32, join: u64) -> usize {
    match cursors.iter().position(|c| c.publisher == publisher) {
        Some(i) => i,
        None => {
            cursors.push(Cursor {
                publisher,
                next: join,
                join,
                taken_any: false,
                intra: false,
                passed: VecDeque::new(),
            });
            cursors.len() - 1
        }
    }
}
