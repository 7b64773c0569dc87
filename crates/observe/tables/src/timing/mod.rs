//! Exports a trace as tables of executions, items, chains and threads.
//!
//! - `columns` defines the tables.
//! - `pass` makes rows of numbers from the events, in one pass. `system` follows processes and
//!   threads for it.
//! - `spool` keeps the rows until the names behind the numbers are known.
//! - `convert` turns them into columns, and `last` makes the tables that come from the model.
//! - `sink` writes them.

mod columns;
mod convert;
mod last;
mod pass;
mod sink;
mod spool;
mod system;

pub use columns::Table;

use arrow_array::Int64Array;
use arrow_schema::ArrowError;
use convert::Lookup;
use onbeat_document::schema::Run;
use onbeat_document::Model;
use onbeat_files::Directory;
use onbeat_synth::SynthOptions;
use onbeat_trace::{Manifest, Reader};
use onbeat_why::leads_along;
use parquet::errors::ParquetError;
use pass::{Pass, Recovered, Take};
use rustc_hash::{FxHashMap, FxHashSet};
use sink::Sink;
use spool::{Rows, Spool};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use system::Process;

/// The reason why the timing of a trace cannot be exported as tables.
#[allow(missing_docs)]
#[derive(Debug, thiserror::Error)]
pub enum TablesError {
    #[error("cannot write {}: {source}. Choose another directory with -o.", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("cannot write the tables: {0}. Check the free space.")]
    Rows(#[from] ArrowError),
}

impl TablesError {
    /// Returns the I/O error that caused this error. If there is none, wraps this error in an I/O error.
    /// From the result, a caller can see that the reader of a pipe has closed the pipe.
    pub fn into_io(self) -> io::Error {
        match self {
            TablesError::Rows(ArrowError::IoError(_, error)) => error,
            other => io::Error::other(other.to_string()),
        }
    }
}

impl From<ParquetError> for TablesError {
    fn from(error: ParquetError) -> TablesError {
        TablesError::Rows(error.into())
    }
}

/// A table that was written, with the number of its rows.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableWritten {
    pub table: Table,
    /// The path of the table's file, or `None` for a stream.
    pub path: Option<PathBuf>,
    pub rows: u64,
}

/// The description of the recording and a progress function, for an export of tables.
pub struct TableOptions<'a> {
    /// The description of the recording, which is written to the table `runs`.
    pub run: Run,
    /// A function that is called from time to time with the number of events so far.
    pub progress: &'a mut dyn FnMut(u64),
}

/// Writes all tables of a trace as `directory/TABLE/RUN.parquet`. Tables of other traces in the same
/// directory stay. A trace's files are replaced when all of them are complete, `runs` last.
///
/// # Errors
///
/// Fails if a file cannot be written. The directory then has no new files.
pub fn export_tables(
    reader: &mut Reader,
    directory: &Path,
    options: TableOptions<'_>,
) -> Result<Vec<TableWritten>, TablesError> {
    let name = format!("{}.parquet", file_name(&options.run.id));
    let mut open = BTreeMap::new();
    let mut written = Ok(Vec::new());
    let mut options = Some(options);
    let nested = in_files(directory, &name, &Table::ALL, &mut open, &mut |files| {
        let Some(options) = options.take() else {
            return false;
        };
        written = sinks(files)
            .and_then(|sinks| read(reader, sinks, Some(directory), options))
            .and_then(|(wanted, known)| in_parallel(wanted, &known));
        written.is_ok()
    });
    let mut written = written?;
    nested?;
    for one in &mut written {
        one.path = Some(directory.join(one.table.name()).join(&name));
    }
    Ok(written)
}

/// Writes one table of a trace as a stream in the format of Arrow IPC.
///
/// # Errors
///
/// Fails if `out` or a temporary file cannot be written.
pub fn stream_table(
    reader: &mut Reader,
    table: Table,
    out: impl Write,
    options: TableOptions<'_>,
) -> Result<TableWritten, TablesError> {
    let sinks = BTreeMap::from([(table, Sink::stream(table, out)?)]);
    let (wanted, known) = read(reader, sinks, None, options)?;
    let mut rows = 0;
    for (table, wanted) in wanted {
        rows += wanted.convert(table, &known)?.rows;
    }
    Ok(TableWritten {
        table,
        path: None,
        rows,
    })
}

fn file_name(run: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.:+".contains(c);
    let name: String = run.chars().map(|c| if fits(c) { c } else { '_' }).collect();
    match name.trim_start_matches('.') {
        "" => "run".into(),
        name => name.chars().take(200).collect(),
    }
}

