//! `transport`: what it costs to hand a message over, between processes, threads and tasks
//! (Figures 1 and 2 of "A middleware journey from micro-controllers to microprocessors", and the
//! perception pipeline of its section 3).

mod group;
mod handover;
mod latency;
pub mod peers;
mod pipeline;
mod runner;
pub mod samples;
mod session;
mod stall;
mod subscribers;

use crate::frame::report::Report;
use crate::frame::{Context, Experiment, LabError};
use peers::Peers;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "transport",
    about: "latency, CPU time and context switches of a message, onbeat beside its peers (A middleware journey, Figures 1 and 2)",
    parts: &["latency", "subscribers", "handover", "stall", "pipeline"],
    takes: &[],
    run,
};

fn run(context: &mut Context) -> Result<Report, LabError> {
    let mut report = Report::new();
    let peers = Peers::prepare(context, &mut report)?;
    type Part = fn(&mut Context, &mut Report, &Peers) -> Result<(), LabError>;
    let parts: [(&str, &str, Part); 5] = [
        ("latency", "latency against size", latency::measure),
        ("subscribers", "several subscribers", subscribers::measure),
        ("handover", "the hand-over in a chain", handover::measure),
        ("stall", "a producer that has to wait", stall::measure),
        ("pipeline", "the perception pipeline", pipeline::measure),
    ];
    for (part, what, measure) in parts {
        context.part(&mut report, (part, what), |context, report| {
            measure(context, report, &peers)
        });
    }
    Ok(report)
}

/// A size as people write it.
pub fn size_name(bytes: usize) -> String {
    match bytes {
        b if b >= 1 << 20 => format!("{} MiB", b >> 20),
        b if b >= 1 << 10 => format!("{} KiB", b >> 10),
        b => format!("{b} B"),
    }
}

/// A size as a part of a figure's name.
pub fn size_id(bytes: usize) -> String {
    size_name(bytes).replace(' ', "").to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_named_as_people_write_them() {
        let names = [64, 1024, 65_536, 1 << 20, 4 << 20].map(size_name);
        assert_eq!(names, ["64 B", "1 KiB", "64 KiB", "1 MiB", "4 MiB"]);
        assert_eq!(size_id(262_144), "256kib");
    }
}
