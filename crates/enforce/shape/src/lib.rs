//! Runs a plan on a machine: finds the threads of its callbacks, follows the phase of the chain,
//! runs reservation servers and shapers, and judges the result.
//!
//! | module | task |
//! |---|---|
//! | `session` | [`shape`]: a recording whose observer goes through the stages |
//! | `stages` | the stages `Finding`, `Shaping` and `Stopped`, each with its own data |
//! | [`observe`] | turns the recording's events into callbacks, executions, threads and phase; pure |
//! | `follow` | bands that follow the load; pure |
//! | `history` | finds the plan that applied to an execution; pure |
//! | `plans` | the plan in force; pure |
//! | `threads` | puts threads into their servers, and the middleware's threads on their CPU |
//! | `shaper` | holds outputs back: a process, or a library inside the application |
//! | `trust` | the users whose processes can be the application |
//! | [`judge`] | isolation, late outputs, CPU time and the plan's promises; pure except for a clock |
//! | `dry_run` | shows what a session would do, without doing it |
//! | [`status`] | reports the state of a running session to other programs |
//! | [`preflight`] | finds settings of the machine that make slots imprecise |
//! | `flight` | the flight recorder: keeps the last switches and finds the cause of each late output; pure |
//! | [`launch`] | the application's command with remapped topics |

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
pub use options::{ApplicationOptions, EnforcementOptions, HoldAt, ShapeOptions};
pub use report::{EarlierPlan, Live, PlacedThread, Summary};
pub use session::{rights, shape, shape_on};

/// The capabilities that [`recover_in`] needs to restore threads.
pub const RECOVER_RIGHTS: &[onbeat_rights::Capability] = &[
    onbeat_rights::Capability::CAP_SYS_NICE,
    onbeat_rights::Capability::CAP_DAC_OVERRIDE,
    onbeat_rights::Capability::CAP_DAC_READ_SEARCH,
];
pub use shaper::{InsideError, ShaperError};
