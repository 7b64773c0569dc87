//! Measures the latency of urgent messages beside large transfers that are less urgent: percentiles
//! of small messages, and Figure 5.14.

use super::arms::{self, Arm, RATE};
use super::cell::{Plan, Stream, Testbed};
use super::size::{id_of, name_of};
use crate::frame::report::{number, Figure, Report, Table};
use crate::frame::{Context, LabError, Result};
use crate::measure::arms::{interleave, ArmSamples};
use crate::measure::stats::{over_blocks, Sorted};
use crate::plot::{curves, percentiles, Curve};
const URGENT_BYTES: usize = 1 << 10;
const URGENT_PERIOD_NS: u64 = 5_000_000;
const LARGE_BYTES: usize = 4 << 20;
/// The size in bytes and the period in ns of the messages of medium urgency. These messages use
/// less than half of the link's rate.
const MEDIUM: (usize, u64) = (1 << 20, 20_000_000);
/// The smallest and the largest latency in ms that the thesis measured for messages of 1 MB beside
/// other transfers, with standard Soft-RoCE.
const THESIS_1MB: (f64, f64) = (8.9, 20.6);

fn flood(priority: u8, bytes: usize, period_ns: u64) -> Stream {
    Stream {
        priority,
        bytes,
        period_ns,
        count: 0,
        offset_ns: 0,
    }
}

pub fn urgent_plan(count: u64, loaded: bool) -> Plan {
    let mut streams = vec![Stream {
        priority: 2,
        bytes: URGENT_BYTES,
        period_ns: URGENT_PERIOD_NS,
        count,
        // The load is fully running when the first urgent message comes.
        offset_ns: 200_000_000,
    }];
    if loaded {
        streams.push(flood(0, LARGE_BYTES, 0));
        streams.push(flood(1, MEDIUM.0, MEDIUM.1));
    }
    Plan {
        streams,
        credits: 2,
        apart: true,
        ..Plan::default()
    }
}

pub fn small(context: &mut Context, report: &mut Report, testbed: &Testbed) -> Result<()> {
    let rounds = context.pick(5, 3);
    let count = context.pick_of_three(10_000, 1_500, 120) / rounds as u64;
    let arms = testbed.arms.available_among(&arms::ALL);
    // Each arm has two columns: alone, and beside the load.
    let names = arms
        .iter()
        .flat_map(|arm| [arm.id.to_owned(), format!("{}, loaded", arm.id)]);
    let names: Vec<String> = names.collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let turns = context.turns("urgent messages", names.len(), rounds);
    let samples = interleave(turns, &names, |column, _| {
        context.step(format!("urgent messages: {}", names[column]), 300);
        let plan = urgent_plan(count, column % 2 == 1);
        let outcome = testbed.try_run(context, &arms[column / 2], true, &plan)?;
        let outcome = outcome.unwrap_or_default();
        let latencies = outcome.of(0).map(|s| s.latency_us());
        Ok::<_, LabError>(latencies.collect())
    })?;
    samples.save(context, "priority.csv")?;
    let of_arm = |i: usize| vec![samples.pooled(2 * i), samples.pooled(2 * i + 1)];
    let measured = arms.iter().enumerate().map(|(i, arm)| (arm, of_arm(i)));
    let measured: Vec<(&Arm, Vec<Sorted>)> = measured
        .filter(|(_, of)| of.iter().all(|sorted| !sorted.is_empty()))
        .collect();
    small_report(report, &measured);
    small_targets(context, report, &arms, &samples);
    let series: Vec<(&str, Sorted)> = measured
        .iter()
        .map(|(arm, of)| (arm.name, of[1].clone()))
        .collect();
    let title = "Latency of urgent messages of 1 KB during large transfers, 1 Gbit/s";
    let svg = percentiles(title, "us", &series)?;
    context.plot("priority.svg", &svg)
}

fn small_report(report: &mut Report, measured: &[(&Arm, Vec<Sorted>)]) {
    let title = format!(
        "Latency in us of urgent messages ({}, one every {} ms), alone and while other processes transfer {} and {}",
        name_of(URGENT_BYTES),
        URGENT_PERIOD_NS / 1_000_000,
        name_of(LARGE_BYTES),
        name_of(MEDIUM.0)
    );
    let head = "| alone p50 | p99 | p99.9 | loaded p50 | p99 | p99.9 | max";
    let mut table = Table::new(title, head);
    for (arm, of) in measured {
        let mut row = vec![arm.name.to_string()];
        row.extend([0.5, 0.99, 0.999].map(|q| number(of[0].quantile(q))));
        row.extend([0.5, 0.99, 0.999, 1.0].map(|q| number(of[1].quantile(q))));
        table.row(row);
        let samples = of[1].len() as u64;
        for (name, load, q) in [
            ("alone.p50", 0, 0.5),
            ("alone.p99_9", 0, 0.999),
            ("loaded.p50", 1, 0.5),
            ("loaded.p99", 1, 0.99),
            ("loaded.p99_9", 1, 0.999),
            ("loaded.max", 1, 1.0),
        ] {
            let name = format!("priority.{}.{name}", arm.id);
            let figure = Figure::new(name, of[load].quantile(q), "us");
            report.figure(figure.samples(samples));
        }
    }
    report.tables.push(table);
    report.note("urgent messages: latency runs from the time at which a message was due (not when it could be sent) until the receiver can read it");
}

