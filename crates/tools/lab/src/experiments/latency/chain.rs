//! Measures a round trip with a small answer (Figure 9) and a chain of five nodes (Figure 10).

use super::group::{Group, Node};
use super::tables::{self, Series};
use super::{rate_hz, SIZES};
use crate::frame::report::{Figure, Report};
use crate::frame::size::{size_id, size_name};
use crate::frame::{Context, Result};
use crate::measure::run::Run;
use crate::measure::samples::{latencies_us, Sample};
use crate::measure::stats::blocks;
use crate::measure::stats::Sorted;
use crate::measure::transport::{Peers, ROS2};

const ANSWER: usize = 64;
const NAMES: [char; 5] = ['A', 'B', 'C', 'D', 'E'];

fn node(peers: &Peers, words: &[String], receives: bool) -> Result<Node> {
    let command = peers.normal_command(ROS2.program, false)?;
    Ok(Node::new(command, words, receives))
}

pub fn ping_pong(context: &mut Context, report: &mut Report, peers: &Peers) -> Result<()> {
    let count = context.pick(450, 20);
    let (there, back) = (peers.name(), peers.name());
    let word = |key: &str, value: &str| format!("{key}={value}");
    let answering = [
        word("role", "relay"),
        word("name", &there),
        word("to", &back),
        word("readers", "1"),
    ];
    let sending = [
        word("role", "ping"),
        word("name", &there),
        word("back", &back),
        word("readers", "1"),
    ];
    let nodes = vec![node(peers, &answering, true)?, node(peers, &sending, true)?];
    let mut group = Group::start(context, nodes)?;
    let mut all = ["ping", "pong", "there and back"].map(|n| Series::new(n, n.replace(' ', "_")));
    for bytes in SIZES {
        context.step(format!("ping-pong, {}", size_name(bytes)), 180);
        let run = Run {
            bytes,
            other_bytes: Some(ANSWER),
            rate_hz: rate_hz(bytes),
            count,
        };
        let taken = group.run(run)?;
        let whole = taken[1].iter().filter_map(|answer| {
            let ping = taken[0].iter().find(|s| s.sequence == answer.sequence)?;
            Some((answer.received_ns - ping.sent_ns) as f64 / 1000.0)
        });
        let whole: Vec<f64> = whole.collect();
        let values = [latencies_us(&taken[0]), latencies_us(&taken[1]), whole];
        for (series, values) in all.iter_mut().zip(values) {
            series.add(bytes, values, u64::from(count));
        }
    }
    let title =
        "Latency of a ping-pong with an answer of 64 bytes (Embedded Systems, Lab 1, Figure 9)";
    tables::add(context, report, ("pingpong", title), &all)
}

pub fn five_nodes(context: &mut Context, report: &mut Report, peers: &Peers) -> Result<()> {
    let count = context.pick(450, 20);
    let topics: Vec<String> = (1..NAMES.len()).map(|_| peers.name()).collect();
    let mut nodes = vec![];
    let last = topics.len() - 1;
    let readers = String::from("readers=1");
    nodes.push(node(
        peers,
        &[
            "role=sub".into(),
            format!("name={}", topics[last]),
            readers.clone(),
        ],
        true,
    )?);
    for at in (0..last).rev() {
        let words = [
            "role=relay".into(),
            format!("name={}", topics[at]),
            format!("to={}", topics[at + 1]),
            readers.clone(),
        ];
        nodes.push(node(peers, &words, true)?);
    }
    nodes.push(node(
        peers,
        &["role=pub".into(), format!("name={}", topics[0]), readers],
        false,
    )?);
    let mut group = Group::start(context, nodes)?;
    let step = |at: usize| format!("{} to {}", NAMES[at], NAMES[at + 1]);
    let mut steps: Vec<Series> = (0..topics.len())
        .map(|at| Series::new(step(at), step(at).replace(' ', "_")))
        .collect();
    let mut whole = Series::new("A to E", "A_to_E");
    for bytes in SIZES {
        context.step(format!("chain, {}", size_name(bytes)), 180);
        let run = Run {
            bytes,
            other_bytes: Some(bytes),
            rate_hz: rate_hz(bytes) / 2.0,
            count,
        };
        let mut taken = group.run(run)?;
        // The last node of the chain was started first, so its samples come first.
        taken.reverse();
        for (series, samples) in steps.iter_mut().zip(&taken) {
            series.add(bytes, latencies_us(samples), u64::from(count));
        }
        whole.add(
            bytes,
            taken[last].iter().map(Sample::since_due_us).collect(),
            u64::from(count),
        );
        conclude(
            report,
            bytes,
            &taken.iter().map(|s| latencies_us(s)).collect::<Vec<_>>(),
            &whole,
        );
    }
    steps.push(whole);
    tables::add(
        context,
        report,
        (
            "chain",
            "Latency of a chain of five nodes (Embedded Systems, Lab 1, Figure 10)",
        ),
        &steps,
    )
}

/// Adds to the report the ratio of the chain's median latency to the sum of its steps' medians. If
/// the paper's conclusion holds, the ratio is 1.
fn conclude(report: &mut Report, bytes: usize, steps: &[Vec<f64>], whole: &Series) {
    let median = |values: &[f64]| Sorted::new(values.iter().copied()).quantile(0.5);
    let Some((_, whole)) = whole.by_size.last() else {
        return;
    };
    let messages = steps.iter().map(Vec::len).chain([whole.len()]).min();
    let ratio = blocks(messages.unwrap_or(0), |pick| {
        let of = |values: &[f64]| median(&pick.iter().map(|&i| values[i]).collect::<Vec<_>>());
        let sum: f64 = steps.iter().map(|s| of(s)).sum();
        of(whole) / sum.max(1e-9)
    });
    let name = format!("chain.{}.whole_over_steps", size_id(bytes));
    report.figure(Figure::estimated(name, ratio, "1"));
}
