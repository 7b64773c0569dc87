//! Tidies and checks a store: removes unused files, joins small parts of the index, finds damage.

use crate::error::StoreError;
use crate::files::Listing;
use crate::id::Id;
use crate::index::{Kind, Row};
use crate::store::Store;
use crate::tables;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Duration;

/// The minimum age of a half-written file that tidying removes from a directory. The lock excludes
/// running writers, so only killed writers leave such files.
const GRACE: Duration = Duration::from_secs(3600);

#[allow(missing_docs)]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Tidied {
    pub parts_before: usize,
    pub parts_after: usize,
    /// The number of removed objects, tables and half-written files. No row of the index named
    /// them.
    pub removed: u64,
    /// The number of removed merges, which were stored for reuse.
    pub merges_removed: u64,
    pub bytes: u64,
    /// A line for each damaged file. Tidying does not remove damaged files.
    pub damaged: Vec<String>,
}

/// Rewrites the index as one part, and removes unused files. Unused files are merges older than
/// `keep`, and leftovers of killed writers older than an hour (in a bucket: a day). Objects that
/// the index names stay. While a part of the index or a trace's list is damaged, no object is
/// removed.
pub fn tidy(store: &Store, keep: Duration) -> Result<Tidied, StoreError> {
    let held = store.backend().lock(true);
    let _held = held.map_err(|e| store.access("take", "the lock", &e))?;
    let index = store.index()?;
    let mut tidied = Tidied {
        parts_before: index.parts.len(),
        parts_after: index.parts.len(),
        damaged: index.damaged.clone(),
        ..Tidied::default()
    };
    if index.parts.len() > 1 {
        let whole = store.add(&index.rows)?;
        for part in index.parts.iter().filter(|part| **part != whole) {
            remove(store, part)?;
        }
        tidied.parts_after = 1;
    }
    if tidied.damaged.is_empty() {
        remove_unnamed(store, &mut tidied)?;
    }
    for entry in store.list("merges")?.iter().filter(|e| e.age >= keep) {
        remove(store, &entry.key)?;
        tidied.merges_removed += 1;
        tidied.bytes += entry.bytes;
    }
    let left = store.backend().remove_leftovers(GRACE);
    tidied.removed += left.map_err(|e| store.access("list", "leftovers", &e))?;
    Ok(tidied)
}

fn remove_unnamed(store: &Store, tidied: &mut Tidied) -> Result<(), StoreError> {
    let max_write_time = store.backend().max_write_time();
    let grace = max_write_time.map_or(GRACE, |max_write_time| 2 * max_write_time);
    let mut old = Vec::new();
    for place in ["objects", "tables"] {
        old.extend(store.list(place)?.into_iter().filter(|e| e.age >= grace));
    }
    // The index is read after the list of files, so that newly named files stay.
    let index = store.index()?;
    tidied.damaged.extend(index.damaged);
    let named = named(store, &index.rows, &mut tidied.damaged);
    if !tidied.damaged.is_empty() {
        return Ok(());
    }
    for entry in old.iter().filter(|e| !named.contains(&e.key)) {
        // Without a lock, another process may have written the file again.
        let age = |key| store.backend().age(key);
        let age = age(&entry.key).map_err(|e| store.access("check", &entry.key, &e))?;
        if age.is_some_and(|age| age >= grace) {
            remove(store, &entry.key)?;
            tidied.removed += 1;
            tidied.bytes += entry.bytes;
        }
    }
    Ok(())
}

fn named(store: &Store, rows: &[Row], damaged: &mut Vec<String>) -> BTreeSet<String> {
    let objects: BTreeSet<(Id, Kind)> = rows.iter().map(|r| (r.object, r.kind)).collect();
    let mut named = BTreeSet::new();
    for (id, kind) in objects {
        named.insert(id.key("objects"));
        match kind {
            Kind::Model => named.extend(tables::NAMES.map(|name| tables::key(name, id))),
            Kind::Trace => match listing(store, id) {
                Ok(listing) => named.extend(listing.iter().map(|(id, _)| id.key("objects"))),
                Err(e) => damaged.push(e.to_string()),
            },
        }
    }
    named
}

