//! The maps of lineage. They show which event begins an execution of a chain. For each item that is
//! published and not yet taken, they show when the item's execution began.

use crate::records::{
    JOIN_CALLBACK, JOIN_OUTPUT, JOIN_SUBSCRIPTION, LINEAGE_CHECK, LINEAGE_ENTRIES, LINEAGE_FACTOR,
    LINEAGE_SHIFT, ROOT_CALLBACK, ROOT_PUBLISHER, ROOT_SUBSCRIPTION, ROOT_TIMER, WAITS_NONE,
};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// The place at which a chain's executions begin: a timer, callback, subscription or publisher of a
/// process. The handle has the same number as in events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Root {
    /// Executions begin with the call of the timer that has this handle.
    Timer(u64),
    /// Executions begin when the rclcpp callback with this handle starts.
    Callback(u64),
    /// Executions begin when a message is taken with this subscription handle of the middleware.
    Subscription(u64),
    /// Executions begin with a publication by this publisher handle of the middleware.
    Publisher(u64),
}

/// A place where a chain's data waits for other inputs: a synchroniser, or callbacks that store
/// messages until all inputs have arrived. An output belongs to the execution whose input is
/// stored, whichever input comes last. If inputs of several executions were stored, the output's
/// execution is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Join {
    /// The start of the callback that takes the chain's input: an rclcpp callback or a
    /// subscription.
    pub input: Root,
    /// The publisher of the joined output, by its handle in the middleware.
    pub output: u64,
}

impl Join {
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

/// The kernel's maps that record for each item when its execution began. The maps exist longer than
/// the recording. After the recording's end, the kernel adds nothing to them.
#[derive(Debug)]
pub struct Lineage {
    roots: MapHandle,
    table: MapHandle,
}

impl Lineage {
    /// The layout of the table of lineage: number of entries, shift, factor and check, as
    /// `records.table` defines them. A process that maps the table uses the same layout.
    pub const LAYOUT: [u64; 4] = [
        LINEAGE_ENTRIES as u64,
        LINEAGE_SHIFT as u64,
        LINEAGE_FACTOR as u64,
        LINEAGE_CHECK as u64,
    ];

    /// Creates a [`Lineage`] from the BPF maps `roots` and `lineage`. From now on only the BPF
    /// programs can write to `lineage`, even if another process has a descriptor of it.
    pub(super) fn new(roots: MapHandle, table: MapHandle) -> io::Result<Lineage> {
        table.freeze().map_err(io::Error::other)?;
        Ok(Lineage { roots, table })
    }

    /// Adds a root: from now on, a chain's executions in process `pid` begin with `root`.
    ///
    /// # Errors
    ///
    /// Returns the kernel's error.
    pub fn add_root(&self, pid: u32, root: Root) -> io::Result<()> {
        let key = root.key(pid);
        let added = self.roots.update(&key, &[0; 8], MapFlags::ANY);
        added.map_err(io::Error::other)
    }

    /// Removes a root. The caller does this when the root's process has ended, or when no execution
    /// begins with the root any more.
    pub fn remove_root(&self, pid: u32, root: Root) {
        // The entry is gone already if others have taken its place.
        let _ = self.roots.delete(&root.key(pid));
    }

    /// Adds a join in a process, with no stored input yet. Does nothing if the join's input is a
    /// timer or a publisher, because these take no input.
    ///
    /// # Errors
    ///
    /// Returns the kernel's error.
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

    /// Removes a join. The caller does this when the join's process has ended, or when the
    /// application no longer joins inputs there.
    pub fn remove_join(&self, pid: u32, join: Join) {
        for key in join.keys(pid).iter().flatten() {
            // The entry is gone already if others have taken its place.
            let _ = self.roots.delete(key);
        }
    }

    /// Returns a read-only descriptor of the table of lineage. The table contains the items that
    /// are published and not yet taken. `lineage.rs` of `onbeat-ros` maps the table.
    pub fn table(&self) -> BorrowedFd<'_> {
        self.table.as_fd()
    }
}
