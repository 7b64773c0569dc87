//! The CPU and the priority of a program.

use crate::frame::children;
use std::process::Command;

#[derive(Debug, Clone, Copy)]
pub struct Seat {
    pub cpu: usize,
    /// The program has nice -20: it goes before all other programs that are not real-time.
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
