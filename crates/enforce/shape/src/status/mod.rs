//! Reports a running session to others: through a socket that only root reaches, and as figures for
//! monitors.
//!
//! | module | task |
//! |---|---|
//! | here | [`Status`]: the figures |
//! | `tally` | adds up figures while a session runs |
//! | `board` | holds the status of a session for other threads; never waits |
//! | `service` | a thread that answers on a Unix socket |
//! | `reload` | new plans on their way to a session, and their outcomes |
//! | `client` | asks the sessions of this machine |
//! | `metrics` | the figures as Prometheus text |
//! | `diagnostics` | the figures as ROS 2 diagnostics |

mod board;
mod client;
mod diagnostics;
mod metrics;
mod reload;
mod service;
mod sockets;
mod tally;

pub use board::Board;
pub use client::{ask, Answer};
pub(crate) use diagnostics::start as start_diagnostics;
pub use metrics::prometheus;
pub use reload::{Outcome, Reloaded, Reloads};
pub use service::{Duties, LoadPlan, Service, StatusError, WriteFigures};
pub(crate) use tally::Tally;

use serde::Serialize;

/// The value of [`Status::schema`]: the name and version of the format.
pub const SCHEMA: &str = "onbeat-status/1";

/// The state and figures of a session. The session renews them about once a second.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Status {
    /// The name and version of the status format: always [`SCHEMA`].
    pub schema: &'static str,
    pub pid: u32,
    pub state: State,
    pub plan: PlanStatus,
    /// The callbacks of the plan that the session has not found yet.
    pub missing: Vec<String>,
    /// The time since shaping began, in ns. `None` if it has not begun.
    pub shaping_ns: Option<u64>,
    pub counts: Counts,
    pub guard: GuardStatus,
    pub promises: Vec<Promise>,
    pub dispatcher: Lateness,
    pub servers: Vec<ServerStatus>,
    pub notes: Vec<String>,
}

/// The stage that a session has reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// The session looks for the plan's callbacks. The application runs as it would without onbeat.
    #[default]
    Finding,
    /// The application's threads are in their servers, and outputs leave in their slots.
    Shaping,
    /// Shaping has ended, and all threads are restored.
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

/// The plan in force in a session, with the counts of its chains and of earlier plans.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct PlanStatus {
    pub strategy: String,
    pub chains: Vec<String>,
    pub cycle_ns: u64,
    /// The number of the plan within the session. The session began with plan 1.
    pub number: u64,
    /// The number of new plans that the session refused.
    pub refused: u64,
    /// The counts under the latest plans before the present one.
    pub earlier: Vec<PlanCounts>,
    /// The counts of each chain of the plan since shaping began.
    pub counts: Vec<ChainCounts>,
}

/// The counts of one chain since shaping began.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ChainCounts {
    pub id: String,
    pub executions: u64,
    pub delivered: u64,
    pub without_output: u64,
    pub late: u64,
    pub discarded: u64,
}

/// The counts of executions under an earlier plan.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct PlanCounts {
    pub number: u64,
    pub strategy: String,
    pub executions: u64,
    pub late: u64,
    pub discarded: u64,
    /// The number of cycles without an output, of the chain that has the most of them.
    pub without_output: u64,
}

/// The counts of all chains together since shaping began.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counts {
    /// The number of cycles that the dispatcher has run.
    pub cycles: u64,
    pub executions: u64,
    pub late: u64,
    pub discarded: u64,
    /// The number of cycles without an output, of the chain that has the most of them.
    pub without_output: u64,
    /// The number of slots that were over before the dispatcher woke up.
    pub skipped_slots: u64,
    /// The number of slips. A slip is a cycle in which a throttled input came twice or not at all,
    /// although the input's interval was normal.
    pub slips: u64,
    /// The number of the shaper's reports that were lost. The outputs in these reports count as not
    /// delivered.
    pub lost_reports: u64,
}

/// The number of times that all gates were opened, by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct GuardStatus {
    /// The number of times that the guard opened all gates because the dispatcher did not run.
    pub opened: u64,
    /// The number of times that the dispatcher opened all gates because the guard did not run.
    pub silent: u64,
    /// Whether the guard process has ended.
    pub lost: bool,
}

/// A promise of the plan, with the value measured so far.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Promise {
    pub name: &'static str,
    /// The unit of both values: `ms` or `%`.
    pub unit: &'static str,
    pub promised: f64,
    /// The value measured so far. `None` if nothing was measured yet.
    pub measured: Option<f64>,
    /// Whether the promise is kept so far. `None` if too little was measured, or if only `--verify`
    /// judges the promise.
    pub kept: Option<bool>,
}

/// The distribution of the dispatcher's lateness: how long after the planned time the dispatcher
/// woke up.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Lateness {
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
    pub max_ns: u64,
}

/// A server of the plan with its threads. An entry for the middleware's CPU has the same form.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ServerStatus {
    pub name: String,
    pub cpu: u16,
    pub priority: u8,
    /// The server's threads, each with its id and name. The application chose the names, so they
    /// are untrusted.
    pub threads: Vec<(u32, String)>,
}
