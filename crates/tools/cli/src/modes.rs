//! `onbeat modes`: shows which parts of a model exist in which mode.

use onbeat_document::presence::{presence, Part, Presence};
use onbeat_document::schema::Run;
use onbeat_document::text::duration;
use onbeat_document::Model;
use onbeat_terminal::term::{self, Align, Screen, Table};
use onbeat_terminal::CliError;
use onbeat_terminal::{files, ExitStatus};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

/// Show the modes of a model, and the parts that exist only in some of them
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  onbeat model trace --mode urban@0s..30s --mode highway@30s..; onbeat modes
  onbeat modes all.json --all
  onbeat modes all.json --json | jq '.parts[] | select(.part == \"chain\")'
  onbeat diff all.json --modes urban,highway         also compares the times

Counts are executions of callbacks and chains, items taken over edges, and inputs that meet at
junctions; '-' means that the part does not exist in that mode.

Exit codes: 0 done; 1 failed; 2 wrong command line; 3 done, but the model has one mode only.")]
pub struct Args {
    /// Model file, made by onbeat model
    #[arg(value_name = "MODEL", default_value = "model.json")]
    model: PathBuf,
    /// Also list the parts of the model that exist in all modes
    #[arg(long)]
    all: bool,
    /// Print the result as JSON, for programs
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<ExitStatus, CliError> {
    let model = files::load_model(&args.model, "`onbeat modes`")?;
    let modes = modes(&model);
    let parts = presence(&model);
    let shown: Vec<&Presence> = parts.iter().filter(|p| args.all || p.differs()).collect();
    let mut out = BufWriter::new(io::stdout().lock());
    match args.json {
        true => term::write_json(&mut out, &as_json(&modes, &shown))?,
        false => write(&mut out, &modes, &parts, &shown)?,
    }
    out.flush().map_err(CliError::Stdout)?;
    Ok(match modes.len() {
        0 | 1 => ExitStatus::NothingFound,
        _ => ExitStatus::Success,
    })
}

fn modes(model: &Model) -> BTreeMap<&str, Vec<&Run>> {
    let mut modes: BTreeMap<&str, Vec<&Run>> = BTreeMap::new();
    for run in &model.runs {
        modes.entry(&run.mode).or_default().push(run);
    }
    modes
}

fn lasted(runs: &[&Run]) -> u64 {
    runs.iter()
        .fold(0, |sum, r| sum.saturating_add(r.duration_ns))
}

fn as_json(modes: &BTreeMap<&str, Vec<&Run>>, shown: &[&Presence]) -> serde_json::Value {
    let modes = modes.iter().map(|(mode, runs)| {
        let ids: Vec<&str> = runs.iter().map(|r| r.id.as_str()).collect();
        json!({ "mode": mode, "runs": ids, "duration_ns": lasted(runs) })
    });
    let parts = shown.iter().map(
        |p| json!({ "part": p.part.text(), "id": p.id, "title": p.title, "counts": p.counts }),
    );
    json!({ "modes": modes.collect::<Vec<_>>(), "parts": parts.collect::<Vec<_>>() })
}

fn write(
    out: &mut dyn Write,
    modes: &BTreeMap<&str, Vec<&Run>>,
    parts: &[Presence],
    shown: &[&Presence],
) -> Result<(), CliError> {
    let screen = Screen::of_stdout();
    let mut table = Table::new()
        .names("mode", 1)
        .column("runs", Align::Right)
        .column("time", Align::Right)
        .column("callbacks", Align::Right)
        .column("edges", Align::Right)
        .column("junctions", Align::Right)
        .column("chains", Align::Right);
    for (&mode, runs) in modes {
        let there = |part| {
            let there = |p: &&Presence| p.part == part && p.counts.get(mode) > Some(&0);
            parts.iter().filter(there).count().to_string()
        };
        table.row(vec![
            mode.into(),
            runs.len().to_string(),
            duration(lasted(runs) as f64),
            there(Part::Callback),
            there(Part::Edge),
            there(Part::Junction),
            there(Part::Chain),
        ]);
    }
    table.write(out, &screen)?;
    writeln!(out).map_err(CliError::Stdout)?;
    if shown.is_empty() {
        let none = "All callbacks, edges, junctions and chains exist in every mode.";
        return writeln!(out, "{none}").map_err(CliError::Stdout);
    }
    let mut table = Table::new().column("", Align::Left).names("what", 3);
    for &mode in modes.keys() {
        table = table.column(&term::one_line(mode), Align::Right);
    }
    for p in shown {
        let count = |n: &u64| match n {
            0 => "-".to_string(),
            n => n.to_string(),
        };
        let mut row = vec![p.part.text().to_string(), p.title.clone()];
        row.extend(p.counts.values().map(count));
        table.row(row);
    }
    table.write(out, &screen)
}
