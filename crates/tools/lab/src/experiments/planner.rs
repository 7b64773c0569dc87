//! `planner`: measures how much a good placement of slots gains and how long it takes to find. It
//! repeats Figure 4.7 of the thesis, with the thesis's particle swarm for comparison.

use crate::frame::programs::{output, quiet};
use crate::frame::report::{number, Figure, Report, Table};
use crate::frame::rng::Rng;
use crate::frame::{cache_dir, Context, Experiment, LabError, Result};
use crate::measure::stats::resampled;
use crate::measure::stats::{mean, median};
use crate::plot::{lines, Axes, Line};
use onbeat_plan::bands::{average_ns, optimal, random, Constraints, Samples};
use serde::{Deserialize, Serialize};
use std::hint::black_box;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

const PSO: &str = include_str!("../../native/pso.py");

const BANDS: std::ops::RangeInclusive<usize> = 1..=8;

/// The limits for slot and buffer. With them, a single band is where the thesis has it: at [86, 87]
/// ms for a worst case of 84.7 ms.
const LIMITS: Constraints = Constraints {
    slot_ns: 1_000_000,
    epsilon_ns: 1_300_000,
    liveliness_ns: None,
};

struct Case {
    name: &'static str,
    about: &'static str,
    latencies_ns: Vec<u64>,
}

struct Cell {
    case: usize,
    bands: usize,
    optimal_ms: f64,
    optimal_s: f64,
    random_ms: f64,
    best_random_ms: f64,
    swarm: Vec<(f64, f64)>,
}

pub const EXPERIMENT: Experiment = Experiment {
    name: "planner",
    about: "placing 1 to 8 latency bands: optimal, random and PySwarms (thesis, Figure 4.7 and Table 4.4)",
    parts: &[],
    takes: &[],
    run,
};

fn run(context: &mut Context) -> Result<Report> {
    let mut report = Report::new();
    let mut cases = synthetic(&mut context.rng("latencies"), context.pick(2000, 500));
    match recorded(context) {
        Ok(latencies_ns) => cases.push(Case {
            name: "recorded",
            about: "the recorded parking demo",
            latencies_ns,
        }),
        Err(e) => report.skip("the recorded parking demo", e),
    }
    let mut raw = context.raw("planner.csv", "case,bands,how,seed,average_ms,seconds")?;
    let swarm = swarm_program(context).map_err(|e| report.skip("comparison with PySwarms", e));
    let mut cells = Vec::new();
    for (case, of) in cases.iter().enumerate() {
        for bands in BANDS {
            context.step(format!("{}: {bands} bands", of.name), 600);
            let mut cell = place(case, of, bands, context)?;
            // One band leaves nothing to choose.
            if let (Ok(program), 2..) = (&swarm, bands) {
                cell.swarm = run_swarm(context, program, of, bands)?;
            }
            let mut line = |how: &str, seed: usize, average: f64, s: f64| {
                raw.line(format_args!(
                    "{},{bands},{how},{seed},{average},{s}",
                    of.name
                ))
            };
            line("optimal", 0, cell.optimal_ms, cell.optimal_s)?;
            line("random-mean", 0, cell.random_ms, f64::NAN)?;
            for (seed, &(average, s)) in cell.swarm.iter().enumerate() {
                line("pyswarms", seed, average, s)?;
            }
            cells.push(cell);
        }
    }
    raw.finish()?;
    let fifo_ms: Vec<f64> = cases.iter().map(|c| mean_ms(&c.latencies_ns)).collect();
    figures(&mut report, &cases, &cells, &fifo_ms);
    tables(&mut report, &cases, &cells, &fifo_ms);
    plots(context, &cases, &cells, &fifo_ms)?;
    Ok(report)
}

fn mean_ms(latencies_ns: &[u64]) -> f64 {
    latencies_ns.iter().sum::<u64>() as f64 / latencies_ns.len().max(1) as f64 / 1e6
}

