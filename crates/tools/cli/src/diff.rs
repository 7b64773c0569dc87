//! `onbeat diff`: shows what changed between two models.

use crate::late::{self, Wanted};
use crate::mode;
use onbeat_diff::{Found, Influences, Options, Report};
use onbeat_document::text::{duration, percent};
use onbeat_document::Model;
use onbeat_terminal::term::{self, Align, Screen, Table};
use onbeat_terminal::units::parse_share;
use onbeat_terminal::CliError;
use onbeat_terminal::{files, ExitStatus};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Show what changed between two models: structure and times, largest effects first
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  onbeat diff before.json after.json
  onbeat merge old-*.json -o before.json; onbeat merge new-*.json -o after.json
  onbeat diff all.json --modes urban,highway         two modes of one model
  onbeat diff before.json after.json --html diff.html
  onbeat diff before.json after.json --trace after   says why chains are late now
  onbeat diff before.json after.json --min-effect 2% --json
  onbeat diff alone.json integrated.json --influence

A change is shown if it is significant, with Holm's correction over all figures, and at least as
large as --min-effect. Runs differ. Models of a single run show changes of execution times from
some 15 % on. Smaller ones need at least five runs of each, recorded in turn and merged.
docs/how-to/diff.md explains how changes are found.

Exit codes: 0 nothing changed; 1 failed; 2 wrong command line; 6 nothing could be compared;
7 something changed.")]
pub struct Args {
    /// Model file from before the change
    #[arg(value_name = "A")]
    a: PathBuf,
    /// Model file from after the change
    #[arg(value_name = "B", required_unless_present = "modes")]
    b: Option<PathBuf>,
    /// Ignore changes of a figure that are smaller than this share
    #[arg(long, value_name = "SHARE", value_parser = parse_share, default_value = "5%")]
    min_effect: f64,
    /// Ignore changes of a time smaller than this, in microseconds
    #[arg(long, value_name = "US", default_value_t = 20)]
    min_us: u32,
    /// Assume that runs of one program differ by this share. The assumption counts only for models
    /// of a single run. Without this option, onbeat estimates the difference, and assumes 8% if
    /// there are too few figures
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    run_spread: Option<f64>,
    /// Compare times as measured, without a correction for the speed of the machine in each run
    #[arg(long)]
    absolute: bool,
    /// Compare only the runs in this mode, for example urban
    #[arg(long, value_name = "MODE")]
    mode: Option<String>,
    /// Instead of changes, show how much time each component costs each chain: preemption and sleep
    /// by cause
    #[arg(long, conflicts_with_all = ["html", "absolute"])]
    influence: bool,
    /// For each chain that changed, say what its late executions in this recording have in common.
    /// Name a trace from which model B was made
    #[arg(long, value_name = "TRACE", conflicts_with = "influence")]
    trace: Option<PathBuf>,
    /// Compare two modes of model A. With model B, compare the first mode of A with the second mode
    /// of B
    #[arg(
        long,
        value_name = "MODE,MODE",
        conflicts_with = "mode",
        value_delimiter = ',',
        num_args = 1
    )]
    modes: Vec<String>,
    /// Print the result as JSON, for programs
    #[arg(long)]
    json: bool,
    /// Write an HTML page with the distributions of each changed figure before and after the change
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

pub fn run(args: Args) -> Result<ExitStatus, CliError> {
    let [mode_a, mode_b] = modes(&args)?;
    let (path_a, path_b) = (&args.a, args.b.as_ref().unwrap_or(&args.a));
    let a = load(path_a, mode_a)?;
    let b = load(path_b, mode_b)?;
    let usual = Options::default();
    let options = Options {
        min_effect: args.min_effect,
        min_time_ns: f64::from(args.min_us) * 1e3,
        run_spread: args.run_spread.unwrap_or(usual.run_spread),
        estimate_spread: args.run_spread.is_none(),
        absolute: args.absolute,
        ..usual
    };
    if args.influence {
        return influence(&a, &b, &options, args.json);
    }
    let mut report = onbeat_diff::diff(&a, &b, &options);
    if let Some(trace) = &args.trace {
        explain(&mut report, trace)?;
    }
    if let Some(file) = &args.html {
        let name = |path: &Path| {
            path.file_stem()
                .map_or("model".into(), |n| n.to_string_lossy().into_owned())
        };
        let of = |path, mode: Option<&str>| match mode {
            Some(mode) => format!("{} in mode {mode}", name(path)),
            None => name(path),
        };
        let title = format!("{} to {}", of(path_a, mode_a), of(path_b, mode_b));
        let page = onbeat_diff::html(&report, &a, &b, &title);
        files::write_whole(file, |out| out.write_all(page.as_bytes()))?;
    }
    let mut out = BufWriter::new(io::stdout().lock());
    match args.json {
        true => term::write_json(&mut out, &onbeat_diff::json(&report))?,
        false => write(&mut out, &report)?,
    }
    out.flush().map_err(CliError::Stdout)?;
    Ok(match (report.is_empty(), report.compared) {
        (false, _) => ExitStatus::Changed,
        (true, 0) => ExitStatus::NotKnown,
        (true, _) => ExitStatus::Success,
    })
}

