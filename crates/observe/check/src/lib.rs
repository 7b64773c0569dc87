//! Checks a timing model against requirements. It finds those that hold, those that do not, and
//! those for which the sample is too small.
//!
//! The crate is pure: it reads no clock and no file.

mod figures;
mod file;
mod init;
mod judge;
mod limit;
mod output;
mod requirements;
mod rules;

pub use figures::Selection;
pub use file::{read, RequirementsError};
pub use init::{write as initial, Limits};
pub use judge::{Finding, Verdict};
pub use limit::{Limit, Statistic};
pub use onbeat_yaml::MAX_BYTES;
pub use output::{json, junit, sarif};
pub use requirements::Requirements;
pub use rules::{check, check_selected};

/// Returns the worst verdict of all findings, or [`Verdict::NotKnown`] if there are none.
pub fn verdict(findings: &[Finding]) -> Verdict {
    let all = findings.iter().map(|f| f.verdict);
    all.max().unwrap_or(Verdict::NotKnown)
}
