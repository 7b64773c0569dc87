//! Exports a trace as tables of executions, items, chains and threads.
//!
//! - `columns` defines the tables.
//! - `ahead` reads the events on a separate thread. `system` follows processes and threads there.
//! - `pass` makes rows of numbers from the events, in one pass. `apart` makes the rows of chains and
//!   of their stretches on a separate thread.
//! - `spool` keeps the rows until the names behind the numbers are known.
//! - `convert` turns them into columns, and `last` makes the tables that come from the model.
//! - `dictionary` stores columns of names.
//! - `sink` writes them.
//! - `topics` writes the executions of chains and their stretches as topics of an MCAP file.

mod ahead;
mod apart;
mod columns;
mod convert;
mod dictionary;
mod last;
mod pass;
mod sink;
mod spool;
mod system;
mod topics;

pub use columns::Table;
pub use topics::{export_mcap, TopicWritten};

use apart::{Chains, Found, Spare};
use arrow_schema::ArrowError;
use columns::Shown;
use convert::{Columns, Lookup};
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
use spool::Spool;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{channel, sync_channel};
use std::sync::{Mutex, PoisonError};
use system::{Process, System};

#[allow(missing_docs)]
#[derive(Debug, thiserror::Error)]
pub enum TablesError {
    #[error("cannot write {}: {source}. Choose another directory with -o.", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("cannot write the tables: {0}. Check the free space.")]
    Rows(#[from] ArrowError),
}

impl TablesError {
    /// Returns the I/O error that caused this error. If there is none, wraps this error in an I/O
    /// error. The kind of the result shows whether the reader of a pipe has closed the pipe.
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

#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableWritten {
    pub table: Table,
    /// The path of the table's file, or `None` for a stream.
    pub path: Option<PathBuf>,
    pub rows: u64,
}

/// The description of the recording and a progress function, for an export of tables.
#[allow(missing_docs)] // the names say what they are
pub struct TableOptions<'a> {
    pub run: Run,
    /// The names of the columns to write in the format Arrow, or nothing for all columns. Each table
    /// gets those that it has. Files in the format Parquet always have all columns.
    pub columns: BTreeSet<String>,
    /// A function that is called from time to time with the number of events so far.
    pub progress: &'a mut dyn FnMut(u64),
}

/// The format of the files that an export of tables writes.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableFormat {
    Parquet,
    /// The format of Arrow IPC for streams. Readers can map such a file into memory.
    Arrow,
}

impl TableFormat {
    fn extension(self) -> &'static str {
        match self {
            TableFormat::Parquet => "parquet",
            TableFormat::Arrow => "arrows",
        }
    }
}

/// Writes tables of a trace as `directory/TABLE/RUN.parquet` (`.arrows` for Arrow IPC), in one pass
/// over the events. Tables of other traces in the same directory stay. A trace's files are replaced
/// when all of them are complete, `runs` last.
///
/// # Errors
///
/// Fails if a file cannot be written. The directory then has no new files.
pub fn export_tables(
    reader: &mut Reader,
    directory: &Path,
    tables: &BTreeSet<Table>,
    format: TableFormat,
    options: TableOptions<'_>,
) -> Result<Vec<TableWritten>, TablesError> {
    let name = format!("{}.{}", file_name(&options.run.id), format.extension());
    let tables: Vec<Table> = tables.iter().copied().collect();
    let mut open = BTreeMap::new();
    let mut written = Ok(Vec::new());
    let mut options = Some(options);
    let nested = in_files(directory, &name, &tables, &mut open, &mut |files| {
        let Some(options) = options.take() else {
            return false;
        };
        written = sinks(files, format, &options.columns)
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
    out: impl Write + Send,
    options: TableOptions<'_>,
) -> Result<TableWritten, TablesError> {
    let shown = Shown::new(table, &options.columns);
    let sinks = BTreeMap::from([(table, (Sink::stream(&shown, out)?, shown))]);
    let (wanted, known) = read(reader, sinks, None, options)?;
    let mut rows = 0;
    for wanted in wanted {
        rows += wanted.convert(&known)?.rows;
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

/// Opens a temporary file for each table and calls `body` with the files. If `body` returns true,
/// all files get their final names. The file of the last table gets its name last.
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
            false => Err(io::Error::other(
                "the export ended before all tables were complete",
            )),
        }
    });
    inner?;
    saved.map_err(|source| TablesError::File {
        path: path.join(name),
        source,
    })
}

const WAITING_BATCHES_MAX: usize = 8;

type Sinks<W> = BTreeMap<Table, (Sink<W>, Shown)>;

fn sinks(
    files: &BTreeMap<Table, File>,
    format: TableFormat,
    columns: &BTreeSet<String>,
) -> Result<Sinks<BufWriter<File>>, TablesError> {
    let sink = |(table, file): (&Table, &File)| {
        let file = file.try_clone().map_err(ArrowError::from)?;
        let made = match format {
            TableFormat::Parquet => {
                let shown = Shown::new(*table, &BTreeSet::new());
                (Sink::parquet(*table, file)?, shown)
            }
            TableFormat::Arrow => {
                let shown = Shown::new(*table, columns);
                (Sink::stream(&shown, BufWriter::new(file))?, shown)
            }
        };
        Ok((*table, made))
    };
    files.iter().map(sink).collect()
}

