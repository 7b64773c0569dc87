//! The errors of writing a trace.
use crate::{manifest, segment};
use onbeat_files::MakeError;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// The reason why a trace cannot be started: its directory cannot be used or already holds a trace,
/// or a file cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum TraceCreateError {
    /// The directory cannot be created or used.
    #[error(transparent)]
    Directory(#[from] MakeError),
    /// The directory already holds a trace.
    #[error("{} already holds a trace. Choose another directory with -o, or remove this one.", path.display())]
    Exists {
        /// The directory that holds the trace.
        path: PathBuf,
    },
    /// A file of the trace cannot be written.
    #[error("{0}")]
    Write(#[from] TraceWriteError),
}

impl TraceCreateError {
    /// Converts the error of opening `dir`. If the directory holds a trace, the result says so.
    pub fn refused(dir: &Path, error: MakeError) -> TraceCreateError {
        let segments = || segment::list(dir).is_ok_and(|found| !found.is_empty());
        let has_trace = || dir.join(manifest::FILE).exists() || segments();
        match error {
            MakeError::NotEmpty(path) if has_trace() => TraceCreateError::Exists { path },
            error => error.into(),
        }
    }
}

/// The reason why a trace cannot be continued. Everything written before stays readable.
#[derive(Debug, thiserror::Error)]
pub enum TraceWriteError {
    /// The disk is full, or a quota or the file size limit is reached.
    #[error("cannot write {}: no space left ({source}). {lost_events} events were not stored; all events before them are readable. Free space, or record to another disk with -o.", path.display())]
    DiskFull {
        /// The file that cannot be written.
        path: PathBuf,
        /// The error of the write, which shows that no space is left.
        source: io::Error,
        /// The number of events in the block that could not be stored.
        lost_events: u64,
    },
    /// The operating system reports another error.
    #[error("cannot write {}: {source}. {lost_events} events were not stored; all events before them are readable. Check the disk.", path.display())]
    Io {
        /// The file that cannot be written.
        path: PathBuf,
        /// The error of the failed write.
        source: io::Error,
        /// The number of events in the block that could not be stored.
        lost_events: u64,
    },
}

impl TraceWriteError {
    pub(super) fn new(path: &Path, source: io::Error, lost_events: u64) -> Self {
        let path = path.to_path_buf();
        match source.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
                TraceWriteError::DiskFull {
                    path,
                    source,
                    lost_events,
                }
            }
            _ => TraceWriteError::Io {
                path,
                source,
                lost_events,
            },
        }
    }
}
