//! What a running session tells others: a socket that only root reaches, and figures for monitors.
//!
//! | module | task |
//! |---|---|
//! | here | [`Status`]: the figures |
//! | `tally` | figures that are added up while a session runs |
//! | `board` | where a session leaves its status; never waits |
//! | `post` | what a session and the thread of its diagnostics leave for each other |
//! | `service` | a thread that answers on a Unix socket |
//! | `reload` | new plans on their way to a session, and what becomes of them |
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

/// Value of [`Status::schema`].
pub const SCHEMA: &str = "onbeat-status/1";

/// A session, about once a second.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Status {
    /// Always [`SCHEMA`].
    pub schema: &'static str,
    /// Process of the session.
    pub pid: u32,
    /// Where it is.
    pub state: State,
    /// What it shapes.
    pub plan: PlanStatus,
    /// Callbacks that are not found yet.
    pub missing: Vec<String>,
    /// Since shaping began. `None`: it has not.
    pub shaping_ns: Option<u64>,
    /// What was counted since then.
    pub counts: Counts,
    /// Why gates stayed open.
    pub guard: GuardStatus,
    /// The plan's promises, and what was measured so far.
    pub promises: Vec<Promise>,
    /// How late the dispatcher woke.
    pub dispatcher: Lateness,
    /// The plan's servers.
    pub servers: Vec<ServerStatus>,
    /// The last notes, a sentence each.
    pub notes: Vec<String>,
}

/// Where a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// The application runs as it would without us.
    #[default]
    Finding,
    /// Its threads are in their servers.
    Shaping,
    /// Everything is put back.
    Stopped,
}

impl State {
    /// One word.
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
    /// Its strategy.
    pub strategy: String,
    /// Its chains.
    pub chains: Vec<String>,
    /// Its cycle.
    pub cycle_ns: u64,
    /// How many plans were in force, this one included.
    pub number: u64,
    /// New plans that were not taken.
    pub refused: u64,
    /// What was counted under the plans before this one: the last ones.
    pub earlier: Vec<PlanCounts>,
    /// What was counted of each chain since shaping began.
    pub counts: Vec<ChainCounts>,
}

/// What was counted of a chain since shaping began.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ChainCounts {
    /// The chain.
    pub id: String,
    /// Executions that have ended.
    pub executions: u64,
    /// Cycles with an output.
    pub delivered: u64,
    /// Cycles without one.
    pub without_output: u64,
    /// Outputs that missed the last slot of their cycle.
    pub late: u64,
    /// Outputs that were discarded.
    pub discarded: u64,
}

/// What was counted under an earlier plan.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct PlanCounts {
    /// The session began with 1.
    pub number: u64,
    /// Its strategy.
    pub strategy: String,
    /// Executions that were released under it.
    pub executions: u64,
    /// Outputs of theirs that missed the last slot of their cycle.
    pub late: u64,
    /// Outputs that were discarded.
    pub discarded: u64,
    /// Cycles without an output, of the chain with most of them.
    pub without_output: u64,
}

/// What was counted since shaping began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counts {
    /// Cycles of the dispatcher.
    pub cycles: u64,
    /// Executions of all chains.
    pub executions: u64,
    /// Outputs that missed the last slot of their cycle.
    pub late: u64,
    /// Outputs that were discarded.
    pub discarded: u64,
    /// Cycles without an output, of the chain with most of them.
    pub without_output: u64,
    /// Slots that had passed before the dispatcher came.
    pub skipped_slots: u64,
    /// Inputs of throttled topics that came twice in a cycle, or not in one, at their usual distance.
    pub slips: u64,
    /// Reports of the shaper that were lost: their outputs count as not delivered.
    pub lost_reports: u64,
}

/// Why gates stayed open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct GuardStatus {
    /// How often the guard opened all gates because the dispatcher did not run.
    pub opened: u64,
    /// How often the dispatcher opened them because the guard did not run.
    pub silent: u64,
    /// Whether the guard has ended.
    pub lost: bool,
}

/// A promise of the plan.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Promise {
    /// Its name.
    pub name: &'static str,
    /// `ms` or `%`.
    pub unit: &'static str,
    /// What the plan says.
    pub promised: f64,
    /// What was measured so far. `None`: nothing.
    pub measured: Option<f64>,
    /// Whether it is kept so far. `None`: too little was measured to say so, or only `--verify` judges it.
    pub kept: Option<bool>,
}

/// How late the dispatcher woke.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Lateness {
    /// Half of the times not later than this.
    pub p50_ns: u64,
    /// 99 % of the times.
    pub p99_ns: u64,
    /// 99.9 % of the times.
    pub p999_ns: u64,
    /// The latest.
    pub max_ns: u64,
}

/// A server, or the middleware's place.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ServerStatus {
    /// Its name.
    pub name: String,
    /// Its CPU.
    pub cpu: u16,
    /// The real-time priority of its threads.
    pub priority: u8,
    /// Its threads: id and name. Names are untrusted.
    pub threads: Vec<(u32, String)>,
}
