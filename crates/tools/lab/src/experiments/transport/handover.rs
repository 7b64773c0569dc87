//! The cost of a task in a chain beyond its own work.

use super::group::Group;
use crate::frame::report::{number, Figure, Report, Table};
use crate::frame::{Context, Result};
use crate::measure::run::Run;
use crate::measure::samples::Sample;
use crate::measure::stats::{over_blocks, Sorted};
use crate::measure::transport::{Peers, Program};

/// The number of tasks that run between two readings of the clock. The peer program uses the same
/// number.
const TASKS: f64 = 1000.0;

pub fn measure(context: &mut Context, report: &mut Report, peers: &Peers) -> Result<()> {
    if !peers.has_program(Program::Onbeat) {
        return Ok(());
    }
    context.step("time that a chain adds to the work of each task", 120);
    let count: u32 = context.pick(20_000, 5_000);
    let name = peers.name();
    let mut group = Group::start(context, 1, "the chain", |_| {
        let mut command = peers.command(Program::Onbeat, false)?;
        command.args([
            "role=handover",
            "readers=1",
            "wait=spin",
            &format!("name={name}"),
        ]);
        Ok(command)
    })?;
    let run = Run {
        bytes: 64,
        other_bytes: None,
        rate_hz: 1.0,
        count,
    };
    let (samples, usage) = group.run(run)?;
    drop(group);
    let mut raw = context.raw("handover.csv", "work_ns,chain_ns")?;
    for s in &samples {
        raw.line(format_args!(
            "{},{}",
            s.intended_ns as f64 / TASKS,
            s.received_ns as f64 / TASKS
        ))?;
    }
    raw.finish()?;
    let of = |value: &dyn Fn(&Sample) -> i64| {
        Sorted::new(samples.iter().map(|s| value(s) as f64 / TASKS))
    };
    let work = of(&|s| s.intended_ns);
    let chain = of(&|s| s.received_ns);
    let beyond = of(&|s| s.received_ns - s.intended_ns);
    let mut table = Table::new(
        "Time per task in a chain of ten tasks, ns",
        "| p50 | p90 | p99 | p99.9",
    );
    for (what, values) in [
        ("its work alone", &work),
        ("in the chain", &chain),
        ("beyond its work", &beyond),
    ] {
        table.row_of(
            what,
            [0.5, 0.9, 0.99, 0.999].map(|q| number(values.quantile(q))),
        );
    }
    report.tables.push(table);
    let in_order: Vec<f64> = samples
        .iter()
        .map(|s| (s.received_ns - s.intended_ns) as f64 / TASKS)
        .collect();
    let median = over_blocks(&in_order, |of| of.quantile(0.5));
    report.figure(
        Figure::estimated("handover.p50", median, "ns")
            .at_most(25.0)
            .samples(samples.len() as u64),
    );
    report.value("handover.switches", usage.switches, "switches");
    report.note(format!(
        "handover: each of {} samples is the mean time per task over {TASKS} tasks. Each sample includes the cost of the call that runs the chain",
        samples.len()
    ));
    Ok(())
}
