//! Figures and plots of the latency that recording adds.

use super::{Cell, LatencyStart, Policy, Setting, ARMS, OFF, ONBEAT, PASSED, PRELOAD};
use crate::frame::report::{Figure, Report};
use crate::frame::rng::Rng;
use crate::frame::{Context, Estimate, Result};
use crate::measure::stats::{mean, resampled};
use crate::plot::{bars, percentiles};
use std::collections::BTreeSet;

/// The mean latency in us that ros2_tracing with all its events adds to a message, from arXiv
/// 2201.00393.
const ROS2_TRACING_ADDED_US: f64 = 3.3;

#[derive(Clone, Copy)]
pub struct Added {
    pub mean: Estimate,
    pub p50: Estimate,
    pub p99_ratio: Estimate,
}

impl Added {
    pub fn of(cell: &Cell, from: LatencyStart, rng: &mut Rng) -> Added {
        let samples = cell.samples(from);
        Added {
            mean: samples.added_mean(OFF, ONBEAT, rng),
            p50: samples.added_quantile(OFF, ONBEAT, 0.5, rng),
            p99_ratio: samples.quantile_ratio(OFF, ONBEAT, 0.99, rng),
        }
    }
}

pub fn of_cell(report: &mut Report, cell: &Cell, from: LatencyStart, added: &Added) {
    let samples = cell.samples(from);
    let count = [OFF, ONBEAT].map(|arm| samples.pooled(arm).len());
    let figure = |what: &str, e: Estimate, unit: &str| {
        let name = format!("latency.{}.{}.{what}", from.id(), cell.setting.id());
        Figure::estimated(name, e, unit).samples(count.iter().sum::<usize>() as u64)
    };
    report.figure(figure("added_mean", added.mean, "us").at_most(5.0));
    report.figure(figure("added_p50", added.p50, "us"));
    report.figure(figure("p99_ratio", added.p99_ratio, "1").at_most(1.1));
}

pub fn over_cells(
    report: &mut Report,
    policy: Policy,
    from: LatencyStart,
    all: &[Added],
    rng: &mut Rng,
) {
    let mut over =
        |of: fn(&Added) -> f64| resampled(&all.iter().map(of).collect::<Vec<_>>(), rng, mean);
    let name = format!("latency.{}.{}", from.id(), policy.name());
    let added = over(|a| a.mean.value);
    report.figure(
        Figure::estimated(format!("{name}.added_mean"), added, "us")
            .at_most(5.0)
            .baseline(
                ROS2_TRACING_ADDED_US,
                "ros2_tracing, all events (arXiv 2201.00393)",
            ),
    );
    let p50 = over(|a| a.p50.value);
    report.figure(Figure::estimated(format!("{name}.added_p50"), p50, "us").at_most(5.0));
    let ratio = over(|a| a.p99_ratio.value);
    report.figure(Figure::estimated(format!("{name}.p99_ratio"), ratio, "1").at_most(1.1));
}

pub fn of_arm(
    report: &mut Report,
    (policy, from): (Policy, LatencyStart),
    cells: &[&Cell],
    (without, arm): (usize, usize),
    rng: &mut Rng,
) {
    let mut all = vec![];
    let id = ARMS[arm];
    for cell in cells {
        let samples = cell.samples(from);
        let added = samples.added_quantile(without, arm, 0.5, rng);
        let name = format!("{id}.{}.{}.added_p50", from.id(), cell.setting.id());
        let figure = Figure::estimated(name, added, "us");
        report.figure(figure);
        all.push(added.value);
    }
    let over = resampled(&all, rng, mean);
    let name = format!("{id}.{}.{}.added_p50", from.id(), policy.name());
    let whose = "ros2_tracing, all events, mean (arXiv 2201.00393)";
    let figure = Figure::estimated(name, over, "us").baseline(ROS2_TRACING_ADDED_US, whose);
    report.figure(figure.at_most((arm == PRELOAD).then_some(1.0)));
}

pub fn totals(report: &mut Report, cells: &[Cell]) {
    let sum = |of: &dyn Fn(&Cell) -> u64| cells.iter().map(of).sum::<u64>();
    let missing = |arm: usize| {
        let sent = sum(&|c| c.sent[arm]).max(1);
        (sent - sum(&|c| c.arrived[arm]).min(sent)) as f64 / sent as f64 * 100.0
    };
    for (arm, without) in [(ONBEAT, OFF), (PRELOAD, PASSED)] {
        let samples = sum(&|c| c.sent[arm]);
        if samples > 0 {
            let name = format!("latency.{}.messages_missing", ARMS[arm]);
            let figure = Figure::new(name, missing(arm), "%").samples(samples);
            report.figure(figure.baseline(missing(without), ARMS[without]));
        }
    }
    report.figure(
        Figure::exact(
            "latency.events_lost",
            sum(&|c| c.lost_events) as f64,
            "events",
        )
        .at_most(0.0),
    );
}

pub fn plot(context: &mut Context, policy: Policy, cells: &[&Cell]) -> Result<()> {
    let mut rng = context.rng("plot");
    let all = |of: fn(&Setting) -> u32| -> BTreeSet<u32> {
        cells.iter().map(|c| of(&c.setting)).collect()
    };
    let (rates, sizes) = (all(|s| s.rate_hz), all(|s| s.kib));
    let categories: Vec<String> = rates.iter().map(|r| format!("{r} Hz")).collect();
    let mut series = vec![];
    for kib in sizes {
        // Cells of one size are in the order of their rates.
        let these = cells.iter().filter(|c| c.setting.kib == kib);
        let bars = these.map(|c| c.message.added_quantile(OFF, ONBEAT, 0.5, &mut rng));
        series.push((format!("{kib} KiB"), bars.collect()));
    }
    let title = format!(
        "Median latency that recording adds to a message, {} threads",
        policy.name()
    );
    let svg = bars(
        &title,
        "us",
        &categories,
        &series,
        Some((5.0, "target: 5 us")),
    )?;
    context.plot(&format!("latency-added-{}.svg", policy.name()), &svg)?;
    for c in cells {
        let series = [
            ("off", c.message.pooled(OFF)),
            ("onbeat", c.message.pooled(ONBEAT)),
        ];
        let svg = percentiles(
            &format!("Message latency, {}", c.setting.title()),
            "us",
            &series,
        )?;
        context.plot(
            &format!("latency-{}.svg", c.setting.id().replace('.', "-")),
            &svg,
        )?;
    }
    Ok(())
}
