//! Figures, tables and plots of the lateness of packets.

use super::{load_name, Arm, Load, ARMS};
use crate::frame::report::{number, Figure, Report, Table};
use crate::frame::{Context, Result};
use crate::measure::arms::ArmSamples;
use crate::measure::stats::Sorted;
use crate::plot::percentiles;

const TIMES_FLOOR: f64 = 2.0;
const OF_BEST_PEER: f64 = 0.1;
/// The largest p99 of the lateness from a BLF log, as a multiple of that from the capture. The rest
/// above 1 is for the difference between two runs of one arm.
const OF_CAPTURE: f64 = 1.25;

pub(super) fn judge(context: &mut Context, report: &mut Report, loads: &[Load]) -> Result<()> {
    raw(context, loads)?;
    for load in loads {
        let id = if load.busy { "busy" } else { "idle" };
        report.tables.push(table(load));
        let samples = load.samples();
        figures(context, report, load, id, &samples);
        let series: Vec<(&str, Sorted)> = ARMS
            .into_iter()
            .enumerate()
            .map(|(i, arm)| (arm.name(), samples.pooled(i)))
            .filter(|(_, s)| !s.is_empty())
            .collect();
        let title = format!("Lateness at the receiver, {}", load_name(load.busy));
        let svg = percentiles(&title, "us", &series)?;
        context.plot(&format!("replay-{id}.svg"), &svg)?;
    }
    Ok(())
}

impl Load {
    fn samples(&self) -> ArmSamples {
        let mut samples = ArmSamples::new(&ARMS.map(Arm::name), self.kept.all());
        for run in &self.runs {
            let arm = ARMS.iter().position(|arm| *arm == run.arm).unwrap_or(0);
            samples.extend(run.round, arm, run.late_us.values().iter().copied());
        }
        samples.keep(self.kept.clone());
        samples
    }
}

fn figures(context: &Context, report: &mut Report, load: &Load, id: &str, samples: &ArmSamples) {
    let floor_us = load.floor.quantile_ms(0.999).map(|ms| ms * 1000.0);
    if let Some(us) = floor_us {
        let figure = Figure::new(format!("cyclictest.p999.{id}"), us, "us");
        report.figure(figure.samples(load.floor.count()));
    } else {
        report.skip(
            "cyclictest",
            "cyclictest is not installed. Run apt-get install rt-tests",
        );
    }
    let mut rng = context.rng("lateness");
    let is_there = |arm: &usize| !samples.pooled(*arm).is_empty();
    let p99 = |arm: usize| samples.pooled(arm).quantile(0.99);
    let peers = (0..ARMS.len()).filter(|arm| !ARMS[*arm].is_onbeat() && is_there(arm));
    let best = peers.min_by(|a, b| p99(*a).total_cmp(&p99(*b)));
    for (i, arm) in ARMS.into_iter().enumerate().filter(|(i, _)| is_there(i)) {
        let word = match arm {
            Arm::Onbeat => "onbeat",
            Arm::OnbeatBlf => "onbeat_blf",
            Arm::Tcpreplay => "tcpreplay",
            Arm::TcpreplayFifo => "tcpreplay_fifo",
        };
        let of_arm = load.runs.iter().filter(|r| r.arm == arm);
        let wrong: usize = of_arm.map(|r| r.lost + r.misplaced).sum();
        let wrong = Figure::exact(format!("{word}.lost_or_misplaced.{id}"), wrong as f64, "1");
        let is_ours = arm.is_onbeat();
        report.figure(wrong.at_most(is_ours.then_some(0.0)));
        let count = samples.pooled(i).len() as u64;
        for (what, q) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)] {
            let late = samples.quantile(i, q, &mut rng);
            let figure = Figure::estimated(format!("{word}.{what}.{id}"), late, "us");
            let limit = floor_us.filter(|_| is_ours && what == "p999");
            report.figure(
                figure
                    .samples(count)
                    .at_most(limit.map(|us| TIMES_FLOOR * us)),
            );
        }
    }
    if is_there(&0) && is_there(&1) {
        let ratio = samples.quantile_ratio(0, 1, 0.99, &mut rng);
        let figure = Figure::estimated(format!("onbeat_blf.p99_over_capture.{id}"), ratio, "1");
        report.figure(figure.at_most(OF_CAPTURE));
    }
    if let (Some(best), true) = (best, is_there(&0)) {
        let ratio = samples.quantile_ratio(best, 0, 0.99, &mut rng);
        let figure = Figure::estimated(format!("onbeat.p99_over_best_peer.{id}"), ratio, "1");
        report.figure(figure.at_most(load.busy.then_some(OF_BEST_PEER)));
    }
}

fn table(load: &Load) -> Table {
    let title = format!(
        "Lateness at the receiver, us; radar streams of Table I; {}",
        load_name(load.busy)
    );
    let head =
        "arm | streams | lateness p50, us | p99, us | p99.9, us | max, us | lost packets | packets out of order | CPU use, % of a core";
    let mut table = Table::new(title, head);
    for run in &load.runs {
        let late = &run.late_us;
        let quantiles = [0.5, 0.99, 0.999, 1.0].map(|q| number(late.quantile(q)));
        let mut cells = vec![run.arm.name().to_string(), run.streams.to_string()];
        cells.extend(quantiles);
        cells.extend([run.lost.to_string(), run.misplaced.to_string()]);
        cells.push(format!("{:.1}", run.cpu));
        table.row(cells);
    }
    table
}

fn raw(context: &mut Context, loads: &[Load]) -> Result<()> {
    let mut raw = context.raw("replay.csv", "arm,streams,busy,late_us")?;
    let runs = loads
        .iter()
        .flat_map(|load| load.runs.iter().map(move |run| (load.busy, run)));
    for (busy, run) in runs {
        let (arm, streams, busy) = (run.arm.name(), run.streams, u8::from(busy));
        for late in run.late_us.values() {
            raw.line(format_args!("{arm},{streams},{busy},{late}"))?;
        }
    }
    raw.finish()
}
