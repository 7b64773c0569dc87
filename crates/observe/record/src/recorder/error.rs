//! Why a recording could not be made, or ended early.

use crate::command::CommandStartError;
use crate::kernel::KernelLoadError;
use crate::limits::LimitError;
use crate::privilege::MissingPrivilege;
use onbeat_trace::writer::{TraceCreateError, TraceWriteError};
use thiserror::Error;

/// Why a recording could not be made, or ended early.
#[derive(Debug, Error)]
pub enum RecordError {
    /// This user may not record.
    #[error(transparent)]
    Privilege(#[from] MissingPrivilege),
    /// The kernel refused the programs.
    #[error(transparent)]
    Kernel(#[from] KernelLoadError),
    /// A tracepoint of the kernel without which there is no recording.
    #[error("cannot attach to the kernel's {name}: {reason}: this kernel lacks the tracepoint, or its BTF does not describe it")]
    Tracepoint {
        /// As the kernel names it.
        name: &'static str,
        /// The kernel's error.
        reason: String,
    },
    /// The trace directory could not be made.
    #[error(transparent)]
    Create(#[from] TraceCreateError),
    /// Writing failed (disk full, for one): what was written before can be read.
    #[error(transparent)]
    Write(#[from] TraceWriteError),
    /// The library for the command's processes could not be put where they find it.
    #[error("cannot make the library that --preload loads into the command: {0}: it needs a directory that you may write to and run programs from (TMPDIR), and /dev/shm")]
    Preload(std::io::Error),
    /// Nobody can be given the library.
    #[error(
        "--preload needs a command to load its library into: onbeat record --preload -- COMMAND"
    )]
    PreloadWithoutCommand,
    /// The command could not be started.
    #[error(transparent)]
    Command(#[from] CommandStartError),
    /// Ids in the kernel are not ours.
    #[error("process ids of this container are its own, and other processes of the machine have them too: run onbeat outside of it, or in one with the machine's ids (docker run --pid=host)")]
    PidNamespace,
    /// A process to be observed does not run.
    #[error("no process {0}: give the id of a running process to --pid")]
    NoProcess(u32),
    /// What the recording is to be limited to.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// Signals could not be caught.
    #[error("cannot catch signals: {0}")]
    Signals(std::io::Error),
}

impl RecordError {
    /// True where the command line asks for what is not there.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            RecordError::NoProcess(_) | RecordError::Limit(_) | RecordError::PreloadWithoutCommand
        )
    }

    /// True where this machine or user cannot record at all, whatever the options.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            RecordError::Privilege(_)
                | RecordError::Kernel(_)
                | RecordError::Tracepoint { .. }
                | RecordError::PidNamespace
        )
    }
}
