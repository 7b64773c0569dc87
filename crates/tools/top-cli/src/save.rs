//! Saves the last minute of the running recording as a trace.

use onbeat_terminal::date;
use onbeat_terminal::traces::copy_part;
use onbeat_trace::Reader;
use std::path::{Path, PathBuf};

const LENGTH_NS: u64 = 60_000_000_000;

/// Writes the events of the last minute from `recording` into a new directory, together with the
/// earlier events that describe the system. Returns the directory's name, or the reason why it
/// could not be written.
pub fn last_minute(recording: &Path) -> Result<PathBuf, String> {
    let directory = date::trace_directory();
    copy(recording, &directory, LENGTH_NS)?;
    Ok(directory)
}

fn copy(recording: &Path, to: &Path, length_ns: u64) -> Result<(), String> {
    let mut reader = Reader::open(recording).map_err(|e| e.to_string())?;
    let last = reader.events().map(|event| event.time_ns).max();
    let last = last.ok_or("nothing is recorded yet")?;
    let span = last.saturating_sub(length_ns)..=u64::MAX;
    copy_part(&mut reader, to, &span).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use onbeat_trace::table::is_state;
    use onbeat_trace::{generate, Event, EventKind, Writer, WriterOptions};

    #[test]
    fn a_saved_last_minute_keeps_the_names_of_the_system() {
        let held = tempfile::tempdir().unwrap();
        let (from, to) = (held.path().join("from"), held.path().join("to"));
        let mut writer = Writer::create(&from, WriterOptions::default()).unwrap();
        let manifest = generate::generate(&mut writer, 40_000, 1).unwrap();
        writer.finish(manifest).unwrap();
        let events = |path: &Path| -> Vec<_> { Reader::open(path).unwrap().events().collect() };
        let all = events(&from);
        let last = all.last().unwrap().time_ns;
        const SECOND: u64 = 1_000_000_000;
        assert!(last - all[0].time_ns > 2 * SECOND, "the recording is long");
        copy(&from, &to, SECOND).unwrap();
        let saved = events(&to);
        let is_late = |e: &&onbeat_trace::Event| e.time_ns >= last - SECOND;
        assert_eq!(
            saved.iter().filter(is_late).count(),
            all.iter().filter(is_late).count()
        );
        let is_name = |e: &Event| matches!(e.kind, EventKind::Bystander { .. });
        let belongs = |e: &Event| is_late(&e) || is_state(&e.kind) || is_name(e);
        assert!(saved.iter().all(belongs));
        assert!(saved.len() < all.len());
        assert!(
            copy(&from, &to, SECOND).is_err(),
            "an existing trace is not replaced"
        );
    }
}
