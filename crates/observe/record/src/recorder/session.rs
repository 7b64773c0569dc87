//! What a recording under way does, whatever its events come from.

use super::log::{Described, Log};
use super::observer::{Observer, Progress, Summary};
use super::RecordError;
use crate::command::{CommandStartError, RecordedCommand};
use std::time::Duration;

/// A recording under way.
pub trait Session: Sized {
    /// Starts a command that is observed from its first instruction, and all that it starts.
    fn start_command(
        &mut self,
        words: &[String],
        to_stderr: bool,
    ) -> Result<RecordedCommand, CommandStartError>;

    /// Gives up every privilege that is not needed any more, unless the caller keeps them.
    /// `command`: one is still to be started.
    fn give_up(&self, command: bool);

    /// Waits for records up to `timeout`, handles them, and writes the events that are complete.
    /// Returns the time of the newest where more wait to be taken.
    fn turn(
        &mut self,
        timeout: Duration,
        observer: &mut dyn Observer,
    ) -> Result<Option<u64>, RecordError>;

    /// What is written.
    fn log(&mut self) -> &mut Log;

    /// Records new losses, and adds them to the manifest.
    fn count_losses(&mut self);

    /// The recording so far, without a rate.
    fn progress(&self) -> Progress;

    /// How it is made, for the manifest.
    fn described(&mut self) -> Described;

    /// From now on no process of the command is suspended any more. Those that are have to be
    /// resumed, once now and once when the programs are gone: one of them may be at work.
    fn let_run(&self);

    /// Takes the last records and completes the trace.
    fn finish(
        self,
        command_status: Option<i32>,
        observer: &mut dyn Observer,
    ) -> Result<Summary, RecordError>;
}
