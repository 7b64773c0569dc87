//! Models a dense graph, in which paths are too many to follow, and compares the times from each
//! source to each sink with the truth that the simulated messages carry.

use super::run::HOUR;
use crate::frame::children::{self, Ended};
use crate::frame::programs::quiet;
use crate::frame::report::{number, Figure, Report, Table};
use crate::frame::rng::Rng;
use crate::frame::{Context, LabError, Result};
use crate::measure::stats::median;
use crate::measure::stats::resampled;
use onbeat_document::schema::EndToEnd;
use onbeat_document::Model;
use onbeat_trace::generate::{Dense, DenseOutput, DenseTruth};
use onbeat_trace::manifest::{Machine, Span};
use onbeat_trace::{Manifest, Writer, WriterOptions};
use std::path::Path;
use std::process::Command;

/// The ends of the chain in the second arm: a source node, and a topic before the last layer of the
/// graph. The first arm selects no chain.
const ENDS: [&str; 4] = ["--from", "n0_3", "--to", "n6_1"];

struct Measured {
    events: u64,
    bytes: u64,
    runs: Vec<Ended>,
    /// The largest deviation of a count or time in the model from the truth, as a share of the
    /// truth.
    off: f64,
    pairs: usize,
    cut: usize,
}

pub fn measure(context: &mut Context, report: &mut Report, scratch: &Path) -> Result<()> {
    let rounds = context.pick(5, 3);
    let shape = Dense {
        layers: 8,
        width: 6,
        rounds: context.pick(600, 150),
        seed: context.seed(),
    };
    context.step("generating a dense graph", 3600);
    let trace = scratch.join("dense");
    let (truth, events) = write(shape, &trace)?;
    let mut arms = [true, false].map(|_| Measured {
        events,
        bytes: 0,
        runs: Vec::new(),
        off: 0.0,
        pairs: 0,
        cut: 0,
    });
    let mut raw = context.raw("dense.csv", "ends,round,events,cpu_s,max_rss_kb,bytes")?;
    for round in 0..rounds {
        for (arm, ends) in [&[][..], &ENDS].into_iter().enumerate() {
            let step = format!("modelling a dense graph, round {}", round + 1);
            context.step(step, 3600);
            let (ended, bytes, model) = run(context, &trace, ends)?;
            raw.line(format_args!(
                "{arm},{round},{events},{},{},{bytes}",
                ended.cpu_s(),
                ended.max_rss_kb
            ))?;
            let of = &mut arms[arm];
            of.runs.push(ended);
            of.bytes = bytes;
            of.pairs = model.end_to_end.iter().filter(|p| !p.cut).count();
            of.cut = model.end_to_end.iter().filter(|p| p.cut).count();
            of.off = off(&model, &truth, shape.layers);
        }
    }
    raw.finish()?;
    summarise(report, shape, &arms);
    Ok(())
}

fn write(shape: Dense, dir: &Path) -> Result<(DenseTruth, u64)> {
    let failed = |why: String| LabError::unexpected(format!("the trace {}", dir.display()), why);
    let writer = Writer::create(dir, WriterOptions::default());
    let mut writer = writer.map_err(|e| failed(e.to_string()))?;
    let (mut events, mut first, mut last) = (0, None, 0);
    let truth = shape.generate(|event| {
        events += 1;
        last = event.time_ns;
        first.get_or_insert(last);
        writer.push(event)
    });
    let truth = truth.map_err(|e| failed(e.to_string()))?;
    let first = first.unwrap_or(last);
    let manifest = Manifest {
        mode: "generated".into(),
        span: Span {
            start_realtime_ns: first,
            start_monotonic_ns: first,
            duration_ns: last - first,
        },
        machine: Machine {
            hostname: "generated".into(),
            recorder_version: env!("CARGO_PKG_VERSION").into(),
            ..Machine::default()
        },
        ..Manifest::default()
    };
    let written = writer.finish(manifest);
    written.map_err(|e| failed(e.to_string()))?;
    Ok((truth, events))
}

