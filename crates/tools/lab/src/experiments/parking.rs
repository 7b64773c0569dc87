//! `parking`: repeats the thesis's Table 3.3 and Figure 3.9 with the parking demo over many short
//! runs. The demo runs alone, and beside SYN, whose load changes from run to run as in the thesis.

use crate::frame::children::Guarded;
use crate::frame::files;
use crate::frame::programs::quiet;
use crate::frame::report::{number, Figure, Report, Table};
use crate::frame::{Context, Experiment, LabError, Result};
use crate::plot::{lines, Axes, Line};
use onbeat_document::schema::{Callback, Model};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The rows of Table 3.3 of the thesis: callback, node, a part of the name of the callback's topic,
/// and mBCET, mACET and mWCET in ms.
const TABLE_3_3: [(&str, &str, &str, [f64; 3]); 6] = [
    (
        "cb1",
        "filter_transform_vlp16_rear",
        "",
        [13.82, 17.1, 19.82],
    ),
    (
        "cb2",
        "filter_transform_vlp16_front",
        "",
        [23.31, 27.07, 30.5],
    ),
    ("cb3", "point_cloud_fusion", "front", [0.41, 3.1, 3.97]),
    ("cb4", "point_cloud_fusion", "rear", [0.38, 0.62, 3.36]),
    ("cb5", "voxel_grid_cloud_node", "", [6.58, 8.47, 13.36]),
    ("cb6", "p2d_ndt_localizer_node", "", [2.78, 25.64, 60.93]),
];

const CB2_LOAD: f64 = 27.0;

/// The factors by which the execution times of the demo SYN (the thesis's synthetic application)
/// are multiplied, one per run. SYN then loads a core to between a tenth and two thirds.
const SCALES: [&str; 6] = ["0.25", "0.5", "0.75", "1", "1.25", "1.5"];
/// The time in s after which the demo SYN begins. By then, the nodes of the parking demo have
/// started, so SYN does not disturb their start.
const SYN_START_S: u64 = 3;
/// The ROS domain of the demo SYN. With a domain of its own, SYN takes no part in the discovery of
/// the parking demo.
const SYN_DOMAIN: &str = "78";
const STEP_LIMIT: Duration = Duration::from_secs(240);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Alone,
    BesideSyn,
}

impl Part {
    fn id(self) -> &'static str {
        match self {
            Part::Alone => "parking",
            Part::BesideSyn => "parking.beside",
        }
    }
}

struct Programs {
    python: PathBuf,
    demo: PathBuf,
    syn: PathBuf,
}

pub const EXPERIMENT: Experiment = Experiment {
    name: "parking",
    about: "execution times of the parking demo's callbacks over 50 runs (thesis, Table 3.3 and Figure 3.9)",
    parts: &["alone", "beside"],
    takes: &[],
    run,
};

fn run(context: &mut Context) -> Result<Report> {
    let programs = Programs {
        python: context.ros_env("kilted")?.join("bin/python"),
        demo: context.source("demos/parking/run.py")?,
        syn: context.source("demos/syn/syn.py")?,
    };
    let mut report = Report::new();
    for (name, part) in [("alone", Part::Alone), ("beside", Part::BesideSyn)] {
        if context.wants(name) {
            part.measure(context, &mut report, &programs)?;
        }
    }
    Ok(report)
}

