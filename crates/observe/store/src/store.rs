//! Opens and reads a store: its place, its index, its objects. Every content is compared with its
//! id.

use crate::backend::{Backend, Bucket, Entry, Local};
use crate::columns;
use crate::error::StoreError;
use crate::id::{Hashing, Id};
use crate::index::{self, Row};
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::path::Path;

pub(crate) const FORM: &str = "onbeat-store/1";

const MARK: &str = "onbeat-store.json";

const MAX_SMALL_OBJECT_BYTES: u64 = 1 << 30;

const ATTEMPTS: usize = 5;

/// An open store of models and traces, in a directory or a bucket.
pub struct Store {
    backend: Box<dyn Backend>,
}

#[derive(Serialize, Deserialize)]
struct Mark {
    schema: String,
}

/// The content of the index at the time when it was read.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Default)]
pub struct Index {
    pub rows: Vec<Row>,
    pub(crate) parts: Vec<String>,
    /// A line for each part of the index that could not be used.
    pub damaged: Vec<String>,
}

struct Limited {
    bytes: Vec<u8>,
    most: u64,
}

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if (self.bytes.len() + bytes.len()) as u64 > self.most {
            let most = self.most >> 20;
            return Err(io::Error::other(format!(
                "the file is larger than {most} MiB"
            )));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A function that returns the value of an environment variable, or `None` if it is not set.
pub type Variables<'v> = &'v dyn Fn(&str) -> Option<String>;

fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn backend(place: &str, variables: Variables<'_>) -> Result<Box<dyn Backend>, StoreError> {
    const KINDS: &str = "give a directory, or s3://BUCKET/PREFIX";
    let fault = |what: String| StoreError::Place {
        place: onbeat_document::text::visible(place),
        what,
    };
    match place.split_once("://") {
        None if place.is_empty() => Err(fault(KINDS.into())),
        None => Ok(Box::new(Local::new(Path::new(place)))),
        Some(("s3", path)) => {
            let bucket = Bucket::new(path, variables);
            Ok(Box::new(bucket.map_err(fault)?))
        }
        Some(_) => Err(fault(KINDS.into())),
    }
}

impl Store {
    /// Opens a store in a directory or at `s3://BUCKET/PREFIX`. Environment variables have the
    /// settings of an object store.
    pub fn open(place: &str) -> Result<Store, StoreError> {
        Store::open_with(place, &environment)
    }

    /// Opens a store like [`Store::open`], with `variables` instead of the process's environment.
    pub fn open_with(place: &str, variables: Variables<'_>) -> Result<Store, StoreError> {
        let store = Store {
            backend: backend(place, variables)?,
        };
        let mark = store.read(MARK, 4096)?;
        let mark = mark.ok_or_else(|| StoreError::NoStore(store.place().into()))?;
        let mark: Mark =
            serde_json::from_slice(&mark).map_err(|_| StoreError::NoStore(store.place().into()))?;
        match mark.schema == FORM {
            true => Ok(store),
            false => Err(StoreError::Form {
                place: store.place().into(),
                form: onbeat_document::text::visible(&mark.schema),
                own: FORM,
            }),
        }
    }

    /// Creates a store at an empty directory or unused URL, and returns true. If a store exists
    /// there, changes nothing and returns false.
    pub fn init(place: &str) -> Result<bool, StoreError> {
        Store::init_with(place, &environment)
    }

    /// Creates a store as [`Store::init`] does, with `variables` instead of the process's
    /// environment.
    pub fn init_with(place: &str, variables: Variables<'_>) -> Result<bool, StoreError> {
        let backend = backend(place, variables)?;
        let store = Store { backend };
        let made = store.backend.make();
        made.map_err(|e| store.access("create", "the directory", &e))?;
        if store.read(MARK, 4096)?.is_some() {
            return Store::open_with(place, variables).map(|_| false);
        }
        let others = store.backend.list("");
        if !others
            .map_err(|e| store.access("list", "files", &e))?
            .is_empty()
        {
            return Err(StoreError::Occupied(store.place().into()));
        }
        let mark = format!("{{\"schema\": \"{FORM}\"}}\n");
        store.write(MARK, mark.as_bytes())?;
        Ok(true)
    }

    /// Returns the directory or URL of the store, as the caller of [`Store::open`] gave it.
    pub fn place(&self) -> &str {
        self.backend.place()
    }

    pub(crate) fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    pub(crate) fn access(&self, action: &'static str, key: &str, error: &io::Error) -> StoreError {
        StoreError::Access {
            action,
            place: self.place().into(),
            key: key.into(),
            what: onbeat_document::text::visible(&error.to_string()),
        }
    }

    pub(crate) fn damaged(&self, key: &str, what: impl Into<String>) -> StoreError {
        StoreError::Damaged {
            place: self.place().into(),
            key: key.into(),
            what: what.into(),
        }
    }

    pub(crate) fn read(&self, key: &str, most: u64) -> Result<Option<Vec<u8>>, StoreError> {
        let mut out = Limited {
            bytes: Vec::new(),
            most,
        };
        match self.backend.copy(key, &mut out) {
            Ok(found) => Ok(found.map(|_| out.bytes)),
            Err(e) => Err(self.access("read", key, &e)),
        }
    }

    pub(crate) fn write(&self, key: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let written = self.backend.write(key, &mut &bytes[..], bytes.len() as u64);
        written.map_err(|e| self.access("write", key, &e))
    }

    pub(crate) fn list(&self, place: &str) -> Result<Vec<Entry>, StoreError> {
        let listed = self.backend.list(place);
        listed.map_err(|e| self.access("list", place, &e))
    }

    /// Writes an object of `bytes` bytes. The caller guarantees that the bytes match `id`.
    pub(crate) fn put_object(
        &self,
        id: Id,
        from: &mut dyn Read,
        bytes: u64,
    ) -> Result<(), StoreError> {
        let key = id.key("objects");
        let written = self.backend.write(&key, from, bytes);
        written.map_err(|e| self.access("write", &key, &e))
    }

    pub(crate) fn object(&self, id: Id) -> Result<Vec<u8>, StoreError> {
        let key = id.key("objects");
        let bytes = self.read(&key, MAX_SMALL_OBJECT_BYTES)?;
        let bytes = bytes.ok_or_else(|| self.damaged(&key, "the file is missing"))?;
        match Id::of(&bytes) == id {
            true => Ok(bytes),
            false => Err(self.damaged(
                &key,
                "the file's content does not match the hash in its name",
            )),
        }
    }

    /// Copies an object of any size. After an error, `out` may contain wrong bytes.
    pub(crate) fn copy_object(&self, id: Id, out: &mut dyn Write) -> Result<u64, StoreError> {
        let key = id.key("objects");
        let mut hashing = Hashing::new(out);
        let copied = self.backend.copy(&key, &mut hashing);
        let bytes = copied
            .map_err(|e| self.access("read", &key, &e))?
            .ok_or_else(|| self.damaged(&key, "the file is missing"))?;
        match hashing.id() == id {
            true => Ok(bytes),
            false => Err(self.damaged(
                &key,
                "the file's content does not match the hash in its name",
            )),
        }
    }

    /// Reads the index. Uses all undamaged parts, and lists the damaged ones in the result.
    pub fn index(&self) -> Result<Index, StoreError> {
        'again: for _ in 0..ATTEMPTS {
            let mut index = Index::default();
            for entry in self.list("index")? {
                match self.part(&entry.key) {
                    Ok(Some(rows)) => {
                        index.rows.extend(rows);
                        index.parts.push(entry.key);
                    }
                    // Another process has replaced this part since the list was made.
                    Ok(None) => continue 'again,
                    Err(e) if e.is_damage() => index.damaged.push(e.to_string()),
                    Err(e) => return Err(e),
                }
            }
            index.rows.sort();
            index.rows.dedup();
            return Ok(index);
        }
        let error =
            io::Error::other("other programs keep changing the parts of the index. Try again.");
        Err(self.access("read", "index", &error))
    }

    fn part(&self, key: &str) -> Result<Option<Vec<Row>>, StoreError> {
        let damaged = |what: &str| self.damaged(&onbeat_document::text::visible(key), what);
        let name = key
            .strip_prefix("index/")
            .and_then(|n| n.strip_suffix(".parquet"));
        let id = name.and_then(Id::parse);
        let id = id.ok_or_else(|| damaged("the file does not have the name of an index part"))?;
        let Some(bytes) = self.read(key, columns::MAX_BYTES)? else {
            return Ok(None);
        };
        if Id::of(&bytes) != id {
            return Err(damaged(
                "the file's content does not match the hash in its name",
            ));
        }
        index::decode(&bytes)
            .map(Some)
            .map_err(|what| damaged(&what))
    }

    /// Adds rows to the index, so that queries find their objects. The caller must have written the
    /// objects.
    pub(crate) fn add(&self, rows: &[Row]) -> Result<String, StoreError> {
        let encoded = index::encode(rows);
        let bytes = encoded.map_err(|e| self.access("write", "index", &io::Error::other(e)))?;
        let key = format!("index/{}.parquet", Id::of(&bytes));
        self.write(&key, &bytes)?;
        Ok(key)
    }

    /// Returns the id of the object whose id begins with these digits. Fails if no object or more
    /// than one object fits.
    pub fn find(&self, index: &Index, begin: &str) -> Result<Id, StoreError> {
        let fault = |what| StoreError::Name {
            place: self.place().into(),
            name: begin.into(),
            what,
        };
        let mut fit = index.rows.iter().map(|r| r.object);
        let mut fit = fit.by_ref().filter(|id| id.to_string().starts_with(begin));
        let first = fit
            .next()
            .ok_or_else(|| fault("no object has an id that begins with"))?;
        match fit.all(|other| other == first) {
            true => Ok(first),
            false => Err(fault("several objects have an id that begins with")),
        }
    }
}