fn explain(report: &mut Report, trace: &Path) -> Result<(), CliError> {
    let mut ids: Vec<String> = Vec::new();
    for found in report.figures.iter().filter(|f| is_chain(f)) {
        if !ids.contains(&found.id) {
            ids.push(found.id.clone());
        }
    }
    let wanted: Vec<Wanted> = ids
        .into_iter()
        .map(|id| Wanted {
            id,
            over_ns: None,
            kept: 0,
        })
        .collect();
    let said = late::sentences(trace, "--trace", &wanted)?;
    for (chain, said) in wanted.iter().zip(said) {
        // A chain's tail can change too. One sentence suffices.
        let mut of = report.figures.iter_mut();
        if let Some(found) = of.find(|f| is_chain(f) && f.id == chain.id) {
            found.late = said;
        }
    }
    Ok(())
}

fn is_chain(found: &Found) -> bool {
    found.id.starts_with("chain-")
}

fn modes(args: &Args) -> Result<[Option<&str>; 2], CliError> {
    match args.modes.as_slice() {
        [] => Ok([args.mode.as_deref(); 2]),
        [a, b] => Ok([Some(a), Some(b)]),
        _ => Err(CliError::Usage(
            "--modes needs the names of two modes: --modes urban,highway".into(),
        )),
    }
}

fn load(path: &Path, only: Option<&str>) -> Result<Model, CliError> {
    let model = files::load_model(path, "`onbeat diff`")?;
    let Some(only) = only else { return Ok(model) };
    mode::check(&model, Some(only), path)?;
    onbeat_document::merge::filter_mode(model, only).map_err(CliError::from)
}

fn influence(a: &Model, b: &Model, options: &Options, json: bool) -> Result<ExitStatus, CliError> {
    let report = onbeat_diff::influence(a, b, options);
    let told = onbeat_diff::tells(a) && onbeat_diff::tells(b);
    let mut out = BufWriter::new(io::stdout().lock());
    match json {
        true => term::write_json(&mut out, &onbeat_diff::influence_json(&report))?,
        false => write_influence(&mut out, &report, told)?,
    }
    out.flush().map_err(CliError::Stdout)?;
    Ok(match (report.found.is_empty(), told) {
        (false, _) => ExitStatus::Changed,
        (true, false) => ExitStatus::NotKnown,
        (true, true) => ExitStatus::Success,
    })
}

fn write_influence(out: &mut dyn Write, report: &Influences, told: bool) -> Result<(), CliError> {
    if !report.found.is_empty() {
        let mut table = Table::new()
            .names("component", 2)
            .column("how", Align::Left)
            .names("costs", 3)
            .column("before", Align::Right)
            .column("after", Align::Right)
            .column("of latency", Align::Right)
            .column("times", Align::Right)
            .column("executions", Align::Right);
        for i in &report.found {
            table.row(vec![
                i.component.clone(),
                i.how.text().into(),
                i.title.clone(),
                duration(i.a.mean_ns),
                duration(i.b.mean_ns),
                signed(i.of_latency),
                format!("{}, {}", i.a.times, i.b.times),
                format!("{}, {}", i.a.executions, i.b.executions),
            ]);
        }
        table.write(out, &Screen::of_stdout())?;
        for i in &report.found {
            let line = format!("{} of {}: mostly {}", i.component, i.title, i.mostly);
            writeln!(out, "{}", term::one_line(&line)).map_err(CliError::Stdout)?;
        }
        writeln!(out).map_err(CliError::Stdout)?;
    }
    for note in &report.notes {
        writeln!(out, "note: {}", term::one_line(note)).map_err(CliError::Stdout)?;
    }
    let found = match (report.found.len(), told) {
        (0, false) => "not known: the models do not contain the causes of waits".into(),
        (0, true) => "no component costs any chain more or less than before".into(),
        (1, _) => "the cost differs for 1 pair of a component and a chain".into(),
        (n, _) => format!("the cost differs for {n} pairs of a component and a chain"),
    };
    let all = report.compared;
    writeln!(
        out,
        "{found}\ncompared: the mean cost per execution, for {all} pairs of a component and a chain"
    )
    .map_err(CliError::Stdout)
}