impl Part {
    fn measure(
        self,
        context: &mut Context,
        report: &mut Report,
        programs: &Programs,
    ) -> Result<()> {
        let runs: usize = context.pick(50, 5);
        let work = context.dir().join("runs");
        files::fresh_dir(&work)?;
        let mut rng = context.rng("durations");
        let mut models: Vec<PathBuf> = vec![];
        // The demo fails if the machine is too busy to locate the car. Such a run differs from the
        // application in the table, so it is repeated, up to a limit.
        let mut failed = vec![];
        let mut attempt = 0;
        while models.len() < runs && attempt < 2 * runs {
            // Lengths and noise differ, so that the runs do not all show the same scans.
            let duration_s = 6 + rng.below(3);
            let number = models.len() + 1;
            let what = format!("{}, run {number} of {runs}: {duration_s} s", self.id());
            context.step(&what, 300);
            let mut syn = match self {
                Part::Alone => None,
                Part::BesideSyn => Some(start_syn(context, programs, models.len(), duration_s)?),
            };
            let run = one_run(context, &work, attempt, duration_s, programs);
            if let Some(syn) = &mut syn {
                if !syn.running() {
                    let why = format!(
                        "the synthetic demo SYN ended before the parking demo{}",
                        syn.last_error()
                    );
                    return Err(LabError::program("SYN", why));
                }
            }
            drop(syn);
            match run {
                Ok(model) => models.push(model),
                Err(e) => failed.push(e.to_string()),
            }
            attempt += 1;
        }
        if let Some(first) = failed.first() {
            report.note(format!(
                "{} runs failed and were repeated. First failure: {first}",
                failed.len()
            ));
        }
        if models.is_empty() {
            let why = report
                .skipped
                .first()
                .map(|s| s.why.clone())
                .unwrap_or_default();
            return Err(LabError::unexpected(
                "every run of the parking demo failed",
                why,
            ));
        }
        let merged = context.dir().join(format!("{}.json", self.id()));
        let mut merge = Command::new(context.onbeat());
        merge.arg("merge").args(&models).arg("-o").arg(&merged);
        context.succeed(quiet(&mut merge), "onbeat merge", STEP_LIMIT)?;
        let model: Model = files::json(&merged)?;
        files::remove_dir(&work)?;
        report.figure(
            Figure::new(format!("{}.runs", self.id()), models.len() as f64, "runs")
                .baseline(50.0, "thesis, Table 3.3"),
        );
        summarise(context, report, &model, self)?;
        report.note(format!("the merged model is in {}", merged.display()));
        Ok(())
    }
}

fn start_syn(
    context: &Context,
    programs: &Programs,
    run: usize,
    duration_s: u64,
) -> Result<Guarded> {
    let mut command = Command::new("sh");
    let words = format!("sleep {SYN_START_S}; exec \"$@\"");
    command.args(["-c", &words, "sh"]);
    command.arg(&programs.python).arg(&programs.syn);
    command.args(["--quiet", "--scale", SCALES[run % SCALES.len()]]);
    // SYN must run longer than the demo.
    command.args(["--duration", &(duration_s + 60).to_string()]);
    command.env("ROS_DOMAIN_ID", SYN_DOMAIN);
    context.spawn(quiet(&mut command))
}

fn one_run(
    context: &Context,
    work: &Path,
    attempt: usize,
    duration_s: u64,
    programs: &Programs,
) -> Result<PathBuf> {
    let trace = work.join(format!("trace-{attempt}"));
    let mut record = Command::new(context.onbeat());
    record
        .arg("record")
        .arg("-o")
        .arg(&trace)
        .arg("--")
        .arg(&programs.python)
        .arg(&programs.demo);
    record.args([
        "--duration",
        &duration_s.to_string(),
        "--seed",
        &attempt.to_string(),
    ]);
    context.succeed(quiet(&mut record), "onbeat record", STEP_LIMIT)?;
    let model = work.join(format!("model-{attempt}.json"));
    let mut build = Command::new(context.onbeat());
    build.arg("model").arg(&trace).arg("-o").arg(&model);
    context.succeed(quiet(&mut build), "onbeat model", STEP_LIMIT)?;
    files::remove_dir(&trace)?;
    Ok(model)
}

/// Finds the subscription callback for a row of the thesis's Table 3.3. `on` is a part of the name
/// of the callback's topic, for nodes with several subscriptions.
fn callback_of<'a>(model: &'a Model, node: &str, on: &str) -> Option<&'a Callback> {
    let of_node = |c: &&Callback| c.node.rsplit('/').next() == Some(node) && c.input.contains(on);
    // The table shows the busiest callback. Others, for example of /clock or parameters, are left
    // out.
    model
        .callbacks
        .iter()
        .filter(of_node)
        .filter(|c| c.figures.exec_ns.count() > 0)
        .max_by_key(|c| c.figures.exec_ns.sum())
}

