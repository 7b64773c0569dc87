//! Checks the machine before anything is changed: finds settings that make slots imprecise or keep
//! threads from being assigned.
//!
//! Each setting becomes a line: its value, its grade, and how to change it. [`Facts`] are
//! read from files, and `judge` grades them (pure). Unknown settings are reported as unknown.

mod facts;
mod judge;

pub(crate) use facts::cpu_list;
pub use facts::{Facts, Preemption};

use onbeat_plan::Plan;

/// The grade that a machine's setting gets for shaping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grade {
    /// The setting is good for shaping.
    Ok,
    /// The setting is not the best one for shaping, or it is unknown.
    Note,
    /// The setting is likely to break promises, or prevents threads from being assigned.
    Risk,
}

impl Grade {
    /// Returns the grade as one word for reports.
    pub fn name(self) -> &'static str {
        match self {
            Grade::Ok => "ok",
            Grade::Note => "note",
            Grade::Risk => "risk",
        }
    }
}

/// One setting of the machine, with its grade and the way to improve it.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub grade: Grade,
    /// The name of the setting that was checked, for example `CPU frequency`.
    pub about: &'static str,
    /// The value of the setting, and what this value means for shaping.
    pub found: String,
    /// A sentence that says how to change the setting. `None` if nothing needs to change.
    pub way_out: Option<String>,
}

/// Checks all settings of this machine that matter to a plan. Changes nothing.
pub fn preflight(plan: &Plan, dispatcher_cpu: Option<u16>) -> Vec<Line> {
    let facts = Facts::read("/".as_ref());
    judge::judge(&facts, plan, dispatcher_cpu.unwrap_or(plan.middleware.cpu))
}

/// Checks only the kernel's preemption model.
pub fn preemption() -> Line {
    judge::preemption(&Facts::read("/".as_ref()))
}
