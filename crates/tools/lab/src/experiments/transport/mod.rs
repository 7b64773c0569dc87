//! The `transport` experiment: the cost of handing a message over, between processes, threads and
//! tasks.
//!
//! It repeats Figures 1 and 2 of "A middleware journey from micro-controllers to microprocessors",
//! and the perception pipeline of its section 3.

mod group;
mod handover;
mod latency;
mod pipeline;
mod runner;
mod session;
mod stall;
mod subscribers;

use crate::frame::report::Report;
use crate::frame::{Context, Experiment, Result};
use crate::measure::transport::Peers;

pub const EXPERIMENT: Experiment = Experiment {
    name: "transport",
    about: "latency, CPU time and context switches of a message, onbeat compared with its peers (A middleware journey, Figures 1 and 2)",
    parts: &["latency", "subscribers", "handover", "stall", "pipeline"],
    takes: &[],
    run,
};

fn run(context: &mut Context) -> Result<Report> {
    let mut report = Report::new();
    let peers = Peers::prepare(context, &mut report)?;
    type Part = fn(&mut Context, &mut Report, &Peers) -> Result<()>;
    let parts: [(&str, &str, Part); 5] = [
        ("latency", "latency against size", latency::measure),
        ("subscribers", "several subscribers", subscribers::measure),
        (
            "handover",
            "the time that a chain adds to the work of each task",
            handover::measure,
        ),
        (
            "stall",
            "the time from a returned credit until the producer continues",
            stall::measure,
        ),
        ("pipeline", "the perception pipeline", pipeline::measure),
    ];
    for (part, what, measure) in parts {
        context.part(&mut report, (part, what), |context, report| {
            measure(context, report, &peers)
        });
    }
    Ok(report)
}
