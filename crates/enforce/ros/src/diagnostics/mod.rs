//! ROS 2 diagnostics of a session: messages for `/diagnostics`, and the process that publishes them.
//!
//! | module | task |
//! |---|---|
//! | here | a status as `diagnostic_msgs` has it |
//! | `cdr` | statuses as the bytes of a message; pure |
//! | [`frame`] | what the session and that process say to each other; pure |
//! | `process` | that process |

mod cdr;
pub mod frame;
mod process;

pub use cdr::{serialise, MOST_BYTES};
pub use process::{run, Config, DiagnosticsError, NODE, TOPIC, TYPE};

/// How a part of the system does: `diagnostic_msgs/msg/DiagnosticStatus`, its constants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Level {
    /// As it should.
    #[default]
    Ok = 0,
    /// Something happened that should not.
    Warn = 1,
    /// It does not do what it is for.
    Error = 2,
    /// What is told is old.
    Stale = 3,
}

/// `diagnostic_msgs/msg/DiagnosticStatus`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DiagnosticStatus {
    /// How it does.
    pub level: Level,
    /// What it is, for example `onbeat: chain-1`.
    pub name: String,
    /// Why it has its level.
    pub message: String,
    /// Of which machine.
    pub hardware_id: String,
    /// Figures: names and values.
    pub values: Vec<(String, String)>,
}
