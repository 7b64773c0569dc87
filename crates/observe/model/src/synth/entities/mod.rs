//! What exists: processes, nodes, endpoints and timers, and which handle stands for which.

use super::NONE;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// What kind of object an address stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::synth) enum HandleKind {
    Node,
    RclPublisher,
    RmwPublisher,
    RclSubscription,
    RmwSubscription,
    RclService,
    RmwService,
    RclClient,
    RmwClient,
    Timer,
    Callback,
    RingBuffer,
    Clock,
}

/// Address-to-address ties, resolved late because their order is not fixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::synth) enum Tie {
    /// Callback to the rclcpp object that owns it.
    CallbackObject,
    /// rclcpp object to rcl subscription.
    ObjectSubscription,
    /// Ring buffer to intra-process buffer.
    RingIntra,
    /// Intra-process buffer to rclcpp object.
    IntraObject,
}

/// Interned text.
#[derive(Debug, Clone, Default)]
pub(in crate::synth) struct Names {
    index: FxHashMap<Box<str>, u32>,
    list: Vec<Box<str>>,
}

impl Names {
    pub(in crate::synth) fn intern(&mut self, name: &str) -> u32 {
        if let Some(&i) = self.index.get(name) {
            return i;
        }
        let i = self.list.len() as u32;
        self.list.push(name.into());
        self.index.insert(name.into(), i);
        i
    }

    pub(in crate::synth) fn get(&self, i: u32) -> &str {
        self.list.get(i as usize).map_or("", |s| s)
    }
}

/// A node; kept when its process ends, so that a restarted one continues it.
#[derive(Debug, Clone)]
pub(in crate::synth) struct Node {
    pub(in crate::synth) name: u32,
    /// 1 for the first live node of that name.
    pub(in crate::synth) ordinal: u32,
    pub(in crate::synth) live: bool,
    /// Named after its process because its own name is not known.
    pub(in crate::synth) guessed: bool,
}

/// What an entity is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in crate::synth) enum Kind {
    Timer,
    Subscription,
    Publisher,
    Service,
    Client,
}

/// How far a subscription has read a publisher's items.
#[derive(Debug, Clone)]
pub(in crate::synth) struct Cursor {
    pub(in crate::synth) publisher: u32,
    /// Sequence number after the last item taken or passed over.
    pub(in crate::synth) next: u64,
    /// First item that was published while the subscription existed.
    pub(in crate::synth) join: u64,
    pub(in crate::synth) taken_any: bool,
    /// This pair communicates through the process's memory; copies that also come by the
    /// middleware are dropped by rclcpp and count nowhere.
    pub(in crate::synth) intra: bool,
    /// Items passed over that may yet turn up (takes on several threads can be seen out of order),
    /// and whether they counted as overwritten.
    pub(in crate::synth) passed: VecDeque<(u64, bool)>,
}

/// A timer, subscription, publisher, service or client.
#[derive(Debug, Clone)]
pub(in crate::synth) struct Entity {
    pub(in crate::synth) kind: Kind,
    pub(in crate::synth) process: u32,
    /// NONE while unknown.
    pub(in crate::synth) node: u32,
    /// Topic or service name; NONE for timers.
    pub(in crate::synth) name: u32,
    /// `name` with `/request` and `/response`, for services and clients.
    pub(in crate::synth) request: u32,
    pub(in crate::synth) response: u32,
    pub(in crate::synth) infrastructure: bool,
    /// Has been seen between callback_start and callback_end, or announced a callback.
    pub(in crate::synth) exact: bool,
    pub(in crate::synth) live: bool,
    /// Order of creation.
    pub(in crate::synth) created: u64,
    pub(in crate::synth) depth: u64,
    /// Of a timer; 0 when unknown.
    pub(in crate::synth) period_ns: u64,
    /// When a timer is next due; 0 when unknown.
    pub(in crate::synth) due: u64,
    /// Vertex, where there is one (services have one per caller).
    pub(in crate::synth) vertex: u32,
    /// `(caller's node, vertex)` of a service.
    pub(in crate::synth) callers: Vec<(u32, u32)>,
    /// Of a subscription.
    pub(in crate::synth) cursors: Vec<Cursor>,
    /// Of a client; zero when unknown.
    pub(in crate::synth) gid: [u8; 16],
    /// The identifier has been seen in a request, so it is the one that services see.
    pub(in crate::synth) gid_seen: bool,
    pub(in crate::synth) symbol: u32,
}

