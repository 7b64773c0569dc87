//! The CPU and the priority of a program.

use crate::frame::children;
use std::process::Command;

#[derive(Debug, Clone, Copy)]
pub struct Seat {
    pub cpu: usize,
    /// Whether programs on this core have nice -20, and so get the core before all other programs
    /// without real-time priority.
    pub first: bool,
}

impl Seat {
    pub fn apply(&self, command: &mut Command) {
        children::pin(command, self.cpu);
        if self.first {
            children::nice(command, -20);
        }
    }
}