fn write(out: &mut dyn Write, report: &Report) -> Result<(), CliError> {
    let screen = Screen::of_stdout();
    structure(out, report, &screen)?;
    figures(out, report, &screen)?;
    for note in &report.notes {
        writeln!(out, "note: {}", term::one_line(note)).map_err(CliError::Stdout)?;
    }
    writeln!(out, "{}", summary(report, &screen)).map_err(CliError::Stdout)
}

fn structure(out: &mut dyn Write, report: &Report, screen: &Screen) -> Result<(), CliError> {
    if report.structure.is_empty() {
        return Ok(());
    }
    let mut table = Table::new()
        .column("structure", Align::Left)
        .names("of", 4)
        .names("what", 2)
        .names("follows from", 1);
    for d in &report.structure {
        table.row(vec![
            format!("{} {}", d.part.text(), d.what.text()),
            d.title.clone(),
            d.why.clone(),
            d.follows.clone().unwrap_or_else(|| "-".into()),
        ]);
    }
    table.write(out, screen)?;
    writeln!(out).map_err(CliError::Stdout)
}

fn figures(out: &mut dyn Write, report: &Report, screen: &Screen) -> Result<(), CliError> {
    if report.figures.is_empty() {
        return Ok(());
    }
    let mut table = Table::new()
        .column("figure", Align::Left)
        .names("of", 3)
        .column("before", Align::Right)
        .column("change", Align::Right)
        .column("95 %", Align::Right)
        .column("p", Align::Right)
        .column("of chain", Align::Right)
        .names("follows from", 1);
    for f in &report.figures {
        table.row(vec![
            f.figure.clone(),
            f.title.clone(),
            before(f),
            signed(f.change.shift),
            interval(f),
            chance(f.p_corrected),
            f.of_chain
                .as_ref()
                .map_or("-".into(), |(share, _)| signed(*share)),
            f.follows.clone().unwrap_or_else(|| "-".into()),
        ]);
    }
    table.write(out, screen)?;
    for f in &report.figures {
        if let Some(mostly) = &f.mostly {
            let line = format!("{}: mostly {mostly}", f.title);
            writeln!(out, "{}", term::one_line(&line)).map_err(CliError::Stdout)?;
        }
        if let Some(late) = &f.late {
            let line = format!("{}: {late}", f.title);
            writeln!(out, "{}", term::one_line(&line)).map_err(CliError::Stdout)?;
        }
    }
    writeln!(out).map_err(CliError::Stdout)
}

fn before(f: &Found) -> String {
    match f.figure.as_str() {
        "speed" => "-".into(),
        "loss" => percent(f.a),
        _ => duration(f.a),
    }
}

fn signed(share: f64) -> String {
    let sign = if share < 0.0 { "-" } else { "+" };
    format!("{sign}{}", percent(share.abs()))
}

fn interval(f: &Found) -> String {
    match f.figure.as_str() {
        "loss" => "-".into(),
        _ => format!(
            "{:+.0} to {:+.0} %",
            f.change.low * 100.0,
            f.change.high * 100.0
        ),
    }
}

fn chance(p: f64) -> String {
    match p {
        p if p < 1e-6 => "<1e-6".into(),
        p if p < 1e-3 => format!("{p:.0e}"),
        p => format!("{p:.3}"),
    }
}

fn summary(report: &Report, screen: &Screen) -> String {
    let (a, b) = report.runs;
    let mut text = match report.causes() {
        0 => String::from("nothing changed"),
        1 => String::from("1 change"),
        n => format!("{n} changes"),
    };
    let following = report.structure.len() + report.figures.len() - report.causes();
    if following > 0 {
        text += &format!(", and {following} further changes that follow from other changes");
    }
    text += &format!(
        "; {} figures compared (runs: {a} before, {b} after)",
        report.compared
    );
    if report.small > 0 {
        text += &format!(
            "; {} significant changes are too small to matter",
            report.small
        );
    }
    if let Some(least) = report.resolution {
        text += &format!(
            "; the smallest detectable change of an execution time is {} (median)",
            percent(least)
        );
    }
    match report.is_empty() {
        true => text,
        false => screen.warn(&text),
    }
}
