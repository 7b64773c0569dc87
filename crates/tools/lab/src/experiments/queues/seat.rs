//! Where a program runs.

use crate::frame::children;
use std::process::Command;

/// A CPU, and the priority on it.
#[derive(Debug, Clone, Copy)]
pub struct Seat {
    /// The program runs on this CPU only.
    pub cpu: usize,
    /// It goes before everything else of the machine that is not real-time.
    pub first: bool,
}

impl Seat {
    /// Has a command run there.
    pub fn apply(&self, command: &mut Command) {
        children::pin(command, self.cpu);
        if self.first {
            children::nice(command, -20);
        }
    }
}
