//! Reports a running session to others: through a socket that only root reaches, and as figures for
//! monitors.
//!
//! | module | task |
//! |---|---|
//! | here | [`Status`]: the figures |
//! | `tally` | adds up figures while a session runs |
//! | `board` | holds the status of a session for other threads; never waits |
//! | `post` | passes notes between a session and the thread of its diagnostics |
//! | `service` | a thread that answers on a Unix socket |
//! | `reload` | new plans on their way to a session, and their outcomes |
//! | `client` | asks the sessions of this machine |
//! | `metrics` | the figures as Prometheus text |
//! | `diagnostics` | the figures as ROS 2 diagnostics |

mod board;
mod client;
mod diagnostics;
mod metrics;
mod post;
mod reload;
mod service;
mod sockets;
mod tally;

pub use board::Board;
pub use client::{ask, Answer};
pub(crate) use diagnostics::Diagnostics;
pub use metrics::prometheus;
pub(crate) use post::Standing;
pub use reload::{Outcome, Reloaded, Reloads};
pub use service::{Duties, LoadPlan, Service, StatusError, WriteFigures};
pub(crate) use tally::Tally;

use serde::Serialize;

/// The value of [`Status::schema`].
pub const SCHEMA: &str = "onbeat-status/1";

/// The state and figures of a session. The session renews them about once a second.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Status {
    /// The name and version of this format: always [`SCHEMA`].
    pub schema: &'static str,
    /// The process id of the session.
    pub pid: u32,
    /// The stage that the session has reached.
    pub state: State,
    /// The plan that the session enforces now.
    pub plan: PlanStatus,
    /// The callbacks that the plan names and the session has not found yet.
    pub missing: Vec<String>,
    /// The time since shaping began, in ns. `None` if it has not begun.
    pub shaping_ns: Option<u64>,
    /// The counts of the session since shaping began.
    pub counts: Counts,
    /// The reasons why gates stayed open.
    pub guard: GuardStatus,
    /// The plan's promises, and the values measured so far.
    pub promises: Vec<Promise>,
    /// The distribution of how late the dispatcher woke up.
    pub dispatcher: Lateness,
    /// The servers of the plan that the session enforces.
    pub servers: Vec<ServerStatus>,
    /// The latest notes, one sentence each.
    pub notes: Vec<String>,
}

/// The stage of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// The application runs as it would without onbeat.
    #[default]
    Finding,
    /// The application's threads are in their servers.
    Shaping,
    /// Shaping has ended and everything is put back.
    Stopped,
}

impl State {
    /// Returns the state as one lower-case word.
    pub fn name(self) -> &'static str {
        match self {
            State::Finding => "finding",
            State::Shaping => "shaping",
            State::Stopped => "stopped",
        }
    }
}

/// The plan of a session.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct PlanStatus {
    /// The name of the strategy by which the plan was made.
    pub strategy: String,
    /// The names of the plan's chains.
    pub chains: Vec<String>,
    /// The length of the plan's cycle, in ns.
    pub cycle_ns: u64,
    /// The number of plans that were in force, this one included.
    pub number: u64,
    /// The number of new plans that the session refused.
    pub refused: u64,
    /// The counts under the latest plans before this one.
    pub earlier: Vec<PlanCounts>,
    /// The counts of each chain since shaping began.
    pub counts: Vec<ChainCounts>,
}

/// The counts of one chain since shaping began.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ChainCounts {
    /// The id of the chain, as in the plan.
    pub id: String,
    /// The number of executions of the chain that have ended.
    pub executions: u64,
    /// The number of cycles in which an output was delivered.
    pub delivered: u64,
    /// The number of cycles in which no output was delivered.
    pub without_output: u64,
    /// The number of outputs that missed the last slot of their cycle.
    pub late: u64,
    /// The number of outputs that the shaper discarded instead of sending them.
    pub discarded: u64,
}

/// The counts under an earlier plan.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct PlanCounts {
    /// The number of the plan. The first plan of a session is 1.
    pub number: u64,
    /// The name of the strategy by which the plan was made.
    pub strategy: String,
    /// The executions that were released under the plan.
    pub executions: u64,
    /// The outputs of these executions that missed the last slot of their cycle.
    pub late: u64,
    /// The number of outputs that the shaper discarded instead of sending them.
    pub discarded: u64,
    /// The number of cycles without an output, of the chain that has most such cycles.
    pub without_output: u64,
}

/// The counts of a session since shaping began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counts {
    /// The number of cycles that the dispatcher has run.
    pub cycles: u64,
    /// The number of executions of all chains.
    pub executions: u64,
    /// The number of outputs that missed the last slot of their cycle.
    pub late: u64,
    /// The number of outputs that the shaper discarded instead of sending them.
    pub discarded: u64,
    /// The number of cycles without an output, of the chain that has most such cycles.
    pub without_output: u64,
    /// The slots that were over before the dispatcher woke up.
    pub skipped_slots: u64,
    /// The slips: inputs of throttled topics that came twice in a cycle, or not in one, although at
    /// their usual distance.
    pub slips: u64,
    /// The reports of the shaper that were lost. Their outputs count as not delivered.
    pub lost_reports: u64,
}

/// The reasons why gates stayed open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct GuardStatus {
    /// The number of times the guard opened all gates because the dispatcher did not run.
    pub opened: u64,
    /// The number of times the dispatcher opened all gates because the guard did not run.
    pub silent: u64,
    /// The guard process has ended.
    pub lost: bool,
}

/// A promise of the plan, and its value measured so far.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Promise {
    /// The name of the promised figure.
    pub name: &'static str,
    /// The unit: `ms` or `%`.
    pub unit: &'static str,
    /// The value that the plan promises.
    pub promised: f64,
    /// The value measured so far. `None` if nothing was measured yet.
    pub measured: Option<f64>,
    /// The promise is kept so far. `None` if too little was measured, or if only `--verify` judges
    /// the promise.
    pub kept: Option<bool>,
}

/// The distribution of how late the dispatcher woke up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Lateness {
    /// The median of the lateness, in ns.
    pub p50_ns: u64,
    /// The 99th percentile of the lateness, in ns.
    pub p99_ns: u64,
    /// The 99.9th percentile of the lateness, in ns.
    pub p999_ns: u64,
    /// The maximum of the lateness, in ns.
    pub max_ns: u64,
}

/// A server with its threads, or the middleware's CPU.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ServerStatus {
    /// The name of the server, as in the plan.
    pub name: String,
    /// The CPU on which the server's threads run.
    pub cpu: u16,
    /// The real-time priority of the server's threads.
    pub priority: u8,
    /// The server's threads: id and name. The names are untrusted.
    pub threads: Vec<(u32, String)>,
}
