//! Measures the less urgent bytes that leave between an urgent push and its first packet.

use super::arms;
use super::cell::{Plan, Stream, Testbed};
use super::judge::bytes_ahead;
use crate::frame::report::{number, Figure, Report, Table};
use crate::frame::{Context, Estimate, LabError, Result};
use crate::measure::stats::{over_blocks, Sorted};
use crate::plot::percentiles;
const URGENT_BYTES: usize = 1 << 10;
const URGENT_PERIOD_NS: u64 = 1_500_000;
const LARGE_BYTES: usize = 4 << 20;

pub fn measure(context: &mut Context, report: &mut Report, testbed: &Testbed) -> Result<()> {
    let count = context.pick(10_000, 500);
    let urgent = Stream {
        priority: 2,
        bytes: URGENT_BYTES,
        period_ns: URGENT_PERIOD_NS,
        count,
        offset_ns: 200_000_000,
    };
    let load = Stream {
        priority: 0,
        bytes: LARGE_BYTES,
        period_ns: 0,
        count: 0,
        offset_ns: 0,
    };
    let plan = Plan {
        streams: vec![urgent, load],
        credits: 4,
        captured: true,
        apart: true,
        ..Plan::default()
    };
    let mut measured = vec![];
    for arm in testbed.arms.plaintext() {
        let what = format!("bytes on the wire ahead of an urgent message: {}", arm.name);
        context.step(&what, 200);
        let Some(outcome) = testbed.try_run(context, &arm, true, &plan)? else {
            continue;
        };
        let pushes: Vec<(u64, i64)> = outcome.of(0).map(|s| (s.number, s.sent_ns)).collect();
        let ahead = bytes_ahead(&outcome.packets, 0, &pushes);
        if ahead.len() != pushes.len() {
            let why = format!(
                "the capture shows {} of {} urgent messages",
                ahead.len(),
                pushes.len()
            );
            return Err(LabError::unexpected("the capture", why));
        }
        let longest = over_blocks(
            &ahead.iter().map(|b| *b as f64).collect::<Vec<_>>(),
            |ahead| ahead.quantile(1.0),
        );
        let ahead = Sorted::new(ahead.iter().map(|b| *b as f64));
        measured.push((arm, ahead, longest));
    }
    let mut raw = context.raw("window.csv", "arm,bytes")?;
    for (arm, ahead, _) in &measured {
        for value in ahead.values() {
            raw.line(format_args!("{},{value}", arm.id))?;
        }
    }
    raw.finish()?;
    add_results(report, &measured, count);
    let series: Vec<(&str, Sorted)> = measured
        .iter()
        .map(|(arm, ahead, _)| {
            // A logarithmic axis cannot show 0.
            let bytes = ahead.values().iter().map(|b| b.max(1.0));
            (arm.name, Sorted::new(bytes))
        })
        .collect();
    let title = "Bytes of lower priority on the wire between the sending of an urgent message and its first packet";
    let svg = percentiles(title, "bytes", &series)?;
    context.plot("window.svg", &svg)
}

fn add_results(report: &mut Report, measured: &[(arms::Arm, Sorted, Estimate)], count: u64) {
    let title = format!(
        "Bytes of lower priority on the wire between the sending of an urgent message and its first packet ({count} urgent messages; another process sends without pause)"
    );
    let mut table = Table::new(title, "| p50 | p99 | max");
    for (arm, ahead, longest) in measured {
        table.row_of(
            arm.name,
            [0.5, 0.99, 1.0].map(|q| number(ahead.quantile(q))),
        );
        let median = Estimate::exact(ahead.quantile(0.5));
        for (name, of) in [("p50", median), ("max", *longest)] {
            let is_longest = name == "max";
            let name = format!("window.{}.{name}", arm.id);
            let window = arms::RATE / 8 * arms::WINDOW_NS / 1_000_000_000;
            let most = (window + arms::SEGMENT) as f64;
            let figure = Figure::estimated(name, of, "bytes");
            let figure = figure.at_most((arm.is_ours() && is_longest).then_some(most));
            report.figure(figure.samples(count));
        }
    }
    report.tables.push(table);
}
