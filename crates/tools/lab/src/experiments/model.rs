//! `model`: how fast a trace becomes a model, and in how much memory.

use crate::frame::children::Ended;
use crate::frame::report::{number, Figure, Report, Table, Target};
use crate::frame::{Context, Experiment, LabError};
use crate::measure::arms::schedule;
use crate::measure::ctf::write_ctf;
use crate::measure::generate::write_trace;
use crate::measure::stats::{bootstrap, fit_line, median};
use crate::plot::{lines, Axes, Line};
use onbeat_time::clock;
use onbeat_trace::Reader;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const READ_CTF: &str = include_str!("../../native/read_ctf.py");

/// The experiment.
pub struct ModelSpeed;

impl Experiment for ModelSpeed {
    fn name(&self) -> &'static str {
        "model"
    }

    fn about(&self) -> &'static str {
        "speed and memory of `onbeat model` on made-up traces of up to 50 million events"
    }

    fn run(&self, context: &mut Context) -> Result<Report, LabError> {
        let sizes: &[u64] = context.pick(
            &[1_000_000, 5_000_000, 10_000_000, 50_000_000],
            &[200_000, 1_000_000, 2_000_000],
        );
        let rounds = context.pick(5, 3);
        let mut report = Report::new();
        let scratch = context.dir().join("traces");
        let _ = std::fs::remove_dir_all(&scratch);
        let mut disk = vec![];
        for &events in sizes {
            context.step(
                &format!("generating {} events", number(events as f64)),
                Duration::from_secs(3600),
            );
            let dir = scratch.join(events.to_string());
            write_trace(events, context.seed(), &dir)?;
            disk.push(
                Reader::open(&dir)
                    .map_err(|e| LabError::unexpected("the generated trace", e))?
                    .manifest()
                    .bytes,
            );
        }

        let mut raw = context.raw("model.csv", "events,round,wall_s,cpu_s,max_rss_kb")?;
        let mut runs: Vec<Vec<(f64, Ended)>> = vec![vec![]; sizes.len()];
        for (round, arm) in schedule(sizes.len(), rounds, &mut context.rng("order")) {
            let events = sizes[arm];
            context.step(
                &format!(
                    "modelling {} events, round {}",
                    number(events as f64),
                    round + 1
                ),
                Duration::from_secs(3600),
            );
            let (wall_s, ended) = model(context, &scratch.join(events.to_string()))?;
            raw.line(format_args!(
                "{events},{round},{wall_s},{},{}",
                ended.cpu_s(),
                ended.max_rss_kb
            ))?;
            runs[arm].push((wall_s, ended));
        }
        raw.finish()?;
        if let Err(e) = peers(context, &mut report, &scratch) {
            report.skip("comparison with babeltrace2", e);
        }
        let reading = read_speed(context, &scratch.join(sizes[sizes.len() - 1].to_string()))?;
        std::fs::remove_dir_all(&scratch).map_err(LabError::file("removing", &scratch))?;

        let cpu: Vec<Vec<f64>> = runs
            .iter()
            .map(|r| r.iter().map(|(_, e)| e.cpu_s()).collect())
            .collect();
        let rss_mb: Vec<f64> = runs
            .iter()
            .map(|r| {
                r.iter()
                    .map(|(_, e)| e.max_rss_kb as f64 / 1024.0)
                    .fold(0.0, f64::max)
            })
            .collect();
        let mut table = Table::new(
            "Modelling on one core (medians)",
            &[
                "events",
                "trace MB",
                "bytes/event",
                "CPU s",
                "wall s",
                "million events/s",
                "peak MB",
            ],
        );
        for (i, &n) in sizes.iter().enumerate() {
            let wall = median(&runs[i].iter().map(|r| r.0).collect::<Vec<_>>());
            let seconds = median(&cpu[i]);
            table.row([
                number(n as f64),
                number(disk[i] as f64 / 1e6),
                number(disk[i] as f64 / n as f64),
                number(seconds),
                number(wall),
                number(n as f64 / seconds / 1e6),
                number(rss_mb[i]),
            ]);
        }
        report.tables.push(table);

        let last = sizes.len() - 1;
        let mut rng = context.rng("interval");
        let speed = bootstrap(rounds, 400, &mut rng, |pick| {
            sizes[last] as f64 / median(&pick.iter().map(|&i| cpu[last][i]).collect::<Vec<_>>())
        });
        report.figure(
            Figure::new("model.speed", speed.value, "events/s")
                .target(Target::AtLeast(2e6))
                .interval(speed.low, speed.high)
                .samples(rounds as u64),
        );
        report.figure(
            Figure::new("model.peak_memory", rss_mb[last], "MB").target(Target::AtMost(300.0)),
        );
        report.figure(
            Figure::new("model.memory_growth", rss_mb[last] - rss_mb[0], "MB")
                .samples(rounds as u64),
        );
        // The cost of one event on the longest trace over that on the shortest.
        let per_event = |i: usize| median(&cpu[i]) / sizes[i] as f64;
        report.figure(
            Figure::new("model.cost_growth", per_event(last) / per_event(0), "1")
                .target(Target::AtMost(1.1)),
        );
        let points: Vec<(f64, f64)> = sizes
            .iter()
            .zip(&cpu)
            .flat_map(|(&n, c)| c.iter().map(move |&s| (n as f64, s)))
            .collect();
        report.figure(
            Figure::new("model.linearity_r2", fit_line(&points).2, "1")
                .samples(points.len() as u64),
        );
        report.figure(Figure::new("read.speed", reading, "events/s"));
        report.figure(Figure::new(
            "trace.bytes_per_event",
            disk[last] as f64 / sizes[last] as f64,
            "bytes",
        ));

        let line = |name: &str, of: &dyn Fn(usize) -> f64| Line {
            name: name.into(),
            points: sizes
                .iter()
                .enumerate()
                .map(|(i, &n)| (n as f64, of(i)))
                .collect(),
        };
        let axes = Axes {
            x: "events",
            y: "CPU time, s",
            log_x: false,
            from_zero: true,
            mark: None,
        };
        let at_target = line("2 million events/s", &|i| sizes[i] as f64 / 2e6);
        let svg = lines(
            "Time to model a trace",
            axes,
            &[line("onbeat model", &|i| median(&cpu[i])), at_target],
        )?;
        context.plot("time.svg", &svg)?;
        let axes = Axes {
            x: "events",
            y: "peak resident memory, MB",
            log_x: true,
            from_zero: true,
            mark: Some((300.0, "target: 300 MB")),
        };
        context.plot(
            "memory.svg",
            &lines(
                "Memory to model a trace",
                axes,
                &[line("onbeat model", &|i| rss_mb[i])],
            )?,
        )?;
        Ok(report)
    }
}