fn remove(store: &Store, key: &str) -> Result<(), StoreError> {
    let removed = store.backend().remove(key);
    removed.map_err(|e| store.access("remove", key, &e))
}

fn listing(store: &Store, id: Id) -> Result<Vec<(Id, u64)>, StoreError> {
    let listing = Listing::read(&store.object(id)?);
    let listing = listing.map_err(|what| store.damaged(&id.key("objects"), what))?;
    let files = listing.files.iter();
    Ok(files
        .filter_map(|f| Some((Id::parse(&f.object)?, f.bytes)))
        .collect())
}

/// The result of checking all objects of a store.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Checked {
    /// The number of rows in the index: one for each run of each object.
    pub rows: usize,
    pub models: usize,
    pub traces: usize,
    /// The number of objects that were read and compared with their ids.
    pub objects: usize,
    /// A line for each damaged file. Empty for an undamaged store.
    pub damaged: Vec<String>,
}

/// Reads every object that the index names and compares its content with its id. Also compares
/// models with their index rows and tables.
pub fn check(store: &Store) -> Result<Checked, StoreError> {
    let index = store.index()?;
    let mut checked = Checked {
        rows: index.rows.len(),
        damaged: index.damaged,
        ..Checked::default()
    };
    let mut objects: BTreeMap<(Id, Kind), BTreeSet<&str>> = BTreeMap::new();
    for row in &index.rows {
        let runs = objects.entry((row.object, row.kind)).or_default();
        runs.insert(&row.run);
    }
    let mut seen = BTreeSet::new();
    for ((id, kind), runs) in objects {
        let found = match kind {
            Kind::Model => {
                checked.models += 1;
                checked.objects += 1;
                check_model(store, id, &runs)
            }
            Kind::Trace => {
                checked.traces += 1;
                check_trace(store, id, &mut seen, &mut checked.objects)
            }
        };
        match found {
            Ok(damaged) => checked.damaged.extend(damaged),
            Err(e) if e.is_damage() => checked.damaged.push(e.to_string()),
            Err(e) => return Err(e),
        }
    }
    Ok(checked)
}

fn check_model(store: &Store, id: Id, runs: &BTreeSet<&str>) -> Result<Vec<String>, StoreError> {
    let key = id.key("objects");
    let model = onbeat_document::file::read(&store.object(id)?);
    let model = model.map_err(|e| store.damaged(&key, e.to_string()))?;
    let mut damaged = Vec::new();
    if *runs != model.runs.iter().map(|r| r.id.as_str()).collect() {
        let line = store.damaged(&key, "the index and this model do not list the same runs");
        damaged.push(line.to_string());
    }
    for (name, bytes) in tables::of(id, &model) {
        let key = tables::key(name, id);
        let found = store.read(&key, crate::columns::MAX_BYTES)?;
        if found.is_none() || bytes.ok() != found {
            let line = store.damaged(&key, "the table does not match its model");
            damaged.push(line.to_string());
        }
    }
    Ok(damaged)
}

fn check_trace(
    store: &Store,
    id: Id,
    seen: &mut BTreeSet<Id>,
    objects: &mut usize,
) -> Result<Vec<String>, StoreError> {
    let mut damaged = Vec::new();
    *objects += 1;
    for (file, bytes) in listing(store, id)? {
        if !seen.insert(file) {
            continue;
        }
        *objects += 1;
        match store.copy_object(file, &mut io::sink()) {
            Ok(read) if read == bytes => {}
            Ok(_) => damaged.push(
                store
                    .damaged(
                        &id.key("objects"),
                        "the trace's list of files has a wrong size",
                    )
                    .to_string(),
            ),
            Err(e) if e.is_damage() => damaged.push(e.to_string()),
            Err(e) => return Err(e),
        }
    }
    Ok(damaged)
}
