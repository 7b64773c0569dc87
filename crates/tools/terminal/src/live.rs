//! The line on stderr that shows how a long command proceeds.

use std::io::{self, IsTerminal, Write};

/// A line that is updated every second. A terminal's line is rewritten; a log gets one of ten.
pub struct LiveLine {
    terminal: bool,
    updates: u32,
}

impl LiveLine {
    /// Nothing is shown yet.
    pub fn new() -> LiveLine {
        LiveLine {
            terminal: io::stderr().is_terminal(),
            updates: 0,
        }
    }

    /// Shows a text without control characters.
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

    /// Prints a line that stays, above the live one.
    pub fn print(&mut self, line: &str) {
        self.clear();
        let _ = writeln!(io::stderr(), "{line}");
    }

    /// Takes the line off the terminal.
    pub fn clear(&self) {
        if self.terminal && self.updates > 0 {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
