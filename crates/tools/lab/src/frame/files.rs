//! Files and directories that an experiment reads and makes.

use super::{LabError, Result};
use serde::de::DeserializeOwned;
use std::fs;
use std::path::Path;

/// The text of a file.
pub fn text(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(LabError::file("reading", path))
}

/// What a file says in JSON.
pub fn json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = fs::read(path).map_err(LabError::file("reading", path))?;
    serde_json::from_slice(&text).map_err(|e| LabError::in_file(path, e))
}

/// What a file says in JSON; it is removed.
pub fn take_json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let read = json(path);
    let _ = fs::remove_file(path);
    read
}

/// The text of a file, which is removed.
pub fn take_text(path: &Path) -> Result<String> {
    let read = text(path);
    let _ = fs::remove_file(path);
    read
}

/// Makes an empty directory, also where there was one.
pub fn fresh_dir(path: &Path) -> Result<()> {
    let _ = fs::remove_dir_all(path);
    make_dir(path)
}

/// Makes a directory if need be, with those above it.
pub fn make_dir(path: &Path) -> Result<()> {
    fs::create_dir_all(path).map_err(LabError::file("making", path))
}

/// Removes a directory with what is in it.
pub fn remove_dir(path: &Path) -> Result<()> {
    fs::remove_dir_all(path).map_err(LabError::file("removing", path))
}
