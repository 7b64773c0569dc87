//! `latency`: measures how long messages take between ROS 2 nodes. It varies size, priority and
//! load, and measures over a network, to several listeners, as a round trip, and along a chain
//! (Figures 1 to 10 of paper 003).
//!
//! The paper replaces outliers by the median. Here they stay, and a table shows how replacing them
//! changes the mean.

mod chain;
mod group;
mod listeners;
mod remote;
mod sizes;
mod tables;

use crate::frame::report::Report;
use crate::frame::{Context, Experiment, Result};
use crate::measure::transport::{Arm, Peers, CYCLONE, FAST, ROS2};

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
/// The arms: a ROS 2 node with the installed middleware, and two DDS implementations without ROS 2.
/// There is only one arm with ROS 2, because the Python wheels of ROS 2 contain only one
/// middleware.
const ARMS: [Arm; 3] = [ROS2, CYCLONE, FAST];

pub const EXPERIMENT: Experiment = Experiment {
    name: "latency",
    about: "latency between ROS 2 nodes by size, priority, load, network and listeners; ping-pong, chain (Quantitative Evaluation of Embedded Systems, Lab 1, Figures 1 to 10)",
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

/// Returns a note on whether the machine has a CPU frequency governor. Without one, the paper's
/// first question (frequency scaling) cannot be measured.
fn governor() -> String {
    let path = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";
    match std::fs::read_to_string(path) {
        Ok(name) => format!("frequency governor: {} (not changed by the lab)", name.trim()),
        Err(_) => {
            "this machine has no frequency governor, so the effect of frequency scaling on the latency (right halves of the \
             paper's Figure 1) cannot be measured"
                .into()
        }
    }
}

fn rate_hz(bytes: usize) -> f64 {
    if bytes >= 1 << 20 {
        20.0
    } else {
        50.0
    }
}