/// Generates three sets of `count` random latencies in the thesis's range of 33.0 to 84.7 ms. Each
/// latency is an order statistic of a few uniform random numbers, so it follows a Beta
/// distribution.
fn synthetic(rng: &mut Rng, count: usize) -> Vec<Case> {
    let mut unit = move || rng.below(1 << 53) as f64 / (1u64 << 53) as f64;
    let mut draw = |name, about, share: &mut dyn FnMut(&mut dyn FnMut() -> f64) -> f64| {
        let of = |share: f64| 33_000_000 + (share * 51_700_000.0) as u64;
        let mut latencies_ns = vec![of(0.0), of(1.0)];
        latencies_ns.extend((2..count).map(|_| of(share(&mut unit).clamp(0.0, 1.0))));
        Case {
            name,
            about,
            latencies_ns,
        }
    };
    let order = |unit: &mut dyn FnMut() -> f64, n: usize, rank: usize| {
        let mut of: Vec<f64> = (0..n).map(|_| unit()).collect();
        of.sort_by(f64::total_cmp);
        of[rank - 1]
    };
    vec![
        draw(
            "parking",
            "latencies with the range and mean of the thesis's chain",
            &mut |u| order(u, 5, 4),
        ),
        draw(
            "skewed",
            "mostly short latencies, a few long ones",
            &mut |u| order(u, 12, 2),
        ),
        draw(
            "bimodal",
            "latencies around two values, as in two modes",
            &mut |u| {
                let (centre, width) = if u() < 0.6 { (0.2, 0.16) } else { (0.8, 0.2) };
                centre + width * (order(u, 3, 2) - 0.5) * 2.0
            },
        ),
    ]
}

fn recorded(context: &Context) -> Result<Vec<u64>> {
    let trace = context.source("demos/recorded/parking")?;
    let path = context.dir().join("recorded.json");
    let mut command = Command::new(context.onbeat());
    command.arg("model").arg(&trace).arg("-o").arg(&path);
    let limit = Duration::from_secs(300);
    context.succeed(quiet(&mut command), "onbeat model", limit)?;
    let bytes = std::fs::read(&path).map_err(LabError::file("reading", &path))?;
    let _ = std::fs::remove_file(&path);
    let model =
        onbeat_document::file::read(&bytes).map_err(|e| LabError::unexpected("the model", e))?;
    let longest = model
        .chains
        .iter()
        .max_by_key(|c| c.figures.latency_ns.max());
    let dist = longest
        .map(|c| &c.figures.latency_ns)
        .filter(|d| d.count() > 0);
    let dist = dist.ok_or_else(|| LabError::unexpected("the model", "the model has no chain"))?;
    let bucket = |(low, width, n): (u64, u64, u64)| {
        std::iter::repeat_n((low + width - 1).clamp(dist.min(), dist.max()), n as usize)
    };
    Ok(dist.buckets().flat_map(bucket).collect())
}

/// Places the slots of `bands` bands with onbeat's optimal method and with PySwarms. The time of
/// the optimal method includes sorting the latencies.
fn place(case: usize, of: &Case, bands: usize, context: &Context) -> Result<Cell> {
    let failed = |e| LabError::unexpected("placing the slots", e);
    let samples = Samples::new(&of.latencies_ns);
    let ends = optimal(&samples, bands, &LIMITS).map_err(failed)?;
    let mut seconds = Vec::new();
    for _ in 0..context.pick(21, 5) {
        let clock = Instant::now();
        let samples = Samples::new(black_box(&of.latencies_ns));
        black_box(optimal(&samples, bands, &LIMITS)).map_err(failed)?;
        seconds.push(clock.elapsed().as_secs_f64());
    }
    let mut random_ms = Vec::new();
    for seed in 0..200 {
        let ends = random(&samples, bands, &LIMITS, context.seed() ^ seed).map_err(failed)?;
        random_ms.push(average_ns(&samples, &ends) / 1e6);
    }
    Ok(Cell {
        case,
        bands,
        optimal_ms: average_ns(&samples, &ends) / 1e6,
        optimal_s: median(&seconds),
        random_ms: mean(&random_ms),
        best_random_ms: random_ms.iter().copied().fold(f64::MAX, f64::min),
        swarm: vec![],
    })
}

