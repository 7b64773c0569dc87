//! Measures a neural network split over two hosts (Figure 5.15), alone and beside programs that
//! load the memory (section 5.1.1).

use super::arms::{self, Arm};
use super::cell::{Plan, Sample, Stream, Testbed};
use crate::frame::children::Guarded;
use crate::frame::machine;
use crate::frame::report::{number, Figure, Report, Table};
use crate::frame::{Context, Estimate, Result};
use crate::measure::stats::{median, over_blocks, Sorted};
use crate::plot::bars;

const BYTES: usize = 76 * 76 * 256 * 4;
/// The time between two inputs of the neural network, in ns. It is so long that the previous input
/// has been processed.
const PERIOD_NS: u64 = 250_000_000;
/// The times that the thesis measured, in ms: computing both parts of the neural network,
/// communication over TCP, and communication over standard Soft-RoCE.
const THESIS: [f64; 3] = [100.0, 65.0, 50.0];
/// The increase of the computing time by memory contention in the thesis, in %: on the CPU, and on
/// accelerators.
const THESIS_CONTENTION: (f64, f64) = (600.0, 100.0);

const ARMS: [Arm; 5] = [
    arms::TCP,
    arms::PRIO,
    arms::INTERFACE,
    arms::SEALED,
    arms::OURS,
];

struct Times {
    computing: Vec<f64>,
    communication: Vec<f64>,
    whole: Vec<f64>,
}

impl Times {
    fn of(samples: &[Sample]) -> Times {
        let ms = |of: &dyn Fn(&Sample) -> i64| {
            let ms = samples.iter().map(|s| of(s) as f64 / 1e6);
            ms.collect()
        };
        Times {
            computing: ms(&|s| (s.sent_ns - s.intended_ns) + (s.finished_ns - s.received_ns)),
            communication: ms(&|s| s.received_ns - s.sent_ns),
            whole: ms(&|s| s.finished_ns - s.intended_ns),
        }
    }
}

fn times(context: &Context, testbed: &Testbed, arm: &Arm, limited: bool) -> Result<Times> {
    let stream = Stream {
        priority: 2,
        bytes: BYTES,
        period_ns: PERIOD_NS,
        count: context.pick_of_three(100, 30, 5),
        offset_ns: 0,
    };
    let plan = Plan {
        streams: vec![stream],
        credits: 2,
        network: true,
        apart: true,
        ..Plan::default()
    };
    Ok(Times::of(
        &testbed.run(context, arm, limited, &plan)?.samples,
    ))
}

pub fn split(context: &mut Context, report: &mut Report, testbed: &Testbed) -> Result<()> {
    let title = "Times of a neural network that is split over two hosts: medians, ms (Figure 5.15)";
    let mut table = Table::new(title, "| computing | communication | whole | p99");
    let thesis = |name: &str, communication: f64| {
        let whole = number(THESIS[0] + communication);
        [
            name.into(),
            number(THESIS[0]),
            number(communication),
            whole,
            "-".into(),
        ]
    };
    let mut raw = context.raw("network.csv", "arm,whole_ms")?;
    for arm in testbed.arms.available_among(&ARMS) {
        context.step(format!("split neural network: {}", arm.name), 120);
        let times = times(context, testbed, &arm, true)?;
        let middle = |of: &[f64]| over_blocks(of, |of| of.quantile(0.5));
        table.row([
            arm.name.into(),
            number(median(&times.computing)),
            number(median(&times.communication)),
            number(median(&times.whole)),
            number(Sorted::new(times.whole.iter().copied()).quantile(0.99)),
        ]);
        let samples = times.whole.len() as u64;
        let name = format!("network.{}", arm.id);
        let figure = Figure::estimated(
            format!("{name}.communication"),
            middle(&times.communication),
            "ms",
        );
        report.figure(match arm {
            arms::TCP => figure.baseline(THESIS[1], "thesis, TCP"),
            _ => figure.baseline(THESIS[2], "thesis, standard Soft-RoCE"),
        });
        let figure = Figure::estimated(format!("{name}.whole"), middle(&times.whole), "ms");
        report.figure(figure.samples(samples));
        for value in &times.whole {
            raw.line(format_args!("{},{value}", arm.id))?;
        }
    }
    raw.finish()?;
    table.row(thesis("thesis, TCP", THESIS[1]));
    table.row(thesis("thesis, standard Soft-RoCE", THESIS[2]));
    report.tables.push(table);
    report.note(format!(
        "split neural network: the two parts have random weights from fixed seeds and exchange {BYTES} bytes per input. Each input goes through the first part, the link and the second part"
    ));
    Ok(())
}

pub fn contention(context: &mut Context, report: &mut Report, testbed: &Testbed) -> Result<()> {
    let cores = machine::cpus();
    let heads: Vec<String> = (0..=cores).map(|n| format!("{n} programs")).collect();
    let title =
        "Computing time + communication time of the split neural network while other programs load the memory, ms (section 5.1.1)";
    let mut table = Table::over(title, "", heads.clone());
    let mut series: Vec<(String, Vec<Estimate>)> = heads.into_iter().map(|h| (h, vec![])).collect();
    let arms = testbed
        .arms
        .available_among(&[arms::TCP, arms::INTERFACE, arms::OURS]);
    for arm in &arms {
        let (mut row, mut alone) = (vec![arm.name.to_string()], None);
        for (hogs, bars) in series.iter_mut().enumerate() {
            let what = format!(
                "split neural network: {}, while {hogs} programs load the memory",
                arm.name
            );
            context.step(&what, 120);
            let running = hog(context, testbed, hogs)?;
            let times = times(context, testbed, arm, false)?;
            drop(running);
            let middle = [&times.computing, &times.communication].map(|t| median(t));
            row.push(middle.map(number).join(" + "));
            bars.1.push(Estimate::exact(median(&times.whole)));
            let alone = *alone.get_or_insert(middle);
            if hogs == cores {
                let beside = [&times.computing, &times.communication];
                add_contention_figures(report, arm, beside, alone);
            }
        }
        table.row(row);
    }
    report.tables.push(table);
    report.note(
        "contention: the rate of the link is not limited. Each program that loads the memory writes again and again to a buffer of 256 MB, on a core of its own. The measured programs run at \
         real-time priority, so the load takes memory bandwidth from them, but no CPU time",
    );
    let names: Vec<String> = arms.iter().map(|a| a.name.to_string()).collect();
    let title =
        "Time of the split neural network while other programs load the memory (section 5.1.1)";
    let svg = bars(title, "ms, median", &names, &series, None)?;
    context.plot("contention.svg", &svg)
}

fn add_contention_figures(report: &mut Report, arm: &Arm, beside: [&Vec<f64>; 2], alone: [f64; 2]) {
    let (cpu, accelerators) = THESIS_CONTENTION;
    for (at, what, thesis, whose) in [
        (0, "computing", cpu, "thesis, on the CPU"),
        (1, "communication", accelerators, "thesis, accelerators"),
    ] {
        let middle = over_blocks(beside[at], |of| of.quantile(0.5));
        let added = middle.map(|ms| (ms / alone[at] - 1.0) * 100.0);
        let figure = Figure::estimated(format!("contention.{}.{what}", arm.id), added, "%");
        report.figure(figure.baseline(thesis, whose));
    }
}

pub fn hog(context: &Context, testbed: &Testbed, count: usize) -> Result<Vec<Guarded>> {
    let start = |cpu: usize| context.spawn(&mut testbed.arms.memory_hog_command(cpu));
    (0..count).map(start).collect()
}
