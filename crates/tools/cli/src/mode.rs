//! The option `--mode`, which selects the figures of one mode.

use onbeat_document::Model;
use onbeat_terminal::CliError;
use std::collections::BTreeSet;
use std::path::Path;

pub fn check(model: &Model, mode: Option<&str>, path: &Path) -> Result<(), CliError> {
    let Some(mode) = mode else { return Ok(()) };
    let known: BTreeSet<_> = model.runs.iter().map(|r| r.mode.as_str()).collect();
    if known.contains(mode) {
        return Ok(());
    }
    let known = known.into_iter().collect::<Vec<_>>().join(", ");
    Err(CliError::Failed(format!(
        "no run in {} has mode '{mode}'. Choose one of: {known}",
        path.display()
    )))
}
