//! Measures the memory for a graph of 100 nodes over the length of the trace.

use super::run::{model, Size};
use crate::frame::report::{number, Figure, Report, Table};
use crate::frame::{Context, Result};
use crate::measure::layers::write_layers;
use std::path::Path;

/// Models traces of 2, 8 and 16 million events of the same 100 nodes. After 8 million events, every
/// distribution has all its buckets. If 16 million events need more memory, the cause is the length
/// of the trace.
pub fn measure(context: &mut Context, report: &mut Report, scratch: &Path) -> Result<()> {
    let events: [u64; 3] = context.pick(
        [2_000_000, 8_000_000, 16_000_000],
        [100_000, 400_000, 800_000],
    );
    let rounds = context.pick(5, 2);
    let mut sizes = vec![];
    for events in events {
        context.step(
            format!("generating {} events of 100 nodes", number(events as f64)),
            3600,
        );
        write_layers(events, &scratch.join(format!("nodes-{events}")))?;
        sizes.push(Size::new(events, 0));
    }
    let mut raw = context.raw("nodes.csv", "events,round,cpu_s,max_rss_kb")?;
    let mut turns = context.turns("nodes", sizes.len(), rounds);
    for (round, arm) in turns.by_ref() {
        let events = sizes[arm].events;
        context.step(
            format!(
                "modelling {} events of 100 nodes, round {}",
                number(events as f64),
                round + 1
            ),
            3600,
        );
        let trace = scratch.join(format!("nodes-{events}"));
        let run = model(context, context.onbeat(), &trace)?;
        raw.line(format_args!(
            "{events},{round},{},{}",
            run.1.cpu_s(),
            run.1.max_rss_kb
        ))?;
        sizes[arm].runs.push(run);
    }
    turns.finish();
    raw.finish()?;
    summarise(report, &sizes);
    Ok(())
}

fn summarise(report: &mut Report, sizes: &[Size]) {
    let mut table = Table::new(
        "A graph of 100 nodes: memory over the length of the trace",
        "events | peak memory, MB (largest of all rounds)",
    );
    for size in sizes {
        table.row([number(size.events as f64), number(size.peak_mb())]);
    }
    report.tables.push(table);
    if let [.., middle, last] = sizes {
        let growth = last.peak_mb() / middle.peak_mb();
        report.figure(
            Figure::exact("model.nodes_memory_growth", growth, "1")
                .at_most(1.1)
                .samples(last.runs.len() as u64),
        );
        report.value("model.nodes_memory", last.peak_mb(), "MB");
    }
}
