//! Lets each engine merge the models, in a process of its own, and reads how long it took.

use crate::frame::files;
use crate::frame::report::Report;
use crate::frame::{cache_dir, Context, Kept, LabError, Result};
use serde::Deserialize;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The number of models or intermediate results that one merging task merges. It is the default of
/// the Python package.
const FAN_IN: &str = "64";
const WARM_UP_MODELS: usize = 128;
const LIMIT: Duration = Duration::from_secs(1800);

pub struct Engine {
    pub name: &'static str,
    python: PathBuf,
}

#[derive(Deserialize)]
struct MergeResult {
    models: usize,
    seconds: f64,
    cpu_s: f64,
    peak_bytes: u64,
    sha256: String,
}

pub struct Merged {
    pub engine: usize,
    pub round: usize,
    pub models: usize,
    pub seconds: f64,
    pub cpu_s: f64,
    pub peak_mb: f64,
    pub sha256: String,
}

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
            let why = format!("{name} is not installed. Run `./dev engine-env {name}`");
            report.skip(format!("merging on {name}"), why);
        }
    }
    engines
}

pub fn measure(
    context: &mut Context,
    engines: &[Engine],
    paths: &[PathBuf],
    sizes: &[usize; 3],
) -> Result<(Vec<Merged>, Kept)> {
    let mut raw = context.raw(
        "merge.csv",
        "engine,round,models,seconds,cpu_s,peak_mb,sha256",
    )?;
    let list = write_list(context, paths)?;
    let mut merges = Vec::new();
    let mut rng = context.rng("sizes");
    let mut turns = context.turns("order", engines.len(), context.pick(3, 1));
    for (round, engine) in turns.by_ref() {
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
    Ok((merges, turns.finish()))
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

fn cluster(
    context: &Context,
    engine: &Engine,
    list: &Path,
    sizes: &[usize],
) -> Result<Vec<MergeResult>> {
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
    command.arg(FAN_IN).arg(WARM_UP_MODELS.to_string());
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
        .collect::<Result<Vec<MergeResult>, _>>()
        .map_err(|e| LabError::unexpected("the output of cluster.py", e))
}
