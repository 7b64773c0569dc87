//! Typed indices of the tables that synthesis keeps while events pass.

use crate::index::index_type;

index_type! {
    /// A process; the index is used again after the process has ended.
    ProcessIndex
}

index_type! {
    /// A node. Nodes are never dropped: a restarted one continues the one before.
    NodeId
}

index_type! {
    /// A timer, subscription, publisher, service or client.
    EntityId
}

index_type! {
    /// A thread; the index is used again after the thread has ended.
    ThreadIndex
}

index_type! {
    /// A callback instance that runs, or has run and is not processed yet.
    InstanceId
}

index_type! {
    /// An edge in the making.
    EdgeId
}

/// A wake-up by which a callback may have handed work to a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct HandedId(pub(super) u64);

/// Names a decision about an owner that has not been made yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct DecisionId(pub(super) u32);

/// Names the work that an instance hands on to be done later, or the result of that work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct HandId(pub(super) u32);
