//! The maps of lineage: what begins an execution of a chain, and when the execution began that an
//! item on its way belongs to.

use crate::records::{
    JOIN_CALLBACK, JOIN_OUTPUT, JOIN_SUBSCRIPTION, LINEAGE_CHECK, LINEAGE_ENTRIES, LINEAGE_FACTOR,
    LINEAGE_SHIFT, ROOT_CALLBACK, ROOT_PUBLISHER, ROOT_SUBSCRIPTION, ROOT_TIMER, WAITS_NONE,
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

/// Where a chain's data waits for other inputs: a synchroniser, or callbacks that store what they take
/// until all of it is there. What it publishes belongs to the execution whose input is stored, whichever
/// input comes last; nothing is known of it where several were.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Join {
    /// What begins the callback that takes the chain's input: a callback of rclcpp or a subscription.
    pub input: Root,
    /// The publisher of what is joined, with its handle of the middleware.
    pub output: u64,
}

impl Join {
    /// Key of its input, and of its output.
    fn keys(self, pid: u32) -> Option<[[u8; 16]; 2]> {
        let input = match self.input {
            Root::Callback(handle) => key(pid, JOIN_CALLBACK, handle),
            Root::Subscription(handle) => key(pid, JOIN_SUBSCRIPTION, handle),
            Root::Timer(_) | Root::Publisher(_) => return None,
        };
        Some([input, key(pid, JOIN_OUTPUT, self.output)])
    }
}

fn key(pid: u32, kind: usize, handle: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&handle.to_ne_bytes());
    key[8..12].copy_from_slice(&pid.to_ne_bytes());
    key[12..].copy_from_slice(&(kind as u32).to_ne_bytes());
    key
}

impl Root {
    fn key(self, pid: u32) -> [u8; 16] {
        let (handle, kind) = match self {
            Root::Timer(handle) => (handle, ROOT_TIMER),
            Root::Callback(handle) => (handle, ROOT_CALLBACK),
            Root::Subscription(handle) => (handle, ROOT_SUBSCRIPTION),
            Root::Publisher(handle) => (handle, ROOT_PUBLISHER),
        };
        key(pid, kind, handle)
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
        let added = self.roots.update(&key, &[0; 8], MapFlags::ANY);
        added.map_err(io::Error::other)
    }

    /// The process has ended, or nothing begins with this any more.
    pub fn remove_root(&self, pid: u32, root: Root) {
        // It is gone already where others have taken its place.
        let _ = self.roots.delete(&root.key(pid));
    }

    /// A join in a process, of which nothing waits yet. Does nothing if its input is a timer or a
    /// publisher: those join nothing.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn add_join(&self, pid: u32, join: Join) -> io::Result<()> {
        let Some([input, output]) = join.keys(pid) else {
            return Ok(());
        };
        let waits = (WAITS_NONE as u64).to_ne_bytes();
        let added = self.roots.update(&output, &waits, MapFlags::ANY);
        let handle = join.output.to_ne_bytes();
        let added = added.and_then(|()| self.roots.update(&input, &handle, MapFlags::ANY));
        added.map_err(io::Error::other)
    }

    /// The process has ended, or this joins nothing any more.
    pub fn remove_join(&self, pid: u32, join: Join) {
        for key in join.keys(pid).iter().flatten() {
            // It is gone already where others have taken its place.
            let _ = self.roots.delete(key);
        }
    }

    /// The table of items on their way, for a process that maps it (`onbeat-ros`, `lineage.rs`). It
    /// can only be read.
    pub fn table(&self) -> BorrowedFd<'_> {
        self.table.as_fd()
    }
}
