//! The errors of writing a trace.
use crate::{manifest, segment};
use onbeat_files::MakeError;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// The reason why a trace cannot be started. Its directory cannot be used or contains a trace, or a
/// file cannot be written.
#[allow(missing_docs)] // The messages say the rest.
#[derive(Debug, thiserror::Error)]
pub enum TraceCreateError {
    #[error(transparent)]
    Directory(#[from] MakeError),
    #[error("{} already holds a trace. Choose another directory with -o, or remove this directory.", path.display())]
    Exists { path: PathBuf },
    #[error("{0}")]
    Write(#[from] TraceWriteError),
}

impl TraceCreateError {
    /// Converts the error of opening `dir`. Returns [`TraceCreateError::Exists`] if the directory
    /// contains a trace.
    pub fn refused(dir: &Path, error: MakeError) -> TraceCreateError {
        let segments = || segment::list(dir).is_ok_and(|found| !found.is_empty());
        let has_trace = || dir.join(manifest::FILE).exists() || segments();
        match error {
            MakeError::NotEmpty(path) if has_trace() => TraceCreateError::Exists { path },
            error => error.into(),
        }
    }
}

/// The reason why no more events can be written. Events of earlier blocks can still be read.
#[allow(missing_docs)] // The messages say the rest.
#[derive(Debug, thiserror::Error)]
pub enum TraceWriteError {
    #[error("cannot write {}: no space left ({source}). {lost_events} events were not stored; all earlier events are readable. Free space, or record to another disk with -o.", path.display())]
    DiskFull {
        path: PathBuf,
        source: io::Error,
        lost_events: u64,
    },
    #[error("cannot write {}: {source}. {lost_events} events were not stored; all earlier events are readable. Check the disk.", path.display())]
    Io {
        path: PathBuf,
        source: io::Error,
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