const MS: f64 = 1e6;

fn summarise(context: &mut Context, report: &mut Report, model: &Model, part: Part) -> Result<()> {
    let mut table = Table::new(
        format!(
            "Execution times of the parking demo's callbacks over {} runs{}, ms (thesis, Table 3.3)",
            model.runs.len(),
            match part {
                Part::Alone => "",
                Part::BesideSyn => ", while the synthetic demo SYN runs",
            }
        ),
        "callback | node | executions | mBCET | mACET | mWCET | load, % | mBCET in the thesis | mACET in the thesis | mWCET in the thesis",
    );
    let mut raw = context.raw(
        &format!("{}.evolution.csv", part.id()),
        "callback,runs,min_ms,mean_ms,max_ms",
    )?;
    for (name, node, on, paper) in TABLE_3_3 {
        let Some(callback) = callback_of(model, node, on) else {
            report.skip(
                name,
                format!("the model has no callback of {node} on a topic that contains '{on}'"),
            );
            continue;
        };
        table.row(row(report, part, (name, node), callback, paper));
        let evolution = evolution(callback);
        for (i, [min, mean, max]) in evolution.iter().enumerate() {
            raw.line(format_args!("{name},{},{min},{mean},{max}", i + 1))?;
        }
        if name == "cb2" {
            let load = callback.figures.load * 100.0;
            report.figure(
                Figure::new(format!("{}.cb2.load", part.id()), load, "% of a core")
                    .baseline(CB2_LOAD, "thesis, section 3.7"),
            );
            figure_3_9(context, report, &evolution, part)?;
        }
    }
    raw.finish()?;
    report.tables.push(table);
    Ok(())
}

fn row(
    report: &mut Report,
    part: Part,
    (name, node): (&str, &str),
    callback: &Callback,
    paper: [f64; 3],
) -> Vec<String> {
    let exec = &callback.figures.exec_ns;
    let ours = [
        exec.min() as f64 / MS,
        exec.mean() / MS,
        exec.max() as f64 / MS,
    ];
    for (i, what) in ["mbcet", "macet", "mwcet"].into_iter().enumerate() {
        report.figure(
            Figure::new(format!("{}.{name}.{what}", part.id()), ours[i], "ms")
                .baseline(paper[i], "thesis, Table 3.3")
                .samples(exec.count()),
        );
    }
    let mut row = vec![
        name.to_string(),
        node.to_string(),
        number(exec.count() as f64),
    ];
    row.extend(ours.map(number));
    row.push(number(callback.figures.load * 100.0));
    row.extend(paper.map(number));
    row
}

fn figure_3_9(
    context: &mut Context,
    report: &mut Report,
    evolution: &[[f64; 3]],
    part: Part,
) -> Result<()> {
    let id = part.id();
    let last = evolution.len() - 1;
    let grown = |i: usize| (evolution[last][i] / evolution[0][i] - 1.0) * 100.0;
    report.figure(
        Figure::new(format!("{id}.cb2.mwcet_growth"), grown(2), "%")
            .baseline(10.0, "thesis, Figure 3.9"),
    );
    report.value(format!("{id}.cb2.macet_growth"), grown(1), "%");
    let final_after = (0..=last)
        .find(|&i| evolution[i][2] == evolution[last][2])
        .unwrap_or(last)
        + 1;
    report.figure(
        Figure::new(
            format!("{id}.cb2.mwcet_final_after"),
            final_after as f64,
            "runs",
        )
        .baseline(23.0, "thesis, Figure 3.9"),
    );
    let line = |name: &str, column: usize| Line {
        name: name.into(),
        points: evolution
            .iter()
            .enumerate()
            .map(|(i, v)| (i as f64 + 1.0, v[column]))
            .collect(),
    };
    let axes = Axes::new("runs merged", "execution time, ms");
    let svg = lines(
        "Estimated execution times of callback cb2 over the number of runs (Figure 3.9)",
        axes,
        &[line("mWCET", 2), line("mACET", 1), line("mBCET", 0)],
    )?;
    let file = match part {
        Part::Alone => "figure-3.9.svg",
        Part::BesideSyn => "figure-3.9-beside.svg",
    };
    context.plot(file, &svg)
}

