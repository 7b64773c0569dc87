//! Measures one talker with one to ten listeners: latency by their number and by message size, and
//! whether all listeners are equally fast (Figures 6 to 8).

use super::group::{Group, Node};
use super::rate_hz;
use super::tables::{self, Series};
use crate::frame::report::{number, Figure, Report, Table};
use crate::frame::size::{size_id, size_name};
use crate::frame::{Context, Result};
use crate::measure::run::Run;
use crate::measure::samples::latencies_us;
use crate::measure::stats::blocks;
use crate::measure::stats::Sorted;
use crate::measure::transport::{Peers, ROS2};

const LISTENERS: [usize; 5] = [1, 3, 5, 7, 10];
const SIZES: [usize; 5] = [256, 4 << 10, 64 << 10, 1 << 20, 4 << 20];

pub fn measure(context: &mut Context, report: &mut Report, peers: &Peers) -> Result<()> {
    let count = context.pick(120, 20);
    let mut all = vec![];
    let title = "Median latency of the slowest listener divided by that of the fastest";
    let mut equality = Table::over(title, "listeners", SIZES.map(size_name));
    for listeners in LISTENERS {
        let mut group = start(context, peers, listeners)?;
        let mut series = Series::new(format!("{listeners} listeners"), listeners.to_string());
        let mut row = vec![listeners.to_string()];
        for bytes in SIZES {
            let what = format!("{listeners} listeners, {}", size_name(bytes));
            context.step(&what, 180);
            let run = Run {
                bytes,
                other_bytes: Some(64),
                rate_hz: rate_hz(bytes) / 2.0,
                count,
            };
            let taken = group.run(run)?;
            let medians = taken
                .iter()
                .map(|t| Sorted::new(latencies_us(t)).quantile(0.5));
            let medians = Sorted::new(medians);
            let spread = medians.quantile(1.0) / medians.quantile(0.0).max(1e-9);
            row.push(number(spread));
            let name = format!(
                "listeners.{listeners}.{}.slowest_over_fastest",
                size_id(bytes)
            );
            let all: Vec<Vec<f64>> = taken.iter().map(|t| latencies_us(t)).collect();
            let messages = all.iter().map(Vec::len).min().unwrap_or(0);
            let spread = blocks(messages, |pick| {
                let medians = all
                    .iter()
                    .map(|of| Sorted::new(pick.iter().map(|&i| of[i])).quantile(0.5));
                let medians = Sorted::new(medians);
                medians.quantile(1.0) / medians.quantile(0.0).max(1e-9)
            });
            report.figure(Figure::estimated(name, spread, "1").samples(listeners as u64));
            let values = taken.iter().flat_map(|t| latencies_us(t)).collect();
            series.add(bytes, values, u64::from(count) * listeners as u64);
        }
        equality.row(row);
        all.push(series);
    }
    tables::add(
        context,
        report,
        (
            "listeners",
            "Latency from a talker to its listeners (Embedded Systems, Lab 1, Figures 6 to 8)",
        ),
        &all,
    )?;
    report.tables.push(equality);
    Ok(())
}

fn start(context: &Context, peers: &Peers, listeners: usize) -> Result<Group> {
    let topic = format!("name={}", peers.name());
    let node = |role: &str| -> Result<Node> {
        let words = [
            format!("role={role}"),
            topic.clone(),
            format!("readers={listeners}"),
        ];
        let command = peers.normal_command(ROS2.program, false)?;
        Ok(Node::new(command, &words, role == "sub"))
    };
    let mut nodes = vec![];
    for _ in 0..listeners {
        nodes.push(node("sub")?);
    }
    nodes.push(node("pub")?);
    Group::start(context, nodes)
}
