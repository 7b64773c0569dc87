//! Why a trace cannot be written.
use crate::{manifest, segment};
use onbeat_files::MakeError;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Why a trace could not be started.
#[derive(Debug, thiserror::Error)]
pub enum TraceCreateError {
    /// The directory could not be made, or is in use.
    #[error(transparent)]
    Directory(#[from] MakeError),
    /// The directory has a trace already.
    #[error("{} already holds a trace; choose another directory with -o, or remove this one", path.display())]
    Exists {
        /// The directory.
        path: PathBuf,
    },
    /// A file could not be written.
    #[error("{0}")]
    Write(#[from] TraceWriteError),
}

impl TraceCreateError {
    /// Why the directory `dir` was refused. One that has a trace is named as such.
    pub fn refused(dir: &Path, error: MakeError) -> TraceCreateError {
        let segments = || segment::list(dir).is_ok_and(|found| !found.is_empty());
        let has_trace = || dir.join(manifest::FILE).exists() || segments();
        match error {
            MakeError::NotEmpty(path) if has_trace() => TraceCreateError::Exists { path },
            error => error.into(),
        }
    }
}

/// Why a trace could not be continued. Everything written before stays readable.
#[derive(Debug, thiserror::Error)]
pub enum TraceWriteError {
    /// The disk, the quota or the largest file size is used up.
    #[error("cannot write {}: no space left ({source}); {lost_events} events were not stored, all before them are readable; free space, or record to another disk with -o", path.display())]
    DiskFull {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
        /// Events in the block that could not be stored.
        lost_events: u64,
    },
    /// Any other reason.
    #[error("cannot write {}: {source}; {lost_events} events were not stored, all before them are readable; check the disk", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
        /// Events in the block that could not be stored.
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
