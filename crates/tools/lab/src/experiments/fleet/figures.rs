//! The figures, the table and the plot of the time and memory that merging takes.

use super::run::{Engine, Merged};
use crate::frame::report::{number, Figure, Report, Table};
use crate::frame::{Context, Kept, Result};
use crate::measure::stats::{bootstrap, fit_line, median, RESAMPLES};
use crate::plot::{lines, Axes, Line};
use std::collections::BTreeSet;

fn median_of(merges: &[Merged], engine: usize, models: usize, of: fn(&Merged) -> f64) -> f64 {
    let these = merges
        .iter()
        .filter(|m| m.engine == engine && m.models == models);
    median(&these.map(of).collect::<Vec<_>>())
}

/// Fits a line to the figure `of` over the number of merged models. Returns the slope (the cost of
/// one more model, in the unit of the figure) and R², the share of the variance that the line
/// explains.
fn fit(merges: &[Merged], engine: usize, rounds: &[usize], of: fn(&Merged) -> f64) -> (f64, f64) {
    let of_round = |round: usize| {
        let these = merges.iter();
        these.filter(move |m| m.engine == engine && m.round == round)
    };
    let points = rounds.iter().flat_map(|r| of_round(*r));
    let points: Vec<(f64, f64)> = points.map(|m| (m.models as f64, of(m))).collect();
    let (slope, _, r2) = fit_line(&points);
    (slope, r2)
}

pub fn add(
    context: &Context,
    report: &mut Report,
    engines: &[Engine],
    merges: &[Merged],
    sizes: [usize; 3],
    kept: &Kept,
) {
    let kinds: BTreeSet<(usize, &str)> = merges
        .iter()
        .map(|m| (m.models, m.sha256.as_str()))
        .collect();
    let differing = kinds.len() as f64 - sizes.len() as f64;
    report.figure(
        Figure::exact("fleet.other_bytes", differing, "files")
            .at_most(0.0)
            .samples(merges.len() as u64),
    );
    for (engine, of) in engines.iter().enumerate() {
        let name = of.name;
        for (what, of) in [
            ("cpu", (|m| m.cpu_s) as fn(&Merged) -> f64),
            ("wall", |m| m.seconds),
        ] {
            let slope = bootstrap(kept, RESAMPLES, &mut context.rng("interval"), |pick| {
                1e3 * fit(merges, engine, pick, of).0
            });
            report.figure(
                Figure::estimated(format!("fleet.{name}.{what}_per_model"), slope, "ms")
                    .samples(kept.all() as u64),
            );
        }
        let r2 = bootstrap(kept, RESAMPLES, &mut context.rng("r2"), |pick| {
            fit(merges, engine, pick, |m| m.cpu_s).1
        });
        let r2 = Figure::estimated(format!("fleet.{name}.linearity_r2"), r2, "1");
        report.figure(r2.at_least(0.98));
        let peak = median_of(merges, engine, sizes[2], |m| m.peak_mb);
        report.value(format!("fleet.{name}.peak"), peak, "MB");
    }
    report.tables.push(table(engines, merges, &sizes));
    report.note("CPU time and memory are summed over all processes of an engine. Memory is sampled ten times per second. A page that processes share counts once for each of these processes.");
    report.note("The start of an engine and its first merge, of 128 models, are not measured. Each engine has two workers. The arm 'alone' is one process.");
}

fn table(engines: &[Engine], merges: &[Merged], sizes: &[usize]) -> Table {
    let mut table = Table::new(
        "Time and memory for merging models (medians of all rounds)",
        "engine | models | wall-clock time, s | CPU time, s | peak memory, MB",
    );
    for (engine, of) in engines.iter().enumerate() {
        for &models in sizes {
            table.row([
                of.name.to_string(),
                models.to_string(),
                number(median_of(merges, engine, models, |m| m.seconds)),
                number(median_of(merges, engine, models, |m| m.cpu_s)),
                number(median_of(merges, engine, models, |m| m.peak_mb)),
            ]);
        }
    }
    table
}

pub fn plot(
    context: &mut Context,
    engines: &[Engine],
    merges: &[Merged],
    sizes: &[usize],
) -> Result<()> {
    let all: Vec<Line> = engines
        .iter()
        .enumerate()
        .map(|(engine, of)| Line {
            name: of.name.into(),
            points: sizes
                .iter()
                .map(|&n| (n as f64, median_of(merges, engine, n, |m| m.cpu_s)))
                .collect(),
        })
        .collect();
    let axes = Axes::new("models", "CPU time of all processes, s");
    context.plot("merge.svg", &lines("Merging models", axes, &all)?)
}
