//! A line on stderr that shows the progress of a long command.

use std::io::{self, IsTerminal, Write};

/// A status line that the caller updates every second. On a terminal, each update overwrites the
/// line. In a log, every tenth update is printed.
pub struct LiveLine {
    terminal: bool,
    updates: u32,
}

impl Default for LiveLine {
    fn default() -> Self {
        LiveLine::new()
    }
}

impl LiveLine {
    /// Creates a status line. It prints nothing before the first call of [`LiveLine::show`].
    pub fn new() -> LiveLine {
        LiveLine {
            terminal: io::stderr().is_terminal(),
            updates: 0,
        }
    }

    /// Shows `text` as the new status line. `text` must not contain control characters.
    pub fn show(&mut self, text: &str) {
        self.updates += 1;
        let mut err = io::stderr();
        let _ = if self.terminal {
            write!(err, "\r\x1b[K{text}")
        } else if self.updates.is_multiple_of(10) {
            writeln!(err, "{text}")
        } else {
            Ok(())
        };
    }

    /// Prints a permanent line to standard error in place of the status line, which the next update
    /// shows again.
    pub fn print(&mut self, line: &str) {
        self.clear();
        let _ = writeln!(io::stderr(), "{line}");
    }

    /// Removes the status line from the terminal.
    pub fn clear(&self) {
        if self.terminal && self.updates > 0 {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
