//! The nodes, by name and by handle, with stand-ins while a node is unknown.

use super::Entities;
use crate::ids::{EntityId, NodeId, ProcessIndex};
use crate::index::NameId;
use crate::marks::Marks;
use rustc_hash::FxHashMap;

/// A node. It is kept when its process ends, so that a restarted process continues it.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) name: NameId,
    /// The program that created the node, if known. It distinguishes nodes that have the same name.
    program: Option<NameId>,
    pub(crate) live: bool,
    ended_ns: u64,
    /// The time in ns at which the process destroyed the node while the process went on running.
    /// `None` if the node exists, or if the process created it again.
    destroyed_ns: Option<u64>,
    pub(crate) identity: Identity,
    /// The number of nodes with this name and program that appeared before this one and were
    /// forgotten.
    forgotten_before: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Identity {
    Known,
    /// The node's name is unknown. The node stands for all nodes of its process and is named after
    /// the process.
    Guessed,
    /// This node was created as a stand-in. The value is the node for which it stands: a known
    /// node, or the guessed node of its process.
    Same(NodeId),
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Nodes {
    list: Vec<Node>,
    of_name: FxHashMap<NameId, Vec<NodeId>>,
    /// For each name: the programs of forgotten nodes with this name, each with the number of its
    /// forgotten nodes.
    forgotten: FxHashMap<NameId, Vec<(Option<NameId>, usize)>>,
    free: Vec<NodeId>,
}

impl Nodes {
    pub(crate) fn get(&self, node: NodeId) -> &Node {
        &self.list[node.index()]
    }

    /// Returns the node for which a stand-in was created. If that node is still unknown, returns
    /// the guessed node of the process.
    pub(crate) fn settled(&self, mut node: NodeId) -> NodeId {
        while let Identity::Same(other) = self.list[node.index()].identity {
            node = other;
        }
        node
    }

    pub(crate) fn is_guessed(&self, node: NodeId) -> bool {
        self.get(self.settled(node)).identity == Identity::Guessed
    }

    pub(super) fn set_identity(&mut self, node: NodeId, identity: Identity) {
        self.list[node.index()].identity = identity;
    }

    pub(super) fn set_dead(&mut self, node: NodeId, now_ns: u64) {
        let it = &mut self.list[node.index()];
        (it.live, it.ended_ns) = (false, now_ns);
    }

    pub(super) fn set_destroyed(&mut self, node: NodeId, now_ns: u64) {
        self.list[node.index()].destroyed_ns = Some(now_ns);
    }

    pub(super) fn destroyed_before(&self, node: NodeId, time: u64) -> Option<u64> {
        let destroyed = self.get(node).destroyed_ns;
        destroyed.filter(|destroyed| *destroyed < time)
    }

    fn revive_or_insert(
        &mut self,
        name: NameId,
        program: Option<NameId>,
        identity: Identity,
    ) -> NodeId {
        let same = self.of_name.entry(name).or_default();
        // A guessed node of a process that ended may have stood for another node.
        let known = identity == Identity::Known;
        let dead = |n: &&NodeId| {
            let it = &self.list[n.index()];
            let other = it.program.is_some() && program.is_some() && it.program != program;
            known && !it.live && !other
        };
        if let Some(&node) = same.iter().find(dead) {
            let it = &mut self.list[node.index()];
            (it.live, it.program) = (true, it.program.or(program));
            it.destroyed_ns = None;
            return node;
        }
        let forgotten = self.forgotten.get(&name).into_iter().flatten();
        let before = forgotten.filter(|of| of.0 == program).map(|of| of.1).sum();
        let node = self.insert(Node {
            name,
            program,
            live: true,
            ended_ns: 0,
            destroyed_ns: None,
            identity,
            forgotten_before: before,
        });
        self.of_name.entry(name).or_default().push(node);
        node
    }

    fn insert_stand_in(&mut self, of: NodeId) -> NodeId {
        self.insert(Node {
            identity: Identity::Same(of),
            ..self.list[of.index()].clone()
        })
    }

    fn insert(&mut self, node: Node) -> NodeId {
        match self.free.pop() {
            Some(id) => {
                self.list[id.index()] = node;
                id
            }
            None => {
                self.list.push(node);
                NodeId::new(self.list.len() - 1)
            }
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.list.len() - self.free.len()
    }

    pub(crate) fn mark(&self, mut node: NodeId, marks: &mut Marks) {
        marks.add(node.index());
        while let Identity::Same(other) = self.list[node.index()].identity {
            node = other;
            marks.add(node.index());
        }
    }

    /// Returns the nodes whose latest process ended before `time` and that are not marked in
    /// `used`. If one known node of a name stays, all known nodes of this name stay.
    pub(crate) fn ended_before(&self, time: u64, used: &Marks) -> Marks {
        let mut ended = Marks::default();
        for alike in self.of_name.values() {
            let has_ended = |node: &&NodeId| {
                let it = self.get(**node);
                !it.live && it.ended_ns < time && !used.has(node.index())
            };
            let is_known = |node: &&NodeId| self.get(**node).identity == Identity::Known;
            let known_stay = alike.iter().filter(is_known).any(|node| !has_ended(&node));
            for node in alike.iter().filter(has_ended) {
                if !(known_stay && is_known(&node)) {
                    ended.add(node.index());
                }
            }
        }
        ended
    }

    pub(crate) fn forget(&mut self, ended: &Marks, used: &Marks) -> u64 {
        let mut listed = Marks::default();
        for node in self.of_name.values().flatten() {
            listed.add(node.index());
        }
        self.free.iter().for_each(|node| {
            listed.add(node.index());
        });
        for index in 0..self.list.len() {
            if !listed.has(index) && !used.has(index) {
                self.free.push(NodeId::new(index));
            }
        }
        let names: Vec<NameId> = ended.iter().map(|node| self.list[node].name).collect();
        for name in names {
            self.forget_alike(name, ended);
        }
        ended.iter().count() as u64
    }

    fn forget_alike(&mut self, name: NameId, ended: &Marks) {
        let Some(alike) = self.of_name.remove(&name) else {
            return;
        };
        let (gone, kept): (Vec<NodeId>, Vec<NodeId>) =
            alike.iter().partition(|node| ended.has(node.index()));
        self.free.extend_from_slice(&gone);
        if kept.is_empty() {
            self.forgotten.remove(&name);
            return;
        }
        let forgotten = self.forgotten.entry(name).or_default();
        for (at, &node) in alike.iter().enumerate() {
            if !ended.has(node.index()) {
                continue;
            }
            let program = self.list[node.index()].program;
            match forgotten.iter_mut().find(|of| of.0 == program) {
                Some(of) => of.1 += 1,
                None => forgotten.push((program, 1)),
            }
            for later in &alike[at + 1..] {
                let later = &mut self.list[later.index()];
                later.forgotten_before += usize::from(later.program == program);
            }
        }
        self.of_name.insert(name, kept);
    }

    pub(crate) fn mark_names(&self, names: &mut Marks) {
        for name in self.of_name.keys() {
            names.add(name.index());
        }
        let programs = self.forgotten.values().flatten().filter_map(|of| of.0);
        let mut free = Marks::default();
        for node in &self.free {
            free.add(node.index());
        }
        let nodes = self.list.iter().enumerate().filter(|n| !free.has(n.0));
        let nodes = nodes.flat_map(|(_, node)| [Some(node.name), node.program]);
        for name in nodes.flatten().chain(programs) {
            names.add(name.index());
        }
    }
}

impl Entities {
    pub(crate) fn node(&mut self, p: ProcessIndex, handle: u64, full_name: &str) -> NodeId {
        let name = self.normal_name(p, full_name);
        if handle != 0 {
            if let Some(node) = self.node_of_handle(p, handle) {
                if self.nodes.get(node).name == name {
                    return node;
                }
                self.nodes.set_dead(node, self.now_ns);
                self.process_mut(p).nodes.retain(|&n| n != node);
            }
        }
        let known = self.known_node(p, handle, name);
        let node = known.unwrap_or_else(|| {
            let program = self.program(p);
            self.nodes.revive_or_insert(name, program, Identity::Known)
        });
        self.nodes.list[node.index()].destroyed_ns = None;
        let process = self.process_mut(p);
        if handle != 0 {
            process.node_handles.insert(handle, node);
        }
        if known.is_none() {
            process.nodes.push(node);
        }
        self.settle_guess(p);
        node
    }

    fn normal_name(&mut self, p: ProcessIndex, full_name: &str) -> NameId {
        let pid = self.process(p).pid;
        let normal = self.name_rules.apply(full_name, pid);
        let name = self.names.intern(&normal);
        if *normal != *full_name {
            let from = self.names.intern(full_name);
            self.renamed.entry(name).or_default().from.insert(from);
        }
        name
    }

    fn program(&mut self, p: ProcessIndex) -> Option<NameId> {
        let name = program_name(self.names.text(self.process(p).command));
        (!name.is_empty()).then(|| self.names.intern(&name))
    }

    /// Decides whether the guessed node of a process is the same node as a known one. The two are
    /// the same if the process has exactly one known node. Otherwise the guessed node stays a node
    /// of its own.
    fn settle_guess(&mut self, p: ProcessIndex) {
        let process = self.process(p);
        let (Some(guess), nodes) = (process.fallback, &process.nodes[..]) else {
            return;
        };
        let identity = match nodes {
            [only] if !process.has_forgotten_nodes() => Identity::Same(*only),
            _ => Identity::Guessed,
        };
        self.nodes.set_identity(guess, identity);
    }

    pub(crate) fn guessed_node(&self, p: ProcessIndex) -> Option<NodeId> {
        self.process(p).fallback
    }

    /// Returns the node `name` of a process if it can be the node with this handle. A node that was
    /// found by its name only, without a handle, can be that node. A node with another handle
    /// cannot.
    fn known_node(&self, p: ProcessIndex, handle: u64, name: NameId) -> Option<NodeId> {
        let process = self.process(p);
        let has_handle = |node| handle != 0 && process.node_handles.has(node);
        let mut nodes = process.nodes.iter().copied();
        nodes.find(|&n| self.nodes.get(n).name == name && !has_handle(n))
    }

    pub(crate) fn node_of_handle(&self, p: ProcessIndex, handle: u64) -> Option<NodeId> {
        self.process(p).node_handles.get(handle)
    }

    pub(crate) fn fallback_node(&mut self, p: ProcessIndex) -> NodeId {
        let process = self.process(p);
        if let Some(node) = process.fallback {
            return node;
        }
        let name = unknown_name(self.names.text(process.command));
        let name = self.names.intern(&name);
        let program = self.program(p);
        let node = self
            .nodes
            .revive_or_insert(name, program, Identity::Guessed);
        self.process_mut(p).fallback = Some(node);
        self.settle_guess(p);
        node
    }

    /// Returns a node for an entity whose own node is unknown.
    ///
    /// If the recording saw the process create its only node, the result is that node. Otherwise
    /// the result is a stand-in for any node of the process.
    pub(crate) fn stand_in(&mut self, p: ProcessIndex) -> NodeId {
        let process = self.process(p);
        if process.made_only_node() {
            return process.nodes[0];
        }
        let fallback = self.fallback_node(p);
        self.nodes.insert_stand_in(fallback)
    }

    pub(crate) fn node_of_entity(&self, e: EntityId) -> Option<NodeId> {
        self.get(e).node().map(|node| self.nodes.settled(node))
    }

    /// Returns a node's id: its name, with an addition if several nodes have that name.
    ///
    /// Nodes that existed at the same time are distinguished by their programs, and within one
    /// program by the order of their appearance.
    pub(crate) fn node_id(&self, node: NodeId) -> String {
        let node = self.nodes.settled(node);
        let name = self.names.get(self.nodes.get(node).name);
        let name_id = self.nodes.get(node).name;
        let alike = self.nodes.of_name.get(&name_id);
        let alike = alike.map_or(&[][..], Vec::as_slice);
        let forgotten = self.nodes.forgotten.get(&name_id);
        let forgotten = forgotten.map_or(&[][..], Vec::as_slice);
        if alike.len() <= 1 && forgotten.is_empty() {
            return name.into();
        }
        let program = |n: NodeId| self.nodes.get(n).program;
        let mine = program(node);
        let mut id = name.to_string();
        let mut programs = alike.iter().map(|&n| program(n));
        let programs_differ = programs.any(|p| p != mine) || forgotten.iter().any(|f| f.0 != mine);
        if let Some(mine) = mine.filter(|_| programs_differ) {
            id += "#";
            id += self.names.get(mine);
        }
        let before = alike.iter().take_while(|&&n| n != node);
        let before = before.filter(|&&n| program(n) == mine).count();
        match before + self.nodes.get(node).forgotten_before {
            0 => id,
            n => format!("{id}#{}", n + 1),
        }
    }
}

pub(crate) fn full_name(namespace: &str, name: &str) -> String {
    let namespace = namespace.trim_end_matches('/');
    let slash = if namespace.is_empty() || namespace.starts_with('/') {
        ""
    } else {
        "/"
    };
    format!("{slash}{namespace}/{}", name.trim_start_matches('/'))
}

fn unknown_name(command: &str) -> String {
    match program_name(command).as_str() {
        "" => "/unknown".into(),
        program => format!("/unknown-{program}"),
    }
}

/// Returns the name of a command's program, or of the script that an interpreter runs. Returns an
/// empty text if there is none.
fn program_name(command: &str) -> String {
    let base = |word: &str| word.rsplit('/').next().unwrap_or(word).to_string();
    let mut words = command.split([' ', '\0']).filter(|w| !w.is_empty());
    let first = words.next().map(base).unwrap_or_default();
    let mut name = first.clone();
    if first.starts_with("python") {
        if let Some(script) = words.find(|w| !w.starts_with('-')) {
            name = base(script).trim_end_matches(".py").to_string();
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_names_come_from_namespace_and_name_or_from_the_program() {
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
