//! Nodes, by name and by handle, and a stand-in where none is known.

use super::Entities;
use crate::index::NameId;
use crate::synth::ids::{NodeId, ProcessIndex};
use rustc_hash::FxHashMap;

/// A node; kept when its process ends, so that a restarted one continues it.
#[derive(Debug, Clone)]
pub(in crate::synth) struct Node {
    pub(in crate::synth) name: NameId,
    /// Counts the nodes of equal name that live at the same time, from 1.
    pub(in crate::synth) ordinal: u32,
    pub(in crate::synth) live: bool,
    /// Named after its process, because its own name is not known.
    pub(in crate::synth) guessed: bool,
}

/// All nodes.
#[derive(Debug, Clone, Default)]
pub(in crate::synth) struct Nodes {
    list: Vec<Node>,
    of_name: FxHashMap<NameId, Vec<NodeId>>,
}

impl Nodes {
    pub(in crate::synth) fn get(&self, node: NodeId) -> &Node {
        &self.list[node.index()]
    }

    pub(super) fn set_dead(&mut self, node: NodeId) {
        self.list[node.index()].live = false;
    }

    /// A dead node of this name, alive again, or a new one.
    fn revive_or_insert(&mut self, name: NameId, guessed: bool) -> NodeId {
        let same = self.of_name.entry(name).or_default();
        if let Some(&node) = same.iter().find(|n| !self.list[n.index()].live) {
            self.list[node.index()].live = true;
            return node;
        }
        let node = NodeId::new(self.list.len());
        same.push(node);
        self.list.push(Node {
            name,
            ordinal: same.len() as u32,
            live: true,
            guessed,
        });
        node
    }
}

impl Entities {
    /// A node of a process: the one that had this handle and name, a dead one of this name, or a
    /// new one.
    pub(in crate::synth) fn node(
        &mut self,
        p: ProcessIndex,
        handle: u64,
        full_name: &str,
    ) -> NodeId {
        let name = self.names.intern(full_name);
        if handle != 0 {
            if let Some(node) = self.node_of_handle(p, handle) {
                if self.nodes.get(node).name == name {
                    return node;
                }
                self.nodes.set_dead(node);
                self.process_mut(p).nodes.retain(|&n| n != node);
            }
        }
        let known = self.known_node(p, handle, name);
        let node = known.unwrap_or_else(|| self.nodes.revive_or_insert(name, false));
        let process = self.process_mut(p);
        if handle != 0 {
            process.node_handles.insert(handle, node);
        }
        if known.is_none() {
            process.nodes.push(node);
        }
        node
    }

    /// A process's node of this name. A node found by its name alone and one whose handle is
    /// known are the same; two handles are two nodes.
    fn known_node(&self, p: ProcessIndex, handle: u64, name: NameId) -> Option<NodeId> {
        let process = self.process(p);
        let has_handle = |node: NodeId| process.node_handles.values().any(|&n| n == node);
        let mut nodes = process.nodes.iter().copied();
        nodes.find(|&n| self.nodes.get(n).name == name && !(handle != 0 && has_handle(n)))
    }

    /// The node of a handle, if it is known.
    pub(in crate::synth) fn node_of_handle(&self, p: ProcessIndex, handle: u64) -> Option<NodeId> {
        self.process(p).node_handles.get(&handle).copied()
    }

    /// The node that stands in where a process's own is not known: its only one, or one named
    /// after the process.
    pub(in crate::synth) fn fallback_node(&mut self, p: ProcessIndex) -> NodeId {
        let process = self.process(p);
        if let [only] = process.nodes[..] {
            return only;
        }
        if let Some(node) = process.fallback {
            return node;
        }
        let name = unknown_name(self.names.text(process.command));
        let name = self.names.intern(&name);
        let node = self.nodes.revive_or_insert(name, true);
        self.process_mut(p).fallback = Some(node);
        node
    }

    /// How ids call a node.
    pub(in crate::synth) fn node_id(&self, node: NodeId) -> String {
        let node = self.nodes.get(node);
        match node.ordinal {
            0 | 1 => self.names.get(node.name).into(),
            n => format!("{}#{n}", self.names.get(node.name)),
        }
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
