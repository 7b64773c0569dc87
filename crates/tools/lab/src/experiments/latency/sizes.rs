//! Measures two nodes on one machine by size, priority and load (Figures 1 and 2), and compares
//! middlewares.

use super::group::{Group, Node};
use super::tables::{self, Series};
use super::{rate_hz, ARMS, SIZES};
use crate::frame::report::{Figure, Report};
use crate::frame::rng::Rng;
use crate::frame::size::size_name;
use crate::frame::{Context, LabError, Result};
use crate::measure::run::Run;
use crate::measure::samples::latencies_us;
use crate::measure::stats::{median as median_of, resampled, Sorted};
use crate::measure::transport::{Peers, ROS2};
use std::process::Command;
#[derive(Debug, Clone, Copy)]
struct Condition {
    real_time: bool,
    loaded: bool,
}

impl Condition {
    fn name(self) -> String {
        let priority = if self.real_time {
            "real-time"
        } else {
            "normal"
        };
        let load = if self.loaded {
            "busy processors"
        } else {
            "idle"
        };
        format!("{priority}, {load}")
    }

    fn id(self) -> &'static str {
        match (self.real_time, self.loaded) {
            (true, false) => "rt",
            (true, true) => "rt_loaded",
            (false, false) => "normal",
            (false, true) => "normal_loaded",
        }
    }
}

struct Transport {
    name: &'static str,
    id: &'static str,
    transports: &'static str,
    /// Whether the transport sends lost parts of a message again at once, instead of after the
    /// transport's usual delay. The comparison with the usual setting shows the cost of this delay.
    repaired_at_once: bool,
}

const TRANSPORTS: [Transport; 4] = [
    Transport {
        name: "ROS 2 Kilted, UDP",
        id: "udp",
        transports: "UDPv4",
        repaired_at_once: false,
    },
    Transport {
        name: "ROS 2 Kilted, UDP, repaired at once",
        id: "udp_repaired",
        transports: "UDPv4",
        repaired_at_once: true,
    },
    Transport {
        name: "ROS 2 Kilted, UDP with 4 MB of buffers",
        id: "udp_buffers",
        transports: "UDPv4?max_msg_size=60KB&sockets_size=4MB",
        repaired_at_once: false,
    },
    Transport {
        name: "ROS 2 Kilted, LARGE_DATA",
        id: "large_data",
        transports: "LARGE_DATA",
        repaired_at_once: false,
    },
];

const REPAIRED: &str = include_str!("../../../native/repaired-at-once.xml");

pub fn middlewares(context: &mut Context, report: &mut Report, peers: &Peers) -> Result<()> {
    let mut arms = vec![];
    for arm in peers.of(&ARMS) {
        let id = arm.name.split(',').next().unwrap_or("").replace(' ', "");
        let command = || peers.command(arm.program, false);
        arms.push(over_sizes(
            context,
            peers,
            command,
            Series::new(arm.name, id),
        )?);
    }
    let settings = context.dir().join("repaired-at-once.xml");
    std::fs::write(&settings, REPAIRED).map_err(LabError::file("writing", &settings))?;
    for transport in TRANSPORTS {
        if !peers.has(&ROS2) {
            continue;
        }
        let command = || {
            let mut command = peers.command(ROS2.program, false)?;
            command.env("ROS_AUTOMATIC_DISCOVERY_RANGE", "SUBNET");
            command.env("FASTDDS_BUILTIN_TRANSPORTS", transport.transports);
            if transport.repaired_at_once {
                command.env("FASTDDS_DEFAULT_PROFILES_FILE", &settings);
                command.env("RMW_FASTRTPS_USE_QOS_FROM_XML", "1");
            }
            Ok(command)
        };
        let series = Series::new(transport.name, transport.id);
        arms.push(over_sizes(context, peers, command, series)?);
    }
    let title = "Latency of the middlewares, real-time threads, idle machine";
    tables::add(context, report, ("middlewares", title), &arms)
}
pub fn conditions(context: &mut Context, report: &mut Report, peers: &Peers) -> Result<()> {
    let mut ros = vec![];
    for (real_time, loaded) in [(true, false), (true, true), (false, false), (false, true)] {
        let condition = Condition { real_time, loaded };
        if peers.has(&ROS2) {
            let name = condition.name();
            let series = Series::new(&*name, condition.id());
            let command = || match condition.real_time {
                true => peers.command(ROS2.program, false),
                false => peers.normal_command(ROS2.program, false),
            };
            let load = if condition.loaded {
                context.busy_cpus()?
            } else {
                vec![]
            };
            ros.push(over_sizes(context, peers, command, series)?);
            drop(load);
        }
    }
    tables::add(
        context,
        report,
        (
            "sizes",
            "Two ROS 2 nodes (Embedded Systems, Lab 1, Figures 1 and 2)",
        ),
        &ros,
    )?;
    conclusions(report, &ros);
    Ok(())
}

fn over_sizes(
    context: &mut Context,
    peers: &Peers,
    command: impl Fn() -> Result<Command>,
    mut series: Series,
) -> Result<Series> {
    let count = context.pick(120, 20);
    let topic = format!("name={}", peers.name());
    let node = |role: &str| -> Result<Node> {
        let words = [format!("role={role}"), topic.clone(), "readers=1".into()];
        Ok(Node::new(command()?, &words, role == "sub"))
    };
    let mut group = Group::start(context, vec![node("sub")?, node("pub")?])?;
    for bytes in SIZES {
        let what = format!("{}: {}", series.name, size_name(bytes));
        context.step(&what, 120);
        let run = Run {
            bytes,
            other_bytes: Some(64),
            rate_hz: rate_hz(bytes),
            count,
        };
        let taken = group.run(run)?;
        series.add(bytes, latencies_us(&taken[0]), u64::from(count));
    }
    Ok(series)
}

/// Adds the paper's conclusions to the report as ratios of medians. A conclusion holds if its ratio
/// is above 1.
fn conclusions(report: &mut Report, all: &[Series]) {
    let median = |id: &str, at: usize| {
        let series = all.iter().find(|s| s.id == id)?;
        let values = series.by_size.get(at)?.1.iter().copied();
        Some(Sorted::new(values).quantile(0.5))
    };
    for (name, above, below) in [
        ("normal_over_real_time", "normal", "rt"),
        ("normal_over_real_time_loaded", "normal_loaded", "rt_loaded"),
        ("loaded_over_idle_normal", "normal_loaded", "normal"),
        ("loaded_over_idle_real_time", "rt_loaded", "rt"),
    ] {
        let ratios =
            (0..SIZES.len()).filter_map(|at| Some(median(above, at)? / median(below, at)?));
        let ratios: Vec<f64> = ratios.collect();
        if !ratios.is_empty() {
            let of_all = resampled(&ratios, &mut Rng::new(1), median_of);
            let figure = Figure::estimated(format!("sizes.{name}"), of_all, "1");
            report.figure(figure.samples(ratios.len() as u64));
        }
    }
}
