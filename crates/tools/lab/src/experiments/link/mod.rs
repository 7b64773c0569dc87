//! `link`: measures latency and cost of messages to another host, for onbeat and its peers (chapter
//! 5 of the thesis: Figures 5.6, 5.7 and 5.12 to 5.15, and section 5.1.1).

mod arms;
mod bound;
mod cell;
mod connections;
mod consumers;
mod judge;
mod network;
mod order;
mod priority;
mod qperf;
mod records;
mod size;
mod window;

use crate::frame::report::Report;
use crate::frame::{Context, Experiment, Extra, Result};
use crate::measure::hosts::Hosts;
use arms::Arms;
use cell::Testbed;

pub const EXPERIMENT: Experiment = Experiment {
    name: "link",
    about: "latency, order, priority and CPU of messages between two hosts, onbeat compared with its peers (thesis, Figures 5.6, 5.7, 5.12 to 5.15)",
    parts: &[
            "size-limited",
            "size-unlimited",
            "order",
            "priority",
            "large",
            "window",
            "connections",
            "bound",
            "consumers",
            "network",
            "contention",
        ],
    takes: &[Extra::Long],
    run,
};

fn run(context: &mut Context) -> Result<Report> {
    let mut report = Report::new();
    let arms = Arms::prepare(context, &mut report)?;
    let testbed = Testbed::new(Hosts::new()?, arms);
    type Part = fn(&mut Context, &mut Report, &Testbed) -> Result<()>;
    let parts: [(&str, &str, Part); 11] = [
        (
            "size-limited",
            "latency and CPU time on a link of 1 Gbit/s",
            size::limited,
        ),
        (
            "size-unlimited",
            "latency and CPU time on a link whose rate is not limited",
            size::unlimited,
        ),
        ("order", "order of messages on the wire", order::measure),
        ("priority", "small urgent messages", priority::small),
        ("large", "large urgent messages", priority::large),
        (
            "window",
            "bytes on the wire ahead of an urgent message",
            window::measure,
        ),
        (
            "connections",
            "one connection for all priority classes",
            connections::measure,
        ),
        (
            "bound",
            "upper bounds of the latency on a port",
            bound::measure,
        ),
        ("consumers", "several consumers", consumers::measure),
        ("network", "a split neural network", network::split),
        ("contention", "memory contention", network::contention),
    ];
    for (part, what, measure) in parts {
        context.part(&mut report, (part, what), |context, report| {
            measure(context, report, &testbed)
        });
        for (arm, why) in testbed.failed() {
            report.skip(format!("{arm}, {part}"), why);
        }
    }
    Ok(report)
}
