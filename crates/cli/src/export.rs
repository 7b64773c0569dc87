//! `onbeat export`: a model or a trace in the form of another tool.

use crate::error::CliError;
use crate::Outcome;
use std::path::PathBuf;

/// Forms that can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Graphviz (model)
    Dot,
    /// The graph as a picture (model)
    Svg,
    /// CARET's architecture file, YAML (model)
    Caret,
    /// callbacks.csv, edges.csv, chains.csv (model)
    Csv,
    /// Trace events for ui.perfetto.dev (trace)
    Perfetto,
    /// One Parquet file per kind of event (trace)
    Parquet,
}

/// Write a model or a trace for another tool.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  onbeat export model.json --to svg -o graph.svg
  onbeat export model.json --to dot | dot -Tpdf -o graph.pdf
  onbeat export model.json --to csv -o tables/
  onbeat export trace --to perfetto -o trace.perfetto.json

Exit codes: 0 done; 1 failed; 2 wrong command line; 3 done, but there was nothing to export.")]
pub struct Args {
    /// Model file or trace directory [default: model.json]
    #[arg(value_name = "MODEL|TRACE")]
    pub input: Option<PathBuf>,
    /// Form to write
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub to: Format,
    /// File to write ('-': standard output, which is the default for dot, svg and caret); a
    /// directory for csv and parquet
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Runs it.
pub fn run(_args: Args) -> Result<Outcome, CliError> {
    Err(CliError::Usage("this build has no export yet".into()))
}
