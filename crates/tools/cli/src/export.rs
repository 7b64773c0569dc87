//! `onbeat export`: writes a model or a trace in the format of another tool.

use crate::programs::Program;
use crate::tracks::Tracks;
use onbeat_synth::SynthOptions;
use onbeat_terminal::files::{self, Kind};
use onbeat_terminal::progress::Progress;
use onbeat_terminal::CliError;
use onbeat_terminal::ExitStatus;
use onbeat_trace::{Event, Reader};
use onbeat_views::export;
use onbeat_views::export::executions::Executions;
use onbeat_views::export::perfetto::{Names, Timeline};
use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// The graph for Graphviz (from a model)
    Dot,
    /// The graph as a picture (from a model)
    Svg,
    /// CARET's architecture file, YAML (from a model)
    Caret,
    /// Tables: callbacks.csv, edges.csv, chains.csv and more (from a model)
    Csv,
    /// Timeline for ui.perfetto.dev, with the causes in each chain (from a trace)
    Perfetto,
    /// One table of all events, for DuckDB, pandas, Spark (from a trace)
    Parquet,
    /// Tables of executions, items, chains, stretches and threads as Parquet (from a trace)
    Tables,
    /// The same tables in the format of Arrow IPC: one as a stream for a pipe, or several as files
    /// (from a trace)
    Arrow,
    /// Latencies and stretches of chains as topics for Foxglove and PlotJuggler (from a trace)
    Mcap,
    /// Table of all executions: callback, thread, start, end, execution time (from a trace)
    Executions,
    /// Every event as a line of text (from a trace)
    Text,
}

impl Format {
    fn name(self) -> &'static str {
        match self {
            Format::Dot => "dot",
            Format::Svg => "svg",
            Format::Caret => "caret",
            Format::Csv => "csv",
            Format::Perfetto => "perfetto",
            Format::Parquet => "parquet",
            Format::Tables => "tables",
            Format::Arrow => "arrow",
            Format::Mcap => "mcap",
            Format::Executions => "executions",
            Format::Text => "text",
        }
    }

    fn wants(self) -> Kind {
        match self {
            Format::Perfetto
            | Format::Parquet
            | Format::Tables
            | Format::Arrow
            | Format::Mcap
            | Format::Executions
            | Format::Text => Kind::Directory,
            Format::Dot | Format::Svg | Format::Caret | Format::Csv => Kind::File,
        }
    }
}

/// Write a model or a trace in the format of another tool
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  onbeat export model.json --to svg -o graph.svg
  onbeat export model.json --to dot | dot -Tpdf -o graph.pdf
  onbeat export model.json --to csv -o tables
  onbeat export trace --to perfetto -o trace.json
  onbeat export trace --to tables -o tables                 docs/tables.md describes them
  onbeat export trace --to arrow --table chain_executions | python3 plot.py
  onbeat export trace --to arrow --table items,stretches               one pass for both
  onbeat export trace --to arrow --column callback,start_ns,end_ns | python3 plot.py
  onbeat export trace --to mcap -o latencies.mcap
  onbeat export trace --to executions -o executions.csv
  onbeat export trace --to text | grep ' 23551/23551 '     one thread's events

Exit codes: 0 done; 1 failed; 2 wrong command line; 3 done, but there was nothing to export.")]
pub struct Args {
    /// Model file or trace directory [default: model.json]
    #[arg(value_name = "MODEL|TRACE")]
    pub input: Option<PathBuf>,
    /// Format in which to write the model or the trace
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub to: Format,
    /// File to write ('-', the default: standard output). With csv: a directory [default: .]. With
    /// tables: a directory [default: tables]. With several tables of arrow: a directory [default:
    /// arrow]. With parquet: a file or a directory [default: .]. With mcap: a file [default:
    /// trace.mcap]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Tables to write with --to tables [default: all] or --to arrow [default: executions]:
    /// executions, items, chain_executions, stretches, switches, ...; repeatable
    #[arg(long = "table", value_name = "TABLE", value_delimiter = ',')]
    pub tables: Vec<String>,
    /// Columns to write with --to arrow [default: all]; each table gets those that it has;
    /// repeatable
    #[arg(long = "column", value_name = "COLUMN", value_delimiter = ',')]
    pub columns: Vec<String>,
}

