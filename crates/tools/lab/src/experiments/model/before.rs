//! Compares this build with an earlier one that modelled the same traces in the same rounds.

use super::run::Size;
use crate::frame::report::{number, Figure, Report, Table};
use crate::frame::{Context, Kept};
use crate::measure::stats::{bootstrap, median, RESAMPLES};

pub fn add(context: &Context, report: &mut Report, sizes: &[Size], kept: &Kept) {
    let mut table = Table::new(
        "Time and memory of this build and of the earlier build, in the same rounds (medians)",
        "events | CPU time, s | CPU time of the earlier build, s | peak memory, MB | peak memory of the earlier build, MB",
    );
    for size in sizes.iter().filter(|s| !s.before.is_empty()) {
        let (now, before) = (size.cpu_s(), size.before_cpu_s());
        let middle = |values: &[f64], pick: &[usize]| {
            median(&pick.iter().map(|&i| values[i]).collect::<Vec<_>>())
        };
        let ratio = bootstrap(kept, RESAMPLES, &mut context.rng("before"), |pick| {
            middle(&now, pick) / middle(&before, pick)
        });
        let name = format!("model.cpu_over_before_{}m", size.events as f64 / 1e6);
        report.figure(
            Figure::estimated(name, ratio, "1")
                .at_most(1.05)
                .samples(kept.all() as u64),
        );
        table.row([
            number(size.events as f64),
            number(median(&now)),
            number(median(&before)),
            number(size.peak_mb()),
            number(size.before_peak_mb()),
        ]);
    }
    if !table.rows.is_empty() {
        report.tables.push(table);
    }
}
