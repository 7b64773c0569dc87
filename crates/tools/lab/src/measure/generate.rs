//! Writes generated traces of any length into a directory.

use crate::frame::{LabError, Result};
use onbeat_trace::generate::generate;
use onbeat_trace::{Writer, WriterOptions};
use std::path::Path;

pub fn write_trace(events: u64, seed: u64, dir: &Path) -> Result<()> {
    let what = || format!("the generated trace {}", dir.display());
    let mut writer = Writer::create(dir, WriterOptions::default())
        .map_err(|e| LabError::unexpected(what(), e))?;
    let manifest =
        generate(&mut writer, events, seed).map_err(|e| LabError::unexpected(what(), e))?;
    writer
        .finish(manifest)
        .map_err(|e| LabError::unexpected(what(), e))
}