/// A process.
#[derive(Debug, Clone, Default)]
pub(in crate::synth) struct Process {
    pub(in crate::synth) handles: FxHashMap<(HandleKind, u64), u32>,
    pub(in crate::synth) ties: FxHashMap<(Tie, u64), u64>,
    pub(in crate::synth) nodes: Vec<u32>,
    pub(in crate::synth) entities: Vec<u32>,
    /// Node that stands in where none is known.
    pub(in crate::synth) fallback: Option<u32>,
    pub(in crate::synth) command: u32,
    /// A callback was seen between two triggers, as rclpy has it.
    pub(in crate::synth) rclpy: bool,
    /// Guard that a pool of threads (not rclpy) triggers after each callback.
    pub(in crate::synth) pool_guard: u64,
    /// Identifiers of clients whose `rcl_client_init` has not come yet, by rmw handle.
    pub(in crate::synth) gids: FxHashMap<u64, [u8; 16]>,
    /// Responses that rclpy has taken and whose continuation has not run yet.
    pub(in crate::synth) pending: VecDeque<super::spans::Pending>,
}

/// A topic's or service's endpoints.
#[derive(Debug, Clone, Default)]
pub(in crate::synth) struct Endpoints {
    pub(in crate::synth) publishers: Vec<u32>,
    pub(in crate::synth) subscriptions: Vec<u32>,
    pub(in crate::synth) services: Vec<u32>,
    pub(in crate::synth) clients: Vec<u32>,
}

/// Everything that exists.
#[derive(Debug, Clone, Default)]
pub(in crate::synth) struct World {
    pub(in crate::synth) names: Names,
    pub(in crate::synth) nodes: Vec<Node>,
    nodes_of: FxHashMap<u32, Vec<u32>>,
    pub(in crate::synth) entities: Vec<Entity>,
    pub(in crate::synth) processes: Vec<Process>,
    process_of: FxHashMap<u32, u32>,
    free_processes: Vec<u32>,
    /// By name.
    endpoints: Vec<Endpoints>,
    /// Entities that are gone, oldest first; their slots are used again much later.
    dead: VecDeque<u32>,
    free: Vec<u32>,
    /// Entities whose slot has just been freed: whoever keeps state for them drops it.
    pub(in crate::synth) freed: Vec<u32>,
    /// Gone since the last look: their state must be closed.
    pub(in crate::synth) gone: Vec<u32>,
    creations: u64,
}

/// How many dead entities keep their slot, so that items of theirs can still be taken.
const KEEP_DEAD: usize = 4096;

impl World {
    /// The process of a pid, made when new.
    pub(in crate::synth) fn process(&mut self, pid: u32) -> u32 {
        if let Some(&p) = self.process_of.get(&pid) {
            return p;
        }
        let process = Process {
            command: NONE,
            ..Process::default()
        };
        let p = match self.free_processes.pop() {
            Some(p) => {
                self.processes[p as usize] = process;
                p
            }
            None => {
                self.processes.push(process);
                (self.processes.len() - 1) as u32
            }
        };
        self.process_of.insert(pid, p);
        p
    }

    /// The process of a pid, if it is known.
    pub(in crate::synth) fn known_process(&self, pid: u32) -> Option<u32> {
        self.process_of.get(&pid).copied()
    }

    /// Forgets everything that a process had.
    pub(in crate::synth) fn end_process(&mut self, pid: u32) {
        let Some(p) = self.process_of.remove(&pid) else {
            return;
        };
        let process = std::mem::take(&mut self.processes[p as usize]);
        for n in process.nodes.into_iter().chain(process.fallback) {
            self.nodes[n as usize].live = false;
        }
        for e in process.entities {
            self.end_entity(e);
        }
        self.free_processes.push(p);
    }

