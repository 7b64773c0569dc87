//! `onbeat export --to tables` and `--to arrow`: writes executions, items, chains and threads of a
//! trace as tables. `--to mcap`: writes the executions of chains as topics.

use onbeat_tables::{TableOptions, TimingTable, TopicWritten};
use onbeat_terminal::progress::Progress;
use onbeat_terminal::{files, term, traces, CliError, ExitStatus};
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Write a trace as tables (started by `onbeat export --to tables`, `--to arrow` and `--to mcap`)
#[derive(clap::Args)]
pub struct Args {
    /// Trace directory
    trace: PathBuf,
    /// Directory for all tables as Parquet files; with --table or --mcap, the file to write
    #[arg(short, long, value_name = "PATH")]
    output: PathBuf,
    /// Write only this table, as a stream in the format Arrow IPC
    #[arg(long, value_name = "TABLE", value_parser = parse_table)]
    table: Option<TimingTable>,
    /// Write latencies and stretches of chains as topics of an MCAP file
    #[arg(long, conflicts_with = "table")]
    mcap: bool,
}

fn parse_table(name: &str) -> Result<TimingTable, String> {
    TimingTable::of_name(name).ok_or_else(|| {
        let names = TimingTable::ALL.map(TimingTable::name);
        format!(
            "there is no table with this name. Write one of {}",
            names.join(", ")
        )
    })
}

pub fn run(args: Args) -> Result<ExitStatus, CliError> {
    let mut reader = files::open_trace(&args.trace, "--to tables", "")?;
    let written = &reader.manifest().written;
    let (events, bytes) = (written.events, written.bytes);
    let mut bar = Progress::new(args.trace.display().to_string());
    let mut progress = |done| bar.update(done, events, bytes);
    let options = TableOptions {
        run: traces::run_of(&reader, None),
        progress: &mut progress,
    };
    let rows = match args.table {
        None if args.mcap => {
            let mut topics = Vec::new();
            files::write_whole(&args.output, |out| {
                let written = onbeat_tables::export_mcap(&mut reader, out, options);
                topics = written.map_err(onbeat_tables::TablesError::into_io)?;
                Ok(())
            })?;
            drop(bar);
            list(&topics);
            topics.iter().map(|topic| topic.messages).sum()
        }
        None => {
            let written = onbeat_tables::export_tables(&mut reader, &args.output, options);
            let written = written.map_err(CliError::failed)?;
            drop(bar);
            for one in &written {
                let path = one.path.as_deref().unwrap_or(Path::new(""));
                let line = format!("{}: {} rows", path.display(), one.rows);
                let _ = writeln!(std::io::stderr(), "{}", term::one_line(&line));
            }
            let of = |table| written.iter().find(|w| w.table == table);
            of(TimingTable::Callbacks).map_or(0, |w| w.rows)
        }
        Some(table) => {
            let mut rows = 0;
            files::write_whole(&args.output, |out| {
                let written = onbeat_tables::stream_table(&mut reader, table, out, options);
                rows = written.map_err(onbeat_tables::TablesError::into_io)?.rows;
                Ok(())
            })?;
            rows
        }
    };
    traces::warn(&args.trace, reader.warnings());
    Ok(match rows {
        0 => ExitStatus::NothingFound,
        _ => ExitStatus::Success,
    })
}

fn list(topics: &[TopicWritten]) {
    for topic in topics {
        let (name, count) = (&topic.name, topic.messages);
        let line = format!("{name}: {count} messages of {}", topic.title);
        let _ = writeln!(std::io::stderr(), "{}", term::one_line(&line));
    }
}
