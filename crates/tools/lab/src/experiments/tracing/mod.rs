//! `tracing`: what observing costs the observed system (thesis section 3.7, *Tracing overheads*).

mod hits;
mod latency;
mod usage;

use crate::frame::report::Report;
use crate::frame::{Context, Experiment, LabError};

/// The experiment.
pub struct Tracing;

impl Experiment for Tracing {
    fn name(&self) -> &'static str {
        "tracing"
    }

    fn about(&self) -> &'static str {
        "what recording costs: per probe hit, per message, in CPU time and in bytes (thesis, section 3.7)"
    }

    fn parts(&self) -> &'static [&'static str] {
        &["hits", "usage", "latency"]
    }

    fn run(&self, context: &mut Context) -> Result<Report, LabError> {
        let mut report = Report::new();
        // What a hit costs is needed for the CPU time of the probes too.
        let mut costs = hits::Costs::default();
        if context.wants("hits") || context.wants("usage") {
            costs = hits::measure(context, &mut report).unwrap_or_else(|e| {
                report.skip("cost per probe hit", e);
                hits::Costs::default()
            });
        }
        if context.wants("usage") {
            if let Err(e) = usage::measure(context, &mut report, |probe| costs.of(&probe.placement))
            {
                report.skip("CPU time and bytes on the parking demo and SYN", e);
            }
        }
        if context.wants("latency") {
            if let Err(e) = latency::measure(context, &mut report) {
                report.skip("overhead on message latency", e);
            }
        }
        Ok(report)
    }
}
