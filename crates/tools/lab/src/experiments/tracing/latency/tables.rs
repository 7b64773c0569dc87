//! The table of latencies.

use super::figures::Added;
use super::{Cell, LatencyStart, Policy, OFF, ONBEAT};
use crate::frame::report::{number, range, Table};

pub fn latencies(policy: Policy, from: LatencyStart, cells: &[&Cell], added: &[Added]) -> Table {
    let mut table = Table::new(
        format!(
            "Latency from {} to the start of the receiving callback, {} threads, us",
            from.title(),
            policy.name()
        ),
        "rate, message size | latency without recording, us: mean | p50 | p90 | p99 | p99.9 | p99.99 | max | \
latency with onbeat, us: mean | p50 | p90 | p99 | p99.9 | p99.99 | max | \
added to the mean latency, us | 95 % interval of the added mean, us | added to the p50, us | p99 with onbeat / without recording",
    );
    for (cell, added) in cells.iter().zip(added) {
        let samples = cell.samples(from);
        let mut row = vec![format!(
            "{} Hz, {} KiB",
            cell.setting.rate_hz, cell.setting.kib
        )];
        for s in [OFF, ONBEAT].map(|arm| samples.pooled(arm).summary()) {
            row.extend([s.mean, s.p50, s.p90, s.p99, s.p99_9, s.p99_99, s.max].map(number));
        }
        row.extend([
            number(added.mean.value),
            range((added.mean.low, added.mean.high)),
            number(added.p50.value),
            number(added.p99_ratio.value),
        ]);
        table.row(row);
    }
    table
}
