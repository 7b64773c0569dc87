//! `onbeat show`: a model's callbacks, edges and junctions as tables.

use crate::error::CliError;
use crate::term::{Align, Screen, Table};
use crate::{files, Outcome};
use onbeat_model::schema::{CallbackFigures, EdgeFigures, JunctionKind, Model, ThreadUse};
use onbeat_model::text::{duration, percent, period};
use serde_json::json;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

/// Show the callbacks of a model and their figures.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  onbeat show
  onbeat show model.json --edges
  onbeat show model.json --mode urban
  onbeat show model.json --json | jq '.callbacks[].id'

Times: exec is time on the CPU (measured best, mean, worst case); load is the share of one CPU.

Exit codes: 0 done; 1 failed; 2 wrong command line; 3 done, but the model holds no callback.")]
pub struct Args {
    /// Model file
    #[arg(value_name = "MODEL", default_value = "model.json")]
    pub model: PathBuf,
    /// Also the edges and junctions
    #[arg(long)]
    pub edges: bool,
    /// Figures of the runs of this mode only
    #[arg(long, value_name = "NAME")]
    pub mode: Option<String>,
    /// For programs
    #[arg(long)]
    pub json: bool,
}

/// Fails with the modes there are, when the model has no such mode.
pub fn check_mode(
    model: &Model,
    mode: Option<&str>,
    path: &std::path::Path,
) -> Result<(), CliError> {
    let Some(mode) = mode else { return Ok(()) };
    let known: std::collections::BTreeSet<_> = model.runs.iter().map(|r| r.mode.as_str()).collect();
    if known.contains(mode) {
        return Ok(());
    }
    let known = known.into_iter().collect::<Vec<_>>().join(", ");
    Err(CliError::NoSuchMode {
        mode: mode.into(),
        path: path.into(),
        known,
    })
}

/// The figures of a mode: with one mode in all, the overall ones are that mode's.
pub fn of_mode<'a, F>(
    model: &Model,
    all: &'a F,
    modes: &'a std::collections::BTreeMap<String, F>,
    mode: Option<&str>,
) -> Option<&'a F> {
    match mode {
        None => Some(all),
        Some(mode) => modes
            .get(mode)
            .or_else(|| model.runs.iter().all(|r| r.mode == mode).then_some(all)),
    }
}

fn thread(t: &ThreadUse) -> String {
    let priority = if t.priority < 100 {
        // The kernel counts real-time priorities downwards from 99; people count upwards.
        format!("{} {}", t.policy, 99 - t.priority)
    } else {
        t.policy.clone()
    };
    let cpus: Vec<String> = t.cpus.iter().map(u16::to_string).collect();
    format!("{} {priority} cpu {}", t.comm, cpus.join(","))
}

fn runs_line(model: &Model) -> String {
    let seconds: u64 = model.runs.iter().map(|r| r.duration_ns).sum();
    let lost: u64 = model.runs.iter().flat_map(|r| r.lost.values()).sum();
    let events: u64 = model.runs.iter().map(|r| r.events).sum();
    let mut modes: Vec<_> = model.runs.iter().map(|r| r.mode.as_str()).collect();
    modes.sort_unstable();
    modes.dedup();
    format!(
        "{} run{}, {}, mode{} {}; {events} events, {lost} lost",
        model.runs.len(),
        if model.runs.len() == 1 { "" } else { "s" },
        duration(seconds as f64),
        if modes.len() == 1 { "" } else { "s" },
        modes.join(", ")
    )
}

