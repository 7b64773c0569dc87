//! Puts models and traces into a store: objects first, then figures, then the index rows.
//!
//! A killed writer leaves objects that no row names. Putting the same files again uses them.

use crate::error::StoreError;
use crate::files::{Listed, Listing};
use crate::id::{Hashing, Id};
use crate::index::{Kind, Row};
use crate::store::Store;
use crate::tables;
use onbeat_document::schema::Run;
use onbeat_document::Model;
use serde::Serialize;
use std::fs::{self, File};
use std::io::{self, Seek};
use std::path::Path;
use std::time::Duration;

/// The longest time for which the rows of stored files wait before they are written to the index.
/// If a file is being stored at the end of this time, the rows wait until that file is complete.
const MAX_ROW_DELAY: Duration = Duration::from_secs(3600);

/// The result of putting one model or trace into a store.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Put {
    pub object: Id,
    pub kind: Kind,
    /// The number of runs that the object contains: 1 for a trace.
    pub runs: usize,
    /// The size of the model, or of all files of the trace, in bytes.
    pub bytes: u64,
    /// The store already had the object under the same build name, so nothing was added.
    pub known: bool,
}

/// Puts model files and trace directories into a store, all under one build name. Queries find all
/// inputs when the function returns without an error. After an error, they find only the inputs
/// before the failed one. Calls `done` after each input.
///
/// # Errors
///
/// Fails if an input is not a model or trace, if it cannot be read, or if the store cannot be
/// written.
pub fn put(
    store: &Store,
    paths: &[&Path],
    build: &str,
    mut done: impl FnMut(&Put),
) -> Result<Vec<Put>, StoreError> {
    put_by(
        store,
        paths,
        build,
        &mut done,
        &onbeat_time::clock::boottime_ns,
    )
}

/// Puts files like [`put`], with another clock than the machine's, for tests.
#[doc(hidden)]
pub fn put_by(
    store: &Store,
    paths: &[&Path],
    build: &str,
    done: &mut dyn FnMut(&Put),
    now_ns: &dyn Fn() -> u64,
) -> Result<Vec<Put>, StoreError> {
    let held = store.backend().lock(false);
    let _held = held.map_err(|e| store.access("take", "the lock", &e))?;
    let known = store.index()?.rows;
    let mut all = Vec::new();
    let mut pending = Pending::new(store, now_ns);
    let mut failed = None;
    for path in paths {
        let begun_ns = now_ns();
        match put_one(store, path, build, &known)
            .and_then(|put| refuse_if_slow(store, begun_ns, now_ns, put))
        {
            Ok((put, new)) => {
                done(&put);
                pending.add(
                    Written {
                        path,
                        id: put.object,
                        keys: new.keys,
                    },
                    new.rows,
                )?;
                all.push(put);
            }
            Err(e) => {
                failed = Some(e);
                break;
            }
        }
    }
    let named = pending.write_rows();
    failed.map_or(named.map(|()| all), Err)
}

/// Fails if writing a file took too long. Tidying may already have removed the file's first parts.
fn refuse_if_slow<T>(
    store: &Store,
    begun_ns: u64,
    now_ns: &dyn Fn() -> u64,
    put: T,
) -> Result<T, StoreError> {
    let took = Duration::from_nanos(now_ns().saturating_sub(begun_ns));
    match store.backend().max_write_time() {
        Some(max_write_time) if took >= max_write_time => {
            let hours = max_write_time.as_secs() / 3600;
            let what = format!("writing a file took longer than {hours} hours. Use a store with a faster connection.");
            Err(store.access("write", "index", &io::Error::other(what)))
        }
        _ => Ok(put),
    }
}

struct Pending<'s> {
    store: &'s Store,
    now_ns: &'s dyn Fn() -> u64,
    begun_ns: u64,
    rows: Vec<Row>,
    written: Vec<Written<'s>>,
}

struct Written<'s> {
    path: &'s Path,
    id: Id,
    keys: Vec<String>,
}

