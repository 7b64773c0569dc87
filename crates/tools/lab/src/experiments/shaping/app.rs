//! The shaped applications: how to start, profile and plan them, and which of their chains is
//! meant.

use crate::frame::files;
use crate::frame::programs::output;
use crate::frame::{cache_dir, Context, LabError, Result};
use onbeat_document::schema::Chain;
use onbeat_document::Model;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The number of the CPU on which the chain runs. The other CPU runs the middleware's threads and
/// the lab.
pub(super) const CHAIN_CPU: &str = "1";

pub(super) struct App {
    pub name: String,
    pub command: Vec<String>,
    pub ends: (&'static str, &'static str),
    pub place: Vec<String>,
    /// The topics whose inputs are throttled to one per cycle, each with the node that publishes
    /// it.
    pub inputs: &'static [(&'static str, &'static str)],
    pub cycle_ms: u64,
    /// A subscriber outside of the application, which no plan covers: its program and its topic.
    /// `None` if the experiment has none.
    pub listener: Option<(PathBuf, &'static str)>,
}

pub(super) const DOMAIN: &str = "88";

pub(super) fn stage(context: &Context) -> Result<PathBuf> {
    let env = context.ros_env("kilted")?;
    let build = context.source("demos/chain/build.sh")?;
    let out = cache_dir().join("lab/chain");
    let mut command = Command::new(&build);
    command.arg(&env).arg(&out).stdin(Stdio::null());
    output(&mut command, &build.display().to_string(), "install g++")?;
    Ok(out.join("stage"))
}

fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|w| (*w).to_owned()).collect()
}

pub(super) fn synthetic(
    context: &Context,
    name: &str,
    graph: &str,
    options: &[&str],
) -> Result<App> {
    let python = context.ros_env("kilted")?.join("bin/python");
    let run = context.source("demos/chain/run.py")?;
    let stage = stage(context)?;
    let mut command = vec![
        python.display().to_string(),
        run.display().to_string(),
        graph.to_owned(),
        "--stage".into(),
        stage.display().to_string(),
        "--duration".into(),
        "0".into(),
        "--seed".into(),
        context.seed().to_string(),
    ];
    let dag = graph == "dag";
    // Interfering nodes run on the CPU of the chain's servers.
    command.extend(words(&["--cpu", if dag { "0" } else { CHAIN_CPU }]));
    command.extend(words(options));
    let mut place = words(&["--cpu", CHAIN_CPU]);
    if dag {
        // The placement from the graph's own table (demos/chain/run.py).
        let cpus = [
            &[0, 2, 5, 7, 9, 11, 12, 15, 17],
            &[1, 3, 4, 6, 8, 10, 13, 14, 16],
        ];
        for (cpu, nodes) in cpus.iter().enumerate() {
            let words = |n| ["--cpu".to_owned(), format!("/v{n}={cpu}")];
            place.extend(nodes.iter().flat_map(words));
        }
    }
    Ok(App {
        name: name.into(),
        command,
        ends: if dag {
            ("/v0:", "/v1:")
        } else {
            ("/stage_1:", "/stage_5:")
        },
        place,
        inputs: &[],
        cycle_ms: if dag { 764 } else { 100 },
        listener: None,
    })
}

pub(super) fn parking(context: &Context, seconds: u64) -> Result<App> {
    let python = context.ros_env("kilted")?.join("bin/python");
    let beside = context.source("demos/chain/run.py")?;
    let demo = context.source("demos/parking/run.py")?;
    let stage = stage(context)?;
    let command = vec![
        python.display().to_string(),
        beside.display().to_string(),
        "beside".into(),
        "--stage".into(),
        stage.display().to_string(),
        "--interference".into(),
        "2".into(),
        "--interference-period".into(),
        "10".into(),
        "--".into(),
        python.display().to_string(),
        demo.display().to_string(),
        "--duration".into(),
        seconds.to_string(),
        "--seed".into(),
        context.seed().to_string(),
    ];
    Ok(App {
        name: "parking".into(),
        command,
        ends: (
            "/lidar_rear/filter_transform_vlp16_rear:",
            "/p2d_ndt_localizer_node:",
        ),
        place: words(&["--cpu", CHAIN_CPU]),
        // The throttled inputs of the thesis. The chain begins with the callback for the rear
        // lidar.
        inputs: &[
            ("/lidar_rear/points_raw", "/lidar_rear/lidar_rear"),
            ("/lidar_front/points_raw", "/lidar_front/lidar_front"),
        ],
        cycle_ms: 100,
        listener: None,
    })
}

pub(super) fn onbeat(context: &Context, subcommand: &str) -> Command {
    let mut command = Command::new(context.onbeat());
    command.arg(subcommand);
    command
}

