//! The interface of a running recording, shared by the BPF programs and the preloaded library.

use super::log::{Described, Log};
use super::observer::{Observer, Progress, Summary};
use super::RecordError;
use crate::command::{CommandStartError, RecordedCommand};
use std::time::Duration;

pub trait Session: Sized {
    /// Starts a command. The command and all its descendants are recorded from their first
    /// instruction.
    fn start_command(
        &mut self,
        words: &[String],
        to_stderr: bool,
    ) -> Result<RecordedCommand, CommandStartError>;

    /// Gives up every privilege that is not needed any more, unless the caller keeps them.
    /// `needs_start` says that a command is still to be started.
    fn drop_privileges(&self, needs_start: bool);

    /// Waits for records up to `timeout`, handles them, and writes the events that are complete.
    /// Returns the time of the latest record taken if more records wait.
    fn turn(
        &mut self,
        timeout: Duration,
        observer: &mut dyn Observer,
    ) -> Result<Option<u64>, RecordError>;

    fn log(&mut self) -> &mut Log;

    /// Records new losses, and adds them to the manifest.
    fn count_losses(&mut self);

    fn progress(&self) -> Progress;

    fn described(&mut self) -> Described;

    /// Stops suspending processes of the command. The caller must resume suspended processes now,
    /// and again after the programs are gone, because a program may still be suspending one.
    fn stop_suspending(&self);

    fn finish(
        self,
        command_status: Option<i32>,
        observer: &mut dyn Observer,
    ) -> Result<Summary, RecordError>;
}
