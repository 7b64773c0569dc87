//! The figures and plots of modelling.

use super::run::Size;
use crate::frame::report::{Figure, Report};
use crate::frame::{Context, Kept, Result};
use crate::measure::stats::{bootstrap, fit_line, median, over_rounds, RESAMPLES};
use crate::plot::{lines, Axes, Line};

pub fn add(context: &Context, report: &mut Report, (sizes, kept): (&[Size], &Kept), reading: f64) {
    let (Some(first), Some(last)) = (sizes.first(), sizes.last()) else {
        return;
    };
    let rounds = last.runs.len();
    let speed = over_rounds(kept, &last.cpu_s(), &mut context.rng("interval"), |cpu_s| {
        last.events as f64 / median(cpu_s)
    });
    report.figure(
        Figure::estimated("model.speed", speed, "events/s")
            .at_least(2e6)
            .samples(rounds as u64),
    );
    let (peak, grown) = (last.peak_mb(), last.peak_mb() - first.peak_mb());
    report.figure(Figure::exact("model.peak_memory", peak, "MB").at_most(300.0));
    report.figure(Figure::new("model.memory_growth", grown, "MB").samples(rounds as u64));
    // The cost of one event on the longest trace, divided by its cost on the shortest.
    let [short, long] = [first, last].map(|size| {
        let cpu_s = size.cpu_s().into_iter();
        cpu_s.map(|s| s / size.events as f64).collect::<Vec<_>>()
    });
    let growth = bootstrap(kept, RESAMPLES, &mut context.rng("growth"), |pick| {
        let of = |costs: &[f64]| median(&pick.iter().map(|&i| costs[i]).collect::<Vec<_>>());
        of(&long) / of(&short)
    });
    report.figure(Figure::estimated("model.cost_growth", growth, "1").at_most(1.1));
    let point = |size: &Size, s: f64| (size.events as f64, s);
    let points: Vec<(f64, f64)> = sizes
        .iter()
        .flat_map(|size| size.cpu_s().into_iter().map(move |s| point(size, s)))
        .collect();
    report.figure(
        Figure::new("model.linearity_r2", fit_line(&points).2, "1").samples(points.len() as u64),
    );
    report.value("read.speed", reading, "events/s");
    let each = last.bytes as f64 / last.events as f64;
    report.value("trace.bytes_per_event", each, "bytes");
}
pub fn plot(context: &mut Context, sizes: &[Size]) -> Result<()> {
    let line = |name: &str, of: fn(&Size) -> f64| Line {
        name: name.into(),
        points: sizes.iter().map(|s| (s.events as f64, of(s))).collect(),
    };
    let axes = Axes::new("events", "CPU time, s");
    let time = [
        line("onbeat model", |s| median(&s.cpu_s())),
        line("2 million events/s", |s| s.events as f64 / 2e6),
    ];
    context.plot("time.svg", &lines("Time to model a trace", axes, &time)?)?;
    let axes = Axes {
        log_x: true,
        mark: Some((300.0, "target: 300 MB")),
        ..Axes::new("events", "peak resident memory, MB")
    };
    let memory = [line("onbeat model", Size::peak_mb)];
    context.plot(
        "memory.svg",
        &lines("Memory to model a trace", axes, &memory)?,
    )
}
