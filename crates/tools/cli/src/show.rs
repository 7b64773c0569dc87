//! `onbeat show`: prints a model's callbacks, edges and junctions as tables.

use crate::mode;
use onbeat_document::schema::{
    Action, Callback, CallbackFigures, CallbackType, Edge, EdgeFigures, Identity, JunctionKind,
    Model, ThreadUse,
};
use onbeat_document::text::{duration, percent, period};
use onbeat_terminal::term::{self, Align, Screen, Table};
use onbeat_terminal::CliError;
use onbeat_terminal::{files, ExitStatus};
use serde_json::{json, Value};
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

/// Show the callbacks of a model and their figures
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  onbeat show
  onbeat show model.json --edges
  onbeat show model.json --mode urban
  onbeat show model.json --json | jq '.callbacks[].id'

Times: exec is time on the CPU (measured best, mean, worst case); load is the share of one CPU.

Exit codes: 0 done; 1 failed; 2 wrong command line; 3 done, but the model has no callback.")]
pub struct Args {
    /// Model file, made by onbeat model
    #[arg(value_name = "MODEL", default_value = "model.json")]
    pub model: PathBuf,
    /// Also show the edges and junctions between callbacks
    #[arg(long)]
    pub edges: bool,
    /// Also show which threads ran which callbacks
    #[arg(long)]
    pub threads: bool,
    /// Show only the figures of the runs in this mode, for example urban
    #[arg(long, value_name = "NAME")]
    pub mode: Option<String>,
    /// Print the result as JSON, for programs
    #[arg(long)]
    pub json: bool,
}

fn thread(t: &ThreadUse) -> String {
    let cpus: Vec<String> = t.cpus.iter().map(u16::to_string).collect();
    let policy = match t.policy.as_str() {
        "other" => String::new(),
        // The kernel counts real-time priorities downwards from 99; the user's priorities count
        // upwards.
        policy if t.priority < 100 => format!("{policy} {} ", 99 - t.priority),
        policy => format!("{policy} "),
    };
    format!("{policy}cpu {} {}", cpus.join(","), t.comm)
}

