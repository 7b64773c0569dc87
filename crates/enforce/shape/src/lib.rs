//! Runs a plan on a machine: finds the threads of its callbacks, follows the chain's phase, keeps
//! reservation servers and a shaper running, and judges the result.
//!
//! | module | task |
//! |---|---|
//! | `session` | [`shape`]: a recording whose observer goes through the stages |
//! | `stages` | `Finding`, `Shaping`, `Stopped`, each with what it needs |
//! | [`observe`] | the recording's events as callbacks, executions, threads and phase; pure |
//! | `follow` | bands that follow the load; pure |
//! | `history` | which plan an execution had; pure |
//! | `plans` | the plan in force; pure |
//! | `threads` | threads in their servers, the middleware's on its CPU |
//! | `shaper` | the process that holds outputs back |
//! | `trust` | whose processes may be the application |
//! | [`judge`] | isolation, late outputs, CPU time, the plan's promises; pure but for a clock |
//! | `dry_run` | what a session would do, without doing it |
//! | [`status`] | what a running session tells others |
//! | [`preflight`] | settings of the machine that make slots imprecise |
//! | `flight` | the flight recorder: the last switches, and the cause of each late output; pure |
//! | [`launch`] | the application's command with topics remapped |

mod dry_run;
mod error;
mod flight;
mod follow;
mod history;
pub mod judge;
pub mod launch;
pub mod observe;
mod options;
mod plans;
pub mod preflight;
mod report;
mod session;
mod shaper;
mod slots;
mod stages;
pub mod status;
mod threads;
mod trust;

pub use dry_run::{dry_run, Destination, DryRun, SeenThread, Started};
pub use error::ShapeError;
pub use flight::{LateOutput, Part};
pub use follow::{AdaptOptions, Adapted, BandsSet};
pub use observe::Unplanned;
pub use onbeat_reserve::{
    ledgers, recover_in, Choice, FoundLedger, GateKind, GroupStanding, Recovery, Restored, Standing,
};
pub use options::{ApplicationOptions, EnforcementOptions, ShapeOptions};
pub use report::{EarlierPlan, Live, PlacedThread, Summary};
pub use session::{rights, shape, shape_on};

/// What [`recover_in`] may use: what it takes to put threads back.
pub const RECOVER_RIGHTS: &[onbeat_rights::Capability] = &[
    onbeat_rights::Capability::CAP_SYS_NICE,
    onbeat_rights::Capability::CAP_DAC_OVERRIDE,
    onbeat_rights::Capability::CAP_DAC_READ_SEARCH,
];
pub use shaper::ShaperError;