/// Runs it.
pub fn run(args: Args) -> Result<Outcome, CliError> {
    let model = files::load_model(&args.model, "`onbeat show`")?;
    let mode = args.mode.as_deref();
    check_mode(&model, mode, &args.model)?;
    let callbacks: Vec<_> = model
        .callbacks
        .iter()
        .filter_map(|c| Some((c, of_mode(&model, &c.figures, &c.modes, mode)?)))
        .collect();
    let edges: Vec<_> = model
        .edges
        .iter()
        .filter_map(|e| Some((e, of_mode(&model, &e.figures, &e.modes, mode)?)))
        .collect();
    let outcome = if callbacks.is_empty() {
        Outcome::NothingFound
    } else {
        Outcome::Done
    };
    let mut out = BufWriter::new(io::stdout().lock());
    if args.json {
        let value = json!({
            "runs": model.runs,
            "mode": mode,
            "callbacks": callbacks.iter().map(|(c, f)| {
                let mut c = (*c).clone();
                c.figures = (*f).clone();
                c.modes.clear();
                c
            }).collect::<Vec<_>>(),
            "edges": edges.iter().map(|(e, f)| {
                let mut e = (*e).clone();
                e.figures = (*f).clone();
                e.modes.clear();
                e
            }).collect::<Vec<_>>(),
            "junctions": model.junctions,
            "assumptions": model.assumptions,
            "coverage": model.coverage,
        });
        serde_json::to_writer_pretty(&mut out, &value)
            .map_err(|e| CliError::Stdout(e.into()))
            .and_then(|()| writeln!(out).map_err(CliError::Stdout))?;
        out.flush().map_err(CliError::Stdout)?;
        return Ok(outcome);
    }
    let screen = Screen::of_stdout();
    writeln!(
        out,
        "{}\n",
        screen.dim(&crate::term::fit(&runs_line(&model), screen.width))
    )
    .map_err(CliError::Stdout)?;
    if callbacks.is_empty() {
        writeln!(out, "No callback ran.").map_err(CliError::Stdout)?;
    } else {
        callback_table(&callbacks).write(&mut out, &screen)?;
    }
    if args.edges {
        writeln!(out).map_err(CliError::Stdout)?;
        edge_table(&edges).write(&mut out, &screen)?;
        if !model.junctions.is_empty() {
            writeln!(out).map_err(CliError::Stdout)?;
            junction_table(&model).write(&mut out, &screen)?;
        }
    }
    for line in model.assumptions.iter().chain(&model.coverage) {
        writeln!(
            out,
            "{}",
            screen.warn(&format!("note: {}", crate::term::one_line(line)))
        )
        .map_err(CliError::Stdout)?;
    }
    out.flush().map_err(CliError::Stdout)?;
    Ok(outcome)
}

fn callback_table(rows: &[(&onbeat_model::schema::Callback, &CallbackFigures)]) -> Table {
    let mut table = Table::new()
        .names("callback")
        .column("count", Align::Right)
        .column("exec min", Align::Right)
        .column("mean", Align::Right)
        .column("max", Align::Right)
        .column("p99", Align::Right)
        .column("period", Align::Right)
        .column("load", Align::Right)
        .names("threads");
    for (callback, f) in rows {
        let e = &f.exec_ns;
        let time = |v: f64| {
            if e.count() == 0 {
                "-".into()
            } else {
                duration(v)
            }
        };
        let mut threads: Vec<String> = callback.threads.iter().take(3).map(thread).collect();
        if callback.threads.len() > 3 {
            threads.push(format!("+{}", callback.threads.len() - 3));
        }
        table.row(vec![
            callback.id.clone(),
            e.count().to_string(),
            time(e.min() as f64),
            time(e.mean()),
            time(e.max() as f64),
            time(e.quantile(0.99) as f64),
            callback.period_ns.map_or("-".into(), period_short),
            if f.observed_ns == 0 {
                "-".into()
            } else {
                percent(f.load)
            },
            threads.join("; "),
        ]);
    }
    table
}

/// A timer's period is exact; a measured one is rounded.
fn period_short(ns: u64) -> String {
    let exact = period(ns);
    if exact.len() <= 8 {
        exact
    } else {
        duration(ns as f64)
    }
}

fn edge_table(rows: &[(&onbeat_model::schema::Edge, &EdgeFigures)]) -> Table {
    let mut table = Table::new()
        .names("from")
        .names("to")
        .names("topic")
        .column("taken", Align::Right)
        .column("lost", Align::Right)
        .column("latency p50", Align::Right)
        .column("p99", Align::Right)
        .column("max", Align::Right);
    for (edge, f) in rows {
        let l = &f.latency_ns;
        let time = |v: u64| {
            if l.count() == 0 {
                "-".into()
            } else {
                duration(v as f64)
            }
        };
        table.row(vec![
            edge.from.clone(),
            edge.to.clone(),
            format!(
                "{}{}",
                edge.topic,
                if edge.assumed { " (assumed)" } else { "" }
            ),
            f.taken.to_string(),
            f.lost.to_string(),
            time(l.quantile(0.5)),
            time(l.quantile(0.99)),
            time(l.max()),
        ]);
    }
    table
}

fn junction_table(model: &Model) -> Table {
    let mut table = Table::new()
        .names("junction")
        .column("kind", Align::Left)
        .names("inputs")
        .names("recognised by")
        .column("confidence", Align::Right);
    for j in &model.junctions {
        table.row(vec![
            j.callback.clone(),
            match j.kind {
                JunctionKind::And => "and".into(),
                JunctionKind::Or => "or".into(),
            },
            j.inputs.join(", "),
            j.criterion.clone(),
            percent(j.confidence),
        ]);
    }
    table
}
