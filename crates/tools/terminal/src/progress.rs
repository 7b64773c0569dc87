//! A progress line on stderr for reading that takes longer than two seconds.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// The time from the begin of reading until progress is shown. Most reads end earlier, and show no
/// progress.
const PATIENCE: Duration = Duration::from_secs(2);

/// A line on standard error that shows how much of a file has been read.
pub struct Progress {
    what: String,
    started: Instant,
    shown: Option<Instant>,
    terminal: bool,
}

impl Progress {
    /// Creates a progress line that begins with the text `what`. Measures the elapsed time from now
    /// on.
    pub fn new(what: impl Into<String>) -> Self {
        Progress {
            what: what.into(),
            started: Instant::now(),
            shown: None,
            terminal: io::stderr().is_terminal(),
        }
    }

    /// Shows that `events` of `total` events have been read. `total` is 0 if the number is unknown.
    /// `bytes` is the size of all events together. The function is fast enough to be called every
    /// few thousand events.
    pub fn update(&mut self, events: u64, total: u64, bytes: u64) {
        let Some(elapsed) = self.due() else {
            return;
        };
        let rate = events as f64 / elapsed.as_secs_f64() / 1e6;
        let done = if total > 0 {
            let share = (events as f64 / total as f64).min(1.0);
            let megabytes = bytes as f64 / 1e6;
            format!(
                "{:.1} of {megabytes:.1} MB ({:.0} %)",
                share * megabytes,
                share * 100.0
            )
        } else {
            format!("{:.1} million events", events as f64 / 1e6)
        };
        self.show(&format!("{done}, {rate:.2} million events/s"));
    }

    /// Shows that `done` of `total` things have been read.
    pub fn count(&mut self, done: usize, total: usize, things: &str) {
        if self.due().is_some() {
            self.show(&format!("{done} of {total} {things}"));
        }
    }

    fn due(&mut self) -> Option<Duration> {
        let elapsed = self.started.elapsed();
        // A terminal's line is rewritten. A log gets one line every ten seconds.
        let pause = Duration::from_millis(if self.terminal { 200 } else { 10_000 });
        if elapsed < PATIENCE || self.shown.is_some_and(|t| t.elapsed() < pause) {
            return None;
        }
        self.shown = Some(Instant::now());
        Some(elapsed)
    }

    fn show(&self, done: &str) {
        let what = onbeat_document::text::shorten(&onbeat_document::text::visible(&self.what), 40);
        let line = format!("{what}: {done}");
        let mut err = io::stderr();
        let _ = if self.terminal {
            write!(err, "\r\x1b[K{line}")
        } else {
            writeln!(err, "{line}")
        };
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.terminal && self.shown.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
