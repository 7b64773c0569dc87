//! The configuration of a shaper process.

use crate::page::OutputTable;
use onbeat_time::Overshoot;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Configuration of a shaper process, as JSON on its standard input or in a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// librcl, as the application has it.
    pub rcl: PathBuf,
    /// Folders in which type support is looked for, after the linker's own and AMENT_PREFIX_PATH.
    #[serde(default)]
    pub folders: Vec<PathBuf>,
    /// Outputs that are held back and inputs that are throttled.
    pub outputs: Vec<Output>,
    /// CPUs and priority of the middleware's threads and of the receiving threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub middleware: Option<Place>,
    /// The policy for items that missed the slots of their own execution.
    #[serde(default)]
    pub overshoot: Overshoot,
    /// Descriptor of the shared page (see [`crate::page`]), inherited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_fd: Option<i32>,
    /// A table that never changes, instead of a page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<Table>,
    /// Descriptor of the pipe for reports (see [`crate::report`]), inherited. When nobody reads it
    /// any more, the owner is dead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report_fd: Option<i32>,
    /// Descriptor of the table of lineage (see [`crate::lineage`]), inherited. Without it an item's
    /// cycle is inferred from when it comes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lineage_fd: Option<i32>,
    /// Descriptor of the application's process (pidfd_open(2)), inherited: without it there is nothing to
    /// pass on, whoever else publishes on the held topics. Its id means nothing within a container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application_fd: Option<i32>,
    /// So long after its last heartbeat the owner counts as dead, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silence_ns: Option<u64>,
}

/// One topic that passes through the shaper.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Output {
    /// Topic on which the application publishes while it is shaped.
    pub held_topic: String,
    /// Topic under which its subscribers know it.
    pub topic: String,
    /// Which items pass, and when.
    #[serde(default)]
    pub kind: Kind,
    /// CPU and priority of the sending thread: the server's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    /// Items that can wait here; the middleware's own history holds more.
    #[serde(default = "default_capacity")]
    pub capacity: usize,
    /// Bytes that each of them has from the beginning. A larger item makes its memory larger when
    /// it is received.
    #[serde(default = "default_item_bytes")]
    pub item_bytes: usize,
    /// History depth of the publisher, which the held topic's does not announce.
    #[serde(default = "default_depth")]
    pub depth: usize,
    /// Whether its sender wakes up before a slot, and spins until its first instant. One that does not
    /// is as late as the machine wakes it, and costs no CPU time.
    #[serde(default = "default_spins")]
    pub spins: bool,
}

fn default_spins() -> bool {
    true
}

fn default_capacity() -> usize {
    32
}

fn default_item_bytes() -> usize {
    64 << 10
}

fn default_depth() -> usize {
    100
}

/// Which items pass, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// All of them, each in a slot of its execution (thesis, section 4.3.2, Design 2).
    #[default]
    Shape,
    /// The newest, once per cycle (thesis, section 4.5.1: the throttler).
    Throttle,
}

/// CPUs and priority of a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// Numbers of the CPUs; empty: as inherited.
    #[serde(default)]
    pub cpus: Vec<usize>,
    /// SCHED_FIFO priority. `None`: as inherited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
}

/// A fixed table of slots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Length of a cycle.
    pub cycle_ns: u64,
    /// A release of the chain, CLOCK_MONOTONIC.
    pub origin_ns: i64,
    /// Slots of each output.
    pub outputs: Vec<OutputTable>,
}