pub(super) fn run(
    context: &Context,
    mut onbeat: Command,
    what: &str,
    (accept, limit_s): (&[i32], u64),
) -> Result<String> {
    // The output goes into files, because a process that outlives the command would keep a pipe
    // open.
    let path = |what: &str| context.dir().join(format!("onbeat.{what}.new"));
    let (out, err) = (path("out"), path("err"));
    let create = |path: &Path| File::create(path).map_err(LabError::file("creating", path));
    onbeat
        .env("ROS_DOMAIN_ID", DOMAIN)
        .stdin(Stdio::null())
        .stdout(create(&out)?)
        .stderr(create(&err)?);
    let ended = context
        .spawn(&mut onbeat)?
        .wait(Duration::from_secs(limit_s));
    let (text, said) = (files::take_text(&out)?, files::take_text(&err)?);
    let why = match ended.map_err(|e| LabError::program(what, e))? {
        Some(e) if e.status.code().is_some_and(|c| accept.contains(&c)) => return Ok(text),
        Some(e) => {
            let last = said.lines().last();
            format!(
                "{}{}",
                e.status,
                last.map_or(String::new(), |l| format!(": {l}"))
            )
        }
        None => format!("the program did not end within {limit_s} s"),
    };
    Err(LabError::program(what, why))
}

pub(super) fn load(path: &Path) -> Result<Model> {
    files::json(path)
}

impl App {
    pub fn chain_of<'m>(&self, model: &'m Model) -> Result<&'m Chain> {
        let fits = |c: &&Chain| {
            let ends = (c.callbacks.first(), c.callbacks.last());
            matches!(ends, (Some(a), Some(b)) if a.starts_with(self.ends.0) && b.starts_with(self.ends.1))
        };
        model
            .chains
            .iter()
            .filter(fits)
            .max_by_key(|c| c.figures.executions)
            .ok_or_else(|| {
                let why = format!(
                    "the model has no chain from {} to {}",
                    self.ends.0, self.ends.1
                );
                LabError::unexpected(format!("the model of {}", self.name), why)
            })
    }

    fn first_look_s(&self) -> u64 {
        let starts_s = if self.inputs.is_empty() { 10 } else { 15 };
        starts_s.max(8 * self.cycle_ms / 1000)
    }

    /// Records the application with its chain at a high SCHED_FIFO priority (thesis, section
    /// 4.4.2), and returns the path of the model. Starts the application `runs` times, because
    /// waiting times depend on the phases of its timers.
    pub fn profile(&self, context: &Context, seconds: u64, runs: usize) -> Result<PathBuf> {
        let path = |what: &str| context.dir().join(format!("{}.{what}", self.name));
        let limit = seconds + 120;
        context.step(format!("{}: profile", self.name), (1 + runs as u64) * limit);
        let (trace, model, plan) = (path("trace"), path("first.json"), path("fifo.yaml"));
        let _ = std::fs::remove_dir_all(&trace);
        let mut record = onbeat(context, "record");
        record.arg("-o").arg(&trace);
        record.args(["--duration", &format!("{}s", self.first_look_s()), "--"]);
        record.args(&self.command);
        // The recording stops the application early, so the application may report an error.
        run(context, record, "onbeat record", (&[0, 1, 130], limit))?;
        let build = |traces: &[PathBuf], model: &Path| {
            let mut build = onbeat(context, "model");
            build.args(traces).arg("-o").arg(model);
            for (topic, _) in self.inputs {
                build.args(["--input", topic]);
            }
            run(context, build, "onbeat model", (&[0], limit)).map(drop)
        };
        build(std::slice::from_ref(&trace), &model)?;
        self.plan(context, &model, &plan, &["--strategy", "fifo"])?;
        files::remove_dir(&trace)?;
        let mut traces = Vec::new();
        for number in 0..runs {
            let trace = path(&format!("trace-{number}"));
            let _ = std::fs::remove_dir_all(&trace);
            let mut shape = onbeat(context, "shape");
            shape.arg(&plan).arg("--trace").arg(&trace);
            shape.args(["--duration", &format!("{seconds}s"), "--"]);
            shape.args(&self.command);
            run(context, shape, "onbeat shape", (&[0, 1, 130], limit))?;
            traces.push(trace);
        }
        let profile = path("profile.json");
        build(&traces, &profile)?;
        for trace in &traces {
            files::remove_dir(trace)?;
        }
        Ok(profile)
    }

    pub fn plan(
        &self,
        context: &Context,
        model: &Path,
        plan: &Path,
        options: &[&str],
    ) -> Result<()> {
        let chain = self.chain_of(&load(model)?)?.id.clone();
        let mut make = onbeat(context, "plan");
        make.arg(model).args(["--chain", &chain]);
        make.args(&self.place).args(options);
        for (topic, node) in self.inputs {
            make.args(["--throttle", &format!("{topic}@{node}")]);
        }
        make.arg("-o").arg(plan);
        run(context, make, "onbeat plan", (&[0], 60)).map(drop)
    }

    pub fn without_priorities(plan: &Path) -> Result<()> {
        let fault = |e: &dyn std::fmt::Display| LabError::in_file(plan, e);
        let text = std::fs::read(plan).map_err(LabError::file("reading", plan))?;
        let mut changed = onbeat_plan::file::read(&text).map_err(|e| fault(&e))?;
        changed.servers.iter_mut().for_each(|s| s.priority = 0);
        let text = onbeat_plan::file::write(&changed).map_err(|e| fault(&e))?;
        std::fs::write(plan, text).map_err(LabError::file("writing", plan))
    }
}
