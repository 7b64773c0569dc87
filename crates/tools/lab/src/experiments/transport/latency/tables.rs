//! Tables of a setting: medians, percentiles, costs.

use super::{Measured, DETAILED, SIZES};
use crate::frame::report::{number, Report, Table};
use crate::frame::size::size_name;
use crate::measure::stats::Sorted;

pub fn add(report: &mut Report, measured: &Measured<'_>) {
    report
        .tables
        .extend([medians(measured), details(measured), costs(measured)]);
}

fn medians(measured: &Measured<'_>) -> Table {
    let title = format!("Median latency {}, us", measured.setting.title);
    let mut table = Table::over(title, "arm", SIZES.map(size_name));
    for (a, arm) in measured.arms.iter().enumerate() {
        let medians = measured.samples.iter().map(|s| s.pooled(a).shown(0.5));
        table.row_of(arm.name, medians);
    }
    table
}

fn details(measured: &Measured<'_>) -> Table {
    let mut table = Table::new(
        format!("Latency {}, us", measured.setting.title),
        "arm | message size | samples | latency p50, us | p90, us | p99, us | p99.9, us | max, us | p99 from the due time of sending, us | lost messages",
    );
    for (a, arm) in measured.arms.iter().enumerate() {
        for (s, bytes) in SIZES.into_iter().enumerate() {
            let v = measured.samples[s].pooled(a).summary();
            if v.count == 0 || !DETAILED.contains(&bytes) {
                continue;
            }
            let cell = &measured.cells[s][a];
            let due = Sorted::new(cell.from_due.iter().copied());
            let mut row = vec![arm.name.into(), size_name(bytes), v.count.to_string()];
            row.extend([v.p50, v.p90, v.p99, v.p99_9, v.max, due.quantile(0.99)].map(number));
            row.push(cell.lost.to_string());
            table.row(row);
        }
    }
    table
}

fn costs(measured: &Measured<'_>) -> Table {
    let mut table = Table::new(
        format!(
            "CPU time and context switches of a message {}, all processes",
            measured.setting.title
        ),
        "arm | CPU us at 64 B | context switches at 64 B | CPU us at 16 KiB | context switches at 16 KiB | CPU us at 1 MiB | context switches at 1 MiB",
    );
    for (a, arm) in measured.arms.iter().enumerate() {
        let mut row = vec![arm.name.to_string()];
        for (s, bytes) in SIZES.into_iter().enumerate() {
            let some = !measured.samples[s].pooled(a).is_empty();
            if some && [64, 16_384, 1 << 20].contains(&bytes) {
                let (cpu_ns, switches) = measured.cells[s][a].usage.each();
                row.extend([number(cpu_ns / 1e3), format!("{switches:.2}")]);
            }
        }
        table.row(row);
    }
    table
}
