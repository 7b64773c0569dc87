//! The configuration of a shaper process.

use crate::page::OutputTable;
use onbeat_time::Overshoot;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The configuration of a shaper process, as JSON on its standard input or in a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The path of the application's librcl, which the shaper loads instead of one of its own.
    pub rcl: PathBuf,
    /// The folders that are searched for type support, after those of the linker and of
    /// AMENT_PREFIX_PATH.
    #[serde(default)]
    pub folders: Vec<PathBuf>,
    /// The topics that pass through the shaper: outputs that it holds back, and inputs that it
    /// throttles.
    pub outputs: Vec<Output>,
    /// The CPUs and priority of the DDS's threads and of the threads that receive items.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub middleware: Option<Place>,
    /// The policy for items that missed the slots of their own execution: discard, carry over, or
    /// end shaping.
    #[serde(default)]
    pub overshoot: Overshoot,
    /// The inherited descriptor of the shared page (see [`crate::page`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_fd: Option<i32>,
    /// A table of slots that never changes. The shaper uses it instead of the shared page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<Table>,
    /// The inherited descriptor of the pipe for reports (see [`crate::report`]). The owner, which
    /// reads the reports, counts as dead when no process has the reading end of the pipe open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report_fd: Option<i32>,
    /// The inherited descriptor of the table of lineage (see [`crate::lineage`]). Without it an
    /// item's cycle is inferred from its arrival.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lineage_fd: Option<i32>,
    /// The inherited descriptor of the application's process (pidfd_open(2)). The shaper ends when
    /// that process ends, even if other processes publish on the held topics. A process id would be
    /// meaningless within a container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application_fd: Option<i32>,
    /// The longest time without a heartbeat of the owner (the session that started the shaper), in
    /// ns. After this time the owner counts as dead. `None` if the owner has no heartbeat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silence_ns: Option<u64>,
}

/// A topic that passes through the shaper.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Output {
    /// The topic on which the application publishes while the shaper holds the output back.
    pub held_topic: String,
    /// The topic on which the shaper publishes. The nodes that take the output subscribe to this
    /// topic.
    pub topic: String,
    /// The rule that decides which items the shaper passes on, and when.
    #[serde(default)]
    pub kind: Kind,
    /// The CPUs and priority of the sending thread. `None` if the thread inherits both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    /// The number of items that can wait in the shaper. Further items wait in the history of the
    /// middleware.
    #[serde(default = "default_capacity")]
    pub capacity: usize,
    /// The number of bytes that are reserved for each item at the start. For a larger item, the
    /// memory is enlarged when the item arrives.
    #[serde(default = "default_item_bytes")]
    pub item_bytes: usize,
    /// The history depth of the shaper's publisher. The shaper cannot read the depth of the held
    /// topic's publisher, because DDS does not announce it.
    #[serde(default = "default_depth")]
    pub depth: usize,
    /// Whether the sender wakes up before a slot and spins until the slot begins. A sender that
    /// does not spin sleeps until the slot begins. It saves CPU time, but its items leave late by
    /// the machine's wake-up latency.
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

/// The rule that decides which items of a topic pass through the shaper, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// All items pass, each in a slot of its execution (thesis, section 4.3.2, Design 2).
    #[default]
    Shape,
    /// The latest item passes, once per cycle (thesis, section 4.5.1: the throttler).
    Throttle,
}

/// The CPUs and the real-time priority of a shaper's thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// The numbers of the CPUs. If empty, the thread inherits its CPUs.
    #[serde(default)]
    pub cpus: Vec<usize>,
    /// The SCHED_FIFO priority. `None` if the thread inherits its policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
}

/// The cycle and the slots of all outputs. A shaper that has no shared page uses this table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// The time between two releases of the chain's first callback, in ns.
    pub cycle_ns: u64,
    /// The time at which one cycle begins: a release of the chain's first callback
    /// (CLOCK_MONOTONIC), in ns.
    pub origin_ns: i64,
    /// The slots of each output, in the order of [`Config::outputs`].
    pub outputs: Vec<OutputTable>,
}
