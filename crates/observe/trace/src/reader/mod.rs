//! Reads a trace directory as one stream of events, whatever happened to its files.
//!
//! A damaged block costs that block, nothing more, and is reported. Memory holds two blocks.
mod blocks;
mod events;
mod files;
mod log;
mod stored;

pub use events::Events;
pub use stored::parse_manifest;

use crate::block::Decoder;
use crate::event::Event;
use crate::manifest::{Manifest, State};
use crate::segment;
use blocks::{first_block, Blocks};
use files::Files;
use log::{Log, Sequence};
use std::io;
use std::path::{Path, PathBuf};

/// After this many warnings of one pass only the counters go on.
const MAX_WARNINGS: usize = 200;

/// Why a path cannot be read as a trace.
#[derive(Debug, thiserror::Error)]
pub enum TraceReadError {
    /// The system refuses to open it.
    #[error("cannot open the trace {}: {source}; give the directory that `onbeat record` wrote", path.display())]
    Open {
        /// The path.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The path is something else.
    #[error("{} is not a trace ({reason}); give the directory that `onbeat record` wrote", path.display())]
    NotATrace {
        /// The path.
        path: PathBuf,
        /// What is missing.
        reason: &'static str,
    },
    /// A later format.
    #[error("{} was written by a newer onbeat (trace format {version}, this one reads format {}); update onbeat", path.display(), segment::VERSION)]
    Newer {
        /// The path.
        path: PathBuf,
        /// Its version.
        version: u16,
    },
    /// An earlier format that is no longer read.
    #[error("{} has the older trace format {version}, this onbeat reads format {}; record anew, or read it with the onbeat that recorded it", path.display(), segment::VERSION)]
    Older {
        /// The path.
        path: PathBuf,
        /// Its version.
        version: u16,
    },
}

/// Counters of a pass over the events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadStats {
    /// Events delivered.
    pub events: u64,
    /// Blocks read.
    pub blocks: u64,
    /// Blocks that were damaged or are missing.
    pub damaged_blocks: u64,
    /// Files that end inside a block, as they do when the recorder was killed.
    pub cut_blocks: u64,
    /// Bytes that belong to no readable block.
    pub skipped_bytes: u64,
    /// Events that came too late to be delivered in order.
    pub late_events: u64,
}

/// A trace that can be read.
pub struct Reader {
    path: PathBuf,
    files: Vec<PathBuf>,
    /// Whether the first block of the recording is among the files.
    from_start: bool,
    manifest: Manifest,
    warnings: Vec<String>,
    open_warnings: usize,
    stats: ReadStats,
    format: Option<u16>,
}

impl Reader {
    /// Opens a trace directory, or a single segment of one.
    pub fn open(path: impl AsRef<Path>) -> Result<Reader, TraceReadError> {
        let path = path.as_ref().to_path_buf();
        let refused = |source| TraceReadError::Open {
            path: path.clone(),
            source,
        };
        let mut warnings = Vec::new();
        let is_dir = std::fs::metadata(&path).map_err(refused)?.is_dir();
        let (stored, files) = if is_dir {
            let stored = stored::load(&path, &mut warnings);
            let files = Files::in_directory(&path, &mut warnings).map_err(refused)?;
            (stored, files)
        } else {
            warnings.push(format!(
                "{}: a single segment, read without its manifest",
                path.display()
            ));
            (None, Files::single(&path))
        };
        let first = files.first_header(&path)?;
        let is_trace = stored.is_some()
            || first.is_some()
            || files.paths.iter().any(|f| first_block(f).is_some());
        if !is_trace {
            let reason = match files.paths.is_empty() {
                true => "the directory holds no segments and no readable manifest",
                false => "it holds nothing that onbeat has written",
            };
            return Err(TraceReadError::NotATrace { path, reason });
        }
        if files.paths.is_empty() {
            warnings.push(format!("{}: no segments, so no events", path.display()));
        }
        if let (Some(stored), Some(first)) = (&stored, &first) {
            if !stored.id.is_empty() && stored.id != segment::id_text(&first.id) {
                warnings
                    .push("manifest.json belongs to another recording than the segments".into());
            }
        }
        let manifest =
            stored.unwrap_or_else(|| stored::recovered(&path, first.as_ref(), &files.paths));
        if is_dir && manifest.state == State::Recording {
            warnings.push(
                "the recording was not ended properly (or still goes on): counts in the manifest are those of its last update"
                    .into(),
            );
        }
        Ok(Reader {
            path,
            files: files.paths,
            from_start: files.from_start,
            manifest,
            open_warnings: warnings.len(),
            warnings,
            stats: ReadStats::default(),
            format: first.map(|header| header.version),
        })
    }

    /// Version of the format that it was written in; none where no segment has a good header.
    pub fn format(&self) -> Option<u16> {
        self.format
    }

    /// The path that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The recording's own description; if its file is lost, what the segments say without it.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Problems met when the trace was opened, and in the last pass over its events.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Counters of the last pass over the events.
    pub fn stats(&self) -> ReadStats {
        self.stats
    }

    /// Blocks that the last pass had to leave out.
    pub fn damaged_blocks(&self) -> u64 {
        self.stats.damaged_blocks
    }

    /// Whether the recording's beginning is there. A flight recorder deletes old segments, and
    /// keeps only the events of them that describe the system.
    pub fn has_beginning(&self) -> bool {
        self.from_start
    }

    /// All events from the beginning, in the order of their time.
    pub fn events(&mut self) -> Events<'_> {
        self.warnings.truncate(self.open_warnings);
        self.stats = ReadStats::default();
        let log = Log {
            warnings: &mut self.warnings,
            limit: self.open_warnings + MAX_WARNINGS,
            stats: &mut self.stats,
            file: String::new(),
        };
        Events::new(self.files.clone(), self.from_start, log)
    }
}

/// The events of one file's content, damaged or not, in the order of its blocks.
pub fn read_bytes(bytes: &[u8], mut visit: impl FnMut(Event)) -> ReadStats {
    let mut stats = ReadStats::default();
    let mut warnings = Vec::new();
    let mut log = Log {
        warnings: &mut warnings,
        limit: MAX_WARNINGS,
        stats: &mut stats,
        file: String::new(),
    };
    let mut decoder = Decoder::new();
    let mut sequence = Sequence::default();
    let mut events = Vec::new();
    let Ok(mut blocks) = Blocks::new(io::Cursor::new(bytes), &mut log) else {
        return stats;
    };
    while blocks.next(&mut decoder, &mut events, &mut sequence, &mut log) {
        log.stats.events += events.len() as u64;
        events.drain(..).for_each(&mut visit);
    }
    stats
}