    /// What has this rcl handle ends; what it did last may still come.
    pub(in crate::synth) fn fini(&mut self, p: u32, handle: u64) {
        let process = &mut self.processes[p as usize];
        let of = |tag| process.handles.get(&(tag, handle)).copied();
        let endpoints = [
            HandleKind::RclPublisher,
            HandleKind::RclSubscription,
            HandleKind::RclService,
            HandleKind::RclClient,
        ];
        let ended = endpoints.map(of);
        // A later node of its name is the same one.
        process.handles.remove(&(HandleKind::Node, handle));
        for e in ended.into_iter().flatten() {
            self.processes[p as usize].entities.retain(|&x| x != e);
            self.end_entity(e);
        }
    }

    fn end_entity(&mut self, e: u32) {
        let entity = &mut self.entities[e as usize];
        if !entity.live {
            return;
        }
        entity.live = false;
        if let Some(ends) = self.endpoints.get_mut(entity.name as usize) {
            ends.publishers.retain(|&x| x != e);
            ends.subscriptions.retain(|&x| x != e);
            ends.services.retain(|&x| x != e);
            ends.clients.retain(|&x| x != e);
        }
        self.gone.push(e);
        self.dead.push_back(e);
        if self.dead.len() > KEEP_DEAD {
            if let Some(old) = self.dead.pop_front() {
                self.freed.push(old);
                self.free.push(old);
            }
        }
    }

    /// A node of a process: the one that had this handle and name, a dead one of this name, or a
    /// new one.
    pub(in crate::synth) fn node(
        &mut self,
        p: u32,
        handle: u64,
        full_name: &str,
        guessed: bool,
    ) -> u32 {
        let name = self.names.intern(full_name);
        if handle != 0 {
            if let Some(&n) = self.processes[p as usize]
                .handles
                .get(&(HandleKind::Node, handle))
            {
                if self.nodes[n as usize].name == name {
                    return n;
                }
                self.nodes[n as usize].live = false;
                self.processes[p as usize].nodes.retain(|&x| x != n);
            }
        }
        // A node that was found by its name alone and one whose handle is known are the same.
        let process = &self.processes[p as usize];
        let has_handle = |n: u32| {
            let handles = &mut process.handles.iter();
            handles.any(|(&(tag, _), &of)| tag == HandleKind::Node && of == n)
        };
        let known = process
            .nodes
            .iter()
            .copied()
            .find(|&n| self.nodes[n as usize].name == name && !(handle != 0 && has_handle(n)));
        if let (Some(n), false) = (known, guessed) {
            if handle != 0 {
                let process = &mut self.processes[p as usize];
                process.handles.insert((HandleKind::Node, handle), n);
            }
            return n;
        }
        let same = self.nodes_of.entry(name).or_default();
        let n = match same.iter().find(|&&n| !self.nodes[n as usize].live) {
            Some(&n) => {
                self.nodes[n as usize].live = true;
                n
            }
            None => {
                let n = self.nodes.len() as u32;
                same.push(n);
                self.nodes.push(Node {
                    name,
                    ordinal: same.len() as u32,
                    live: true,
                    guessed,
                });
                n
            }
        };
        let process = &mut self.processes[p as usize];
        if handle != 0 {
            process.handles.insert((HandleKind::Node, handle), n);
        }
        if !guessed {
            process.nodes.push(n);
        }
        n
    }

    /// The node that stands in where a process's own is not known: its only one, or one named
    /// after the process.
    pub(in crate::synth) fn fallback_node(&mut self, p: u32) -> u32 {
        let process = &self.processes[p as usize];
        if let [only] = process.nodes[..] {
            return only;
        }
        if let Some(n) = process.fallback {
            return n;
        }
        let name = unknown_name(self.names.get(process.command));
        let n = self.node(p, 0, &name, true);
        self.processes[p as usize].fallback = Some(n);
        n
    }

