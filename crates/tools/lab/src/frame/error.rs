//! Why an experiment could not be done, in one line with the way out.

use std::io;
use std::path::{Path, PathBuf};

/// What an experiment's functions return.
pub type Result<T, E = LabError> = std::result::Result<T, E>;

/// Why an experiment could not be done.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// No experiment of this name.
    #[error("no experiment '{0}': `onbeat-lab` lists them")]
    Unknown(String),
    /// No part of this name.
    #[error("no part '{part}' in {experiment}: it has {}", if known.is_empty() { "none" } else { known })]
    NoPart {
        /// What was asked for.
        part: String,
        /// Of which experiment.
        experiment: &'static str,
        /// What there is.
        known: String,
    },
    /// The experiment does not have an option that others have.
    #[error("{experiment} {lacks}: leave {option} out")]
    NoExtra {
        experiment: &'static str,
        option: &'static str,
        /// What the experiment would need for it.
        lacks: &'static str,
    },
    /// A file could not be read or written.
    #[error("{action} {}: {source}", path.display())]
    File {
        /// What was tried: "writing", "reading".
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A program could not be started, or ended badly.
    #[error("running {program}: {why}")]
    Program {
        /// Which.
        program: String,
        /// What happened, and what to do where that is known.
        why: String,
    },
    /// Something that the experiment needs is not there.
    #[error("{what} is missing: {fix}")]
    Missing {
        /// What.
        what: String,
        /// How to get it.
        fix: String,
    },
    /// A program or file said something that cannot be used.
    #[error("{what} is not as expected: {why}")]
    Unexpected {
        /// What.
        what: String,
        /// Why.
        why: String,
    },
    /// The kernel refused something.
    #[error("{action}: {source}; run as root on Linux 5.8 or newer")]
    Kernel {
        /// What was tried.
        action: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// A plot could not be drawn.
    #[error("drawing the plot {name}: {why}")]
    Plot {
        /// File name.
        name: String,
        /// What happened.
        why: String,
    },
}

impl LabError {
    /// For `map_err` after file operations.
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

    /// What the kernel has just refused.
    pub fn kernel(action: impl Into<String>) -> LabError {
        LabError::Kernel {
            action: action.into(),
            source: io::Error::last_os_error(),
        }
    }

    /// A program that could not be run or failed.
    pub fn program(program: impl Into<String>, why: impl ToString) -> LabError {
        LabError::Program {
            program: program.into(),
            why: why.to_string(),
        }
    }

    /// A file that says something unusable.
    pub fn in_file(path: &Path, why: impl ToString) -> LabError {
        LabError::unexpected(path.display().to_string(), why)
    }

    /// Something unusable.
    pub fn unexpected(what: impl Into<String>, why: impl ToString) -> LabError {
        LabError::Unexpected {
            what: what.into(),
            why: why.to_string(),
        }
    }
}
