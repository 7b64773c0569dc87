//! Figures, tables and plots of the lateness of packets.

use super::{Arm, Run, ARMS};
use crate::frame::report::{number, Figure, Report, Table};
use crate::frame::{Context, Result};
use crate::measure::floor::Floor;
use crate::measure::stats::Sorted;
use crate::plot::percentiles;

const TIMES_FLOOR: f64 = 2.0;
const OF_BEST_PEER: f64 = 0.1;

pub(super) fn judge(
    context: &mut Context,
    report: &mut Report,
    runs: &[Run],
    floors: &[Floor],
) -> Result<()> {
    raw(context, runs)?;
    for (busy, floor) in [false, true].into_iter().zip(floors) {
        let load = if busy { "busy" } else { "idle" };
        report.tables.push(table(runs, busy));
        figures(report, runs, busy, load, floor);
        let series: Vec<(&str, Sorted)> = ARMS
            .into_iter()
            .map(|arm| (arm.name(), all(runs, arm, busy)))
            .filter(|(_, s)| !s.is_empty())
            .collect();
        let title = match busy {
            true => "Lateness at the receiver, one busy program per CPU",
            false => "Lateness at the receiver, idle machine",
        };
        let svg = percentiles(title, "us", &series)?;
        context.plot(&format!("replay-{load}.svg"), &svg)?;
    }
    Ok(())
}

fn of(runs: &[Run], arm: Arm, busy: bool) -> impl Iterator<Item = &Run> {
    runs.iter().filter(move |r| r.arm == arm && r.busy == busy)
}

fn all(runs: &[Run], arm: Arm, busy: bool) -> Sorted {
    let runs = of(runs, arm, busy);
    Sorted::new(runs.flat_map(|r| r.late_us.values().iter().copied()))
}

fn figures(report: &mut Report, runs: &[Run], busy: bool, load: &str, floor: &Floor) {
    let floor_us = floor.quantile_ms(0.999).map(|ms| ms * 1000.0);
    if let Some(us) = floor_us {
        let figure = Figure::new(format!("cyclictest.p999.{load}"), us, "us");
        report.figure(figure.samples(floor.count()));
    } else {
        report.skip(
            "cyclictest",
            "cyclictest is not installed. Run apt-get install rt-tests",
        );
    }
    let p99 = |arm| {
        let late = all(runs, arm, busy);
        (!late.is_empty()).then(|| late.quantile(0.99))
    };
    let peers = [Arm::Tcpreplay, Arm::TcpreplayFifo]
        .into_iter()
        .filter_map(p99);
    let best = peers.min_by(f64::total_cmp);
    for arm in ARMS {
        let late = all(runs, arm, busy);
        if late.is_empty() {
            continue;
        }
        let word = match arm {
            Arm::Onbeat => "onbeat",
            Arm::Tcpreplay => "tcpreplay",
            Arm::TcpreplayFifo => "tcpreplay_fifo",
        };
        let samples = late.len() as u64;
        let figure = |what: &str, value, unit: &str| {
            Figure::new(format!("{word}.{what}.{load}"), value, unit).samples(samples)
        };
        let wrong: usize = of(runs, arm, busy).map(|r| r.lost + r.misplaced).sum();
        let ours = |limit: Option<f64>| limit.filter(|_| arm == Arm::Onbeat);
        let wrong = figure("lost_or_misplaced", wrong as f64, "1").at_most(ours(Some(0.0)));
        let p50 = figure("p50", late.quantile(0.5), "us");
        let p99 = figure("p99", late.quantile(0.99), "us")
            .baseline(ours(best), "the best peer")
            .at_most(ours(best).filter(|_| busy).map(|us| OF_BEST_PEER * us));
        let p999 = figure("p999", late.quantile(0.999), "us")
            .at_most(ours(floor_us).map(|us| TIMES_FLOOR * us));
        [wrong, p50, p99, p999]
            .into_iter()
            .for_each(|f| report.figure(f));
    }
}

fn table(runs: &[Run], busy: bool) -> Table {
    let load = if busy {
        "one busy program per CPU"
    } else {
        "idle"
    };
    let title = format!("Lateness at the receiver, us; radar streams of Table I; {load}");
    let head = "arm | streams | p50 | p99 | p99.9 | max | lost | misplaced | CPU";
    let mut table = Table::new(title, head);
    for run in runs.iter().filter(|r| r.busy == busy) {
        let late = &run.late_us;
        let quantiles = [0.5, 0.99, 0.999, 1.0].map(|q| number(late.quantile(q)));
        let mut cells = vec![run.arm.name().to_string(), run.streams.to_string()];
        cells.extend(quantiles);
        cells.extend([run.lost.to_string(), run.misplaced.to_string()]);
        cells.push(format!("{:.1} %", run.cpu));
        table.row(cells);
    }
    table
}

fn raw(context: &mut Context, runs: &[Run]) -> Result<()> {
    let mut raw = context.raw("replay.csv", "arm,streams,busy,late_us")?;
    for run in runs {
        let (arm, streams, busy) = (run.arm.name(), run.streams, u8::from(run.busy));
        for late in run.late_us.values() {
            raw.line(format_args!("{arm},{streams},{busy},{late}"))?;
        }
    }
    raw.finish()
}
