//! Processes, and which handle stands for which entity in each.

use super::entity::TimeBase;
use crate::ids::{EntityId, NodeId, ProcessIndex};
use crate::index::NameId;
use crate::values::Gid;
use rustc_hash::FxHashMap;

/// Which kind of object an address stands for.
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
    /// The name of a task in place of an address.
    Task,
}

/// Address-to-address ties, resolved late because their order is not fixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Tie {
    /// Callback to the rclcpp object that owns it.
    CallbackObject,
    /// rclcpp object to rcl subscription.
    ObjectSubscription,
    /// Ring buffer to intra-process buffer.
    RingIntra,
    /// Intra-process buffer to rclcpp object.
    IntraObject,
}

/// A clock.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Clock {
    /// The node whose clock it is.
    pub(super) node: Option<NodeId>,
    pub(super) time: TimeBase,
}

/// A process.
#[derive(Debug, Clone, Default)]
pub(crate) struct Process {
    pub(super) handles: FxHashMap<(HandleKind, u64), EntityId>,
    pub(super) node_handles: FxHashMap<u64, NodeId>,
    pub(super) clocks: FxHashMap<u64, Clock>,
    pub(super) ties: FxHashMap<(Tie, u64), u64>,
    pub(crate) nodes: Vec<NodeId>,
    pub(crate) entities: Vec<EntityId>,
    /// Subscriptions of which only the ring buffer is known.
    pub(super) by_ring: Vec<EntityId>,
    /// Some of its nodes were there before the recording.
    pub(super) found: bool,
    /// It ran before the recording.
    pub(crate) late: bool,
    /// Node that stands in where none is known.
    pub(super) fallback: Option<NodeId>,
    pub(crate) command: Option<NameId>,
    /// Its timers may have been called without being seen: it ran before the recording, and no call
    /// was seen yet.
    pub(crate) unseen_calls: bool,
    pub(super) pid: u32,
    /// Identifiers of clients whose `rcl_client_init` has not come yet, by rmw handle.
    pub(super) gids: FxHashMap<u64, Gid>,
}

impl Process {
    /// Whether it made its only node under our eyes: all that it has is that node's.
    pub(crate) fn made_only_node(&self) -> bool {
        self.nodes.len() == 1 && !self.found
    }
}

/// The processes that live, and the free places of those that ended.
#[derive(Debug, Clone, Default)]
pub(crate) struct Processes {
    pub(super) list: Vec<Process>,
    of_pid: FxHashMap<u32, ProcessIndex>,
    free: Vec<ProcessIndex>,
}

impl Processes {
    /// The process of a pid, made when new.
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

    /// The process of a pid, if it is known.
    pub(crate) fn known(&self, pid: u32) -> Option<ProcessIndex> {
        self.of_pid.get(&pid).copied()
    }

    /// Takes out the process of a pid.
    pub(super) fn remove(&mut self, pid: u32) -> Option<Process> {
        let p = self.of_pid.remove(&pid)?;
        self.free.push(p);
        Some(std::mem::take(&mut self.list[p.index()]))
    }
}