fn small_targets(context: &Context, report: &mut Report, arms: &[Arm], samples: &ArmSamples) {
    let Some(ours) = arms.iter().position(Arm::is_ours) else {
        return;
    };
    let mut rng = context.rng("urgent");
    let (alone, loaded) = (2 * ours, 2 * ours + 1);
    let window_us = arms::WINDOW_NS as f64 / 1000.0;
    let beyond = samples.compare(alone, loaded, 0.999, &mut rng, |alone, loaded| {
        loaded - 1.05 * alone
    });
    let figure = Figure::estimated("urgent.ours.beyond_alone_and_window", beyond, "us");
    report.figure(figure.at_most(window_us));
    for (i, arm) in arms.iter().enumerate().filter(|(_, arm)| !arm.is_ours()) {
        let theirs = 2 * i + 1;
        if !samples.pooled(theirs).is_empty() {
            let ratio = samples.quantile_ratio(theirs, loaded, 0.999, &mut rng);
            let name = format!("urgent.ours_over.{}", arm.id);
            report.figure(Figure::estimated(name, ratio, "1").at_most(1.0));
        }
    }
}

pub fn large(context: &mut Context, report: &mut Report, testbed: &Testbed) -> Result<()> {
    let sizes = context.pick(vec![1, 4, 16, 32], vec![1, 4]);
    let arms = testbed.arms.available_among(&arms::ALL);
    let mut measured: Vec<(usize, Vec<Vec<f64>>)> = vec![];
    for bytes in sizes.into_iter().map(|mb: usize| mb << 20) {
        let mut of = vec![];
        for arm in &arms {
            let what = format!("urgent {}: {}", name_of(bytes), arm.name);
            context.step(&what, 300);
            let plan = large_plan(context, bytes);
            let outcome = testbed.try_run(context, arm, true, &plan)?;
            let outcome = outcome.unwrap_or_default();
            let ms = outcome.of(0).map(|s| s.transfer_us() / 1000.0);
            of.push(ms.collect());
        }
        measured.push((bytes, of));
    }
    large_report(report, &arms, &measured);
    large_plots(context, &arms, &measured)
}

fn large_plan(context: &Context, bytes: usize) -> Plan {
    let wire_ns = bytes as u64 * 8 * 1_000_000_000 / RATE;
    let usual = (160_000_000 / wire_ns.max(1) + 6).min(40);
    Plan {
        streams: vec![
            Stream {
                priority: 2,
                bytes,
                period_ns: wire_ns * 2,
                count: context.pick_of_three(100, usual, 4),
                offset_ns: wire_ns / 2 + 50_000_000,
            },
            flood(1, bytes, 0),
            flood(0, bytes, 0),
        ],
        credits: 2,
        apart: true,
        ..Plan::default()
    }
}

fn large_report(report: &mut Report, arms: &[Arm], measured: &[(usize, Vec<Vec<f64>>)]) {
    let sizes = measured.iter().map(|(b, _)| name_of(*b));
    let title =
        "Latency of urgent messages while two streams send messages of equal size, ms: least to greatest (Figure 5.14)";
    let mut table = Table::over(title, "", sizes);
    for (i, arm) in arms.iter().enumerate() {
        let mut row = vec![arm.name.to_string()];
        for (bytes, of) in measured {
            let sorted = Sorted::new(of[i].iter().copied());
            let ends = [0.0, 1.0].map(|q| sorted.shown(q));
            row.push(ends.join(" to "));
            large_figures(report, *bytes, arm, &of[i]);
        }
        table.row(row);
    }
    report.tables.push(table);
}

fn large_figures(report: &mut Report, bytes: usize, arm: &Arm, ms: &[f64]) {
    if ms.is_empty() {
        return;
    }
    let thesis = [THESIS_1MB.0, THESIS_1MB.1];
    for ((what, q), thesis) in [("min", 0.0), ("max", 1.0)].into_iter().zip(thesis) {
        let name = format!("large.{}.{}.{what}", id_of(bytes), arm.id);
        let thesis = (bytes == 1 << 20 && *arm == arms::INTERFACE).then_some(thesis);
        let figure = Figure::estimated(name, over_blocks(ms, |of| of.quantile(q)), "ms");
        let figure = figure.baseline(thesis, "thesis, standard Soft-RoCE");
        report.figure(figure.samples(ms.len() as u64));
    }
}

fn large_plots(
    context: &mut Context,
    arms: &[Arm],
    measured: &[(usize, Vec<Vec<f64>>)],
) -> Result<()> {
    let ticks: Vec<(f64, String)> = measured
        .iter()
        .map(|(b, _)| (*b as f64, name_of(*b)))
        .collect();
    let mut lines = vec![];
    for (i, arm) in arms.iter().enumerate() {
        for (what, q, dashed) in [("least", 0.0, true), ("greatest", 1.0, false)] {
            let points = measured.iter();
            lines.push(Curve {
                name: format!("{}, {what}", arm.name),
                colour: arm.colour,
                dashed,
                points: points
                    .filter(|(_, of)| !of[i].is_empty())
                    .map(|(b, of)| (*b as f64, Sorted::new(of[i].iter().copied()).quantile(q)))
                    .collect(),
            });
        }
    }
    let title = "Latency of an urgent message during two transfers of equal size (Figure 5.14)";
    let svg = curves(title, ("size", "ms"), &ticks, &lines)?;
    context.plot("fig5.14.svg", &svg)
}
