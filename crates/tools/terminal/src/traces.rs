//! The parts of reading a trace that all commands share: its run and the reader's warnings.

use crate::term;
use onbeat_document::schema::{Run, DEFAULT_MODE};
use onbeat_trace::manifest::State;
use onbeat_trace::table::is_state;
use onbeat_trace::{Event, EventKind, Reader, Writer, WriterOptions};
use std::io::{self, Write};
use std::ops::RangeInclusive;
use std::path::Path;

const WARNINGS_SHOWN: usize = 5;

/// Returns the run that a trace's manifest describes. The manifest is incomplete if the recorder
/// was killed or has deleted old segments. Duration and losses are then 0, and synthesis computes
/// them from the events.
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

/// Prints the warnings of a trace on standard error: the first five, and the number of the rest.
pub fn warn(path: &Path, warnings: &[String]) {
    let mut err = io::stderr();
    for warning in warnings.iter().take(WARNINGS_SHOWN) {
        let line = format!("{}: {warning}", path.display());
        let _ = writeln!(err, "onbeat: warning: {}", term::one_line(&line));
    }
    if warnings.len() > WARNINGS_SHOWN {
        let more = warnings.len() - WARNINGS_SHOWN;
        let _ = writeln!(
            err,
            "onbeat: warning: {}: more warnings, not shown: {more}",
            path.display()
        );
    }
}

/// The time after which the recorder repeats the names of threads that are not observed, in ns.
const NAMED_EVERY_NS: u64 = 10_000_000_000;

/// Returns whether an event names a thread that is not observed, and comes shortly before `start`.
/// The recorder repeats these names regularly, so the events shortly before `start` contain all
/// names that are still valid.
fn is_name(event: &Event, start: u64) -> bool {
    let is_latest = start.saturating_sub(event.time_ns) <= NAMED_EVERY_NS + NAMED_EVERY_NS / 10;
    is_latest && matches!(event.kind, EventKind::Bystander { .. })
}

/// Copies the part of a recording with the times in `span` (CLOCK_MONOTONIC, ns) into a new trace
/// in the directory `to`. Of the events before the span, copies those that describe the system.
/// Returns the times of the first and the last event in the span.
///
/// # Errors
///
/// Returns the reason in one line. A span without events is an error, too. The directory then
/// contains an unfinished trace.
pub fn copy_part(
    reader: &mut Reader,
    to: &Path,
    span: &RangeInclusive<u64>,
) -> Result<(u64, u64), String> {
    let mut manifest = reader.manifest().clone();
    let mut writer = Writer::create(to, WriterOptions::default()).map_err(|e| e.to_string())?;
    let mut found: Option<(u64, u64)> = None;
    let mut offset_ns = None;
    for event in reader.events() {
        if event.time_ns > *span.end() {
            break;
        }
        if let EventKind::ClockOffset {
            realtime_minus_monotonic_ns,
        } = event.kind
        {
            if offset_ns.is_none() || event.time_ns <= *span.start() {
                offset_ns = Some(realtime_minus_monotonic_ns);
            }
        }
        if event.time_ns >= *span.start() {
            let first = found.map_or(event.time_ns, |found| found.0);
            found = Some((first, event.time_ns));
        } else if !is_state(&event.kind) && !is_name(&event, *span.start()) {
            continue;
        }
        writer.push(&event).map_err(|e| e.to_string())?;
    }
    let (first, last) = found.ok_or("no event was recorded in this time span")?;
    let start = (*span.start()).max(manifest.span.start_monotonic_ns);
    let before = start - manifest.span.start_monotonic_ns;
    manifest.span.start_monotonic_ns += before;
    // The clock may have been set since the recording began.
    manifest.span.start_realtime_ns = match offset_ns {
        Some(offset_ns) => start.saturating_add_signed(offset_ns),
        None => manifest.span.start_realtime_ns + before,
    };
    manifest.span.duration_ns = last.saturating_sub(start);
    writer.finish(manifest).map_err(|e| e.to_string())?;
    Ok((first, last))
}
