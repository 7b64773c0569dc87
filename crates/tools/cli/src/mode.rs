//! `--mode`: the figures of one mode of operation.

use crate::error::CliError;
use onbeat_model::Model;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Fails if the model has no run of this mode; the error lists the modes that it has.
pub fn check(model: &Model, mode: Option<&str>, path: &Path) -> Result<(), CliError> {
    let Some(mode) = mode else { return Ok(()) };
    let known: BTreeSet<_> = model.runs.iter().map(|r| r.mode.as_str()).collect();
    if known.contains(mode) {
        return Ok(());
    }
    let known = known.into_iter().collect::<Vec<_>>().join(", ");
    Err(CliError::NoSuchMode {
        mode: mode.into(),
        path: path.into(),
        known,
    })
}

/// The figures of a mode. If all runs have this mode, they are the overall ones.
pub fn figures<'a, F>(
    model: &Model,
    all: &'a F,
    modes: &'a BTreeMap<String, F>,
    mode: Option<&str>,
) -> Option<&'a F> {
    match mode {
        None => Some(all),
        Some(mode) => modes
            .get(mode)
            .or_else(|| model.runs.iter().all(|r| r.mode == mode).then_some(all)),
    }
}
