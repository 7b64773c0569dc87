//! Failures of a command, each in one line that says what to do.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// A file or directory does not exist.
    #[error("{}: no such file or directory{hint}", path.display())]
    Missing {
        /// The file or directory.
        path: PathBuf,
        /// What to do about it.
        hint: String,
    },
    /// Reading failed.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Writing failed.
    #[error("cannot write {}: {source}; name another place with -o", path.display())]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Writing to the standard output failed.
    #[error("cannot write to the standard output: {0}")]
    Stdout(io::Error),
    /// The content of a file cannot be used.
    #[error("{}: {what}", path.display())]
    InFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        what: String,
    },
    /// A directory was given where a model is needed.
    #[error("{p} is a directory, and {command} needs a model file: if it is a trace, make one with `onbeat model {p}`", p = path.display())]
    TraceForModel {
        /// The directory.
        path: PathBuf,
        /// The command.
        command: String,
    },
    /// A model was given where a trace is needed.
    #[error("{} is a model file, and {command} needs a trace directory (what `onbeat record -o DIR` wrote){hint}", path.display())]
    ModelForTrace {
        /// The file.
        path: PathBuf,
        /// The command.
        command: String,
        /// What to do with a model instead.
        hint: &'static str,
    },
    /// The options cannot be used together, or have a wrong value.
    #[error("{0}")]
    Usage(String),
    /// This kernel or user may not do what was asked.
    #[error("{0}")]
    Refused(String),
    /// Another failure.
    #[error("{0}")]
    Failed(String),
}

impl CliError {
    /// A failure that its own text describes.
    pub fn failed(error: impl Display) -> CliError {
        CliError::Failed(error.to_string())
    }

    /// Makes an error of what is wrong with the content of the file at `path`.
    pub fn in_file<E: Display>(path: &Path) -> impl FnOnce(E) -> CliError + '_ {
        |what| CliError::InFile {
            path: path.into(),
            what: what.to_string(),
        }
    }

    /// The process's exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            CliError::Usage(_) => 2,
            CliError::Refused(_) => 4,
            _ => 1,
        }
    }

    /// True if the reader of the output has closed it.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, CliError::Stdout(e) if e.kind() == io::ErrorKind::BrokenPipe)
    }
}

impl From<onbeat_document::merge::ModelMergeError> for CliError {
    fn from(error: onbeat_document::merge::ModelMergeError) -> CliError {
        CliError::failed(error)
    }
}
