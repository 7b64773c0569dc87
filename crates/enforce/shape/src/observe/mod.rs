//! Observes the application: its callbacks, executions and threads, and the phase of its cycles.
//!
//! [`Watcher`] turns events of the recording into observations of the plan's callbacks. From these,
//! [`Executions`] builds executions, [`Roles`] finds the threads that belong to servers, and
//! [`Phase`] finds the phase of the cycles. Everything here is pure.

mod application;
mod executions;
mod inputs;
mod instances;
mod joins;
mod others;
mod phase;
mod releases;
mod roles;
mod roots;
mod runs;
mod watch;

pub(crate) use application::Application;
pub use executions::{Attribution, Execution, Executions, Fate, Release};
pub use inputs::{InputClock, Moved, SLEW_PART};
pub(crate) use instances::{Instances, Standing};
pub(crate) use joins::{JoinChange, Joins};
pub(crate) use others::Others;
pub use phase::{Phase, PhaseHistory, MOST_ARRIVALS};
pub use releases::Releases;
pub use roles::{Conflict, Role, Roles};
pub(crate) use roots::{RootChange, Roots};
pub use runs::{Cause, Runs};
pub use watch::{is_synchroniser, PlanObservation, Unplanned, Watcher};
