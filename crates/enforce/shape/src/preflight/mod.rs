//! What of a machine makes slots imprecise, or keeps threads from being assigned, before anything is
//! changed: each setting as a line with what was found, how bad that is, and the way out.
//!
//! [`Facts`] are read from files, `judge` makes lines of them (pure). What is not known is said.

mod facts;
mod judge;

pub(crate) use facts::cpu_list;
pub use facts::{Facts, Preemption};

use onbeat_plan::Plan;

/// How bad a setting is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grade {
    /// As it should be.
    Ok,
    /// Not the best, or not known.
    Note,
    /// Promises are likely to be missed, or threads cannot be assigned.
    Risk,
}

impl Grade {
    /// One word.
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
    /// How bad it is.
    pub grade: Grade,
    /// The setting.
    pub about: &'static str,
    /// What was found, and what follows.
    pub found: String,
    /// How to change it. `None`: there is nothing to change.
    pub way_out: Option<String>,
}

/// All settings of this machine that matter to a plan. Only reads.
pub fn preflight(plan: &Plan, dispatcher_cpu: Option<u16>) -> Vec<Line> {
    let facts = Facts::read("/".as_ref());
    judge::judge(&facts, plan, dispatcher_cpu.unwrap_or(plan.middleware.cpu))
}

/// The line about the kernel's preemption model alone.
pub fn preemption() -> Line {
    judge::preemption(&Facts::read("/".as_ref()))
}