/// Opens a temporary file for each table and calls `body` with the files. If `body` returns true, all files
/// get their names. The file of the last table gets its name at the end.
fn in_files(
    directory: &Path,
    name: &str,
    tables: &[Table],
    open: &mut BTreeMap<Table, File>,
    body: &mut dyn FnMut(&BTreeMap<Table, File>) -> bool,
) -> Result<(), TablesError> {
    // The last table of the list is opened first and gets its name last. A run in `runs` is complete.
    let Some((table, rest)) = tables.split_last() else {
        body(open);
        return Ok(());
    };
    let path = directory.join(table.name());
    let made = std::fs::create_dir_all(&path).and_then(|()| Directory::open(&path));
    let made = made.map_err(|source| TablesError::File {
        path: path.clone(),
        source,
    })?;
    let mut inner = Ok(());
    let saved = made.replace(name, |file: &mut File| {
        open.insert(*table, file.try_clone()?);
        let mut done = false;
        inner = in_files(directory, name, rest, open, &mut |files| {
            done = body(files);
            done
        });
        match inner.is_ok() && done {
            true => Ok(()),
            false => Err(io::Error::other("the tables are not complete")),
        }
    });
    inner?;
    saved.map_err(|source| TablesError::File {
        path: path.join(name),
        source,
    })
}

type NoStream = io::Sink;

type Sinks<W> = BTreeMap<Table, Sink<W>>;

fn sinks(files: &BTreeMap<Table, File>) -> Result<Sinks<NoStream>, TablesError> {
    let sink = |(table, file): (&Table, &File)| {
        let file = file.try_clone().map_err(ArrowError::from)?;
        Ok((*table, Sink::parquet(*table, file)?))
    };
    files.iter().map(sink).collect()
}

struct Tables<W: Write> {
    wanted: BTreeMap<Table, Wanted<W>>,
    lookup: Lookup,
    failed: Option<ArrowError>,
}

struct Wanted<W: Write> {
    rows: Rows,
    spool: Option<Spool>,
    sink: Sink<W>,
}

struct Known {
    lookup: Lookup,
    model: Model,
    manifest: Manifest,
    processes: Vec<Process>,
    recovered: FxHashMap<Recovered, u64>,
}

impl<W: Write> Wanted<W> {
    fn flush(&mut self, table: Table, lookup: &Lookup) -> Result<(), ArrowError> {
        let Some(columns) = self.rows.take() else {
            return Ok(());
        };
        match &mut self.spool {
            Some(spool) => spool.write(columns),
            None => self.sink.write(&lookup.numbers(table, &columns)?),
        }
    }

    /// Writes the rows that waited for names or for the model, and ends the table.
    fn convert(mut self, table: Table, known: &Known) -> Result<TableWritten, ArrowError> {
        let lookup = &known.lookup;
        self.flush(table, lookup)?;
        if last::is_last(table) {
            let rows = last::rows(table, &known.model, &known.manifest, &known.processes);
            self.sink.write(&lookup.cells(table, &rows)?)?;
        }
        if let Some(spool) = self.spool {
            let mut recovered = match table {
                Table::Items => known.recovered.clone(),
                _ => FxHashMap::default(),
            };
            spool.read(|columns| {
                let columns = match table {
                    Table::Items => without(columns, &mut recovered),
                    _ => columns.to_vec(),
                };
                self.sink.write(&lookup.numbers(table, &columns)?)
            })?;
        }
        Ok(TableWritten {
            table,
            path: None,
            rows: self.sink.finish()?,
        })
    }
}

impl<W: Write> Take for Tables<W> {
    fn row(&mut self, table: Table, row: &[Option<i64>]) {
        let Some(wanted) = self.wanted.get_mut(&table) else {
            return;
        };
        if wanted.rows.push(row) && self.failed.is_none() {
            self.failed = wanted.flush(table, &self.lookup).err();
        }
    }
}

fn in_parallel(
    wanted: BTreeMap<Table, Wanted<NoStream>>,
    known: &Known,
) -> Result<Vec<TableWritten>, TablesError> {
    let waiting = Mutex::new(wanted);
    let work = || -> Result<Vec<TableWritten>, ArrowError> {
        let mut written = Vec::new();
        loop {
            let next = waiting
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pop_first();
            let Some((table, wanted)) = next else {
                return Ok(written);
            };
            written.push(wanted.convert(table, known)?);
        }
    };
    let (here, there) = std::thread::scope(|scope| {
        let other = scope.spawn(work);
        (work(), other.join())
    });
    let there = there.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    let mut written = here?;
    written.extend(there?);
    written.sort_by_key(|w| w.table);
    Ok(written)
}

