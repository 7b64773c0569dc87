//! Typed indices of the tables that synthesis keeps while events pass.

use crate::index::index_type;

index_type! {
    /// The index of a process, which is used again after the process has ended.
    ProcessIndex
}

index_type! {
    /// The index of a node. A restarted node keeps its index. The index of a forgotten node is used
    /// again.
    NodeId
}

index_type! {
    EntityId
}

index_type! {
    /// The index of a thread, which is used again after the thread has ended.
    ThreadIndex
}

index_type! {
    /// The index of a callback instance that runs, or whose events are not processed yet.
    InstanceId
}

index_type! {
    EdgeId
}

/// The number of a wake-up by which a callback may have handed work to a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct HandedId(pub(super) u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct DecisionId(pub(super) u32);

/// A number for work that an instance created for later. The result of this work has the same
/// number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct HandId(pub(super) u32);
