//! `latency`: how long a message takes between ROS 2 nodes: by size, priority and load, over a network, to
//! several listeners, there and back, and along a chain (Figures 1 to 10 of paper 003).
//!
//! The paper replaces outliers by the median. Here they stay, and a table says what replacing them does
//! to a mean.

mod chain;
mod group;
mod listeners;
mod remote;
mod sizes;
mod tell;

use crate::frame::report::Report;
use crate::frame::{Context, Experiment, Result};
use crate::measure::transport::{Arm, Peers, CYCLONE, FAST, ROS2};

/// Sizes of messages, bytes: 256 B to 4 MiB, as in the paper.
const SIZES: [usize; 8] = [
    256,
    1 << 10,
    4 << 10,
    16 << 10,
    64 << 10,
    256 << 10,
    1 << 20,
    4 << 20,
];
/// What is measured: the middleware of a ROS 2 node here, and two DDS by their own interfaces. Other rmw
/// are not in the wheels.
const ARMS: [Arm; 3] = [ROS2, CYCLONE, FAST];

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "latency",
    about: "a message between ROS 2 nodes: size, priority, load, network, listeners, ping-pong, chain (003, Figures 1 to 10)",
    parts: &[
            "sizes",
            "middlewares",
            "remote",
            "listeners",
            "pingpong",
            "chain",
        ],
    takes: &[],
    run,
};

fn run(context: &mut Context) -> Result<Report> {
    let mut report = Report::new();
    report.note(governor());
    let peers = Peers::of_programs(context, &mut report, &ARMS.map(|a| a.program))?;
    type Part = fn(&mut Context, &mut Report, &Peers) -> Result<()>;
    let parts: [(&str, Part); 6] = [
        ("sizes", sizes::conditions),
        ("middlewares", sizes::middlewares),
        ("remote", remote::measure),
        ("listeners", listeners::measure),
        ("pingpong", chain::ping_pong),
        ("chain", chain::five_nodes),
    ];
    for (part, measure) in parts {
        context.part(&mut report, (part, part), |context, report| {
            measure(context, report, &peers)
        });
    }
    Ok(report)
}

/// Whether the paper's first question, frequency scaling, can be asked here.
fn governor() -> String {
    let path = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";
    match std::fs::read_to_string(path) {
        Ok(name) => format!("frequency governor: {}; it was not changed", name.trim()),
        Err(_) => {
            "this machine has no frequency governor: Figure 1's right halves cannot be measured"
                .into()
        }
    }
}

/// Messages a second: so few that one is gone before the next, as the paper's talker sends.
fn rate_hz(bytes: usize) -> f64 {
    if bytes >= 1 << 20 {
        20.0
    } else {
        50.0
    }
}