fn end(model: &Model, id: &str) -> String {
    match model.callbacks.iter().find(|c| c.id == id) {
        Some(c) if c.kind == CallbackType::Subscription => c.node.clone(),
        Some(c) => format!(
            "{}:{}",
            c.node,
            onbeat_views::export::svg::type_name(c.kind)
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

type Callbacks<'m> = Vec<(&'m Callback, &'m CallbackFigures)>;
type Edges<'m> = Vec<(&'m Edge, &'m EdgeFigures)>;

pub fn run(args: Args) -> Result<ExitStatus, CliError> {
    let model = files::load_model(&args.model, "`onbeat show`")?;
    let mode = args.mode.as_deref();
    mode::check(&model, mode, &args.model)?;
    let callbacks: Callbacks<'_> = model
        .callbacks
        .iter()
        .filter_map(|c| Some((c, model.figures_of(mode, &c.figures, &c.modes)?)))
        .collect();
    let edges: Edges<'_> = model
        .edges
        .iter()
        .filter_map(|e| Some((e, model.figures_of(mode, &e.figures, &e.modes)?)))
        .collect();
    let mut out = BufWriter::new(io::stdout().lock());
    if args.json {
        term::write_json(&mut out, &json(&model, mode, &callbacks, &edges))?;
    } else {
        write_tables(&mut out, &args, &model, &callbacks, &edges)?;
    }
    out.flush().map_err(CliError::Stdout)?;
    Ok(if callbacks.is_empty() {
        ExitStatus::NothingFound
    } else {
        ExitStatus::Success
    })
}

fn json(model: &Model, mode: Option<&str>, callbacks: &Callbacks<'_>, edges: &Edges<'_>) -> Value {
    let callbacks: Vec<_> = callbacks
        .iter()
        .map(|(callback, figures)| {
            let mut callback = (*callback).clone();
            callback.figures = (*figures).clone();
            callback.modes.clear();
            callback
        })
        .collect();
    let edges: Vec<_> = edges
        .iter()
        .map(|(edge, figures)| {
            let mut edge = (*edge).clone();
            edge.figures = (*figures).clone();
            edge.modes.clear();
            edge
        })
        .collect();
    json!({
        "runs": model.runs,
        "mode": mode,
        "callbacks": callbacks,
        "edges": edges,
        "junctions": model.junctions,
        "actions": actions(model, mode),
        "assumptions": model.assumptions,
        "coverage": model.coverage,
    })
}

fn write_tables(
    out: &mut dyn Write,
    args: &Args,
    model: &Model,
    callbacks: &Callbacks<'_>,
    edges: &Edges<'_>,
) -> Result<(), CliError> {
    let screen = Screen::of_stdout();
    let runs = term::fit(&runs_line(model), screen.width);
    writeln!(out, "{}\n", screen.dim(&runs)).map_err(CliError::Stdout)?;
    if callbacks.is_empty() {
        writeln!(out, "No callback ran.").map_err(CliError::Stdout)?;
    } else {
        callback_table(callbacks, screen.width >= MIN_COLUMNS_WITH_THREADS).write(out, &screen)?;
    }
    let mut tables = vec![];
    if args.edges {
        tables.push(edge_table(model, edges));
        if !model.junctions.is_empty() {
            tables.push(junction_table(model));
        }
    }
    let actions = actions(model, args.mode.as_deref());
    if !actions.is_empty() {
        tables.push(action_table(&actions));
    }
    if args.threads {
        tables.push(thread_table(model));
    }
    for table in tables {
        writeln!(out).map_err(CliError::Stdout)?;
        table.write(out, &screen)?;
    }
    if args.edges && edges.iter().any(|(_, f)| f.lost > 0) {
        writeln!(out, "{LOST}").map_err(CliError::Stdout)?;
    }
    for line in model.assumptions.iter().chain(&model.coverage) {
        let note = screen.warn(&format!("note: {}", term::one_line(line)));
        writeln!(out, "{note}").map_err(CliError::Stdout)?;
    }
    Ok(())
}

const MIN_COLUMNS_WITH_THREADS: usize = 130;

fn callback_table(rows: &Callbacks<'_>, with_threads: bool) -> Table {
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
            match callback.identity {
                Identity::Known => callback.id.clone(),
                Identity::Guessed => format!("{} ?", callback.id),
            },
            match f.untimed {
                0 => e.count().to_string(),
                n => format!("{} ({n} untimed)", f.executions()),
            },
            time(e.min() as f64),
            time(e.mean()),
            time(e.max() as f64),
            time(e.quantile(0.99) as f64),
            callback.period_ns.map_or("-".into(), period_short),
            f.known_load().map_or("-".into(), percent),
        ];
        if with_threads {
            let threads: Vec<String> = callback.threads.iter().map(thread).collect();
            cells.push(threads.join("; "));
        }
        table.row(cells);
    }
    table
}

fn period_short(ns: u64) -> String {
    let exact = period(ns);
    if exact.len() <= 8 {
        exact
    } else {
        duration(ns as f64)
    }
}

const LOST: &str =
    "lost: never taken, for an unknown reason (possibly a content filter or a lifespan)";

fn edge_table(model: &Model, rows: &Edges<'_>) -> Table {
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
                if edge.assumed.is_some() {
                    " (assumed)"
                } else {
                    ""
                }
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

fn actions(model: &Model, mode: Option<&str>) -> Vec<Action> {
    let of_mode = |a: &Action| {
        let figures = model.figures_of(mode, &a.figures, &a.modes)?.clone();
        Some(Action {
            figures,
            modes: Default::default(),
            ..a.clone()
        })
    };
    model.actions.iter().filter_map(of_mode).collect()
}

fn action_table(actions: &[Action]) -> Table {
    let mut table = Table::new()
        .names("action", 2)
        .names("servers", 1)
        .names("clients", 1)
        .column("goals", Align::Right)
        .column("results", Align::Right)
        .column("cancels", Align::Right)
        .column("feedback", Align::Right)
        .column("goal to result p50", Align::Right)
        .column("max", Align::Right);
    for a in actions {
        let (f, l) = (&a.figures, &a.figures.goal_to_result_ns);
        let time = |v: u64| match l.count() {
            0 => "-".into(),
            _ => duration(v as f64),
        };
        let results = match f.untimed {
            0 => f.results.to_string(),
            n => format!("{} ({n} untimed)", f.results),
        };
        table.row(vec![
            a.name.clone(),
            a.servers.join(", "),
            a.clients.join(", "),
            f.goals.max(f.served).to_string(),
            results,
            f.cancels.to_string(),
            f.feedback.to_string(),
            time(l.quantile(0.5)),
            time(l.max()),
        ]);
    }
    table
}

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
