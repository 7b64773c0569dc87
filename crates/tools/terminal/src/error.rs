//! The errors of a command. Each one is printed as one line that says what to do.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

/// The reason why a command failed, with all that its one-line message needs.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum CliError {
    #[error("{}: no such file or directory{hint}", path.display())]
    Missing { path: PathBuf, hint: String },
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write {}: {source}. Choose another file with -o", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot write to the standard output: {0}")]
    Stdout(io::Error),
    #[error("{}: {what}", path.display())]
    InFile { path: PathBuf, what: String },
    #[error("{p} is a directory, and {command} needs a model file. If it is a trace, make a model with `onbeat model {p}`", p = path.display())]
    TraceForModel { path: PathBuf, command: String },
    #[error("{} is a model file, and {command} needs a trace directory (written by `onbeat record -o DIR`){hint}", path.display())]
    ModelForTrace {
        path: PathBuf,
        command: String,
        /// The end of the message: advice for a user who named a model file, for example "; merge
        /// models with `onbeat merge`". It may be empty.
        hint: &'static str,
    },
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Failed(String),
}

impl CliError {
    /// Makes an error whose message is the text of `error`.
    pub fn failed(error: impl Display) -> CliError {
        CliError::Failed(error.to_string())
    }

    /// Returns a function that turns a fault in the content of the file at `path` into an error.
    pub fn in_file<E: Display>(path: &Path) -> impl FnOnce(E) -> CliError + '_ {
        |what| CliError::InFile {
            path: path.into(),
            what: what.to_string(),
        }
    }

    /// Returns the exit code for this error: 2 for wrong arguments ([`CliError::Usage`]), 4 for a
    /// refusal ([`CliError::Refused`]), otherwise 1.
    pub fn exit_code(&self) -> u8 {
        match self {
            CliError::Usage(_) => 2,
            CliError::Refused(_) => 4,
            _ => 1,
        }
    }

    /// Returns whether writing failed because the reader of the output has closed it, as `head`
    /// does.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, CliError::Stdout(e) if e.kind() == io::ErrorKind::BrokenPipe)
    }
}

impl From<onbeat_document::merge::ModelMergeError> for CliError {
    fn from(error: onbeat_document::merge::ModelMergeError) -> CliError {
        CliError::failed(error)
    }
}