impl<'s> Pending<'s> {
    fn new(store: &'s Store, now_ns: &'s dyn Fn() -> u64) -> Pending<'s> {
        Pending {
            store,
            now_ns,
            begun_ns: now_ns(),
            rows: Vec::new(),
            written: Vec::new(),
        }
    }

    fn waited(&self) -> Duration {
        Duration::from_nanos((self.now_ns)().saturating_sub(self.begun_ns))
    }

    fn add(&mut self, written: Written<'s>, rows: Vec<Row>) -> Result<(), StoreError> {
        self.rows.extend(rows);
        self.written.push(written);
        match self.waited() >= MAX_ROW_DELAY {
            true => self.write_rows(),
            false => Ok(()),
        }
    }

    fn write_rows(&mut self) -> Result<(), StoreError> {
        if !self.rows.is_empty() {
            self.store.add(&self.rows)?;
        }
        if self.store.backend().max_write_time().is_some() {
            for written in &self.written {
                written.rewrite_if_removed(self.store)?;
            }
        }
        self.rows.clear();
        self.written.clear();
        self.begun_ns = (self.now_ns)();
        Ok(())
    }
}

impl Written<'_> {
    /// Writes the object again if one of its files is gone. Tidying may have removed a file that
    /// the store already had: tidying checked the age of the old file just before this writer wrote
    /// the file again, and then removed the new file.
    fn rewrite_if_removed(&self, store: &Store) -> Result<(), StoreError> {
        let is_gone = |key: &String| match store.backend().age(key) {
            Ok(age) => Ok(age.is_none()),
            Err(e) => Err(store.access("check", key, &e)),
        };
        for key in &self.keys {
            if !is_gone(key)? {
                continue;
            }
            let object = Object::of(self.path)?;
            return match object.id == self.id {
                true => object.store(store, self.path),
                false => Err(fault(
                    self.path,
                    "the file changed while onbeat put it into the store. Put it again.",
                )),
            };
        }
        Ok(())
    }
}

struct New {
    rows: Vec<Row>,
    keys: Vec<String>,
}

fn put_one(
    store: &Store,
    path: &Path,
    build: &str,
    known: &[Row],
) -> Result<(Put, New), StoreError> {
    let object = Object::of(path)?;
    let row = |run: &Run| object.row(run, build);
    let mut rows: Vec<Row> = object.runs.iter().map(row).collect();
    rows.retain(|row| known.binary_search(row).is_err());
    let put = Put {
        object: object.id,
        kind: object.kind,
        runs: object.runs.len(),
        bytes: object.bytes,
        known: rows.is_empty(),
    };
    // If a row names the object, its files exist. Files that no row names may be removed at any
    // time.
    let named = known.iter().any(|row| row.object == object.id);
    if !named {
        object.store(store, path)?;
    }
    let keys = object.keys();
    Ok((put, New { rows, keys }))
}

fn fault(path: &Path, what: impl ToString) -> StoreError {
    StoreError::Input {
        path: path.into(),
        what: onbeat_document::text::visible(&what.to_string()),
    }
}

struct Object {
    id: Id,
    kind: Kind,
    runs: Vec<Run>,
    bytes: u64,
    content: Vec<u8>,
    source: Source,
}

enum Source {
    Model(Box<Model>),
    Trace(Listing),
}

impl Object {
    fn of(path: &Path) -> Result<Object, StoreError> {
        let meta = fs::metadata(path).map_err(|e| fault(path, e))?;
        match meta.is_dir() {
            true => Object::of_trace(path),
            false => Object::of_model(path),
        }
    }

    fn of_model(path: &Path) -> Result<Object, StoreError> {
        let content = fs::read(path).map_err(|e| fault(path, e))?;
        let model = onbeat_document::file::read(&content).map_err(|e| fault(path, e))?;
        if model.runs.is_empty() {
            return Err(fault(
                path,
                "the model has no runs, so no query would find it",
            ));
        }
        Ok(Object {
            id: Id::of(&content),
            kind: Kind::Model,
            runs: model.runs.clone(),
            bytes: content.len() as u64,
            content,
            source: Source::Model(Box::new(model)),
        })
    }

