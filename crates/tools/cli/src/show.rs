//! `onbeat show`: a model's callbacks, edges and junctions as tables.

use crate::error::CliError;
use crate::term::{Align, Screen, Table};
use crate::{files, Outcome};
use onbeat_model::schema::{
    CallbackFigures, CallbackType, EdgeFigures, JunctionKind, Model, ThreadUse,
};
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
    /// Also which threads ran which callbacks
    #[arg(long)]
    pub threads: bool,
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

/// A thread in a few words; the policy only where it is not the usual one.
fn thread(t: &ThreadUse) -> String {
    let cpus: Vec<String> = t.cpus.iter().map(u16::to_string).collect();
    let policy = match t.policy.as_str() {
        "other" => String::new(),
        // The kernel counts real-time priorities downwards from 99; people count upwards.
        policy if t.priority < 100 => format!("{policy} {} ", 99 - t.priority),
        policy => format!("{policy} "),
    };
    format!("{policy}cpu {} {}", cpus.join(","), t.comm)
}

/// A callback in an edge: its node, and its type where that is not the usual one.
fn end(model: &Model, id: &str) -> String {
    match model.callbacks.iter().find(|c| c.id == id) {
        Some(c) if c.kind == CallbackType::Subscription => c.node.clone(),
        Some(c) => format!(
            "{}:{}",
            c.node,
            onbeat_model::export::svg::type_name(c.kind)
        ),
        None => id.to_string(),
    }
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
        callback_table(&callbacks, screen.width >= WIDE).write(&mut out, &screen)?;
    }
    if args.edges {
        writeln!(out).map_err(CliError::Stdout)?;
        edge_table(&model, &edges).write(&mut out, &screen)?;
        if !model.junctions.is_empty() {
            writeln!(out).map_err(CliError::Stdout)?;
            junction_table(&model).write(&mut out, &screen)?;
        }
    }
    if args.threads {
        writeln!(out).map_err(CliError::Stdout)?;
        thread_table(&model).write(&mut out, &screen)?;
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

/// Screens of at least this many columns have room for the threads.
const WIDE: usize = 130;

fn callback_table(
    rows: &[(&onbeat_model::schema::Callback, &CallbackFigures)],
    with_threads: bool,
) -> Table {
    let mut table = Table::new()
        .names("callback", 4)
        .column("count", Align::Right)
        .column("exec min", Align::Right)
        .column("mean", Align::Right)
        .column("max", Align::Right)
        .column("p99", Align::Right)
        .column("period", Align::Right)
        .column("load", Align::Right);
    if with_threads {
        table = table.names("threads", 1);
    }
    for (callback, f) in rows {
        let e = &f.exec_ns;
        let time = |v: f64| {
            if e.count() == 0 {
                "-".into()
            } else {
                duration(v)
            }
        };
        let mut cells = vec![
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
        ];
        if with_threads {
            let threads: Vec<String> = callback.threads.iter().map(thread).collect();
            cells.push(threads.join("; "));
        }
        table.row(cells);
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

fn edge_table(model: &Model, rows: &[(&onbeat_model::schema::Edge, &EdgeFigures)]) -> Table {
    let mut table = Table::new()
        .names("topic", 1)
        .names("from", 1)
        .names("to", 1)
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
            format!(
                "{}{}",
                edge.topic,
                if edge.assumed { " (assumed)" } else { "" }
            ),
            end(model, &edge.from),
            end(model, &edge.to),
            f.taken.to_string(),
            f.lost.to_string(),
            time(l.quantile(0.5)),
            time(l.quantile(0.99)),
            time(l.max()),
        ]);
    }
    table
}

/// Threads and the callbacks that they ran.
fn thread_table(model: &Model) -> Table {
    let mut table = Table::new().names("thread", 1).names("callback", 3);
    let mut rows: Vec<(String, &str)> = model
        .callbacks
        .iter()
        .flat_map(|c| c.threads.iter().map(|t| (thread(t), c.id.as_str())))
        .collect();
    rows.sort();
    let mut last = None;
    for (thread, callback) in rows {
        let repeated = last.as_ref() == Some(&thread);
        table.row(vec![
            if repeated {
                String::new()
            } else {
                thread.clone()
            },
            callback.into(),
        ]);
        last = Some(thread);
    }
    table
}

fn junction_table(model: &Model) -> Table {
    let mut table = Table::new()
        .names("junction", 2)
        .column("kind", Align::Left)
        .names("inputs", 3)
        .names("recognised by", 1)
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
