//! `tracing`: what observing costs the observed system (thesis section 3.7, *Tracing overheads*).

mod hits;

use crate::experiment::{Context, Experiment, LabError};
use crate::report::Report;

/// The experiment.
pub struct Tracing;

impl Experiment for Tracing {
    fn name(&self) -> &'static str {
        "tracing"
    }

    fn about(&self) -> &'static str {
        "what recording costs: per probe hit, per message, in CPU time and in bytes (thesis, section 3.7)"
    }

    fn run(&self, context: &mut Context) -> Result<Report, LabError> {
        let mut report = Report::new();
        if let Err(e) = hits::measure(context, &mut report) {
            report.skip("cost per probe hit", e);
        }
        Ok(report)
    }
}
