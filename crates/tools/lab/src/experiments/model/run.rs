//! Generates traces and models each in a process of its own.

use crate::frame::children::{self, Ended};
use crate::frame::programs::quiet;
use crate::frame::report::number;
use crate::frame::{Context, Kept, Result};
use crate::measure::generate::write_trace;
use crate::measure::recorder;
use crate::measure::stats::median;
use onbeat_time::clock;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

pub const HOUR: Duration = Duration::from_secs(3600);

pub struct Size {
    pub events: u64,
    pub bytes: u64,
    pub runs: Vec<(f64, Ended)>,
    pub before: Vec<(f64, Ended)>,
}

fn cpu_s(runs: &[(f64, Ended)]) -> Vec<f64> {
    runs.iter().map(|(_, e)| e.cpu_s()).collect()
}

fn peak_mb(runs: &[(f64, Ended)]) -> f64 {
    let peaks = runs.iter().map(|(_, e)| e.max_rss_kb as f64 / 1024.0);
    peaks.fold(0.0, f64::max)
}

impl Size {
    pub fn new(events: u64, bytes: u64) -> Size {
        Size {
            events,
            bytes,
            runs: vec![],
            before: vec![],
        }
    }

    pub fn cpu_s(&self) -> Vec<f64> {
        cpu_s(&self.runs)
    }

    pub fn before_cpu_s(&self) -> Vec<f64> {
        cpu_s(&self.before)
    }

    pub fn wall_s(&self) -> f64 {
        median(&self.runs.iter().map(|r| r.0).collect::<Vec<_>>())
    }

    pub fn peak_mb(&self) -> f64 {
        peak_mb(&self.runs)
    }

    pub fn before_peak_mb(&self) -> f64 {
        peak_mb(&self.before)
    }
}

pub fn measure(context: &mut Context, scratch: &Path) -> Result<(Vec<Size>, Kept)> {
    let sizes: &[u64] = context.pick(
        &[1_000_000, 5_000_000, 10_000_000, 50_000_000],
        &[200_000, 1_000_000, 2_000_000],
    );
    let rounds = context.pick(5, 3);
    let mut measured = vec![];
    for &events in sizes {
        measured.push(Size::new(events, generate(context, scratch, events)?));
        if let Some(before) = context.before() {
            generate_before(context, before, scratch, events)?;
        }
    }
    let builds = [Some(context.onbeat()), context.before()];
    let builds: Vec<_> = builds.into_iter().flatten().map(Path::to_owned).collect();
    let mut raw = context.raw("model.csv", "build,events,round,wall_s,cpu_s,max_rss_kb")?;
    let arms = sizes.len() * builds.len();
    let mut turns = context.turns("order", arms, rounds);
    for (round, arm) in turns.by_ref() {
        let (size, build) = (arm / builds.len(), arm % builds.len());
        let events = sizes[size];
        context.step(
            format!(
                "modelling {} events, round {}",
                number(events as f64),
                round + 1
            ),
            3600,
        );
        let (name, trace) = match build {
            0 => ("this", scratch.join(events.to_string())),
            _ => ("before", trace_before(scratch, events)),
        };
        let (wall_s, ended) = model(context, &builds[build], &trace)?;
        raw.line(format_args!(
            "{name},{events},{round},{wall_s},{},{}",
            ended.cpu_s(),
            ended.max_rss_kb
        ))?;
        let size = &mut measured[size];
        let runs = match build {
            0 => &mut size.runs,
            _ => &mut size.before,
        };
        runs.push((wall_s, ended));
    }
    raw.finish()?;
    Ok((measured, turns.finish()))
}

fn generate(context: &Context, scratch: &Path, events: u64) -> Result<u64> {
    context.step(format!("generating {} events", number(events as f64)), 3600);
    let dir = scratch.join(events.to_string());
    write_trace(events, context.seed(), &dir)?;
    Ok(recorder::open(&dir)?.manifest().written.bytes)
}

fn trace_before(scratch: &Path, events: u64) -> PathBuf {
    scratch.join(format!("{events}-before"))
}

/// Generates the events of [`generate`] in the format of an earlier build of onbeat. The lab of the
/// earlier build writes them, because this build may write a format that the earlier build cannot
/// read.
fn generate_before(context: &Context, before: &Path, scratch: &Path, events: u64) -> Result<()> {
    let lab = before.with_file_name("onbeat-lab");
    let mut command = Command::new(&lab);
    command
        .args(["generate", "-n", &events.to_string()])
        .args(["--seed", &context.seed().to_string(), "-o"])
        .arg(trace_before(scratch, events));
    let name = lab.display().to_string();
    context.succeed(quiet(&mut command), &name, HOUR).map(drop)
}

/// Makes a model of a trace with `onbeat model`, in a process of its own on one core. Returns the
/// wall-clock time in s and the used resources.
pub fn model(context: &Context, onbeat: &Path, trace: &Path) -> Result<(f64, Ended)> {
    let output = context.dir().join("model.json");
    let mut command = Command::new(onbeat);
    command.arg("model").arg(trace).arg("-o").arg(&output);
    children::pin(&mut command, 0);
    let clock = Instant::now();
    let ended = context.succeed(quiet(&mut command), "onbeat model", HOUR);
    let wall_s = clock.elapsed().as_secs_f64();
    let _ = std::fs::remove_file(&output);
    Ok((wall_s, ended?))
}

/// Reads the longest trace without modelling it. Returns the number of events that were read per
/// second of CPU time.
pub fn read_speed(context: &Context, scratch: &Path, sizes: &[Size]) -> Result<f64> {
    context.step("reading the longest trace without making a model", 3600);
    let longest = sizes.last().map_or(0, |s| s.events).to_string();
    let mut reader = recorder::open(&scratch.join(longest))?;
    let start_ns = clock::thread_cpu_ns();
    let events = reader.events().count();
    let used_ns = clock::thread_cpu_ns() - start_ns;
    Ok(events as f64 * 1e9 / used_ns as f64)
}