/// Returns the smallest, mean and largest execution time in ms over the first run, over the first
/// two runs, and so on.
fn evolution(callback: &Callback) -> Vec<[f64; 3]> {
    let mut runs: Vec<_> = callback.per_run.values().filter(|r| r.count > 0).collect();
    runs.sort_by_key(|r| r.start);
    let (mut min, mut max, mut sum, mut count) = (u64::MAX, 0, 0.0, 0);
    runs.into_iter()
        .map(|r| {
            min = min.min(r.min_ns);
            max = max.max(r.max_ns);
            sum += r.mean_ns * r.count as f64;
            count += r.count;
            [min as f64 / MS, sum / count as f64 / MS, max as f64 / MS]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use onbeat_document::schema::RunExtremes;

    fn model() -> Model {
        let callback = |id: &str, node: &str, input: &str| {
            serde_json::json!({
                "id": id, "node": node, "type": "subscription", "input": input, "period_ns": null, "outputs": [],
                "bracket": "exact", "threads": [], "per_run": {},
                "exec_ns": onbeat_document::Dist::new(), "response_ns": onbeat_document::Dist::new(),
                "interarrival_ns": onbeat_document::Dist::new(), "release_jitter_ns": onbeat_document::Dist::new(),
                "preempted_ns": onbeat_document::Dist::new(), "blocked_ns": onbeat_document::Dist::new(),
                "preemptions": 0, "blockings": 0, "load": 0.0, "observed_ns": 0,
            })
        };
        let mut model: Model = serde_json::from_value(serde_json::json!({
            "schema": onbeat_document::schema::SCHEMA, "runs": [], "edges": [], "junctions": [], "chains": [],
            "callbacks": [
                callback("a", "/point_cloud_fusion", "/lidar_front/points_filtered"),
                callback("b", "/point_cloud_fusion", "/lidar_rear/points_filtered"),
                callback("c", "/lidar_rear/filter_transform_vlp16_rear", "/lidar_rear/points_raw"),
            ],
        }))
        .unwrap();
        for c in &mut model.callbacks {
            c.figures.exec_ns.record(1_000_000);
        }
        model
    }

    #[test]
    fn callbacks_of_thesis_table_3_3_are_found_by_node_and_topic() {
        let m = model();
        let id = |node, on| callback_of(&m, node, on).map(|c| c.id.as_str());
        assert_eq!(id("point_cloud_fusion", "front"), Some("a"));
        assert_eq!(id("point_cloud_fusion", "rear"), Some("b"));
        assert_eq!(id("filter_transform_vlp16_rear", ""), Some("c"));
        assert_eq!(id("voxel_grid_cloud_node", ""), None);
    }

    #[test]
    fn execution_time_estimates_evolve_in_the_order_of_runs() {
        let mut c = model().callbacks.remove(0);
        let run = |start: u64, count: u64, min: u64, mean: f64, max: u64| RunExtremes {
            start,
            count,
            min_ns: min * 1_000_000,
            mean_ns: mean * MS,
            max_ns: max * 1_000_000,
            typical: None,
        };
        c.per_run.insert("later".into(), run(20, 10, 1, 4.0, 5));
        c.per_run.insert("z-earlier".into(), run(10, 30, 2, 8.0, 9));
        assert_eq!(evolution(&c), [[2.0, 8.0, 9.0], [1.0, 7.0, 9.0]]);
    }
}
