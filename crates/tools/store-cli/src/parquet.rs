//! `onbeat export --to parquet`: writes the events of a trace as one Parquet table.

use onbeat_terminal::{files, traces, CliError, ExitStatus};
use std::io::Write as _;
use std::path::PathBuf;

/// Write a trace as one Parquet table (started by `onbeat export --to parquet`)
#[derive(clap::Args)]
pub struct Args {
    /// Trace directory
    trace: PathBuf,
    /// File, or directory for events.parquet
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

pub fn run(args: Args) -> Result<ExitStatus, CliError> {
    let mut reader = files::open_trace(&args.trace, "--to parquet", "")?;
    let exported =
        onbeat_tables::export_parquet(&mut reader, &args.output).map_err(CliError::failed)?;
    let _ = writeln!(std::io::stderr(), "{}", exported.path.display());
    traces::warn(&args.trace, reader.warnings());
    Ok(match exported.rows {
        0 => ExitStatus::NothingFound,
        _ => ExitStatus::Success,
    })
}
