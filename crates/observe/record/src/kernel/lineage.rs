//! The maps of lineage: what begins an execution of a chain, and when the execution began that an
//! item on its way belongs to.

use crate::records::{
    LINEAGE_CHECK, LINEAGE_ENTRIES, LINEAGE_FACTOR, LINEAGE_SHIFT, ROOT_CALLBACK, ROOT_PUBLISHER,
    ROOT_SUBSCRIPTION, ROOT_TIMER,
};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// What begins an execution of a chain: a handle in a process, as its events have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Root {
    /// The call of this timer.
    Timer(u64),
    /// The start of this callback of rclcpp.
    Callback(u64),
    /// A take with this handle of the middleware.
    Subscription(u64),
    /// A publication with this handle of the middleware.
    Publisher(u64),
}

impl Root {
    fn key(self, pid: u32) -> [u8; 16] {
        let (handle, kind) = match self {
            Root::Timer(handle) => (handle, ROOT_TIMER),
            Root::Callback(handle) => (handle, ROOT_CALLBACK),
            Root::Subscription(handle) => (handle, ROOT_SUBSCRIPTION),
            Root::Publisher(handle) => (handle, ROOT_PUBLISHER),
        };
        let mut key = [0; 16];
        key[..8].copy_from_slice(&handle.to_ne_bytes());
        key[8..12].copy_from_slice(&pid.to_ne_bytes());
        key[12..].copy_from_slice(&(kind as u32).to_ne_bytes());
        key
    }
}

/// The maps of lineage. They outlive the recording; from its end on nothing is added to them.
#[derive(Debug)]
pub struct Lineage {
    roots: MapHandle,
    /// The table of items, frozen.
    table: MapHandle,
}

impl Lineage {
    /// Layout of the table: places, shift, factor and check as `records.table` has them. Whoever maps
    /// it has the same.
    pub const LAYOUT: [u64; 4] = [
        LINEAGE_ENTRIES as u64,
        LINEAGE_SHIFT as u64,
        LINEAGE_FACTOR as u64,
        LINEAGE_CHECK as u64,
    ];

    /// Of the maps `roots` and `lineage`. From now on only the programs write to the latter, whoever
    /// has a descriptor of it.
    pub(super) fn new(roots: MapHandle, table: MapHandle) -> io::Result<Lineage> {
        table.freeze().map_err(io::Error::other)?;
        Ok(Lineage { roots, table })
    }

    /// Executions begin with this in a process from now on.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn add_root(&self, pid: u32, root: Root) -> io::Result<()> {
        let key = root.key(pid);
        let added = self.roots.update(&key, &[1], MapFlags::ANY);
        added.map_err(io::Error::other)
    }

    /// The process has ended, or nothing begins with this any more.
    pub fn remove_root(&self, pid: u32, root: Root) {
        // It is gone already where others have taken its place.
        let _ = self.roots.delete(&root.key(pid));
    }

    /// The table of items on their way, for a process that maps it (`onbeat-ros`, `lineage.rs`). It
    /// can only be read.
    pub fn table(&self) -> BorrowedFd<'_> {
        self.table.as_fd()
    }
}