struct Swarm {
    python: PathBuf,
    script: PathBuf,
}

fn swarm_program(context: &Context) -> Result<Swarm> {
    let python = cache_dir().join("lab/planner/venv/bin/python");
    if !python.exists() {
        return Err(LabError::Missing {
            what: "Python with PySwarms".into(),
            fix: "run `./dev bench planner`".into(),
        });
    }
    let script = context.dir().join("pso.py");
    std::fs::write(&script, PSO).map_err(LabError::file("writing", &script))?;
    Ok(Swarm { python, script })
}

#[derive(Serialize)]
struct Question<'a> {
    samples_ms: &'a [f64],
    bands: usize,
    first_ms: f64,
    last_ms: f64,
    least_ms: f64,
    particles: usize,
    iterations: usize,
    seeds: Vec<u64>,
}

#[derive(Deserialize)]
struct Answer {
    ends_ms: Vec<f64>,
    seconds: f64,
}

/// Returns for every seed the average latency in ms and the computing time in s of the swarm
/// (PySwarms). onbeat computes the average for the slot ends that the swarm found. The average is
/// infinite if the bands lie too close together.
fn run_swarm(
    context: &Context,
    program: &Swarm,
    of: &Case,
    bands: usize,
) -> Result<Vec<(f64, f64)>> {
    let samples = Samples::new(&of.latencies_ns);
    let mut samples_ms: Vec<f64> = of.latencies_ns.iter().map(|&v| v as f64 / 1e6).collect();
    samples_ms.sort_by(f64::total_cmp);
    let least = LIMITS.slot_ns + 1;
    let question = Question {
        samples_ms: &samples_ms,
        bands,
        first_ms: (samples.best_ns() + least) as f64 / 1e6,
        last_ms: (samples.worst_ns() + LIMITS.epsilon_ns + LIMITS.slot_ns) as f64 / 1e6,
        least_ms: least as f64 / 1e6,
        particles: 50,
        iterations: 500,
        seeds: (0..context.pick(10, 2)).collect(),
    };
    let bytes = serde_json::to_vec(&question)
        .map_err(|e| LabError::unexpected("the input of pso.py", e))?;
    let path = context.dir().join("pso.json");
    std::fs::write(&path, &bytes).map_err(LabError::file("writing", &path))?;
    let input = std::fs::File::open(&path).map_err(LabError::file("reading", &path))?;
    let mut python = Command::new(&program.python);
    python.arg(&program.script).stdin(input);
    // One thread only, like onbeat.
    python.envs([("OPENBLAS_NUM_THREADS", "1"), ("OMP_NUM_THREADS", "1")]);
    let answers = output(&mut python, "pso.py", "run `./dev bench planner`");
    let _ = std::fs::remove_file(&path);
    let mut found = Vec::new();
    for line in answers?.lines() {
        let answer: Answer = serde_json::from_str(line)
            .map_err(|e| LabError::unexpected("the output of pso.py", e))?;
        let ends: Vec<u64> = answer
            .ends_ms
            .iter()
            .map(|e| (e * 1e6).round() as u64)
            .collect();
        // One nanosecond of rounding does not break a constraint.
        let kept = ends
            .windows(2)
            .all(|w| w[1].saturating_sub(w[0]) + 2 >= least);
        let average = if kept {
            average_ns(&samples, &ends) / 1e6
        } else {
            f64::INFINITY
        };
        found.push((average, answer.seconds));
    }
    Ok(found)
}

impl Cell {
    fn swarm_ms(&self) -> Option<f64> {
        let all: Vec<f64> = self.swarm.iter().map(|s| s.0).collect();
        (!all.is_empty()).then(|| median(&all))
    }

    fn best_swarm_ms(&self) -> Option<f64> {
        self.swarm.iter().map(|s| s.0).min_by(f64::total_cmp)
    }

