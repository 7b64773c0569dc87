//! ROS 2 diagnostics of a session: messages for `/diagnostics`, and the process that publishes
//! them.
//!
//! | module | task |
//! |---|---|
//! | here | a status as in `diagnostic_msgs` |
//! | `cdr` | serialises statuses to the bytes of a message; pure |
//! | [`frame`] | the protocol between the session and that process; pure |
//! | `process` | the publishing process |
//! | `publisher` | the publishing process, seen from its owner |
//! | `worker` | the owner's thread that makes messages and keeps that process running |
//! | `post` | what the owner and that thread tell each other |

mod cdr;
pub mod frame;
mod post;
mod process;
mod publisher;
mod worker;

pub use cdr::{fitting, serialise, MOST_BYTES};
pub use post::{Post, Standing};
pub use process::{run, Config, DiagnosticsError, MAX_VALUE_TOPICS, NODE, TOPIC, TYPE};
pub use worker::{Diagnostics, Source};

/// The level of a status: the constants of `diagnostic_msgs/msg/DiagnosticStatus`.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Level {
    #[default]
    Ok = 0,
    Warn = 1,
    Error = 2,
    Stale = 3,
}

/// The health of one part of the system. Corresponds to `diagnostic_msgs/msg/DiagnosticStatus`.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DiagnosticStatus {
    pub level: Level,
    /// The name of the part, for example `onbeat: chain-1`.
    pub name: String,
    pub message: String,
    /// The name of the machine on which onbeat runs.
    pub hardware_id: String,
    /// The figures, as pairs of a name and a value.
    pub values: Vec<(String, String)>,
}
