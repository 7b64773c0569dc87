//! Writes lines to the standard output, which a service manager passes to its journal.
//!
//! A thread writes, so that a reader that never reads stops neither the recorder nor the judgement.
//! Lines without room are left out and counted.

use onbeat_terminal::term;
use std::io::{self, Write};
use std::sync::mpsc::{sync_channel, SyncSender, TrySendError};
use std::thread::JoinHandle;

const WAITING_MAX: usize = 1024;

/// The importance of a line in the journal, with the numbers of syslog(3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    Error = 3,
    Warning = 4,
    Notice = 5,
}

pub struct Journal {
    lines: Option<SyncSender<String>>,
    thread: Option<JoinHandle<()>>,
    /// If true, each line begins with its level in the form of sd-daemon(3), for example `<4>`.
    prefixes: bool,
    /// If true, the monitor waits with a line until the queue has room. If false, it leaves the
    /// line out and counts it if the queue is full.
    waits: bool,
    left_out: u64,
}

impl Journal {
    /// Starts the thread that writes the journal. If `waits` is true, no line is left out; the
    /// monitor then waits when the thread is slow.
    pub fn begin(waits: bool) -> Journal {
        let (lines, written) = sync_channel::<String>(WAITING_MAX);
        let write = move || {
            for line in written {
                let mut out = io::stdout().lock();
                let done = out.write_all(line.as_bytes()).and_then(|()| out.flush());
                if done.is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("journal".into());
        Journal {
            lines: Some(lines),
            thread: thread.spawn(write).ok(),
            prefixes: std::env::var_os("JOURNAL_STREAM").is_some(),
            waits,
            left_out: 0,
        }
    }

    /// Writes a line to the journal. `text` may contain names from traced processes.
    pub fn say(&mut self, level: Level, text: &str) {
        if self.left_out > 0 {
            let text = format!("{} lines of this journal were left out", self.left_out);
            if self.send(Level::Warning, &text) {
                self.left_out = 0;
            }
        }
        let is_sent = self.send(level, text);
        self.left_out += u64::from(!is_sent);
    }

    fn send(&self, level: Level, text: &str) -> bool {
        let prefix = match self.prefixes {
            true => format!("<{}>", level as u8),
            false => String::new(),
        };
        let line = format!("{prefix}{}\n", term::one_line(text));
        match &self.lines {
            Some(lines) if self.waits => lines.send(line).is_ok(),
            // The reader has gone: nobody misses the line.
            Some(lines) => !matches!(lines.try_send(line), Err(TrySendError::Full(_))),
            None => false,
        }
    }

    pub fn end(mut self) {
        self.lines = None;
        if let Some(thread) = self.thread.take().filter(|_| self.waits) {
            let _ = thread.join();
            return;
        }
        // A reader that never reads does not keep a service from ending.
        let until = std::time::Instant::now() + std::time::Duration::from_secs(1);
        while self.thread.as_ref().is_some_and(|t| !t.is_finished()) {
            if std::time::Instant::now() >= until {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}
