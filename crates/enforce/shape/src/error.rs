//! The errors that stop a session.

use crate::launch::LaunchError;
use crate::shaper::{InsideError, ShaperError};
use onbeat_plan::adapt::AdaptError;
use onbeat_record::RecordError;
use onbeat_reserve::{AssignError, StartError};
use thiserror::Error;

/// The reason why a shaping session could not start, or ended. The messages explain the fields.
#[allow(missing_docs)]
#[derive(Debug, Error)]
pub enum ShapeError {
    /// The program file has capabilities, so onbeat refuses to shape. The calling user could
    /// otherwise forge the ledger from which onbeat restores threads.
    #[error("onbeat shape refuses to run with file capabilities (setcap). Run onbeat with sudo")]
    Elevated,
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("cannot create a temporary directory: {0}. Free space, set TMPDIR, or choose a directory with --trace")]
    Temporary(std::io::Error),
    #[error(transparent)]
    Shaper(#[from] ShaperError),
    #[error(transparent)]
    Inside(#[from] InsideError),
    #[error(transparent)]
    Launch(#[from] LaunchError),
    #[error("--adapt: {0}")]
    Adapt(#[from] AdaptError),
    #[error("--diagnostics: the application's ROS 2 has no diagnostic_msgs. Install the package ros-DISTRO-diagnostic-msgs, or omit --diagnostics")]
    NoDiagnostics,
    #[error("--diagnostics: the process that publishes diagnostics has ended: {0}")]
    Diagnostics(String),
    #[error("cannot put thread {tid}, which runs {callback}, into server {server}: {reason}")]
    Assign {
        tid: u32,
        callback: String,
        server: String,
        reason: AssignError,
    },
    #[error("processes {of} and {pid} both run {callback}. End one of them, give its nodes another namespace, or choose the application with --pid. Without --strict, onbeat ignores the second process")]
    SecondInstance { callback: String, pid: u32, of: u32 },
    #[error("{} did not run within {within_s} s. Check that the application runs, and that its nodes have the names in the plan", .callbacks.join(", "))]
    NotSeen {
        callbacks: Vec<String>,
        within_s: u64,
    },
    #[error("{callback} does not start on a grid of {cycle_ms} ms: its starts spread over {spread_ms:.1} ms. Plan a throttler for it (onbeat plan --throttle), or check the cycle")]
    NoGrid {
        callback: String,
        cycle_ms: f64,
        /// The range of the first callback's starts within the cycle, in ms. It is small for a
        /// periodic callback.
        spread_ms: f64,
    },
    #[error("thread {tid} runs {first} and {second}, which belong to different servers. Run their nodes in separate processes, or put both callbacks into one server")]
    TwoServers {
        tid: u32,
        first: String,
        second: String,
    },
    #[error("{callback} publishes directly on {topic}, so no shaper can hold the output back. Start the application with onbeat shape PLAN -- COMMAND, or start its node with: {remap}. If a rule of the node already remaps a topic to {topic}, change the target of that rule in the same way instead")]
    NotHeld {
        callback: String,
        topic: String,
        /// The command-line arguments with which the application would use another topic, so that a
        /// shaper can hold the output back.
        remap: String,
    },
    #[error("the process of {callback} has no publisher thread to put into {server}. Start this process with RMW_FASTRTPS_PUBLICATION_MODE=ASYNCHRONOUS, or plan with --design sync")]
    NoPublisherThread { callback: String, server: String },
}

impl ShapeError {
    pub(crate) fn is_of_one_thread(&self) -> bool {
        match self {
            ShapeError::Assign { reason, .. } => !matches!(
                reason,
                AssignError::NoGuard(_) | AssignError::Note { .. } | AssignError::UnknownServer(_)
            ),
            ShapeError::TwoServers { .. } | ShapeError::NotHeld { .. } => true,
            _ => false,
        }
    }

    /// Returns true if the error says that this machine or this user cannot shape any plan.
    pub fn is_refusal(&self) -> bool {
        match self {
            ShapeError::Elevated => true,
            ShapeError::Record(e) => e.is_refusal(),
            ShapeError::Start(e) => matches!(
                e,
                StartError::State { .. }
                    | StartError::NoFreezer(_)
                    | StartError::SchedExt(_)
                    | StartError::DispatcherPriority { .. }
            ),
            _ => false,
        }
    }
}