    /// How a node is called in ids.
    pub(in crate::synth) fn node_id(&self, n: u32) -> String {
        match self.nodes.get(n as usize) {
            Some(node) if node.ordinal > 1 => {
                format!("{}#{}", self.names.get(node.name), node.ordinal)
            }
            Some(node) => self.names.get(node.name).into(),
            None => "/unknown".into(),
        }
    }

    /// The endpoints of a topic or service.
    pub(in crate::synth) fn endpoints(&self, name: u32) -> &Endpoints {
        const NOBODY: &Endpoints = &Endpoints {
            publishers: Vec::new(),
            subscriptions: Vec::new(),
            services: Vec::new(),
            clients: Vec::new(),
        };
        self.endpoints.get(name as usize).unwrap_or(NOBODY)
    }

    /// Looks up a handle of a process.
    pub(in crate::synth) fn handle(&self, p: u32, tag: HandleKind, address: u64) -> Option<u32> {
        self.processes[p as usize]
            .handles
            .get(&(tag, address))
            .copied()
    }

    /// A new timer, subscription and so on at `address`; one that was there is gone. If that one
    /// was the same by all that an id shows, the new one continues its vertex.
    #[allow(clippy::too_many_arguments)]
    pub(in crate::synth) fn create(
        &mut self,
        p: u32,
        kind: Kind,
        handles: [(HandleKind, u64); 2],
        node: u32,
        name: &str,
        depth: u64,
        period_ns: u64,
    ) -> u32 {
        let (name, request, response) = match kind {
            Kind::Timer => (NONE, NONE, NONE),
            Kind::Service | Kind::Client => (
                self.names.intern(name),
                self.names.intern(&format!("{name}/request")),
                self.names.intern(&format!("{name}/response")),
            ),
            _ => (self.names.intern(name), NONE, NONE),
        };
        self.creations += 1;
        let mut entity = Entity {
            kind,
            process: p,
            node,
            name,
            request,
            response,
            infrastructure: kind != Kind::Timer && is_infrastructure(kind, self.names.get(name)),
            exact: false,
            live: true,
            created: self.creations,
            depth,
            period_ns,
            due: 0,
            vertex: NONE,
            callers: Vec::new(),
            cursors: Vec::new(),
            gid: [0; 16],
            gid_seen: false,
            symbol: NONE,
        };
        let old = handles
            .iter()
            .filter(|h| h.1 != 0)
            .find_map(|h| self.processes[p as usize].handles.get(h))
            .copied();
        let mut slot = None;
        if let Some(old) = old {
            let o = &self.entities[old as usize];
            if o.kind == kind && o.node == node && o.name == name && o.period_ns == period_ns {
                entity.vertex = o.vertex;
                entity.callers = o.callers.clone();
                entity.created = o.created;
            }
            if kind == Kind::Timer && o.kind == kind && o.process == p {
                // rclpy makes a timer for each wait with a time-out: use the slot again.
                slot = Some(old);
            } else {
                self.processes[p as usize].entities.retain(|&x| x != old);
                self.end_entity(old);
            }
        }
        let e = match slot.or_else(|| self.free.pop()) {
            Some(e) => {
                self.entities[e as usize] = entity;
                e
            }
            None => {
                self.entities.push(entity);
                (self.entities.len() - 1) as u32
            }
        };
        let process = &mut self.processes[p as usize];
        if slot.is_none() {
            process.entities.push(e);
        }
        for h in handles {
            if h.1 != 0 {
                process.handles.insert(h, e);
            }
        }
        if name != NONE {
            if self.endpoints.len() <= name as usize {
                self.endpoints
                    .resize_with(name as usize + 1, Endpoints::default);
            }
            let ends = &mut self.endpoints[name as usize];
            match kind {
                Kind::Publisher => ends.publishers.push(e),
                Kind::Subscription => ends.subscriptions.push(e),
                Kind::Service => ends.services.push(e),
                _ => ends.clients.push(e),
            }
        }
        e
    }

