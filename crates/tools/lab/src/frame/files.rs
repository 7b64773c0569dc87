//! Reading, creating and removing files and directories, with the lab's errors.

use super::{LabError, Result};
use serde::de::DeserializeOwned;
use std::fs;
use std::path::Path;

pub fn text(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(LabError::file("reading", path))
}

pub fn json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = fs::read(path).map_err(LabError::file("reading", path))?;
    serde_json::from_slice(&text).map_err(|e| LabError::in_file(path, e))
}

pub fn take_json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let read = json(path);
    let _ = fs::remove_file(path);
    read
}

pub fn take_text(path: &Path) -> Result<String> {
    let read = text(path);
    let _ = fs::remove_file(path);
    read
}

pub fn fresh_dir(path: &Path) -> Result<()> {
    let _ = fs::remove_dir_all(path);
    make_dir(path)
}

pub fn make_dir(path: &Path) -> Result<()> {
    fs::create_dir_all(path).map_err(LabError::file("making", path))
}

pub fn remove_dir(path: &Path) -> Result<()> {
    fs::remove_dir_all(path).map_err(LabError::file("removing", path))
}
