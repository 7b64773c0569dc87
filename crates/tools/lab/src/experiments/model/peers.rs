//! Compares modelling with other programs that only read the same events.

use super::run::{model, HOUR};
use crate::frame::children::{self, Ended};
use crate::frame::programs::quiet;
use crate::frame::report::{number, Figure, Report, Table};
use crate::frame::{Context, LabError, Result};
use crate::measure::ctf::write_ctf;
use crate::measure::generate::write_trace;
use crate::measure::recorder;
use crate::measure::stats::median;
use std::path::{Path, PathBuf};
use std::process::Command;

const READ_CTF: &str = include_str!("../../../native/read_ctf.py");

const ARMS: [&str; 3] = ["onbeat model", "babeltrace2", "babeltrace2 in Python"];

struct Inputs {
    trace: PathBuf,
    ctf: PathBuf,
    script: PathBuf,
}

pub fn measure(context: &mut Context, report: &mut Report, scratch: &Path) -> Result<()> {
    let events: u64 = context.pick(1_000_000, 200_000);
    let rounds = context.pick(5, 3);
    let inputs = prepare(context, scratch, events)?;
    let mut raw = context.raw("peers.csv", "arm,round,events,cpu_s,max_rss_kb")?;
    let mut runs: Vec<Vec<Ended>> = vec![vec![]; ARMS.len()];
    let mut turns = context.turns("peers", ARMS.len(), rounds);
    for (round, arm) in turns.by_ref() {
        context.step(
            format!(
                "{} on {} events, round {}",
                ARMS[arm],
                number(events as f64),
                round + 1
            ),
            3600,
        );
        let ended = run_arm(context, arm, &inputs)?;
        raw.line(format_args!(
            "{},{round},{events},{},{}",
            ARMS[arm],
            ended.cpu_s(),
            ended.max_rss_kb
        ))?;
        runs[arm].push(ended);
    }
    let shown = turns.finish().shown();
    for runs in &mut runs {
        *runs = shown.iter().map(|round| runs[*round]).collect();
    }
    raw.finish()?;
    summarise(report, events as f64, &runs);
    Ok(())
}

fn prepare(context: &Context, scratch: &Path, events: u64) -> Result<Inputs> {
    let inputs = Inputs {
        trace: scratch.join("peer"),
        ctf: scratch.join("peer-ctf"),
        script: scratch.join("read_ctf.py"),
    };
    write_trace(events, context.seed(), &inputs.trace)?;
    write_ctf(&inputs.ctf, recorder::open(&inputs.trace)?.events())?;
    std::fs::write(&inputs.script, READ_CTF).map_err(LabError::file("writing", &inputs.script))?;
    Ok(inputs)
}

fn run_arm(context: &Context, arm: usize, inputs: &Inputs) -> Result<Ended> {
    match arm {
        0 => Ok(model(context, context.onbeat(), &inputs.trace)?.1),
        1 => run_on_one_core(
            context,
            Command::new("babeltrace2")
                .arg(&inputs.ctf)
                .args(["--component", "sink.utils.dummy"]),
        ),
        // Debian's binding needs Debian's own Python.
        _ => run_on_one_core(
            context,
            Command::new("/usr/bin/python3")
                .arg(&inputs.script)
                .arg(&inputs.ctf),
        ),
    }
}

fn summarise(report: &mut Report, events: f64, runs: &[Vec<Ended>]) {
    let mut table = Table::new(
        format!(
            "Making a model (onbeat) compared with only reading the trace (other programs): {} events, medians",
            number(events)
        ),
        "program | CPU time, s | million events/s | peak memory, MB",
    );
    let speed =
        |arm: usize| events / median(&runs[arm].iter().map(Ended::cpu_s).collect::<Vec<_>>());
    for (arm, name) in ARMS.iter().enumerate() {
        let peak = runs[arm].iter().map(|e| e.max_rss_kb).max().unwrap_or(0);
        table.row([
            name.to_string(),
            number(events / speed(arm)),
            number(speed(arm) / 1e6),
            number(peak as f64 / 1024.0),
        ]);
    }
    report.tables.push(table);
    let rounds = runs[0].len() as u64;
    report.figure(
        Figure::new("model.speed_beside_python", speed(0), "events/s")
            .baseline(
                speed(2),
                "babeltrace2 in Python, only reading (as tracetools_read does)",
            )
            .samples(rounds),
    );
    report.figure(
        Figure::new("model.speed_beside_babeltrace2", speed(0), "events/s")
            .baseline(speed(1), "babeltrace2, only reading")
            .samples(rounds),
    );
}

fn run_on_one_core(context: &Context, command: &mut Command) -> Result<Ended> {
    let program = command.get_program().to_string_lossy().into_owned();
    children::pin(command, 0);
    context.succeed(quiet(command), &program, HOUR)
}