pub fn run(mut args: Args) -> Result<ExitStatus, CliError> {
    args.tables.sort();
    args.tables.dedup();
    if !args.tables.is_empty() && !matches!(args.to, Format::Arrow | Format::Tables) {
        let usage =
            "--table chooses tables of --to tables or --to arrow. Omit it, or write one of these";
        return Err(CliError::Usage(usage.into()));
    }
    if !args.columns.is_empty() && args.to != Format::Arrow {
        let usage = "--column chooses columns of --to arrow. Omit it, or write --to arrow";
        return Err(CliError::Usage(usage.into()));
    }
    let is_stream = args.output.as_deref() == Some(Path::new("-"));
    if args.tables.len() > 1 && is_stream {
        let usage = "several tables need a directory. Name it with -o, or choose one --table";
        return Err(CliError::Usage(usage.into()));
    }
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
            let words = [
                "parquet".into(),
                "--output".into(),
                output.into(),
                "--".into(),
                input.into(),
            ];
            return Err(Program::Store.become_it(words));
        }
        Format::Tables | Format::Arrow | Format::Mcap => {
            return Err(Program::Store.become_it(words_of_tables(args, input)));
        }
        Format::Text => lines(&mut reader, output_or_stdout(args))?,
        Format::Executions => executions(&mut reader, input, output_or_stdout(args))?,
        _ => timeline(&mut reader, input, output_or_stdout(args))?,
    };
    onbeat_terminal::traces::warn(input, reader.warnings());
    Ok(if exported == 0 {
        ExitStatus::NothingFound
    } else {
        ExitStatus::Success
    })
}

fn words_of_tables(args: &Args, input: &Path) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec!["tables".into(), "--to".into(), args.to.name().into()];
    let tables = match (args.to, &args.tables[..]) {
        (Format::Arrow, []) => vec!["executions"],
        (_, tables) => tables.iter().map(String::as_str).collect(),
    };
    for table in &tables {
        words.extend(["--table".into(), table.into()]);
    }
    for column in &args.columns {
        words.extend(["--column".into(), column.into()]);
    }
    let default = match (args.to, tables.len()) {
        (Format::Arrow, 1) => "-",
        (Format::Mcap, _) => "trace.mcap",
        // Readers of Parquet fail if a directory of tables also has files of another format.
        (Format::Arrow, _) => "arrow",
        _ => "tables",
    };
    let output = args.output.as_deref().unwrap_or(Path::new(default));
    words.extend(["--output".into(), output.into(), "--".into(), input.into()]);
    words
}

fn output_or_stdout(args: &Args) -> &Path {
    args.output.as_deref().unwrap_or(Path::new("-"))
}

fn lines(reader: &mut Reader, output: &Path) -> Result<u64, CliError> {
    let mut written = 0;
    files::write_whole(output, |out| {
        for event in reader.events() {
            writeln!(out, "{}", onbeat_trace::text::print(&event))?;
            written += 1;
        }
        Ok(())
    })?;
    Ok(written)
}

fn first_pass(reader: &mut Reader, input: &Path) -> Names {
    let (events, bytes) = (
        reader.manifest().written.events,
        reader.manifest().written.bytes,
    );
    let run = onbeat_terminal::traces::run_of(reader, None);
    let mut progress = Progress::new(format!("{}, first pass", input.display()));
    let all = reader.events().enumerate().map(|(i, event)| {
        if i % 8192 == 0 {
            progress.update(i as u64, events, bytes);
        }
        event
    });
    export::perfetto::names(run, all)
}

fn second_pass(
    reader: &mut Reader,
    input: &Path,
    mut push: impl FnMut(&Event) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let (events, bytes) = (
        reader.manifest().written.events,
        reader.manifest().written.bytes,
    );
    let mut progress = Progress::new(format!("{}, second pass", input.display()));
    for (i, event) in reader.events().enumerate() {
        push(&event)?;
        if i % 8192 == 0 {
            progress.update(i as u64, events, bytes);
        }
    }
    Ok(())
}

fn timeline(reader: &mut Reader, input: &Path, output: &Path) -> Result<u64, CliError> {
    let run = onbeat_terminal::traces::run_of(reader, None);
    let mut options = SynthOptions::new(run.clone());
    options.shortened = !reader.has_beginning();
    let synth = crate::model::pass(reader, options.clone(), "first pass");
    let names = Names::new(synth.callback_ids());
    let model = synth.clone().finish();
    options.ids = synth.into_ids();
    let mut tracks = Tracks::new(&model, options);
    let mut slices = 0;
    files::write_whole(output, |out| {
        let mut timeline = Timeline::new(out, names, run)?;
        second_pass(reader, input, |event| {
            tracks.push(event);
            timeline.push(event)
        })?;
        tracks.write(&mut timeline)?;
        slices = timeline.finish()?;
        Ok(())
    })?;
    Ok(slices)
}

fn executions(reader: &mut Reader, input: &Path, output: &Path) -> Result<u64, CliError> {
    let run = onbeat_terminal::traces::run_of(reader, None);
    let names = first_pass(reader, input);
    let mut rows = 0;
    files::write_whole(output, |out| {
        let mut table = Executions::new(out, names, run)?;
        second_pass(reader, input, |event| table.push(event))?;
        rows = table.finish()?;
        Ok(())
    })?;
    Ok(rows)
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
