//! Failures of the command, each in one line that says what to do.

use std::path::PathBuf;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// A file or directory does not exist.
    #[error("{}: no such file or directory{hint}", path.display())]
    Missing { path: PathBuf, hint: String },
    /// Reading failed.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    /// Writing failed.
    #[error("cannot write {}: {source}; name another place with -o", path.display())]
    Write {
        path: PathBuf,
        source: std::io::Error,
    },
    /// Writing to the standard output failed.
    #[error("cannot write to the standard output: {0}")]
    Stdout(std::io::Error),
    /// A file is not a model, or a broken one.
    #[error("{}: {source}", path.display())]
    Model {
        path: PathBuf,
        source: onbeat_model::file::ModelFileError,
    },
    /// Chains cannot be cut as asked.
    #[error("{}: {source}", path.display())]
    Cut {
        path: PathBuf,
        source: onbeat_model::cuts::CutError,
    },
    /// No plan is possible for this request.
    #[error("{}: {source}", path.display())]
    Plan {
        path: PathBuf,
        source: onbeat_plan::PlanError,
    },
    /// A file is not a plan, or its plan is impossible.
    #[error("{}: {source}", path.display())]
    PlanFile {
        path: PathBuf,
        source: onbeat_plan::PlanFileError,
    },
    /// A file is no requirements file, or cannot become one.
    #[error("{}: {what}", path.display())]
    Requirements { path: PathBuf, what: String },
    /// Hosts cannot be joined.
    #[error(transparent)]
    Hosts(#[from] onbeat_model::hosts::HostsError),
    /// A name that is to be hidden would stay.
    #[error("{0}")]
    Redact(String),
    /// A directory was given where a model is needed.
    #[error("{p} is a directory, and {command} needs a model file: if it is a trace, make one with `onbeat model {p}`", p = path.display())]
    TraceForModel { path: PathBuf, command: String },
    /// A model was given where a trace is needed.
    #[error("{} is a model file, and {command} needs a trace directory (what `onbeat record -o DIR` wrote){hint}", path.display())]
    ModelForTrace {
        path: PathBuf,
        command: String,
        hint: &'static str,
    },
    /// A trace cannot be opened.
    #[error(transparent)]
    Trace(#[from] onbeat_trace::TraceReadError),
    /// Models cannot be merged.
    #[error(transparent)]
    Merge(#[from] onbeat_model::merge::ModelMergeError),
    /// One of many models cannot be merged with those before it.
    #[error("{}: {source}", path.display())]
    MergeOf {
        path: PathBuf,
        source: onbeat_model::merge::ModelMergeError,
    },
    /// A trace cannot be exported.
    #[error(transparent)]
    Export(#[from] onbeat_trace::export::ExportError),
    /// A file is not the configuration of a shaper.
    #[error("{}: {reason}: give what `onbeat shaper --help` shows", path.display())]
    ShaperConfig { path: PathBuf, reason: String },
    /// A shaper ended early.
    #[error(transparent)]
    Shaper(#[from] onbeat_ros::shaper::ShaperError),
    /// This kernel or user may not record.
    #[error("{0}")]
    Refused(String),
    /// A recording failed.
    #[error("{0}")]
    Record(String),
    /// There is no key, no link or no bound.
    #[error("{0}")]
    Link(String),
    /// A recording could not be played, or not to its end.
    #[error("{0}")]
    Replay(String),
    /// A store cannot do what was asked of it.
    #[error(transparent)]
    Store(#[from] onbeat_store::StoreError),
    /// Files of a store are damaged.
    #[error("{count} damaged in {place}: put what they were made of again, or use the rest: other commands leave them out")]
    Damage { place: String, count: usize },
    /// Options that exclude each other.
    #[error("{0}")]
    Usage(String),
    /// A mode that no run of the model has.
    #[error("no run of mode '{mode}' in {}; it has: {known}", path.display())]
    NoSuchMode {
        mode: String,
        path: PathBuf,
        known: String,
    },
}

impl CliError {
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
        matches!(self, CliError::Stdout(e) if e.kind() == std::io::ErrorKind::BrokenPipe)
    }
}