struct Tables<W: Write> {
    wanted: [Option<Wanted<W>>; Table::ALL.len()],
    lookup: Lookup,
    failed: Option<ArrowError>,
}

struct Wanted<W: Write> {
    table: Table,
    rows: Rows,
    shown: Shown,
    sink: Sink<W>,
}

enum Rows {
    /// The rows have no names, so each part is written as soon as it is full.
    Ready(Columns),
    Waiting(Spool),
    Last,
}

struct Known {
    lookup: Lookup,
    model: Model,
    manifest: Manifest,
    processes: Vec<Process>,
    recovered: FxHashMap<Recovered, u64>,
}

impl<W: Write> Tables<W> {
    fn new(sinks: Sinks<W>, spool_in: Option<&Path>, run: &Run) -> Result<Tables<W>, ArrowError> {
        let mut tables = Tables {
            wanted: [const { None }; Table::ALL.len()],
            lookup: Lookup {
                run: run.id.clone(),
                host: run.host.clone(),
                ..Lookup::default()
            },
            failed: None,
        };
        for (table, sink) in sinks {
            tables.wanted[table as usize] = Some(Wanted::new(table, sink, spool_in)?);
        }
        Ok(tables)
    }
}

impl<W: Write> Wanted<W> {
    fn new(
        table: Table,
        (sink, shown): (Sink<W>, Shown),
        spool_in: Option<&Path>,
    ) -> io::Result<Wanted<W>> {
        let rows = match table {
            Table::Switches => Rows::Ready(Columns::new(table, shown.clone(), sink.part_rows())),
            _ if last::is_last(table) => Rows::Last,
            _ => Rows::Waiting(Spool::create(spool_in, table.columns().len())?),
        };
        Ok(Wanted {
            table,
            rows,
            shown,
            sink,
        })
    }

    fn push(&mut self, row: &[Option<i64>], lookup: &Lookup) -> Result<(), ArrowError> {
        match &mut self.rows {
            Rows::Ready(columns) => match columns.push(row, lookup) {
                true => write(&mut self.sink, columns, lookup),
                false => Ok(()),
            },
            Rows::Waiting(spool) => Ok(spool.push(row)?),
            Rows::Last => Ok(()),
        }
    }

    fn waiting_bytes(&self) -> u64 {
        match &self.rows {
            Rows::Waiting(spool) => spool.bytes(),
            Rows::Ready(_) | Rows::Last => 0,
        }
    }

    /// Writes the rows that waited for names or for the model, and ends the table.
    fn convert(self, known: &Known) -> Result<TableWritten, ArrowError> {
        let (table, shown, lookup) = (self.table, self.shown, &known.lookup);
        let mut sink = self.sink;
        match self.rows {
            Rows::Ready(mut columns) => write(&mut sink, &mut columns, lookup)?,
            Rows::Last => {
                let rows = last::rows(table, &known.model, &known.manifest, &known.processes);
                sink.write(lookup.cells(table, &shown, &rows))?;
            }
            Rows::Waiting(spool) => {
                let mut recovered = match table {
                    Table::Items => known.recovered.clone(),
                    _ => FxHashMap::default(),
                };
                let mut columns = Columns::new(table, shown, sink.part_rows());
                spool.read(|row| {
                    let is_wrong = !recovered.is_empty() && is_recovered(row, &mut recovered);
                    match !is_wrong && columns.push(row, lookup) {
                        true => write(&mut sink, &mut columns, lookup),
                        false => Ok(()),
                    }
                })?;
                write(&mut sink, &mut columns, lookup)?;
            }
        }
        Ok(TableWritten {
            table,
            path: None,
            rows: sink.finish()?,
        })
    }
}

fn write<W: Write>(
    sink: &mut Sink<W>,
    columns: &mut Columns,
    lookup: &Lookup,
) -> Result<(), ArrowError> {
    match columns.take(lookup) {
        Some(part) => sink.write(part),
        None => Ok(()),
    }
}

impl<W: Write> Take for Tables<W> {
    fn row(&mut self, table: Table, row: &[Option<i64>]) {
        let Some(Some(wanted)) = self.wanted.get_mut(table as usize) else {
            return;
        };
        if self.failed.is_none() {
            self.failed = wanted.push(row, &self.lookup).err();
        }
    }

    fn failed(&mut self) -> Option<ArrowError> {
        self.failed.take()
    }
}

