//! The interface of a running recording, shared by the BPF programs and the preloaded library.

use super::log::{Described, Log};
use super::observer::{Observer, Progress, Summary};
use super::RecordError;
use crate::command::{CommandLibrary, CommandStartError, RecordedCommand};
use std::time::Duration;

pub trait Session: Sized {
    /// Starts a command and records the command and all its descendants from their first
    /// instruction on. With BPF programs, the command and its descendants also load `library`.
    fn start_command(
        &mut self,
        words: &[String],
        to_stderr: bool,
        library: Option<&CommandLibrary>,
    ) -> Result<RecordedCommand, CommandStartError>;

    /// Gives up every privilege that the recorder no longer needs, unless the caller asked to keep
    /// the privileges. `needs_start` says that a command is still to be started.
    fn drop_privileges(&self, needs_start: bool);

    /// Waits for records up to `timeout`, handles them, and writes the complete events. If more
    /// records wait, returns the time of the latest record taken, otherwise `None`.
    fn turn(
        &mut self,
        timeout: Duration,
        observer: &mut dyn Observer,
    ) -> Result<Option<u64>, RecordError>;

    fn log(&mut self) -> &mut Log;

    fn count_losses(&mut self);

    fn progress(&self) -> Progress;

    fn described(&mut self) -> Described;

    /// Stops suspending processes of the command. The caller must resume suspended processes twice:
    /// immediately, and once more after the BPF programs are detached. A BPF program may still be
    /// suspending a process when this function returns.
    fn stop_suspending(&self);

    fn finish(
        self,
        command_status: Option<i32>,
        observer: &mut dyn Observer,
    ) -> Result<Summary, RecordError>;
}