    fn of_trace(path: &Path) -> Result<Object, StoreError> {
        let reader = onbeat_trace::Reader::open(path).map_err(|e| fault(path, e))?;
        let manifest = reader.manifest();
        let lost = manifest.lost.values().flat_map(|cpus| cpus.values());
        let run = Run {
            id: manifest.id.clone(),
            host: manifest.machine.hostname.clone(),
            boot: String::new(),
            mode: match manifest.mode.is_empty() {
                true => onbeat_document::schema::DEFAULT_MODE.into(),
                false => manifest.mode.clone(),
            },
            distribution: manifest.observed.distributions.clone(),
            start: manifest.span.start_realtime_ns,
            duration_ns: manifest.span.duration_ns,
            lost: [("all".into(), lost.fold(0u64, |a, n| a.saturating_add(*n)))].into(),
            events: manifest.written.events,
        };
        let listing = listing(path)?;
        let content = listing.to_bytes();
        Ok(Object {
            id: Id::of(&content),
            kind: Kind::Trace,
            runs: vec![run],
            bytes: listing.files.iter().map(|f| f.bytes).sum(),
            content,
            source: Source::Trace(listing),
        })
    }

    fn row(&self, run: &Run, build: &str) -> Row {
        // Parquet's numbers end at i64::MAX.
        let within = |n: u64| n.min(i64::MAX as u64);
        Row {
            object: self.id,
            kind: self.kind,
            run: run.id.clone(),
            build: build.into(),
            mode: run.mode.clone(),
            host: run.host.clone(),
            distribution: run.distribution.join(","),
            start_ns: within(run.start),
            duration_ns: within(run.duration_ns),
            events: within(run.events),
            lost: within(run.lost.values().fold(0, |a, n| a.saturating_add(*n))),
            bytes: within(self.bytes),
        }
    }

    fn keys(&self) -> Vec<String> {
        let mut keys = vec![self.id.key("objects")];
        match &self.source {
            Source::Model(_) => keys.extend(tables::NAMES.map(|name| tables::key(name, self.id))),
            Source::Trace(listing) => {
                let ids = listing.files.iter().filter_map(|f| Id::parse(&f.object));
                keys.extend(ids.map(|id| id.key("objects")));
            }
        }
        keys
    }

    fn store(&self, store: &Store, path: &Path) -> Result<(), StoreError> {
        match &self.source {
            Source::Model(model) => {
                for (name, bytes) in tables::of(self.id, model) {
                    let bytes = bytes.map_err(|e| fault(path, e))?;
                    store.write(&tables::key(name, self.id), &bytes)?;
                }
            }
            Source::Trace(listing) => {
                for file in &listing.files {
                    put_file(store, path, file)?;
                }
            }
        }
        store.put_object(self.id, &mut &self.content[..], self.content.len() as u64)
    }
}

fn listing(path: &Path) -> Result<Listing, StoreError> {
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(|e| fault(path, e))? {
        let entry = entry.map_err(|e| fault(path, e))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // Other files do not belong to the trace.
        if !Listing::is_name(&name) {
            continue;
        }
        let of = entry.path();
        let (object, bytes) = File::open(&of)
            .and_then(|mut f| Id::of_reader(&mut f))
            .map_err(|e| fault(&of, e))?;
        files.push(Listed {
            name,
            bytes,
            object: object.to_string(),
        });
    }
    files.sort();
    Ok(Listing::of(files))
}

fn put_file(store: &Store, folder: &Path, file: &Listed) -> Result<(), StoreError> {
    let path = folder.join(&file.name);
    let changed = || {
        fault(
            &path,
            "the file changes while it is read. Put the trace into the store when its recording has ended.",
        )
    };
    let id = Id::parse(&file.object).ok_or_else(changed)?;
    let mut from = File::open(&path).map_err(|e| fault(&path, e))?;
    // The content is checked before it is sent, and again while it is sent, because an id must
    // never name other bytes.
    let mut hashing = Hashing::new(&mut from);
    if io::copy(&mut hashing, &mut io::sink()).map_err(|e| fault(&path, e))? != file.bytes
        || hashing.id() != id
    {
        return Err(changed());
    }
    from.rewind().map_err(|e| fault(&path, e))?;
    store.put_object(id, &mut from, file.bytes)
}
