//! The parts of reading a trace that all commands share: its run and the reader's warnings.

use crate::term;
use onbeat_document::schema::{Run, DEFAULT_MODE};
use onbeat_trace::manifest::State;
use onbeat_trace::Reader;
use std::io::{self, Write};
use std::path::Path;

/// The number of warnings shown for one trace. The rest are only counted.
const WARNINGS_SHOWN: usize = 5;

/// Returns the run that a trace's manifest describes. The manifest is incomplete if the recorder
/// was killed or has deleted old segments. The events then give duration and losses.
pub fn run_of(reader: &Reader, mode: Option<&str>) -> Run {
    let manifest = reader.manifest();
    let complete = manifest.state == State::Complete && reader.has_beginning();
    let mode = mode.unwrap_or(&manifest.mode);
    let lost = manifest.lost.iter().map(|(kind, cpus)| {
        let sum = cpus.values().fold(0u64, |a, n| a.saturating_add(*n));
        (kind.clone(), sum)
    });
    let mut distribution = manifest.observed.distributions.clone();
    distribution.sort();
    distribution.dedup();
    Run {
        id: manifest.id.clone(),
        host: manifest.machine.hostname.clone(),
        boot: manifest.machine.boot_id.clone(),
        mode: if mode.is_empty() { DEFAULT_MODE } else { mode }.to_string(),
        distribution,
        start: manifest.span.start_realtime_ns,
        duration_ns: if complete {
            manifest.span.duration_ns
        } else {
            0
        },
        lost: lost.filter(|(_, n)| complete && *n > 0).collect(),
        events: 0,
    }
}

/// Prints the warnings of a trace on standard error: the first five, and the number of the others.
pub fn warn(path: &Path, warnings: &[String]) {
    let mut err = io::stderr();
    for warning in warnings.iter().take(WARNINGS_SHOWN) {
        let line = format!("{}: {warning}", path.display());
        let _ = writeln!(err, "onbeat: warning: {}", term::one_line(&line));
    }
    if warnings.len() > WARNINGS_SHOWN {
        let more = warnings.len() - WARNINGS_SHOWN;
        let _ = writeln!(err, "onbeat: warning: {}: {more} more", path.display());
    }
}
