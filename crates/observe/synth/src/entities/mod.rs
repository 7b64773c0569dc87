//! The entities that the application created (processes, nodes, endpoints and timers) and their
//! handles.

mod actions;
mod creation;
mod entity;
mod forget;
mod members;
mod names;
mod nodes;
mod process;
mod rings;
mod timers;

pub(crate) use creation::Creation;
pub(crate) use entity::{ActionPart, ClientGid, Entity, EntityKind, Nests, OfAction};
pub(crate) use entity::{Role, ServiceNames, Slot, Timer};
pub(crate) use names::Names;
pub(crate) use nodes::Nodes;
pub(crate) use process::{HandleKind, Process, Processes};

use super::ids::{EntityId, NodeId, ProcessIndex};
use crate::index::{NameId, VertexId};
use crate::naming::NameRules;
use entity::{is_infrastructure, Looks};
use onbeat_document::schema::Qos;
use process::Tie;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

#[derive(Debug, Clone, Default)]
pub(crate) struct Endpoints {
    pub(crate) publishers: Vec<EntityId>,
    pub(crate) subscriptions: Vec<EntityId>,
    pub(crate) services: Vec<EntityId>,
    pub(crate) clients: Vec<EntityId>,
}

impl Endpoints {
    fn of_kind(&mut self, kind: EntityKind) -> Option<&mut Vec<EntityId>> {
        match kind {
            EntityKind::Timer | EntityKind::Task => None,
            EntityKind::Publisher => Some(&mut self.publishers),
            EntityKind::Subscription => Some(&mut self.subscriptions),
            EntityKind::Service => Some(&mut self.services),
            EntityKind::Client => Some(&mut self.clients),
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Renamed {
    pub(crate) from: BTreeSet<NameId>,
    pub(crate) forgotten: u64,
}

#[derive(Debug, Clone, Default)]
struct Ended {
    /// The entities that ended, oldest first, each with the time of its end in ns. An entity's
    /// number is used again when [`KEEP_DEAD`] more entities have ended.
    dead: VecDeque<(u64, EntityId)>,
    free: Vec<EntityId>,
    freed: Vec<EntityId>,
    gone: Vec<EntityId>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Entities {
    pub(crate) names: Names,
    pub(crate) nodes: Nodes,
    pub(crate) processes: Processes,
    list: Vec<Entity>,
    endpoints: Vec<Endpoints>,
    ended: Ended,
    /// For each vertex: the entities that run it, and some that ended or run another one now.
    holders: FxHashMap<VertexId, Vec<EntityId>>,
    pub(crate) name_rules: NameRules,
    pub(crate) renamed: BTreeMap<NameId, Renamed>,
    pub(crate) qos: BTreeMap<(EntityKind, NodeId, NameId), BTreeSet<Qos>>,
    pub(crate) keep_infrastructure: bool,
    pub(crate) now_ns: u64,
}

/// How many ended entities keep their numbers, so that their last items can still be taken.
const KEEP_DEAD: usize = 4096;

#[derive(Debug, Clone, Copy)]
pub(crate) struct NewEntity<'n> {
    pub(crate) kind: EntityKind,
    /// The addresses by which events refer to the entity, each with its kind. An address of 0 means
    /// none.
    pub(crate) handles: [(HandleKind, u64); 2],
    pub(crate) node: Option<super::ids::NodeId>,
    pub(crate) name: &'n str,
    pub(crate) depth: u64,
    pub(crate) period_ns: Option<u64>,
}

impl Entities {
    pub(crate) fn get(&self, e: EntityId) -> &Entity {
        &self.list[e.index()]
    }

    pub(crate) fn get_mut(&mut self, e: EntityId) -> &mut Entity {
        &mut self.list[e.index()]
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn process(&self, p: ProcessIndex) -> &Process {
        &self.processes.list[p.index()]
    }

    pub(crate) fn process_mut(&mut self, p: ProcessIndex) -> &mut Process {
        &mut self.processes.list[p.index()]
    }

    pub(crate) fn is_hidden(&self, e: EntityId) -> bool {
        self.get(e).infrastructure && !self.keep_infrastructure
    }

    /// Reports whether a subscription gets the items of a publisher on the same topic. The two must
    /// be ends of the same link, or both must belong to no link, because different links may use
    /// the same topic name.
    pub(crate) fn hears(&self, subscription: EntityId, publisher: EntityId) -> bool {
        self.get(subscription).link == self.get(publisher).link
    }

    pub(crate) fn endpoints(&self, name: Option<NameId>) -> &Endpoints {
        const NOBODY: &Endpoints = &Endpoints {
            publishers: Vec::new(),
            subscriptions: Vec::new(),
            services: Vec::new(),
            clients: Vec::new(),
        };
        let endpoints = name.and_then(|n| self.endpoints.get(n.index()));
        endpoints.unwrap_or(NOBODY)
    }

    // ---- handles

    pub(crate) fn handle(
        &self,
        p: ProcessIndex,
        kind: HandleKind,
        address: u64,
    ) -> Option<EntityId> {
        self.process(p).handles.get(&(kind, address)).copied()
    }

    pub(crate) fn set_handle(
        &mut self,
        p: ProcessIndex,
        kind: HandleKind,
        address: u64,
        e: EntityId,
    ) {
        self.process_mut(p).handles.insert((kind, address), e);
    }

    pub(crate) fn callback(&mut self, p: ProcessIndex, callback: u64) -> Option<EntityId> {
        let process = self.process_mut(p);
        if let Some(&e) = process.handles.get(&(HandleKind::Callback, callback)) {
            return Some(e);
        }
        let object = *process.ties.get(&(Tie::CallbackObject, callback))?;
        let rcl = *process.ties.get(&(Tie::ObjectSubscription, object))?;
        let e = *process.handles.get(&(HandleKind::RclSubscription, rcl))?;
        process.handles.insert((HandleKind::Callback, callback), e);
        Some(e)
    }

    // ---- lifetimes

    /// Creates an entity. An older entity at the same address ends. If the two have equal
    /// [`Looks`], the new one continues the older one's callback.
    pub(crate) fn create(&mut self, p: ProcessIndex, new: NewEntity<'_>) -> EntityId {
        let mut entity = self.new_entity(p, new);
        let handles = new.handles.into_iter().filter(|h| h.1 != 0);
        let process = self.process(p);
        let old = handles.clone().find_map(|h| process.handles.get(&h));
        let old = old.copied();
        let mut place = None;
        if let Some(old) = old {
            let o = self.get(old);
            if o.looks == entity.looks {
                entity.vertex = o.vertex;
                entity.callers = o.callers.clone();
            }
            if new.kind == EntityKind::Timer && o.kind() == new.kind && o.process == p {
                // rclpy makes a timer for each wait with a time-out, so the place is used again.
                place = Some(old);
                self.leave_process(p, old);
            } else {
                self.leave_process(p, old);
                self.end_entity(old);
            }
        }
        entity.slot = self.free_slot(p, &entity.looks, None);
        let looks = entity.looks;
        let (name, number) = (looks.name, entity.slot.number);
        let vertices: Vec<VertexId> = entity.vertices().collect();
        let e = match place.or_else(|| self.ended.free.pop()) {
            Some(e) => {
                self.list[e.index()] = entity;
                e
            }
            None => {
                self.list.push(entity);
                EntityId::new(self.list.len() - 1)
            }
        };
        for v in vertices {
            self.add_holder(v, e);
        }
        let process = self.process_mut(p);
        process.entities.add(looks, number, e);
        process.handles.extend(handles.map(|h| (h, e)));
        if let Some(name) = name {
            if self.endpoints.len() <= name.index() {
                self.endpoints
                    .resize_with(name.index() + 1, Endpoints::default);
            }
            if let Some(list) = self.endpoints[name.index()].of_kind(new.kind) {
                list.push(e);
            }
        }
        e
    }

    fn new_entity(&mut self, p: ProcessIndex, new: NewEntity<'_>) -> Entity {
        let timer = new.kind == EntityKind::Timer;
        let name = (!timer).then(|| self.names.intern(new.name));
        let role = match new.kind {
            EntityKind::Timer => Role::Timer(Timer::default()),
            EntityKind::Subscription | EntityKind::Publisher => Role::Topic { depth: new.depth },
            EntityKind::Service => Role::Service(self.service_names(new.name)),
            EntityKind::Client => Role::Client {
                names: self.service_names(new.name),
                gid: None,
                asked_from: None,
            },
            EntityKind::Task => Role::Task,
        };
        let action = actions::of_name(new.kind, new.name).map(|(action, part)| OfAction {
            action: self.names.intern(action),
            part,
        });
        Entity {
            looks: Looks {
                kind: new.kind,
                node: new.node,
                name,
                period_ns: new.period_ns,
            },
            process: p,
            role,
            action,
            link: None,
            qos: None,
            infrastructure: is_infrastructure(new.kind, new.name),
            exact: false,
            nests: Nests::default(),
            live: true,
            slot: Slot::default(),
            symbol: None,
            vertex: None,
            callers: Vec::new(),
        }
    }

    fn service_names(&mut self, name: &str) -> ServiceNames {
        ServiceNames {
            request: self.names.intern(&format!("{name}/request")),
            response: self.names.intern(&format!("{name}/response")),
        }
    }

    pub(crate) fn end_process(&mut self, pid: u32) {
        let Some(process) = self.processes.remove(pid, self.now_ns) else {
            return;
        };
        for node in process.nodes.into_iter().chain(process.fallback) {
            self.nodes.set_dead(node, self.now_ns);
        }
        // The lists of endpoints are swept once per name, since a name may have many endpoints.
        let mut names = BTreeSet::new();
        for e in process.entities.iter() {
            names.extend(self.get(e).name());
            self.end(e);
        }
        for name in names {
            self.sweep_endpoints(name);
        }
    }

    pub(crate) fn fini(&mut self, p: ProcessIndex, handle: u64) {
        // A later node of the same name is the same node.
        if let Some(node) = self.process_mut(p).node_handles.remove(handle) {
            self.nodes.set_destroyed(node, self.now_ns);
        }
        let process = self.process_mut(p);
        let ended = [
            HandleKind::RclPublisher,
            HandleKind::RclSubscription,
            HandleKind::RclService,
            HandleKind::RclClient,
        ]
        .map(|kind| process.handles.get(&(kind, handle)).copied());
        // The next timer at this address is unrelated.
        let timer = process.handles.remove(&(HandleKind::Timer, handle));
        for e in ended.into_iter().flatten().chain(timer) {
            self.leave_process(p, e);
            self.end_entity(e);
        }
    }

    fn end_entity(&mut self, e: EntityId) {
        let entity = self.get(e);
        let (kind, name) = (entity.kind(), entity.name().map(NameId::index));
        if let Some(ends) = name.and_then(|n| self.endpoints.get_mut(n)) {
            if let Some(list) = ends.of_kind(kind) {
                list.retain(|&x| x != e);
            }
        }
        self.end(e);
    }

    fn sweep_endpoints(&mut self, name: NameId) {
        let list = &self.list;
        let Some(ends) = self.endpoints.get_mut(name.index()) else {
            return;
        };
        let Endpoints {
            publishers,
            subscriptions,
            services,
            clients,
        } = ends;
        for of_kind in [publishers, subscriptions, services, clients] {
            of_kind.retain(|e| list[e.index()].live);
        }
    }

    /// Ends an entity that the caller removes from the lists of endpoints.
    fn end(&mut self, e: EntityId) {
        let entity = &mut self.list[e.index()];
        if !std::mem::take(&mut entity.live) {
            return;
        }
        if matches!(&entity.role, Role::Timer(timer) if !timer.ran) {
            // rclpy makes a timer for each wait with a time-out, and none of its items is in
            // flight.
            self.ended.free.push(e);
            return;
        }
        self.ended.gone.push(e);
        self.ended.dead.push_back((self.now_ns, e));
        if self.ended.dead.len() > KEEP_DEAD {
            self.free_oldest();
        }
    }

    fn free_oldest(&mut self) {
        if let Some((_, old)) = self.ended.dead.pop_front() {
            self.ended.freed.push(old);
            self.ended.free.push(old);
        }
    }

    pub(crate) fn some_ended(&self) -> bool {
        !self.ended.gone.is_empty() || !self.ended.freed.is_empty()
    }

    /// Returns an ended entity whose number may be used again, or `None` if there is none. The
    /// caller must drop its data about that entity. Each entity is returned once.
    pub(crate) fn take_freed(&mut self) -> Option<EntityId> {
        self.ended.freed.pop()
    }

    pub(crate) fn take_gone(&mut self) -> Option<EntityId> {
        self.ended.gone.pop()
    }

    /// Removes an entity from the list of its process, so that its slot is free.
    fn leave_process(&mut self, p: ProcessIndex, e: EntityId) {
        let (looks, number) = (self.get(e).looks, self.get(e).slot.number);
        let members = &mut self.process_mut(p).entities;
        members.remove(&looks, number, e);
    }

    /// Returns the lowest free slot for an entity with these looks in the process. The slot of the
    /// entity `but` counts as free.
    fn free_slot(&mut self, p: ProcessIndex, looks: &Looks, but: Option<EntityId>) -> Slot {
        let list = &self.list;
        let but = but.map(|e| (list[e.index()].slot.number, e));
        let members = &mut self.processes.list[p.index()].entities;
        Slot {
            number: members.lowest_free(looks, but, |e| !list[e.index()].is_spent()),
            sure: looks.are_known(),
        }
    }

    /// Gives an entity new looks and a slot among those entities of its process that look alike.
    fn change_looks(&mut self, p: ProcessIndex, e: EntityId, looks: Looks, slot: Slot) {
        let it = &mut self.list[e.index()];
        let before = std::mem::replace(&mut it.looks, looks);
        let old = std::mem::replace(&mut it.slot, slot);
        let members = &mut self.processes.list[p.index()].entities;
        if members.has(e) {
            members.remove(&before, old.number, e);
            members.add(looks, slot.number, e);
        }
    }

    /// Records that an entity whose node is unknown belongs to the stand-in `node`.
    pub(crate) fn set_stand_in(&mut self, e: EntityId, node: NodeId) {
        let it = self.get(e);
        let (p, mut looks, slot) = (it.process, it.looks, it.slot);
        looks.node = Some(node);
        self.change_looks(p, e, looks, slot);
    }

    // ---- vertices

    pub(crate) fn set_vertex(&mut self, e: EntityId, v: VertexId) {
        self.get_mut(e).vertex = Some(v);
        self.add_holder(v, e);
    }

    pub(crate) fn add_caller(&mut self, e: EntityId, caller: Option<NodeId>, v: VertexId) {
        self.get_mut(e).callers.push((caller, v));
        self.add_holder(v, e);
    }

    fn add_holder(&mut self, v: VertexId, e: EntityId) {
        let list = &self.list;
        let holders = self.holders.entry(v).or_default();
        if !holders.contains(&e) {
            holders.retain(|h| list[h.index()].live && list[h.index()].vertices().any(|o| o == v));
            holders.push(e);
        }
    }

    /// Returns the entities of a process that exist and have the vertex.
    pub(crate) fn holders_of(
        &self,
        p: ProcessIndex,
        v: VertexId,
    ) -> impl Iterator<Item = (EntityId, &Entity)> {
        let holders = self.holders.get(&v).into_iter().flatten();
        let entities = holders.map(|&e| (e, self.get(e)));
        entities.filter(move |(_, it)| it.live && it.process == p && it.vertices().any(|o| o == v))
    }
}
