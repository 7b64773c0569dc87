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

/// The grade of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grade {
    /// The setting is good.
    Ok,
    /// The setting is not the best one, or is unknown.
    Note,
    /// The setting is likely to break promises, or prevents threads from being assigned.
    Risk,
}

impl Grade {
    /// Returns the grade as one word.
    pub fn name(self) -> &'static str {
        match self {
            Grade::Ok => "ok",
            Grade::Note => "note",
            Grade::Risk => "risk",
        }
    }
}

/// One setting of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The grade of the setting.
    pub grade: Grade,
    /// The name of the setting that was checked.
    pub about: &'static str,
    /// The value of the setting and its consequence.
    pub found: String,
    /// The way to change the setting. `None` if nothing needs to change.
    pub way_out: Option<String>,
}

/// Returns all settings of this machine that matter to a plan. Only reads.
pub fn preflight(plan: &Plan, dispatcher_cpu: Option<u16>) -> Vec<Line> {
    let facts = Facts::read("/".as_ref());
    judge::judge(&facts, plan, dispatcher_cpu.unwrap_or(plan.middleware.cpu))
}

/// Returns the line about the kernel's preemption model alone.
pub fn preemption() -> Line {
    judge::preemption(&Facts::read("/".as_ref()))
}
