//! The `tracing` experiment: the cost of recording for the observed system (thesis, section 3.7,
//! *Tracing overheads*).

mod hits;
mod latency;
mod library;
mod lttng;
mod usage;

use crate::frame::report::Report;
use crate::frame::{Context, Experiment, Result};

pub const EXPERIMENT: Experiment = Experiment {
    name: "tracing",
    about: "cost of recording: per probe hit, per message, in CPU time and in bytes (thesis, section 3.7)",
    parts: &["hits", "library", "usage", "latency", "preload"],
    takes: &[],
    run,
};

fn run(context: &mut Context) -> Result<Report> {
    let mut report = Report::new();
    // The CPU time of the probes is computed from the cost of a hit.
    let mut costs = hits::Costs::default();
    if context.wants("hits") || context.wants("usage") {
        costs = hits::measure(context, &mut report).unwrap_or_else(|e| {
            report.skip("cost per probe hit", e);
            hits::Costs::default()
        });
    }
    let mut event_us = None;
    if context.wants("library") || context.wants("usage") {
        match library::measure(context, &mut report) {
            Ok(us) => event_us = Some(us),
            Err(e) => report.skip(
                "cost of one event for the thread that runs its tracepoint",
                e,
            ),
        }
    }
    if context.wants("usage") {
        if let Err(e) = usage::measure(context, &mut report, |probe| costs.of(&probe.placement)) {
            report.skip(
                "CPU time of recording and size of the trace, for the parking demo and the synthetic demo SYN",
                e,
            );
        }
        let by_library = event_us.map(|us| usage::of_library(context, &mut report, us));
        if let Some(Err(e)) = by_library {
            report.skip(
                "CPU time of the preloaded library, for the parking demo and the synthetic demo SYN",
                e,
            );
        }
    }
    if context.wants("latency") || context.wants("preload") {
        if let Err(e) = latency::measure(context, &mut report) {
            report.skip("latency that recording adds to messages", e);
        }
    }
    Ok(report)
}
