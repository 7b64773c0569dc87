//! Writes priorities as a configuration of the Callback Isolated Executor.

use crate::Priorities;
use onbeat_document::schema::CallbackType;
use onbeat_document::Model;
use std::fmt;
use std::fmt::Write as _;

/// The reason why a configuration of the Callback Isolated Executor cannot be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IsolatedError {
    /// The configuration would be empty, because none of the callbacks can be named in it.
    Empty,
}

impl fmt::Display for IsolatedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IsolatedError::Empty => {
                f.write_str("no chain of the model has a timer, subscription, service or client")
            }
        }
    }
}

impl std::error::Error for IsolatedError {}

/// Returns the configuration of the Callback Isolated Executor as YAML, with an entry for each
/// callback. Each entry assumes that its callback has a callback group of its own. The executor
/// itself expects one entry per group, but a model does not contain groups.
///
/// # Errors
/// Fails if the configuration would have no entries.
pub fn isolated(model: &Model, priorities: &Priorities) -> Result<String, IsolatedError> {
    let mut out = String::from(
        "# Priorities by `onbeat advise`. Each entry assumes that its callback has a callback group of its own.\n\
         # The id of a group with several callbacks lists all of them (NODE@Timer(..)@Subscription(..)).\n\
         # Compare the ids with the template that the configurator of the Callback Isolated Executor writes.\n\
         callback_groups:\n",
    );
    let mut written = 0;
    for assigned in &priorities.assigned {
        let Some(callback) = model.callbacks.iter().find(|c| c.id == assigned.callback) else {
            continue;
        };
        let entry = match callback.kind {
            CallbackType::Timer => callback.period_ns.map(|p| format!("Timer({p})")),
            CallbackType::Subscription => Some(format!("Subscription({})", callback.input)),
            CallbackType::Service => Some(format!("Service({})", callback.input)),
            CallbackType::Client => Some(format!("Client({})", callback.input)),
            CallbackType::Task | CallbackType::Sync | CallbackType::Thread => None,
        };
        let Some(entry) = entry else { continue };
        written += 1;
        let cpus: Vec<String> = assigned.cpus.iter().map(u16::to_string).collect();
        let id = serde_json::Value::from(format!("{}@{entry}", callback.node));
        // Names are untrusted. A JSON string is also a YAML string, so this quotes them.
        let _ = write!(
            out,
            "  - id: {id}\n    affinity: [{}]\n    policy: SCHED_FIFO\n    priority: {}\n",
            cpus.join(", "),
            assigned.priority
        );
    }
    match written {
        0 => Err(IsolatedError::Empty),
        _ => Ok(out),
    }
}
