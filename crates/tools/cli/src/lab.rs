//! `onbeat lab`: the words of the command line, handed to the experiments.

use crate::error::CliError;
use crate::Outcome;
use onbeat_lab::{find, generate, registry, Options};
use std::io::Write as _;
use std::path::PathBuf;

/// Run an experiment and set its figures beside the paper's; without a name, list them.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  onbeat lab                                 lists the experiments
  onbeat lab parking --quick -o results
  ./dev bench parking                        builds what the experiment needs first
  onbeat lab generate -n 50000000 -o TRACE   a made-up trace of any length

A target that is missed is a result, not a failure: results.json says so in 'met'.

Exit codes: 0 done; 1 failed; 2 wrong command line.")]
pub struct Args {
    /// Name of the experiment, or `generate`
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Fewer and shorter runs: to see that it works, not to quote figures
    #[arg(long)]
    pub quick: bool,
    /// Only this part of an experiment, e.g. `latency` of `tracing`
    #[arg(long, value_name = "PART")]
    pub only: Option<String>,
    /// Recorded arrivals to stream, lines due_ns,processing_ns (only for `queues`)
    #[arg(long, value_name = "FILE")]
    pub arrivals: Option<PathBuf>,
    /// Directory for results.json, samples and plots [default: results/NAME]
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Seed of everything random
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Number of events (only for `generate`) [default: 1000000]
    #[arg(short = 'n', long, value_name = "EVENTS")]
    pub events: Option<u64>,
}

/// Runs it.
pub fn run(args: Args) -> Result<Outcome, CliError> {
    let mut out = std::io::stdout().lock();
    let Some(name) = args.name else {
        for experiment in registry() {
            writeln!(out, "{:<10}  {}", experiment.name(), experiment.about())
                .map_err(CliError::Stdout)?;
        }
        return Ok(Outcome::Done);
    };
    if name == "generate" {
        let Some(dir) = args.output else {
            return Err(CliError::Usage(
                "generate: name the trace directory with -o".into(),
            ));
        };
        generate::write_trace(args.events.unwrap_or(1_000_000), args.seed, &dir)?;
        return Ok(Outcome::Done);
    }
    if args.events.is_some() {
        return Err(CliError::Usage(
            "-n goes with `onbeat lab generate` only".into(),
        ));
    }
    let experiment = find(&name)?;
    let options = Options {
        quick: args.quick,
        only: args.only,
        seed: args.seed,
        arrivals: args.arrivals,
        dir: args
            .output
            .unwrap_or_else(|| PathBuf::from("results").join(&name)),
        onbeat: std::env::current_exe().unwrap_or_else(|_| "onbeat".into()),
    };
    let results = onbeat_lab::run(experiment.as_ref(), &options)?;
    write!(out, "{}", results.text()).map_err(CliError::Stdout)?;
    writeln!(out, "written to {}", options.dir.display()).map_err(CliError::Stdout)?;
    Ok(Outcome::Done)
}
