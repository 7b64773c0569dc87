//! The processes, and the entity for which each of their handles stands.

use super::entity::TimeBase;
use super::members::Members;
use crate::ids::{EntityId, NodeId, ProcessIndex};
use crate::index::NameId;
use crate::values::Gid;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeSet, VecDeque};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum HandleKind {
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
    /// A task, which has no address. The handle is the number of its name.
    Task,
}

/// A relation between two objects of a process, which are given by their addresses. Events report
/// relations in any order, so each relation is looked up only when it is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Tie {
    CallbackObject,
    ObjectSubscription,
    RingIntra,
    IntraObject,
}

/// The nodes by their addresses. Several addresses may be those of one node.
#[derive(Debug, Clone, Default)]
pub(super) struct NodeHandles {
    of: FxHashMap<u64, NodeId>,
    counts: FxHashMap<NodeId, usize>,
}

impl NodeHandles {
    pub(super) fn get(&self, handle: u64) -> Option<NodeId> {
        self.of.get(&handle).copied()
    }

    pub(super) fn insert(&mut self, handle: u64, node: NodeId) {
        self.remove(handle);
        self.of.insert(handle, node);
        *self.counts.entry(node).or_default() += 1;
    }

    pub(super) fn remove(&mut self, handle: u64) -> Option<NodeId> {
        let node = self.of.remove(&handle)?;
        if let Some(count) = self.counts.get_mut(&node) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&node);
            }
        }
        Some(node)
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.counts.keys().copied()
    }

    pub(super) fn has(&self, node: NodeId) -> bool {
        self.counts.contains_key(&node)
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Clock {
    pub(super) node: Option<NodeId>,
    pub(super) time: TimeBase,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Rings {
    pub(crate) used: bool,
    /// The subscriptions for which the recording shows only a ring buffer, and perhaps the topic.
    pub(super) found: Vec<EntityId>,
    pub(super) nameless: Vec<EntityId>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Created {
    /// The number of nodes, entities and other objects that the process created. This count is
    /// reduced by a sixtieth each minute.
    count: u32,
    /// The process has exceeded [`Processes::created_max`], so its events are left out.
    is_too_much: bool,
    /// The number of nodes that the process destroyed and that were removed from the list of its
    /// nodes.
    forgotten_nodes: usize,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Process {
    pub(super) handles: FxHashMap<(HandleKind, u64), EntityId>,
    pub(super) node_handles: NodeHandles,
    pub(super) clocks: FxHashMap<u64, Clock>,
    pub(super) ties: FxHashMap<(Tie, u64), u64>,
    pub(crate) nodes: Vec<NodeId>,
    pub(crate) entities: Members,
    pub(crate) rings: Rings,
    pub(super) found: bool,
    pub(crate) late: bool,
    pub(super) fallback: Option<NodeId>,
    pub(crate) command: Option<NameId>,
    /// Calls of the process's timers may be missing: the process ran before the recording began,
    /// and no call was seen yet.
    pub(crate) unseen_calls: bool,
    pub(super) pid: u32,
    created: Created,
    /// By rmw handle: the identifiers of clients whose `rcl_client_init` has not been seen yet.
    pub(super) gids: FxHashMap<u64, Gid>,
}

impl Process {
    pub(crate) fn is_left_out(&self) -> bool {
        self.created.is_too_much
    }

    pub(super) fn has_forgotten_nodes(&self) -> bool {
        self.created.forgotten_nodes > 0
    }

    pub(super) fn forget_node(&mut self, node: NodeId) {
        self.nodes.retain(|&other| other != node);
        self.created.forgotten_nodes += 1;
        for clock in self.clocks.values_mut() {
            clock.node = clock.node.filter(|&other| other != node);
        }
    }

    /// Reports whether the recording shows that the process created exactly one node. All entities
    /// of the process then belong to that node.
    pub(crate) fn made_only_node(&self) -> bool {
        self.nodes.len() == 1 && !self.has_forgotten_nodes() && !self.found
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Processes {
    pub(super) list: Vec<Process>,
    of_pid: FxHashMap<u32, ProcessIndex>,
    free: Vec<ProcessIndex>,
    /// The processes that ended and are not forgotten yet, oldest first: the time of the end in ns,
    /// and the process id.
    ended: VecDeque<(u64, u32)>,
    /// The ids of the processes that are left out because they created too many objects. The caller
    /// of the synthesis takes them with `drain_left_out`.
    pub(crate) left_out: Vec<u32>,
    pub(crate) created_max: u32,
}

impl Processes {
    pub(crate) fn get_or_insert(&mut self, pid: u32) -> ProcessIndex {
        if let Some(&p) = self.of_pid.get(&pid) {
            return p;
        }
        let p = match self.free.pop() {
            Some(p) => p,
            None => {
                self.list.push(Process::default());
                ProcessIndex::new(self.list.len() - 1)
            }
        };
        self.list[p.index()].pid = pid;
        self.of_pid.insert(pid, p);
        p
    }

    pub(crate) fn known(&self, pid: u32) -> Option<ProcessIndex> {
        self.of_pid.get(&pid).copied()
    }

    pub(crate) fn count_created(&mut self, p: ProcessIndex, n: u32) {
        let process = &mut self.list[p.index()];
        let created = &mut process.created;
        created.count = created.count.saturating_add(n);
        if created.count > self.created_max && !created.is_too_much {
            created.is_too_much = true;
            self.left_out.push(process.pid);
        }
    }

    /// Reduces each process's number of created objects by a sixtieth, so that the process may
    /// create more.
    pub(crate) fn pass_minute(&mut self) {
        for process in &mut self.list {
            let count = &mut process.created.count;
            *count -= count.div_ceil(60);
        }
    }

    /// Returns the ids of the processes that ended before `time`. Leaves out ids that later
    /// processes use or have used.
    pub(crate) fn ended_before(&self, time: u64) -> BTreeSet<u32> {
        let ends = self.ended.iter().copied();
        let (old, later): (Vec<(u64, u32)>, Vec<_>) = ends.partition(|end| end.0 < time);
        let later: FxHashSet<u32> = later.into_iter().map(|end| end.1).collect();
        let is_used = |pid: &u32| self.of_pid.contains_key(pid) || later.contains(pid);
        let old = old.into_iter().map(|end| end.1);
        old.filter(|pid| !is_used(pid)).collect()
    }

    pub(crate) fn forget_ends(&mut self, time: u64, kept: &BTreeSet<u32>) {
        self.ended
            .retain(|end| end.0 >= time || kept.contains(&end.1));
    }

    pub(crate) fn count(&self) -> usize {
        self.of_pid.len() + self.ended.len()
    }

    pub(super) fn remove(&mut self, pid: u32, now_ns: u64) -> Option<Process> {
        let p = self.of_pid.remove(&pid)?;
        self.free.push(p);
        self.ended.push_back((now_ns, pid));
        Some(std::mem::take(&mut self.list[p.index()]))
    }
}
