//! The errors of experiments, each one line with the way out.

use std::io;
use std::path::{Path, PathBuf};

pub type Result<T, E = LabError> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum LabError {
    #[error("no experiment '{0}': `onbeat-lab` lists them")]
    Unknown(String),
    #[error("no part '{part}' in {experiment}: it has {}", if known.is_empty() { "none" } else { known })]
    NoPart {
        part: String,
        experiment: &'static str,
        known: String,
    },
    /// The experiment does not support an option of other experiments.
    #[error("{experiment} {lacks}: leave {option} out")]
    NoExtra {
        experiment: &'static str,
        option: &'static str,
        /// Why the experiment cannot use the option: "streams no messages".
        lacks: &'static str,
    },
    #[error("{action} {}: {source}", path.display())]
    File {
        /// The attempted operation: "writing", "reading".
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// A program did not start, or it failed.
    #[error("running {program}: {why}")]
    Program {
        program: String,
        /// The reason, and the way out if it is known.
        why: String,
    },
    /// The experiment needs something that is not installed.
    #[error("{what} is missing: {fix}")]
    Missing {
        what: String,
        /// The command that provides it.
        fix: String,
    },
    /// A program or a file gave a value that the lab cannot use.
    #[error("{what} is not as expected: {why}")]
    Unexpected {
        what: String,
        why: String,
    },
    /// The kernel refused an operation.
    #[error("{action}: {source}; run as root on Linux 5.8 or newer")]
    Kernel {
        action: String,
        source: io::Error,
    },
    #[error("drawing the plot {name}: {why}")]
    Plot {
        name: String,
        why: String,
    },
}

impl LabError {
    /// Returns a closure for `map_err` after a file operation.
    pub fn file(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> LabError {
        let path = path.into();
        move |source| LabError::File {
            action,
            path,
            source,
        }
    }

    /// Describes the last system call that failed on this thread.
    pub fn kernel(action: impl Into<String>) -> LabError {
        LabError::Kernel {
            action: action.into(),
            source: io::Error::last_os_error(),
        }
    }

    pub fn program(program: impl Into<String>, why: impl ToString) -> LabError {
        LabError::Program {
            program: program.into(),
            why: why.to_string(),
        }
    }

    pub fn in_file(path: &Path, why: impl ToString) -> LabError {
        LabError::unexpected(path.display().to_string(), why)
    }

    pub fn unexpected(what: impl Into<String>, why: impl ToString) -> LabError {
        LabError::Unexpected {
            what: what.into(),
            why: why.to_string(),
        }
    }
}
