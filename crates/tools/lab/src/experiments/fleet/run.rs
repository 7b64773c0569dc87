//! Has an engine merge the models, each engine in a process of its own.

use crate::frame::files;
use crate::frame::report::Report;
use crate::frame::{cache_dir, Context, LabError, Result};
use crate::measure::arms::schedule;
use serde::Deserialize;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Models and parts that a task merges: the package's default.
const FAN_IN: &str = "64";
/// Models of the merge before the measured ones: workers have started then.
const FIRST: usize = 128;
const LIMIT: Duration = Duration::from_secs(1800);

/// What merges.
pub struct Engine {
    /// As `scripts/engines/cluster.py` calls it.
    pub name: &'static str,
    python: PathBuf,
}

/// A merge, as `scripts/engines/cluster.py` prints it.
#[derive(Deserialize)]
struct Said {
    models: usize,
    seconds: f64,
    cpu_s: f64,
    peak_bytes: u64,
    sha256: String,
}

/// A measured merge.
pub struct Merged {
    /// Number of its engine.
    pub engine: usize,
    pub round: usize,
    pub models: usize,
    pub seconds: f64,
    /// Of all processes of the engine.
    pub cpu_s: f64,
    /// Resident memory of all processes together.
    pub peak_mb: f64,
    /// Of the merged model.
    pub sha256: String,
}

/// One process, and the engines that are installed.
pub fn engines(report: &mut Report) -> Vec<Engine> {
    let mut engines = vec![Engine {
        name: "alone",
        python: "python3".into(),
    }];
    for name in ["dask", "ray", "spark"] {
        let python = cache_dir().join(format!("engine-{name}/bin/python"));
        if python.exists() {
            engines.push(Engine { name, python });
        } else {
            let fix = format!("`./dev engine-env {name}` sets it up");
            report.skip(format!("merging on {name}"), fix);
        }
    }
    engines
}

/// Merges the first models of each size with each engine, in rounds.
pub fn measure(
    context: &mut Context,
    engines: &[Engine],
    paths: &[PathBuf],
    sizes: &[usize; 3],
) -> Result<Vec<Merged>> {
    let mut raw = context.raw(
        "merge.csv",
        "engine,round,models,seconds,cpu_s,peak_mb,sha256",
    )?;
    let list = write_list(context, paths)?;
    let mut merges = Vec::new();
    let mut rng = context.rng("order");
    for (round, engine) in schedule(engines.len(), context.pick(3, 1), &mut rng) {
        let name = engines[engine].name;
        context.step(format!("{name}, round {}", round + 1), LIMIT.as_secs());
        let mut order = *sizes;
        rng.shuffle(&mut order);
        for said in cluster(context, &engines[engine], &list, &order)? {
            let merged = Merged {
                engine,
                round,
                models: said.models,
                seconds: said.seconds,
                cpu_s: said.cpu_s,
                peak_mb: said.peak_bytes as f64 / 1e6,
                sha256: said.sha256,
            };
            raw.line(format_args!(
                "{name},{round},{},{},{},{},{}",
                merged.models, merged.seconds, merged.cpu_s, merged.peak_mb, merged.sha256
            ))?;
            merges.push(merged);
        }
    }
    raw.finish()?;
    std::fs::remove_file(&list).map_err(LabError::file("removing", &list))?;
    Ok(merges)
}

fn write_list(context: &Context, paths: &[PathBuf]) -> Result<PathBuf> {
    let path = context.dir().join("models.list");
    let write = |mut file: File| {
        paths
            .iter()
            .try_for_each(|p| writeln!(file, "{}", p.display()))
    };
    let made = File::create(&path).and_then(write);
    made.map_err(LabError::file("writing", &path))?;
    Ok(path)
}

/// Starts an engine and has it merge so many models, one number after the other.
fn cluster(context: &Context, engine: &Engine, list: &Path, sizes: &[usize]) -> Result<Vec<Said>> {
    let script = context.source("scripts/engines/cluster.py")?;
    let package = context.source("python")?;
    let (output, said) = (
        context.dir().join("merged.json"),
        context.dir().join("said.json"),
    );
    let onbeat = context.onbeat();
    let onbeat = onbeat
        .canonicalize()
        .map_err(LabError::file("reading", onbeat))?;
    let open = |path: &Path| File::open(path).map_err(LabError::file("reading", path));
    let mut command = Command::new(&engine.python);
    command.arg(&script).arg(engine.name).arg(&output);
    command.arg(FAN_IN).arg(FIRST.to_string());
    command.args(sizes.iter().map(usize::to_string));
    command.env("ONBEAT", onbeat).env("PYTHONPATH", package);
    command.stdin(open(list)?).stderr(Stdio::piped());
    command.stdout(File::create(&said).map_err(LabError::file("writing", &said))?);
    context.succeed(&mut command, engine.name, LIMIT)?;
    let text = files::text(&said)?;
    for path in [&output, &said] {
        std::fs::remove_file(path).map_err(LabError::file("removing", path))?;
    }
    let lines = text.lines().skip(1).map(serde_json::from_str);
    lines
        .collect::<Result<Vec<Said>, _>>()
        .map_err(|e| LabError::unexpected("what cluster.py printed", e))
}