    /// Order of a new entity among those of its node that look alike, in order of creation.
    pub(in crate::synth) fn rank(&self, e: u32) -> u64 {
        let it = &self.entities[e as usize];
        let mut rank = 0;
        for &x in &self.processes[it.process as usize].entities {
            let o = &self.entities[x as usize];
            rank += u64::from(
                o.created < it.created
                    && o.kind == it.kind
                    && o.node == it.node
                    && o.name == it.name
                    && o.period_ns == it.period_ns,
            );
        }
        rank
    }

    /// The entity whose callback stands at an address, following rclcpp's objects.
    pub(in crate::synth) fn callback(&mut self, p: u32, callback: u64) -> Option<u32> {
        let process = &mut self.processes[p as usize];
        if let Some(&e) = process.handles.get(&(HandleKind::Callback, callback)) {
            return Some(e);
        }
        let object = *process.ties.get(&(Tie::CallbackObject, callback))?;
        let rcl = *process.ties.get(&(Tie::ObjectSubscription, object))?;
        let e = *process.handles.get(&(HandleKind::RclSubscription, rcl))?;
        process.handles.insert((HandleKind::Callback, callback), e);
        Some(e)
    }

    /// The subscription that reads a ring buffer.
    pub(in crate::synth) fn ring_buffer(&mut self, p: u32, buffer: u64) -> Option<u32> {
        let process = &mut self.processes[p as usize];
        if let Some(&e) = process.handles.get(&(HandleKind::RingBuffer, buffer)) {
            return Some(e);
        }
        let ipb = *process.ties.get(&(Tie::RingIntra, buffer))?;
        let object = *process.ties.get(&(Tie::IntraObject, ipb))?;
        let rcl = *process.ties.get(&(Tie::ObjectSubscription, object))?;
        let e = *process.handles.get(&(HandleKind::RclSubscription, rcl))?;
        process.handles.insert((HandleKind::RingBuffer, buffer), e);
        Some(e)
    }
}

/// Joins a namespace and a node's name.
pub(in crate::synth) fn full_name(namespace: &str, name: &str) -> String {
    let namespace = namespace.trim_end_matches('/');
    let slash = if namespace.is_empty() || namespace.starts_with('/') {
        ""
    } else {
        "/"
    };
    format!("{slash}{namespace}/{}", name.trim_start_matches('/'))
}

/// A name for the node of a process of which only the command is known: the program, or the
/// script that an interpreter runs.
fn unknown_name(command: &str) -> String {
    let base = |word: &str| word.rsplit('/').next().unwrap_or(word).to_string();
    let mut words = command.split([' ', '\0']).filter(|w| !w.is_empty());
    let first = words.next().map(base).unwrap_or_default();
    let mut name = first.clone();
    if first.starts_with("python") {
        if let Some(script) = words.find(|w| !w.starts_with('-')) {
            name = base(script).trim_end_matches(".py").to_string();
        }
    }
    if name.is_empty() {
        "/unknown".into()
    } else {
        format!("/unknown-{name}")
    }
}

/// Topics and services that every node has, whatever the application does.
pub(in crate::synth) fn is_infrastructure(kind: Kind, name: &str) -> bool {
    const TOPICS: &[&str] = &["/rosout", "/parameter_events"];
    const SERVICES: &[&str] = &[
        "/describe_parameters",
        "/get_parameter_types",
        "/get_parameters",
        "/list_parameters",
        "/set_parameters",
        "/set_parameters_atomically",
        "/get_type_description",
        "/get_logger_levels",
        "/set_logger_levels",
    ];
    match kind {
        Kind::Service | Kind::Client => SERVICES.iter().any(|s| name.ends_with(s)),
        _ => TOPICS.contains(&name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_nodes() {
        assert_eq!(full_name("/", "a"), "/a");
        assert_eq!(full_name("/ns", "a"), "/ns/a");
        assert_eq!(full_name("ns/", "a"), "/ns/a");
        assert_eq!(
            unknown_name("/usr/bin/python3 -u /opt/talker.py --x"),
            "/unknown-talker"
        );
        assert_eq!(unknown_name("/opt/ros/lib/demo/talker"), "/unknown-talker");
        assert_eq!(unknown_name(""), "/unknown");
    }
}