/// Models a trace in a process of its own on one core, as a user does; wall-clock seconds and what
/// the process used.
fn model(context: &Context, trace: &Path) -> Result<(f64, Ended), LabError> {
    let output = context.dir().join("model.json");
    let mut command = Command::new(context.onbeat());
    command
        .arg("model")
        .arg(trace)
        .arg("-o")
        .arg(&output)
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    crate::frame::children::pin(&mut command, 0);
    let clock = Instant::now();
    let mut child = context.spawn(&mut command)?;
    let ended = child
        .wait(Duration::from_secs(3600))
        .map_err(|e| LabError::program("onbeat model", e))?;
    let wall_s = clock.elapsed().as_secs_f64();
    let _ = std::fs::remove_file(&output);
    match ended {
        Some(e) if e.status.success() => Ok((wall_s, e)),
        Some(e) => Err(LabError::program(
            "onbeat model",
            format!("{}{}", e.status, child.said()),
        )),
        None => Err(LabError::program(
            "onbeat model",
            "it did not end within an hour",
        )),
    }
}

/// babeltrace2 reads the same events from LTTng's format: the library itself, and its Python
/// binding as ros2_tracing's tracetools_read uses it. Their analysis, tracetools_analysis, is in no
/// registry; what is measured here is what it does before it begins.
fn peers(context: &mut Context, report: &mut Report, scratch: &Path) -> Result<(), LabError> {
    let events: u64 = context.pick(1_000_000, 200_000);
    let rounds = context.pick(5, 2);
    let (trace, ctf) = (scratch.join("peer"), scratch.join("peer-ctf"));
    write_trace(events, context.seed(), &trace)?;
    let mut reader =
        Reader::open(&trace).map_err(|e| LabError::unexpected("the generated trace", e))?;
    write_ctf(&ctf, reader.events())?;
    let script = scratch.join("read_ctf.py");
    std::fs::write(&script, READ_CTF).map_err(LabError::file("writing", &script))?;
    let arms = ["onbeat model", "babeltrace2", "babeltrace2 in Python"];
    let mut raw = context.raw("peers.csv", "arm,round,events,cpu_s,max_rss_kb")?;
    let mut runs: Vec<Vec<Ended>> = vec![vec![]; arms.len()];
    for (round, arm) in schedule(arms.len(), rounds, &mut context.rng("peers")) {
        context.step(
            &format!(
                "{} on {} events, round {}",
                arms[arm],
                number(events as f64),
                round + 1
            ),
            Duration::from_secs(3600),
        );
        let ended = match arm {
            0 => model(context, &trace)?.1,
            1 => read_peer(
                context,
                Command::new("babeltrace2")
                    .arg(&ctf)
                    .args(["--component", "sink.utils.dummy"]),
            )?,
            // Debian's binding is for Debian's own Python.
            _ => read_peer(
                context,
                Command::new("/usr/bin/python3").arg(&script).arg(&ctf),
            )?,
        };
        raw.line(format_args!(
            "{},{round},{events},{},{}",
            arms[arm],
            ended.cpu_s(),
            ended.max_rss_kb
        ))?;
        runs[arm].push(ended);
    }
    raw.finish()?;
    let mut table = Table::new(
        format!(
            "onbeat makes the model; the others only read ({} events, medians)",
            number(events as f64)
        ),
        &["program", "CPU s", "million events/s", "peak MB"],
    );
    let speed = |arm: usize| {
        events as f64 / median(&runs[arm].iter().map(Ended::cpu_s).collect::<Vec<_>>())
    };
    for (arm, name) in arms.iter().enumerate() {
        let peak = runs[arm].iter().map(|e| e.max_rss_kb).max().unwrap_or(0);
        table.row([
            name.to_string(),
            number(events as f64 / speed(arm)),
            number(speed(arm) / 1e6),
            number(peak as f64 / 1024.0),
        ]);
    }
    report.tables.push(table);
    report.figure(
        Figure::new("model.speed_beside_python", speed(0), "events/s")
            .baseline(
                speed(2),
                "babeltrace2 in Python, reading alone (what tracetools_read does)",
            )
            .samples(rounds as u64),
    );
    report.figure(
        Figure::new("model.speed_beside_babeltrace2", speed(0), "events/s")
            .baseline(speed(1), "babeltrace2, reading alone")
            .samples(rounds as u64),
    );
    Ok(())
}

/// Runs a peer on one core.
fn read_peer(context: &Context, command: &mut Command) -> Result<Ended, LabError> {
    let program = command.get_program().to_string_lossy().into_owned();
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    crate::frame::children::pin(command, 0);
    let mut child = context.spawn(command)?;
    match child
        .wait(Duration::from_secs(3600))
        .map_err(|e| LabError::program(&program, e))?
    {
        Some(ended) if ended.status.success() => Ok(ended),
        Some(ended) => Err(LabError::program(
            program,
            format!(
                "{}{}; Debian has it as babeltrace2 and python3-bt2",
                ended.status,
                child.said()
            ),
        )),
        None => Err(LabError::program(program, "it did not end within an hour")),
    }
}

/// Events per second of CPU time when a trace is only read.
fn read_speed(context: &Context, trace: &Path) -> Result<f64, LabError> {
    context.step("reading alone", Duration::from_secs(3600));
    let mut reader =
        Reader::open(trace).map_err(|e| LabError::unexpected("the generated trace", e))?;
    let start_ns = clock::thread_cpu_ns();
    let events = reader.events().count();
    let used_ns = clock::thread_cpu_ns() - start_ns;
    Ok(events as f64 * 1e9 / used_ns as f64)
}