/// Converts all tables on two threads. The largest tables come first, so that both threads end at
/// nearly the same time.
fn in_parallel<W: Write + Send>(
    mut wanted: Vec<Wanted<W>>,
    known: &Known,
) -> Result<Vec<TableWritten>, TablesError> {
    wanted.sort_by_key(Wanted::waiting_bytes);
    let waiting = Mutex::new(wanted);
    let work = || -> Result<Vec<TableWritten>, ArrowError> {
        let mut written = Vec::new();
        loop {
            let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some(wanted) = next else {
                return Ok(written);
            };
            written.push(wanted.convert(known)?);
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

/// Reads the trace. Returns the tables whose rows are not converted yet, and the facts for their
/// conversion.
fn read<W: Write + Send>(
    reader: &mut Reader,
    mut sinks: Sinks<W>,
    spool_in: Option<&Path>,
    options: TableOptions<'_>,
) -> Result<(Vec<Wanted<W>>, Known), TablesError> {
    let mut apart = |tables: &[Table]| {
        let found = tables.iter().filter_map(|table| sinks.remove_entry(table));
        Tables::new(found.collect(), spool_in, &options.run)
    };
    let mut switches = apart(&[Table::Switches])?;
    let mut chains = apart(&[Table::ChainExecutions, Table::Stretches])?;
    let mut rest = apart(&Table::ALL)?;
    let with_stretches = chains.wanted[Table::Stretches as usize].is_some();
    let seen = rows_of(
        reader,
        &mut rest,
        &mut chains,
        &mut switches,
        with_stretches,
        options,
    )?;
    let wanted = [rest.wanted, chains.wanted, switches.wanted];
    let wanted = wanted.into_iter().flatten().flatten().collect();
    Ok((wanted, known(reader, rest.lookup, seen)))
}

/// The results of reading all events. The names in the tables follow from them.
struct AllSeen {
    pass: Pass,
    system: System,
    found: Found,
}

/// Makes the rows of all events. A thread of its own passes the rows of switches to `switches`,
/// and another one passes the rows of chains to `chains`. The caller's thread passes all other
/// rows to `rest`.
fn rows_of(
    reader: &mut Reader,
    rest: &mut impl Take,
    chains: &mut (impl Take + Send),
    switches: &mut (impl Take + Send),
    with_stretches: bool,
    options: TableOptions<'_>,
) -> Result<AllSeen, TablesError> {
    let mut synth = SynthOptions::new(options.run);
    synth.shortened = !reader.has_beginning();
    let mut pass = Pass::new(synth, with_stretches);
    let (events, spare_events) = channel();
    let (reports, spare_reports) = channel();
    let spare = Spare { events, reports };
    let cutter = Chains::new(&pass.synth, with_stretches, spare);
    std::thread::scope(|scope| {
        let (batches, received) = sync_channel(WAITING_BATCHES_MAX);
        let cutting = scope.spawn(move || cutter.run(received, chains));
        let mut events = 0;
        let system = ahead::read(reader, spare_events, switches, |part| {
            (options.progress)(events);
            events += part.events.len() as u64;
            for event in &part.events {
                pass.push(event, rest);
            }
            pass::take_threads(&part.threads, rest);
            rest.failed().map_or(Ok(()), Err)?;
            let stopped = |_| {
                ArrowError::ComputeError(
                    "the thread that writes the rows of chains has ended".into(),
                )
            };
            let mut spare = spare_reports.try_recv().unwrap_or_default();
            pass.empty(&mut spare);
            batches
                .send(pass.batch(part.events, spare))
                .map_err(stopped)
        });
        if system.is_ok() {
            pass.finish(rest);
            let _ = batches.send(pass.batch(Vec::new(), Vec::new()));
        }
        drop(batches);
        let found = cutting.join();
        let found = found.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let system = system?;
        rest.failed().map_or(Ok(()), Err)?;
        Ok(AllSeen {
            pass,
            system,
            found,
        })
    })
}

fn known(reader: &Reader, mut lookup: Lookup, seen: AllSeen) -> Known {
    let AllSeen {
        pass,
        system,
        found,
    } = seen;
    let Pass {
        synth,
        topics,
        recovered,
        ..
    } = pass;
    lookup.ids = synth.callback_ids();
    let components = synth.components_of(&found.components);
    lookup.components = components.iter().map(onbeat_why::component_title).collect();
    let name = |n: &u32| (*n, synth.name(*n).to_string());
    lookup.topics = topics.union(&found.topics).map(name).collect();
    lookup.names = system.names;
    let model = synth.finish();
    let ids: FxHashSet<&str> = model.callbacks.iter().map(|c| c.id.as_str()).collect();
    let is_in_model = |id: &Option<String>| id.as_deref().is_some_and(|id| ids.contains(id));
    lookup.is_in_model = lookup.ids.iter().map(is_in_model).collect();
    lookup.chains = chains(&model, &found.paths, &lookup);
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

/// Returns whether an item's row shows a loss that a later event disproved. Removes this loss from
/// `recovered`.
fn is_recovered(row: &[Option<i64>], recovered: &mut FxHashMap<Recovered, u64>) -> bool {
    let value = |column: usize| row.get(column).copied().flatten().unwrap_or(-1);
    let [topic, from, to, time, fate] = [0, 1, 2, 3, 7].map(value);
    match recovered.get_mut(&(from, to, topic, time, fate)) {
        Some(left) if *left > 0 => {
            *left -= 1;
            true
        }
        _ => false,
    }
}
