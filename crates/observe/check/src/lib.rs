//! A timing model against requirements: what holds, what does not, and what the sample is too small to
//! tell. Values in, values out: no clock, no file.

mod figures;
mod file;
mod init;
mod judge;
mod limit;
mod output;
mod requirements;
mod rules;

pub use file::{read, RequirementsError};
pub use init::{write as initial, Limits};
pub use judge::{Finding, Verdict};
pub use limit::{Limit, Statistic};
pub use onbeat_yaml::MAX_BYTES;
pub use output::{json, junit, sarif};
pub use requirements::Requirements;
pub use rules::check;

/// What came of all requirements: the worst of them.
pub fn verdict(findings: &[Finding]) -> Verdict {
    let all = findings.iter().map(|f| f.verdict);
    all.max().unwrap_or(Verdict::NotKnown)
}
