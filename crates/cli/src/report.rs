//! `onbeat report`: a model as one HTML page.

use crate::error::CliError;
use crate::{files, Outcome};
use std::path::PathBuf;

/// Write a report of a model: one HTML file that loads nothing from elsewhere.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  onbeat report
  onbeat report model.json -o parking.html

Exit codes: 0 done; 1 failed; 2 wrong command line; 3 done, but the model holds no callback.")]
pub struct Args {
    /// Model file [default: model.json]
    #[arg(
        value_name = "MODEL",
        default_value = "model.json",
        hide_default_value = true
    )]
    pub model: PathBuf,
    /// File to write ('-': standard output)
    #[arg(short, long, default_value = "report.html", value_name = "FILE")]
    pub output: PathBuf,
    /// The trace, for what its recorder says of coverage and losses
    #[arg(long, value_name = "TRACE")]
    pub trace: Option<PathBuf>,
}

/// Runs it.
pub fn run(args: Args) -> Result<Outcome, CliError> {
    files::load_model(&args.model, "`onbeat report`")?;
    Err(CliError::Usage("this build has no report yet".into()))
}
