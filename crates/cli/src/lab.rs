//! `onbeat lab`: the words of the command line, handed to the experiments.

use crate::error::CliError;
use crate::Outcome;
use std::path::PathBuf;

/// Run an experiment and set its figures beside the paper's.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  onbeat lab parking --quick -o results
  ./dev bench parking                        builds what the experiment needs first

Exit codes: 0 done; 1 failed; 2 wrong command line.")]
pub struct Args {
    /// Name of the experiment
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Fewer and shorter runs
    #[arg(long)]
    pub quick: bool,
    /// Directory for results.json, samples and plots
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
}

/// Runs it.
pub fn run(_args: Args) -> Result<Outcome, CliError> {
    Err(CliError::Usage("this build has no experiments yet".into()))
}
