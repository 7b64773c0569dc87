//! `onbeat export --to tables` and `--to arrow`: writes executions, items, chains and threads of a
//! trace as tables. `--to mcap`: writes the executions of chains as topics.

use onbeat_tables::{TableFormat, TableOptions, TimingTable, TopicWritten};
use onbeat_terminal::progress::Progress;
use onbeat_terminal::{files, term, traces, CliError, ExitStatus};
use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Write a trace as tables (started by `onbeat export --to tables`, `--to arrow` and `--to mcap`)
#[derive(clap::Args)]
pub struct Args {
    /// Trace directory
    trace: PathBuf,
    /// Directory for the tables as files; with --to mcap, or with one table of --to arrow, the file
    /// to write
    #[arg(short, long, value_name = "PATH")]
    output: PathBuf,
    #[arg(long, value_enum)]
    to: Format,
    /// Write only these tables
    #[arg(long = "table", value_name = "TABLE", value_delimiter = ',', value_parser = parse_table)]
    tables: Vec<TimingTable>,
    /// Write only these columns; with --to arrow
    #[arg(long = "column", value_name = "COLUMN", value_delimiter = ',')]
    columns: Vec<String>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Format {
    /// Files in the format Parquet
    Tables,
    /// Arrow IPC: one table as a stream, or files
    Arrow,
    /// Latencies and stretches of chains as topics of an MCAP file
    Mcap,
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

/// Returns an error if no table has one of the columns, or if a table has none of them.
fn check_columns(tables: &[TimingTable], columns: &BTreeSet<String>) -> Result<(), CliError> {
    let has = |table: &TimingTable, name: &String| table.column_names().any(|n| n == name);
    let unknown = |name: &&String| !tables.iter().any(|table| has(table, name));
    if let Some(name) = columns.iter().find(unknown) {
        let list = |table: &TimingTable| {
            let columns: Vec<&str> = table.column_names().collect();
            format!("{} has {}", table.name(), columns.join(", "))
        };
        let lists: Vec<String> = tables.iter().map(list).collect();
        return Err(CliError::Usage(format!(
            "there is no column '{name}' in these tables. {}",
            lists.join("; ")
        )));
    }
    let empty = |table: &&TimingTable| !columns.iter().any(|name| has(table, name));
    match tables.iter().find(empty) {
        Some(table) if !columns.is_empty() => Err(CliError::Usage(format!(
            "none of the columns is in the table {0}. Omit this table, or add a column of it: {1}",
            table.name(),
            table.column_names().collect::<Vec<_>>().join(", ")
        ))),
        _ => Ok(()),
    }
}

pub fn run(args: Args) -> Result<ExitStatus, CliError> {
    let chosen: BTreeSet<TimingTable> = args.tables.iter().copied().collect();
    let chosen: Vec<TimingTable> = chosen.into_iter().collect();
    let columns: BTreeSet<String> = args.columns.into_iter().collect();
    check_columns(&chosen, &columns)?;
    let mut reader = files::open_trace(&args.trace, "--to tables", "")?;
    let written = &reader.manifest().written;
    let (events, bytes) = (written.events, written.bytes);
    let mut bar = Progress::new(args.trace.display().to_string());
    let mut progress = |done| bar.update(done, events, bytes);
    let options = TableOptions {
        run: traces::run_of(&reader, None),
        columns,
        progress: &mut progress,
    };
    let rows = match (args.to, &chosen[..]) {
        (Format::Mcap, _) => {
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
        (Format::Arrow, &[table]) => {
            let mut rows = 0;
            files::write_whole(&args.output, |out| {
                let written = onbeat_tables::stream_table(&mut reader, table, out, options);
                rows = written.map_err(onbeat_tables::TablesError::into_io)?.rows;
                Ok(())
            })?;
            rows
        }
        (to, chosen) => {
            let format = match to {
                Format::Arrow => TableFormat::Arrow,
                _ => TableFormat::Parquet,
            };
            let tables = match chosen {
                [] => BTreeSet::from(TimingTable::ALL),
                chosen => chosen.iter().copied().collect(),
            };
            let output = &args.output;
            let written =
                onbeat_tables::export_tables(&mut reader, output, &tables, format, options);
            let written = written.map_err(CliError::failed)?;
            drop(bar);
            for one in &written {
                let path = one.path.as_deref().unwrap_or(Path::new(""));
                let line = format!("{}: {} rows", path.display(), one.rows);
                let _ = writeln!(std::io::stderr(), "{}", term::one_line(&line));
            }
            match chosen {
                // A trace without callbacks has no timing, but rows for its threads.
                [] => {
                    let of = |table| written.iter().find(|w| w.table == table);
                    of(TimingTable::Callbacks).map_or(0, |w| w.rows)
                }
                _ => written.iter().map(|w| w.rows).sum(),
            }
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
