//! Copies models and traces out of a store, with the same bytes as when they were put.

use crate::error::StoreError;
use crate::id::Id;
use crate::index::Kind;
use crate::store::Store;
use serde::{Deserialize, Serialize};
use std::path::Path;

const SCHEMA: &str = "onbeat-trace-files/1";

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Listing {
    schema: String,
    pub files: Vec<Listed>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Listed {
    pub name: String,
    pub bytes: u64,
    pub object: String,
}

impl Listing {
    pub(crate) fn of(files: Vec<Listed>) -> Listing {
        Listing {
            schema: SCHEMA.into(),
            files,
        }
    }

    pub(crate) fn is_name(name: &str) -> bool {
        let number = name
            .strip_prefix("segment-")
            .and_then(|n| n.strip_suffix(".obt"));
        name == onbeat_trace::manifest::FILE
            || number.is_some_and(|n| {
                (6..=10).contains(&n.len()) && n.bytes().all(|b| b.is_ascii_digit())
            })
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec_pretty(self).unwrap_or_default();
        bytes.push(b'\n');
        bytes
    }

    /// Reads a list of files from untrusted bytes. Refuses names that a trace does not use, and
    /// names that occur twice.
    pub(crate) fn read(bytes: &[u8]) -> Result<Listing, String> {
        let listing: Listing = serde_json::from_slice(bytes)
            .map_err(|e| format!("the object is not a list of files: {e}"))?;
        let named = |f: &Listed| Self::is_name(&f.name) && Id::parse(&f.object).is_some();
        let sorted = listing.files.windows(2).all(|f| f[0].name < f[1].name);
        match listing.schema == SCHEMA && sorted && listing.files.iter().all(named) {
            true => Ok(listing),
            false => Err("the object is not a list of a trace's files".into()),
        }
    }
}

/// The result of copying an object from a store to this machine.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Got {
    pub object: Id,
    pub kind: Kind,
    /// The number of files that were written: 1 for a model.
    pub files: u64,
    pub bytes: u64,
}

/// Writes a model to the file `output`, or a trace to the new directory `output`.
///
/// # Errors
///
/// If the content of a stored file does not fit the id in its name, the error names this file.
/// After an error, no part of the object is left at `output`.
pub fn get(store: &Store, object: Id, kind: Kind, output: &Path) -> Result<Got, StoreError> {
    let fault = |e: std::io::Error| StoreError::Input {
        path: output.into(),
        what: onbeat_document::text::visible(&e.to_string()),
    };
    let content = store.object(object)?;
    let mut got = Got {
        object,
        kind,
        files: 1,
        bytes: content.len() as u64,
    };
    if kind == Kind::Model {
        use std::io::Write as _;
        onbeat_files::replace(output, |file| file.write_all(&content)).map_err(fault)?;
        return Ok(got);
    }
    let listing =
        Listing::read(&content).map_err(|what| store.damaged(&object.key("objects"), what))?;
    // Copy into a directory beside `output`, so that the trace appears complete or not at all.
    let mut beside = output.as_os_str().to_owned();
    beside.push(format!(".{}.part", std::process::id()));
    let beside = Path::new(&beside);
    if output.exists() {
        return Err(fault(std::io::ErrorKind::AlreadyExists.into()));
    }
    std::fs::create_dir(beside).map_err(fault)?;
    let copied = copy_files(store, &listing, beside, &mut got);
    let done = copied.and_then(|()| std::fs::rename(beside, output).map_err(fault));
    if done.is_err() {
        let _ = std::fs::remove_dir_all(beside);
    }
    done.map(|()| got)
}

fn copy_files(
    store: &Store,
    listing: &Listing,
    into: &Path,
    got: &mut Got,
) -> Result<(), StoreError> {
    (got.files, got.bytes) = (0, 0);
    for file in &listing.files {
        let path = into.join(&file.name);
        let fault = |e: std::io::Error| StoreError::Input {
            path: path.clone(),
            what: onbeat_document::text::visible(&e.to_string()),
        };
        let Some(id) = Id::parse(&file.object) else {
            continue;
        };
        let mut out = std::fs::File::create_new(&path).map_err(fault)?;
        got.bytes += store.copy_object(id, &mut out)?;
        got.files += 1;
    }
    Ok(())
}
