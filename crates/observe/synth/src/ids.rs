//! Typed indices of the tables that synthesis keeps while events pass.

use crate::index::index_type;

index_type! {
    /// A process. The index is reused after the process has ended.
    ProcessIndex
}

index_type! {
    /// A node. Nodes are never dropped; a restarted node continues the earlier one.
    NodeId
}

index_type! {
    EntityId
}

index_type! {
    /// A thread. The index is reused after the thread has ended.
    ThreadIndex
}

index_type! {
    /// A callback instance that runs, or whose events are not processed yet.
    InstanceId
}

index_type! {
    EdgeId
}

/// A wake-up by which a callback may have handed work to a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct HandedId(pub(super) u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct DecisionId(pub(super) u32);

/// Work that an instance hands on to be done later, or the result of that work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct HandId(pub(super) u32);
