//! The errors of experiments, each one line with the way out.

use std::io;
use std::path::{Path, PathBuf};

pub type Result<T, E = LabError> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum LabError {
    #[error("unknown experiment '{0}'. Run `onbeat-lab` without arguments for the list")]
    Unknown(String),
    #[error("{experiment} has no part '{part}'. Choose one of: {}", if known.is_empty() { "none" } else { known })]
    NoPart {
        part: String,
        experiment: &'static str,
        known: String,
    },
    #[error("{experiment}: {lacks}. Omit {option}")]
    NoExtra {
        experiment: &'static str,
        option: &'static str,
        /// The reason why the experiment does not have the option, for example "the
        /// experiment streams no messages".
        lacks: &'static str,
    },
    #[error("{action} {} failed: {source}", path.display())]
    File {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("{program} failed: {why}")]
    Program { program: String, why: String },
    #[error("{what} is missing. To get it, {fix}")]
    Missing { what: String, fix: String },
    #[error("{what}: {why}")]
    Unexpected { what: String, why: String },
    #[error("{action} failed: {source}. Run as root on Linux 5.8 or newer")]
    Kernel { action: String, source: io::Error },
    #[error("onbeat-lab cannot draw the plot {name}: {why}")]
    Plot { name: String, why: String },
}

impl LabError {
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