    fn swarm_s(&self) -> Option<f64> {
        let all: Vec<f64> = self.swarm.iter().map(|s| s.1).collect();
        (!all.is_empty()).then(|| median(&all))
    }

    fn speedup(&self) -> Option<f64> {
        self.swarm_s().map(|s| s / self.optimal_s)
    }
}

const TABLE: &str = "thesis, Table 4.4";

fn figures(report: &mut Report, cases: &[Case], cells: &[Cell], fifo_ms: &[f64]) {
    let of = |case: usize, bands: usize| cells.iter().find(|c| c.case == case && c.bands == bands);
    let thesis = [(1, 86.6), (3, 71.3)];
    for (bands, value) in thesis {
        if let Some(cell) = of(0, bands) {
            report.figure(
                Figure::new(
                    format!("planner.parking.bands_{bands}"),
                    cell.optimal_ms,
                    "ms",
                )
                .baseline(
                    value,
                    "thesis, Table 4.4, which the thesis computed from its own latencies",
                )
                .samples(cases[0].latencies_ns.len() as u64),
            );
        }
    }
    if let (Some(one), Some(three)) = (of(0, 1), of(0, 3)) {
        let under = |ms: f64| (1.0 - three.optimal_ms / ms) * 100.0;
        let thesis_under = |ms: f64| 100.0 * (1.0 - 71.3 / ms);
        let random = "thesis, Table 4.4, one random placement of the bands";
        for (what, value, thesis, source) in [
            ("over_fifo", -under(fifo_ms[0]), -thesis_under(67.4), TABLE),
            (
                "under_random",
                under(three.random_ms),
                thesis_under(76.4),
                random,
            ),
            (
                "under_one",
                under(one.optimal_ms),
                thesis_under(86.6),
                TABLE,
            ),
        ] {
            let name = format!("planner.parking.three_bands_{what}");
            report.figure(Figure::new(name, value, "%").baseline(thesis, source));
        }
    }
    let over_random = cells
        .iter()
        .map(|c| c.optimal_ms - c.best_random_ms)
        .fold(f64::MIN, f64::max);
    report.figure(Figure::exact("planner.above_best_random", over_random, "ms").at_most(1e-9));
    let with_swarm = || cells.iter().filter(|c| !c.swarm.is_empty());
    if with_swarm().next().is_none() {
        return;
    }
    let above = with_swarm().filter_map(|c| Some(c.optimal_ms - c.best_swarm_ms()?));
    report.figure(
        Figure::exact(
            "planner.above_best_swarm",
            above.fold(f64::MIN, f64::max),
            "ms",
        )
        .at_most(1e-9)
        .samples(with_swarm().map(|c| c.swarm.len() as u64).sum()),
    );
    let gain = with_swarm().filter_map(|c| Some(c.swarm_ms()? - c.optimal_ms));
    report.value("planner.swarm_misses_by", gain.fold(0.0, f64::max), "ms");
    let speedups: Vec<f64> = with_swarm().filter_map(Cell::speedup).collect();
    let slowest = resampled(&speedups, &mut Rng::new(1), |of| {
        of.iter().copied().fold(f64::MAX, f64::min)
    });
    report.figure(Figure::estimated("planner.speedup_over_swarm", slowest, "1").at_least(100.0));
}

