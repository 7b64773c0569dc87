//! `onbeat merge`: models of several runs to one.

use crate::error::CliError;
use crate::{files, Outcome};
use std::path::PathBuf;

/// Put the models of several runs together.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  onbeat merge run1.json run2.json -o all.json
  onbeat merge urban*.json highway*.json -o all.json   modes stay apart inside the model

Merging models gives the same as one `onbeat model` of all their traces, in any order.

Exit codes: 0 done; 1 failed; 2 wrong command line; 3 done, but the model holds no callback.")]
pub struct Args {
    /// Model files
    #[arg(required = true, value_name = "MODEL")]
    pub models: Vec<PathBuf>,
    /// File to write ('-': standard output)
    #[arg(short, long, default_value = "merged.json", value_name = "FILE")]
    pub output: PathBuf,
    /// Take all runs as of this mode
    #[arg(long, value_name = "NAME")]
    pub mode: Option<String>,
}

/// Runs it.
pub fn run(args: Args) -> Result<Outcome, CliError> {
    for path in &args.models {
        files::load_model(path, "`onbeat merge`")?;
    }
    Err(CliError::Usage("this build has no merging yet".into()))
}
