//! The last lines of `onbeat model` and `onbeat merge`: a summary of the model.

use crate::error::CliError;
use crate::term;
use onbeat_document::Model;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::Path;

/// Prints the summary of a model that was written to `path`. If the model went to the standard
/// output, the summary goes to standard error.
pub fn print(path: &Path, model: &Model) -> Result<(), CliError> {
    if path.as_os_str() == "-" {
        write(&mut io::stderr(), path, model)
    } else {
        write(&mut io::stdout(), path, model)
    }
    .map_err(CliError::Stdout)
}

fn counted(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn lost(model: &Model) -> String {
    let mut lost: BTreeMap<&str, u64> = BTreeMap::new();
    for (kind, n) in model.runs.iter().flat_map(|r| &r.lost) {
        let sum = lost.entry(kind).or_default();
        *sum = sum.saturating_add(*n);
    }
    let lost: Vec<String> = lost
        .iter()
        .filter(|(_, n)| **n > 0)
        .map(|(k, n)| format!("{n} of {k}"))
        .collect();
    if lost.is_empty() {
        "none".into()
    } else {
        lost.join(", ")
    }
}

fn runs(model: &Model) -> String {
    let sum = |of: fn(&onbeat_document::schema::Run) -> u64| {
        model.runs.iter().fold(0u64, |a, r| a.saturating_add(of(r)))
    };
    let modes: BTreeSet<&str> = model.runs.iter().map(|r| r.mode.as_str()).collect();
    format!(
        "{}, {}, {}, mode {}",
        counted(model.runs.len(), "run"),
        onbeat_document::text::duration(sum(|r| r.duration_ns) as f64),
        counted(sum(|r| r.events) as usize, "event"),
        modes.into_iter().collect::<Vec<_>>().join(", ")
    )
}

fn write(out: &mut dyn Write, path: &Path, model: &Model) -> io::Result<()> {
    let nodes: BTreeSet<&str> = model.callbacks.iter().map(|c| c.node.as_str()).collect();
    let callbacks = model.callbacks.len();
    let mut lines = vec![
        ("model", path.display().to_string()),
        ("runs", runs(model)),
        (
            "callbacks",
            format!("{callbacks} in {}", counted(nodes.len(), "node")),
        ),
        (
            "chains",
            format!(
                "{}, over {}",
                model.chains.len(),
                counted(model.edges.len(), "edge")
            ),
        ),
        ("events lost", lost(model)),
    ];
    lines.extend(model.assumptions.iter().map(|t| ("assumed", t.clone())));
    lines.extend(model.coverage.iter().map(|t| ("not seen", t.clone())));
    for (name, text) in lines {
        writeln!(out, "{name:<12} {}", term::one_line(&text))?;
    }
    Ok(())
}
