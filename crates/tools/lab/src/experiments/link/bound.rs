//! Compares the computed bound of each stream on a port with its longest measured latency.

use super::arms::{OURS, RATE};
use super::cell::{Outcome, Plan, Sample, Stream, Testbed};
use super::size::name_of;
use crate::frame::report::{number, Figure, Report, Table};
use crate::frame::{Context, Estimate, LabError, Result};
use crate::measure::stats::over_blocks;
use onbeat_link::bound::Load;
use onbeat_link::port::Settings;

/// The priority, the size in bytes and the period in ns of each stream. The periods have no common
/// phase, so messages meet in many ways.
const STREAMS: [(u8, usize, u64); 3] = [
    (2, 1 << 10, 5_030_000),
    (1, 1 << 20, 21_170_000),
    (0, 1 << 20, 43_310_000),
];
const MTU: usize = 1500;

struct Row {
    alone: f64,
    longest: Estimate,
    bound: f64,
    samples: u64,
}

/// Compares the bounds on latency with the measured latencies. The time outside of the port
/// (kernels, wake-ups) is measured with each stream alone. It is the stream's longest latency minus
/// the time of its bytes on the wire. The longest of the three times is used.
pub fn measure(context: &mut Context, report: &mut Report, testbed: &Testbed) -> Result<()> {
    let last_ns = context.pick_of_three(120, 30, 3) * 1_000_000_000;
    let streams = STREAMS.map(|s| stream(s, last_ns));
    let (mut alone, mut alone_ns) = (vec![], vec![]);
    for each in streams {
        let what = format!(
            "bound: {} of priority {} alone",
            name_of(each.bytes),
            each.priority
        );
        context.step(&what, 150);
        let outcome = testbed.run(context, &OURS, true, &plan(vec![each]))?;
        alone_ns.push(longest_ns(&outcome, 0));
        alone.push(load(&each, &outcome, 0));
    }
    context.step("bound: all three", 150);
    let outcome = testbed.run(context, &OURS, true, &plan(streams.to_vec()))?;
    let loads: Vec<Load> = (0..3)
        .map(|i| load(&streams[i], &outcome, i as u32))
        .collect();
    let mut behind_port_ns = 0;
    for (load, longest) in alone.iter().zip(&alone_ns) {
        let wire = bounds_ns(&[*load], 0)?[0];
        behind_port_ns = behind_port_ns.max(longest.saturating_sub(wire));
    }
    let bounds = bounds_ns(&loads, behind_port_ns)?;
    let rows = (0..3).map(|i| Row {
        alone: alone_ns[i] as f64 / 1000.0,
        longest: longest_us(&outcome, i as u32),
        bound: bounds[i] as f64 / 1000.0,
        samples: streams[i].count,
    });
    add_results(report, behind_port_ns, &rows.collect::<Vec<_>>());
    Ok(())
}

fn stream((priority, bytes, period_ns): (u8, usize, u64), last_ns: u64) -> Stream {
    Stream {
        priority,
        bytes,
        period_ns,
        count: last_ns / period_ns,
        offset_ns: 50_000_000,
    }
}

fn plan(streams: Vec<Stream>) -> Plan {
    Plan {
        streams,
        credits: 4,
        real_time: true,
        ..Plan::default()
    }
}

/// Estimates the longest latency of a stream from blocks of the run. One late message shows that the
/// bound can be exceeded, but not how often.
fn longest_us(outcome: &Outcome, stream: u32) -> Estimate {
    let taken: Vec<f64> = outcome.of(stream).map(Sample::transfer_us).collect();
    over_blocks(&taken, |taken| taken.quantile(1.0))
}

fn longest_ns(outcome: &Outcome, stream: u32) -> u64 {
    let taken = outcome.of(stream).map(|s| s.received_ns - s.sent_ns);
    taken.max().map_or(0, |ns| ns as u64)
}

/// Describes a stream as it was measured, for the bound. The delay until a message was complete
/// counts as jitter.
fn load(stream: &Stream, outcome: &Outcome, id: u32) -> Load {
    let late = outcome.of(id).map(|s| s.sent_ns - s.intended_ns);
    let jitter_ns = late.max().map_or(0, |ns| ns.max(0) as u64);
    Load {
        priority: stream.priority,
        bytes: stream.bytes,
        period_ns: stream.period_ns,
        jitter_ns,
    }
}

fn bounds_ns(loads: &[Load], behind_port_ns: u64) -> Result<Vec<u64>> {
    let port = Settings::of_rate(RATE).model(MTU, false, behind_port_ns);
    let bounds: Result<Vec<u64>, _> = port.bounds(loads).into_iter().collect();
    bounds.map_err(|e| LabError::unexpected("a bound", e))
}

fn add_results(report: &mut Report, behind_port_ns: u64, rows: &[Row]) {
    let title = "Longest latency and its bound on a port of 1 Gbit/s that three streams share, us";
    let head = "priority, message | period, ms | longest, alone | longest, beside the others | \
bound | bound / longest";
    let mut table = Table::new(title, head);
    for ((priority, bytes, period_ns), row) in STREAMS.into_iter().zip(rows) {
        let ratio = row.bound / row.longest.value;
        table.row(vec![
            format!("{priority}, {}", name_of(bytes)),
            number(period_ns as f64 / 1e6),
            number(row.alone),
            number(row.longest.value),
            number(row.bound),
            number(ratio),
        ]);
        let figure = |name: &str, value: Estimate, unit| {
            let name = format!("bound.priority{priority}.{name}");
            Figure::estimated(name, value, unit).samples(row.samples)
        };
        report.figure(figure("longest", row.longest, "us"));
        report.value(format!("bound.priority{priority}.bound"), row.bound, "us");
        let kept = figure(
            "longest_over_bound",
            row.longest.map(|us| us / row.bound),
            "1",
        );
        report.figure(kept.at_most(1.0));
        let ends = (row.bound / row.longest.high, row.bound / row.longest.low);
        let wide = figure("bound_over_longest", Estimate::within(ratio, ends), "1");
        report.figure(wide.at_most(2.0));
    }
    report.tables.push(table);
    report.note(format!("bound: from the complete message at the sender to the readable one at the receiver. It includes {} us behind the port: the longest time that a stream alone took in addition to its bytes on the wire", number(behind_port_ns as f64 / 1000.0)));
}
