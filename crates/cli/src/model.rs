//! `onbeat model`: traces to a timing model.

use crate::error::CliError;
use crate::{files, Outcome};
use std::path::PathBuf;

/// Make the timing model of one or more recorded runs.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  onbeat model trace
  onbeat model run1 run2 run3 -o model.json          three runs, merged
  onbeat model urban1 --mode urban -o urban1.json
  onbeat model trace --link '/filter:subscription(/in) -> /filter:timer(100ms)'

A link says that data passes through a node's memory from one callback to another, which no trace
shows; the model marks what stands on it as assumed.

Exit codes: 0 done; 1 failed; 2 wrong command line; 3 done, but no callback ran in the trace.")]
pub struct Args {
    /// Trace directories, each one run
    #[arg(required = true, value_name = "TRACE")]
    pub traces: Vec<PathBuf>,
    /// File to write ('-': standard output)
    #[arg(short, long, default_value = "model.json", value_name = "FILE")]
    pub output: PathBuf,
    /// Take all runs as of this mode, whatever they were recorded with
    #[arg(long, value_name = "NAME")]
    pub mode: Option<String>,
    /// Data passes from callback A to callback B through memory: "A -> B"
    #[arg(long, value_name = "A -> B")]
    pub link: Vec<String>,
    /// Keep /rosout, /parameter_events and the parameter services
    #[arg(long)]
    pub infrastructure: bool,
}

/// Runs it.
pub fn run(args: Args) -> Result<Outcome, CliError> {
    for trace in &args.traces {
        files::open_trace(
            trace,
            "`onbeat model`",
            "; models are put together with `onbeat merge`",
        )?;
    }
    Err(CliError::Usage("this build has no synthesis yet".into()))
}