fn run(context: &Context, trace: &Path, ends: &[&str]) -> Result<(Ended, u64, Model)> {
    let output = context.dir().join("dense.json");
    let mut command = Command::new(context.onbeat());
    command.arg("model").arg(trace).arg("-o").arg(&output);
    command.args(ends);
    children::pin(&mut command, 0);
    let ended = context.succeed(quiet(&mut command), "onbeat model", HOUR)?;
    let file = std::fs::read(&output).map_err(LabError::file("reading", &output))?;
    let _ = std::fs::remove_file(&output);
    let model = onbeat_document::file::read(&file);
    let model = model.map_err(|e| LabError::unexpected("the model", e))?;
    Ok((ended, file.len() as u64, model))
}

/// Returns the largest deviation of a count, mean, median or maximum from the truth, as a share of
/// the truth. A pair of source and sink that is missing in the model counts as a deviation of 100
/// %.
fn off(model: &Model, truth: &DenseTruth, layers: usize) -> f64 {
    let is = |id: &str, node: &str| id.starts_with(&format!("/{node}:"));
    let mut worst: f64 = 0.0;
    for ((source, sink), outputs) in truth {
        let (from, to) = (Dense::node(0, *source), Dense::node(layers - 1, *sink));
        let found = |p: &&EndToEnd| !p.cut && is(&p.from, &from) && is(&p.to, &to);
        let Some(pair) = model.end_to_end.iter().find(found) else {
            return 1.0;
        };
        let f = &pair.figures;
        let ages = |of: fn(&DenseOutput) -> u64| {
            let ages = outputs.iter().map(|o| (o.time_ns - of(o)) as f64);
            ages.collect::<Vec<f64>>()
        };
        for (dist, ages) in [
            (&f.latency_ns, ages(|o| o.newest_ns)),
            (f.data_age_ns(), ages(|o| o.oldest_ns)),
        ] {
            let mean = ages.iter().sum::<f64>() / ages.len() as f64;
            let most = ages.iter().copied().fold(0.0, f64::max);
            for (is, should) in [
                (dist.count() as f64, ages.len() as f64),
                (dist.mean(), mean),
                (dist.quantile(0.5) as f64, median(&ages)),
                (dist.max() as f64, most),
            ] {
                worst = worst.max((is - should).abs() / should);
            }
        }
    }
    worst
}

fn summarise(report: &mut Report, shape: Dense, arms: &[Measured; 2]) {
    let mut table = Table::new(
        format!(
            "A dense graph: {} layers of {} nodes, each node subscribes to all topics of the previous layer",
            shape.layers, shape.width
        ),
        "sources and sinks in the model | events | pairs of source and sink | largest error of latencies, data ages and their number, % of the true value | million events per s of CPU time | peak memory, MB | size of the model, MB",
    );
    let speed = |m: &Measured| {
        let cpu_s: Vec<f64> = m.runs.iter().map(Ended::cpu_s).collect();
        m.events as f64 / median(&cpu_s)
    };
    let peak = |m: &Measured| {
        let peaks = m.runs.iter().map(|e| e.max_rss_kb as f64 / 1024.0);
        peaks.fold(0.0, f64::max)
    };
    for (name, of) in [
        "all sources and sinks",
        "all sources and sinks, and the nodes of --from and --to (two passes over the trace)",
    ]
    .into_iter()
    .zip(arms)
    {
        table.row([
            name.into(),
            number(of.events as f64),
            number((of.pairs + of.cut) as f64),
            number(of.off * 100.0),
            number(speed(of) / 1e6),
            number(peak(of)),
            number(of.bytes as f64 / 1e6),
        ]);
    }
    report.tables.push(table);
    let [all, named] = arms;
    let rounds = all.runs.len() as u64;
    report.figure(Figure::exact("model.dense_error", all.off.max(named.off), "1").at_most(0.01));
    report.value("model.dense_named_pairs", named.cut as f64, "1");
    let cpu_s: Vec<f64> = all.runs.iter().map(Ended::cpu_s).collect();
    let of_all = resampled(&cpu_s, &mut Rng::new(1), |cpu_s| {
        all.events as f64 / median(cpu_s)
    });
    report.figure(
        Figure::estimated("model.dense_speed", of_all, "events/s")
            .at_least(1e6)
            .samples(rounds),
    );
    report.figure(
        Figure::exact("model.dense_memory", peak(all).max(peak(named)), "MB").at_most(100.0),
    );
    report.figure(Figure::exact("model.dense_size", all.bytes as f64 / 1e6, "MB").at_most(5.0));
}
