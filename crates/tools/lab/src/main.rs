//! `onbeat-lab`: runs one of the project's experiments and prints its results.
//!
//! Every experiment runs in the same frame. An [`Experiment`] is listed in [`mod@registry`].
//! [`run`] gives it a [`Context`]: the output directory, the seed, children that cannot outlive it,
//! and a watchdog. [`run`] then writes what the experiment returns:
//!
//! ```text
//! DIR/results.json   figures with target, met and baseline; tables; what was skipped; the machine
//! DIR/*.csv          every raw sample
//! DIR/*.svg          plots
//! ```
//!
//! | module | job |
//! |---|---|
//! | [`frame`] | runs an experiment and writes its results |
//! | [`measure`] | the means of measurement that experiments share |
//! | [`plot`] | draws SVG |
//! | [`experiments`] | one module per experiment; they use the three above, and not each other |
//! | [`mod@registry`] | the list of experiments |
//!
//! [`Experiment`]: frame::Experiment
//! [`run`]: frame::run
//! [`Context`]: frame::Context
mod experiments;
mod frame;
mod measure;
mod plot;
mod registry;

use clap::Parser;
use frame::{merge, LabError, Options};
use measure::generate;
use registry::{find, EXPERIMENTS};
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

/// Runs an experiment and compares its figures with those of papers. Without a name, lists the
/// experiments.
#[derive(Parser)]
#[command(
    name = "onbeat-lab",
    version,
    max_term_width = 100,
    after_help = "\
Examples:
  onbeat-lab                                 lists the experiments
  onbeat-lab parking --quick -o results
  ./dev bench parking                        first builds the programs that it needs
  onbeat-lab merge results/1 results/2       prints their figures side by side, as Markdown
  onbeat-lab generate -n 50000000 -o TRACE   writes a generated trace

A target that is missed is a result, not a failure: results.json says so in 'met'.

Exit codes: 0 done; 1 failed; 2 wrong command line; 124 a step did not end in time."
)]
struct Args {
    /// Name of the experiment, or `generate`, or `merge`
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Result directories of the runs to compare side by side (only for `merge`)
    #[arg(value_name = "DIR")]
    runs: Vec<PathBuf>,
    /// Document to update: the table of the runs replaces the text between its lines `<!-- runs:
    /// begin -->` and `<!-- runs: end -->` (only for `merge`)
    #[arg(long, alias = "into", value_name = "FILE")]
    document: Option<PathBuf>,
    /// Do fewer and shorter runs, for a trial. Do not quote the figures of such runs
    #[arg(long)]
    quick: bool,
    /// Do more and longer runs than usual (only for `shaping`, `link`, `replay` and `inhibition`)
    #[arg(long, conflicts_with = "quick")]
    long: bool,
    /// Run only this part of the experiment, for example `latency` of `tracing`
    #[arg(long, value_name = "PART")]
    only: Option<String>,
    /// File with recorded arrivals to stream, in lines `due_ns,processing_ns` (only for `queues`)
    #[arg(long, value_name = "FILE")]
    arrivals: Option<PathBuf>,
    /// Directory for results.json, samples and plots [default: results/NAME]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Number from which all random numbers are made; the same number gives the same random numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of events (only for `generate`) [default: 1000000]
    #[arg(short = 'n', long, value_name = "EVENTS")]
    events: Option<u64>,
    /// The `onbeat` program, for experiments that record [default: the one in the directory of this
    /// program]
    #[arg(long, value_name = "PROGRAM")]
    onbeat: Option<PathBuf>,
    /// Another build of `onbeat` to measure in the same rounds. Its `onbeat-lab` must be in the
    /// same directory (only for `model`)
    #[arg(long, alias = "before", value_name = "PROGRAM")]
    baseline: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
enum MainError {
    #[error(transparent)]
    Lab(#[from] LabError),
    #[error("cannot write to standard output: {0}")]
    Stdout(#[from] io::Error),
    #[error("{0}")]
    Usage(&'static str),
}

impl MainError {
    fn exit_code(&self) -> u8 {
        match self {
            MainError::Usage(_)
            | MainError::Lab(LabError::Unknown(_) | LabError::NoPart { .. }) => 2,
            _ => 1,
        }
    }
}

fn main() -> ExitCode {
    match execute(Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of the output has closed it (`onbeat-lab | head`).
        Err(MainError::Stdout(e)) if e.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!(
                "onbeat-lab: {}",
                onbeat_document::text::visible(&e.to_string())
            );
            ExitCode::from(e.exit_code())
        }
    }
}

fn execute(args: Args) -> Result<(), MainError> {
    let mut out = io::stdout().lock();
    let Some(name) = args.name else {
        for experiment in EXPERIMENTS {
            writeln!(out, "{:<10}  {}", experiment.name, experiment.about)?;
        }
        return Ok(());
    };
    if name == "generate" {
        let dir = args.output.ok_or(MainError::Usage(
            "generate: choose the trace directory with -o",
        ))?;
        return Ok(generate::write_trace(
            args.events.unwrap_or(1_000_000),
            args.seed,
            &dir,
        )?);
    }
    if name == "merge" {
        if args.runs.is_empty() {
            return Err(MainError::Usage(
                "merge: list the result directories of the runs",
            ));
        }
        let text = merge::markdown(&merge::read(&args.runs)?);
        match args.document {
            Some(document) => merge::into_document(&document, &text)?,
            None => write!(out, "{text}")?,
        }
        return Ok(());
    }
    if !args.runs.is_empty() || args.document.is_some() {
        return Err(MainError::Usage(
            "DIR and --document are only for `onbeat-lab merge`",
        ));
    }
    if args.events.is_some() {
        return Err(MainError::Usage("-n is only for `onbeat-lab generate`"));
    }
    let experiment = find(&name)?;
    let options = Options {
        quick: args.quick,
        long: args.long,
        only: args.only,
        seed: args.seed,
        arrivals: args.arrivals,
        dir: args
            .output
            .unwrap_or_else(|| PathBuf::from("results").join(&name)),
        onbeat: args.onbeat.unwrap_or_else(onbeat_beside),
        before: args.baseline,
    };
    let results = frame::run(experiment, &options)?;
    write!(out, "{}", results.text())?;
    writeln!(out, "written to {}", options.dir.display())?;
    Ok(())
}

fn onbeat_beside() -> PathBuf {
    std::env::current_exe()
        .map(|exe| exe.with_file_name("onbeat"))
        .unwrap_or_else(|_| "onbeat".into())
}