fn tables(report: &mut Report, cases: &[Case], cells: &[Cell], fifo_ms: &[f64]) {
    let some = |v: Option<f64>| v.map_or("-".into(), |v| format!("{v:.2}"));
    for (case, of) in cases.iter().enumerate() {
        let mut table = Table::new(
            format!(
                "Figure 4.7, {} ({}, {} executions, {:.1} to {:.1} ms, mean {:.2} ms): average latency, ms",
                of.name,
                of.about,
                of.latencies_ns.len(),
                of.latencies_ns.iter().min().map_or(0.0, |&v| v as f64 / 1e6),
                of.latencies_ns.iter().max().map_or(0.0, |&v| v as f64 / 1e6),
                fifo_ms[case],
            ),
            "bands | average latency, ms: optimum (onbeat) | random slots, mean | random slots, best | PySwarms, median | \
PySwarms, best | onbeat's computing time, ms | PySwarms' computing time, ms | PySwarms' time / onbeat's time",
        );
        for cell in cells.iter().filter(|c| c.case == case) {
            table.row([
                cell.bands.to_string(),
                format!("{:.2}", cell.optimal_ms),
                format!("{:.2}", cell.random_ms),
                format!("{:.2}", cell.best_random_ms),
                some(cell.swarm_ms()),
                some(cell.best_swarm_ms()),
                format!("{:.3}", cell.optimal_s * 1e3),
                cell.swarm_s().map_or("-".into(), |s| number(s * 1e3)),
                cell.speedup().map_or("-".into(), number),
            ]);
        }
        report.tables.push(table);
    }
    let of = |bands: usize| cells.iter().find(|c| c.case == 0 && c.bands == bands);
    if let (Some(one), Some(three)) = (of(1), of(3)) {
        let mut table = Table::new(
            "Table 4.4, average latency, ms (parking)",
            "configuration | thesis | here",
        );
        let mut row = |name: &str, thesis: f64, here: f64| {
            table.row([
                name.to_string(),
                format!("{thesis:.1}"),
                format!("{here:.1}"),
            ]);
        };
        row("SCHED_FIFO", 67.4, fifo_ms[0]);
        row("1 band", 86.6, one.optimal_ms);
        row("3 bands at random", 76.4, three.random_ms);
        row("3 bands, optimised", 71.3, three.optimal_ms);
        report.tables.push(table);
    }
    report.note(
        "The thesis's latencies are not published. The latencies of 'parking' have the same range (33.0 to 84.7 ms) \
         and nearly the same mean (67.4 ms) as those of the thesis.",
    );
    report.note(
        "Random slots are 200 random placements of the slots. PySwarms runs its optimiser GlobalBestPSO with 50 particles, 500 \
         iterations and the parameters of its own examples.",
    );
    report.note(
        "The computing time of PySwarms is that of its call `optimize` alone, without sorting the latencies. The computing time \
         of onbeat includes sorting the latencies.",
    );
}

fn plots(context: &mut Context, cases: &[Case], cells: &[Cell], fifo_ms: &[f64]) -> Result<()> {
    let line = |name: &str, case: usize, of: &dyn Fn(&Cell) -> Option<f64>| Line {
        name: name.into(),
        points: cells
            .iter()
            .filter(|c| c.case == case)
            .filter_map(|c| Some((c.bands as f64, of(c)?)))
            .collect(),
    };
    let mut series = vec![
        line("optimal", 0, &|c| Some(c.optimal_ms)),
        line("PySwarms, median", 0, &Cell::swarm_ms),
        line("random, mean of 200", 0, &|c| Some(c.random_ms)),
        Line {
            name: "thesis (its latencies)".into(),
            points: vec![(1.0, 86.6), (3.0, 71.3)],
        },
    ];
    series.retain(|l| !l.points.is_empty());
    let axes = Axes {
        from_zero: false,
        mark: Some((fifo_ms[0], "SCHED_FIFO")),
        ..Axes::new("latency bands", "average latency, ms")
    };
    context.plot(
        "bands.svg",
        &lines(
            "Average latency over the number of bands (Figure 4.7)",
            axes,
            &series,
        )?,
    )?;
    let over = |case: usize| move |c: &Cell| Some((c.optimal_ms / fifo_ms[case] - 1.0) * 100.0);
    let series: Vec<Line> = cases
        .iter()
        .enumerate()
        .map(|(i, case)| line(case.name, i, &over(i)))
        .collect();
    let axes = Axes::new(
        "latency bands",
        "increase of the average latency over SCHED_FIFO, %",
    );
    context.plot(
        "shapes.svg",
        &lines(
            "Increase of the average latency from SCHED_FIFO to optimal bands",
            axes,
            &series,
        )?,
    )
}
