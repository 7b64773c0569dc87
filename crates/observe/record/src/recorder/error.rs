//! The reasons why a recording fails.

use crate::command::CommandStartError;
use crate::kernel::KernelLoadError;
use crate::limits::LimitError;
use crate::privilege::MissingPrivilege;
use onbeat_trace::writer::{TraceCreateError, TraceWriteError};
use thiserror::Error;

#[allow(missing_docs)] // The messages say the rest.
#[derive(Debug, Error)]
pub enum RecordError {
    #[error(transparent)]
    Privilege(#[from] MissingPrivilege),
    #[error(transparent)]
    Kernel(#[from] KernelLoadError),
    #[error("cannot attach to the kernel's {name}: {reason}. This kernel lacks the tracepoint, or its BTF does not describe the tracepoint.")]
    Tracepoint { name: &'static str, reason: String },
    #[error("{0}")]
    Unprobed(String),
    #[error(transparent)]
    Create(#[from] TraceCreateError),
    /// A write to the trace failed, for example because the disk is full. Blocks that were written
    /// before can be read.
    #[error(transparent)]
    Write(#[from] TraceWriteError),
    #[error("cannot make the library that --preload loads into the command: {0}. Set TMPDIR to a directory that you can write to and run programs from, and make sure that /dev/shm exists.")]
    Preload(std::io::Error),
    #[error(
        "--preload needs a command to load its library into: onbeat record --preload -- COMMAND"
    )]
    PreloadWithoutCommand,
    #[error(transparent)]
    Command(#[from] CommandStartError),
    #[error("this container has its own process ids, which belong to other processes of the machine. Run onbeat outside of the container, or share the machine's ids (docker run --pid=host).")]
    PidNamespace,
    #[error("no process has the id {0}. Give --pid the id of a running process.")]
    NoProcess(u32),
    #[error(transparent)]
    Limit(#[from] LimitError),
    #[error("cannot catch signals: {0}")]
    Signals(std::io::Error),
}

impl RecordError {
    /// Returns whether the command line is wrong: it names something that does not exist or cannot
    /// be used, or it requests the preloaded library without a command.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            RecordError::NoProcess(_)
                | RecordError::Limit(_)
                | RecordError::PreloadWithoutCommand
                | RecordError::Kernel(KernelLoadError::Types(_))
        )
    }

    /// Returns whether recording is impossible on this machine or for this user, with any options.
    pub fn is_refusal(&self) -> bool {
        !self.is_usage()
            && matches!(
                self,
                RecordError::Privilege(_)
                    | RecordError::Kernel(_)
                    | RecordError::Tracepoint { .. }
                    | RecordError::PidNamespace
                    | RecordError::Unprobed(_)
            )
    }
}