/// Reads the trace. Returns the tables whose rows are not converted yet, and the facts for their conversion.
fn read<W: Write>(
    reader: &mut Reader,
    sinks: Sinks<W>,
    spool_in: Option<&Path>,
    options: TableOptions<'_>,
) -> Result<(BTreeMap<Table, Wanted<W>>, Known), TablesError> {
    let TableOptions { run, progress } = options;
    let mut tables = Tables {
        wanted: BTreeMap::new(),
        lookup: Lookup {
            run: run.id.clone(),
            host: run.host.clone(),
            ..Lookup::default()
        },
        failed: None,
    };
    for (table, sink) in sinks {
        let width = table.columns().len();
        let spool = match table {
            Table::Switches => None,
            _ if last::is_last(table) => None,
            _ => Some(Spool::create(spool_in, width)?),
        };
        let rows = Rows::new(width);
        let wanted = Wanted { rows, spool, sink };
        tables.wanted.insert(table, wanted);
    }
    let mut synth = SynthOptions::new(run);
    synth.shortened = !reader.has_beginning();
    let mut pass = Pass::new(synth, tables.wanted.contains_key(&Table::Stretches));
    for (i, event) in reader.events().enumerate() {
        pass.push(&event, &mut tables);
        if i % 8192 == 0 {
            progress(i as u64);
            if let Some(error) = tables.failed {
                return Err(error.into());
            }
        }
    }
    pass.finish(&mut tables);
    match tables.failed {
        Some(error) => Err(error.into()),
        None => Ok((tables.wanted, known(reader, tables.lookup, pass))),
    }
}

fn known(reader: &Reader, mut lookup: Lookup, pass: Pass) -> Known {
    let Pass {
        synth,
        system,
        topics,
        paths,
        recovered,
        ..
    } = pass;
    lookup.ids = synth.callback_ids();
    let components = synth.components();
    lookup.components = components.iter().map(onbeat_why::component_title).collect();
    let name = |n: &u32| (*n, synth.name(*n).to_string());
    lookup.topics = topics.iter().map(name).collect();
    lookup.names = system.names;
    let model = synth.finish();
    let ids: FxHashSet<&str> = model.callbacks.iter().map(|c| c.id.as_str()).collect();
    let is_in_model = |id: &Option<String>| id.as_deref().is_some_and(|id| ids.contains(id));
    lookup.is_in_model = lookup.ids.iter().map(is_in_model).collect();
    lookup.chains = chains(&model, &paths, &lookup);
    Known {
        lookup,
        model,
        manifest: reader.manifest().clone(),
        processes: system.processes,
        recovered,
    }
}

/// Finds the chain of each path. Leaves out paths that the model does not list as chains.
fn chains(
    model: &Model,
    paths: &FxHashMap<u32, onbeat_synth::followed::ChainEnd>,
    lookup: &Lookup,
) -> FxHashMap<u32, (String, String)> {
    let mut by_source: FxHashMap<&str, Vec<&onbeat_document::schema::Chain>> = FxHashMap::default();
    for chain in &model.chains {
        if let Some(source) = chain.callbacks.first() {
            by_source.entry(source).or_default().push(chain);
        }
    }
    let topic = |n: u32| lookup.topics.get(&n).map_or("", String::as_str);
    let found = paths.iter().filter_map(|(path, end)| {
        let steps = pass::steps(end);
        let source = lookup
            .ids
            .get(steps.first()?.callback as usize)?
            .as_deref()?;
        let along = by_source
            .get(source)?
            .iter()
            .filter(|chain| chain.cut == end.cut && leads_along(chain, steps, &lookup.ids, topic));
        // A synchroniser is either on the chain or left out, so the longest chain is meant.
        let chain = along.max_by_key(|chain| chain.callbacks.len())?;
        Some((*path, (chain.id.clone(), source.to_string())))
    });
    found.collect()
}

/// Returns the rows of items without the losses that proved wrong later.
fn without(columns: &[Int64Array], recovered: &mut FxHashMap<Recovered, u64>) -> Vec<Int64Array> {
    use arrow_array::Array;
    let value = |column: usize, row: usize| match columns.get(column) {
        Some(column) if column.is_valid(row) => column.value(row),
        _ => -1,
    };
    let rows = columns.first().map_or(0, Array::len);
    let mut is_wrong = |row: usize| {
        let [topic, from, to, time] = [0, 1, 2, 3].map(|column| value(column, row));
        let left = recovered.get_mut(&(from, to, topic, time, value(7, row)));
        match left {
            Some(left) if *left > 0 => {
                *left -= 1;
                true
            }
            _ => false,
        }
    };
    let kept: Vec<usize> = (0..rows).filter(|row| !is_wrong(*row)).collect();
    if kept.len() == rows {
        return columns.to_vec();
    }
    let keep = |column: &Int64Array| {
        let values = kept.iter();
        values
            .map(|&row| column.is_valid(row).then(|| column.value(row)))
            .collect()
    };
    columns.iter().map(keep).collect()
}
