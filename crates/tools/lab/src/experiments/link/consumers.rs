//! Measures the bytes on the wire if a channel has several consumers on one host.

use super::arms::CHANNELS;
use super::cell::{Plan, Stream, Testbed};
use super::size::name_of;
use crate::frame::report::{number, Figure, Report, Table};
use crate::frame::{Context, Result};

const CONSUMERS: [usize; 4] = [1, 2, 4, 8];
const SIZES: [usize; 3] = [1 << 10, 64 << 10, 1 << 20];

pub fn measure(context: &mut Context, report: &mut Report, testbed: &Testbed) -> Result<()> {
    let count = context.pick(1000, 200);
    let title = format!("Bytes that left the sender for {count} messages of a channel ({} messages at 1 MB), by the number of consumers on the other host", count_for_size(count, 1 << 20));
    let mut table = Table::over(title, "", CONSUMERS.map(|n| n.to_string()));
    for bytes in SIZES {
        let mut row = vec![name_of(bytes)];
        let mut one = 0.0;
        for consumers in CONSUMERS {
            let what = format!("{} to {consumers} consumers", name_of(bytes));
            context.step(&what, 60);
            let sent = sent_bytes(
                context,
                testbed,
                (bytes, count_for_size(count, bytes)),
                consumers,
            )?;
            row.push(number(sent));
            if consumers == 1 {
                one = sent;
                continue;
            }
            let name = format!(
                "consumers.{}.{consumers}_over_1",
                name_of(bytes).replace(' ', "")
            );
            let figure = Figure::exact(name, sent / one, "1").samples(count_for_size(count, bytes));
            report.figure(figure.at_most(1.02));
        }
        table.row(row);
    }
    report.tables.push(table);
    Ok(())
}

fn count_for_size(count: u64, bytes: usize) -> u64 {
    if bytes < 1 << 20 {
        count
    } else {
        count / 5
    }
}

fn sent_bytes(
    context: &Context,
    testbed: &Testbed,
    (bytes, count): (usize, u64),
    consumers: usize,
) -> Result<f64> {
    let stream = Stream {
        priority: 0,
        bytes,
        period_ns: bytes as u64 * 16 + 1_000_000,
        count,
        offset_ns: 10_000_000,
    };
    let plan = Plan {
        streams: vec![stream],
        credits: 4,
        consumers: Some(consumers),
        ..Plan::default()
    };
    Ok(testbed.run(context, &CHANNELS, true, &plan)?.sent_bytes as f64)
}
