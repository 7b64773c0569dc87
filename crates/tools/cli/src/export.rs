//! `onbeat export`: a model or a trace in the format of another tool.

use crate::error::CliError;
use crate::files::{self, Kind};
use crate::progress::Progress;
use crate::ExitStatus;
use onbeat_model::export;
use onbeat_model::export::perfetto::Timeline;
use onbeat_trace::Reader;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Formats that can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// The graph for Graphviz (of a model)
    Dot,
    /// The graph as a picture (of a model)
    Svg,
    /// CARET's architecture file, YAML (of a model)
    Caret,
    /// Tables: callbacks.csv, edges.csv, chains.csv and more (of a model)
    Csv,
    /// Timeline for ui.perfetto.dev (of a trace)
    Perfetto,
    /// One table of all events, for DuckDB, pandas, Spark (of a trace)
    Parquet,
}

impl Format {
    /// How the command line names it.
    fn name(self) -> &'static str {
        match self {
            Format::Dot => "dot",
            Format::Svg => "svg",
            Format::Caret => "caret",
            Format::Csv => "csv",
            Format::Perfetto => "perfetto",
            Format::Parquet => "parquet",
        }
    }

    fn wants(self) -> Kind {
        match self {
            Format::Perfetto | Format::Parquet => Kind::Directory,
            _ => Kind::File,
        }
    }
}

/// Write a model or a trace for another tool.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  onbeat export model.json --to svg -o graph.svg
  onbeat export model.json --to dot | dot -Tpdf -o graph.pdf
  onbeat export model.json --to csv -o tables
  onbeat export trace --to perfetto -o trace.json

Exit codes: 0 done; 1 failed; 2 wrong command line; 3 done, but there was nothing to export.")]
pub struct Args {
    /// Model file or trace directory [default: model.json]
    #[arg(value_name = "MODEL|TRACE")]
    pub input: Option<PathBuf>,
    /// Format to write
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub to: Format,
    /// File to write ('-', the default: standard output); for csv a directory, for parquet a
    /// file or a directory [default: .]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: Args) -> Result<ExitStatus, CliError> {
    let input = match (&args.input, args.to.wants()) {
        (Some(path), _) => path.clone(),
        (None, Kind::File) => PathBuf::from("model.json"),
        (None, Kind::Directory) => {
            return Err(CliError::Usage(format!(
                "--to {} takes a trace directory: onbeat export TRACE --to {0}",
                args.to.name()
            )))
        }
    };
    match (files::kind(&input)?, args.to.wants()) {
        (Kind::Directory, Kind::File) => Err(CliError::TraceForModel {
            path: input,
            command: format!("--to {}", args.to.name()),
        }),
        (_, Kind::Directory) => of_trace(&args, &input),
        (Kind::File, Kind::File) => of_model(&args, &input),
    }
}

fn of_trace(args: &Args, input: &Path) -> Result<ExitStatus, CliError> {
    let mut reader = files::open_trace(input, &format!("--to {}", args.to.name()), "")?;
    let exported = match args.to {
        Format::Parquet => {
            let output = args.output.as_deref().unwrap_or(Path::new("."));
            let exported = onbeat_trace::export::export_parquet(&mut reader, output)?;
            let _ = writeln!(std::io::stderr(), "{}", exported.path.display());
            exported.rows
        }
        _ => {
            let output = args.output.as_deref().unwrap_or(Path::new("-"));
            timeline(&mut reader, input, output)?
        }
    };
    crate::model::warn(input, reader.warnings());
    Ok(if exported == 0 {
        ExitStatus::NothingFound
    } else {
        ExitStatus::Success
    })
}

/// Writes the timeline in two passes: ids of callbacks are known only after all events. Returns the
/// number of slices.
fn timeline(reader: &mut Reader, input: &Path, output: &Path) -> Result<u64, CliError> {
    let (events, bytes) = (reader.manifest().events, reader.manifest().bytes);
    let run = crate::model::run_of(reader, None);
    let mut progress = Progress::new(format!("{}, first pass", input.display()));
    let first_pass = reader.events().enumerate().map(|(i, event)| {
        if i % 8192 == 0 {
            progress.update(i as u64, events, bytes);
        }
        event
    });
    let names = export::perfetto::names(run.clone(), first_pass);
    progress = Progress::new(format!("{}, second pass", input.display()));
    let mut slices = 0;
    files::write_whole(output, |out| {
        let mut timeline = Timeline::new(out, names, run)?;
        for (i, event) in reader.events().enumerate() {
            timeline.push(&event)?;
            if i % 8192 == 0 {
                progress.update(i as u64, events, bytes);
            }
        }
        slices = timeline.finish()?;
        Ok(())
    })?;
    Ok(slices)
}

fn of_model(args: &Args, input: &Path) -> Result<ExitStatus, CliError> {
    let model = files::load_model(input, "`onbeat export`")?;
    let output = args.output.as_deref();
    let text = match args.to {
        Format::Dot => export::dot::dot(&model),
        Format::Svg => export::svg::svg(&model),
        Format::Caret => export::caret::caret(&model),
        _ => {
            let directory = output.unwrap_or(Path::new("."));
            std::fs::create_dir_all(directory).map_err(|source| CliError::Write {
                path: directory.into(),
                source,
            })?;
            for (name, text) in export::csv::tables(&model) {
                let path = directory.join(name);
                files::write_whole(&path, |out| out.write_all(text.as_bytes()))?;
                let _ = writeln!(std::io::stderr(), "{}", path.display());
            }
            return Ok(ExitStatus::of_model(&model));
        }
    };
    files::write_whole(output.unwrap_or(Path::new("-")), |out| {
        out.write_all(text.as_bytes())
    })?;
    Ok(ExitStatus::of_model(&model))
}
