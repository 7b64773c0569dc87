//! Reads a trace directory as one stream of events, even if some files are damaged.
//!
//! A damaged block loses only its own events, and a warning reports it. The reader keeps two blocks
//! in memory.
pub mod ahead;
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

const MAX_WARNINGS: usize = 200;

#[allow(missing_docs)] // The messages say the rest.
#[derive(Debug, thiserror::Error)]
pub enum TraceReadError {
    #[error("cannot open the trace {}: {source}. Give the directory that `onbeat record` wrote.", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("{} is not a trace: {reason}. Give the directory that `onbeat record` wrote.", path.display())]
    NotATrace { path: PathBuf, reason: &'static str },
    #[error("{} has trace format {version} of a newer onbeat; this version reads formats {} to {}. Update onbeat.", path.display(), segment::OLDEST, segment::VERSION)]
    Newer { path: PathBuf, version: u16 },
    #[error("{} has the old trace format {version}; this onbeat reads formats {} to {}. Record again, or read the trace with the onbeat that recorded it.", path.display(), segment::OLDEST, segment::VERSION)]
    Older { path: PathBuf, version: u16 },
}

#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadStats {
    pub events: u64,
    pub blocks: u64,
    /// The number of blocks that are damaged or missing. Their events were not returned.
    pub damaged_blocks: u64,
    /// The number of files that end inside a block, for example because the recorder was killed.
    pub cut_blocks: u64,
    /// The number of bytes that do not belong to a readable block.
    pub skipped_bytes: u64,
    /// The number of events that came too late to be returned in order of time.
    pub late_events: u64,
}

/// An open trace: its manifest, its events, and warnings about damage.
pub struct Reader {
    path: PathBuf,
    files: Vec<PathBuf>,
    from_start: bool,
    manifest: Manifest,
    warnings: Vec<String>,
    open_warnings: usize,
    stats: ReadStats,
    format: Option<u16>,
}

impl Reader {
    /// Opens a trace directory or a single segment. Fails if the path contains no trace, or a trace
    /// of an unsupported format version.
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
                true => "the directory contains neither segments nor a readable manifest",
                false => "the file or directory contains no data in onbeat's format",
            };
            return Err(TraceReadError::NotATrace { path, reason });
        }
        if files.paths.is_empty() {
            warnings.push(format!(
                "{}: the trace has no segments and therefore no events",
                path.display()
            ));
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
                "the recording did not end properly, or is still running; the counts in the manifest are those of the manifest's last update"
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

    /// Returns the trace's format version, or `None` if no segment has a valid header.
    pub fn format(&self) -> Option<u16> {
        self.format
    }

    /// Returns the path that was given to [`Reader::open`].
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the recording's manifest. If the manifest file is lost, it contains only the id and
    /// the start, which are read from the headers of the segments.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Returns a sentence for each problem found when the trace was opened and in the latest pass
    /// over its events.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns the counters of the latest pass over the events of the trace.
    pub fn stats(&self) -> ReadStats {
        self.stats
    }

    /// Returns how many blocks the latest pass skipped because they were damaged or missing.
    pub fn damaged_blocks(&self) -> u64 {
        self.stats.damaged_blocks
    }

    /// Returns whether the trace has the first segment of the recording. A flight recorder deletes
    /// old segments and keeps only their initialisation events.
    pub fn has_beginning(&self) -> bool {
        self.from_start
    }

    /// Returns an iterator over all events in order of time. Resets the warnings and counters for
    /// this pass.
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

/// Calls `visit` for each event in the bytes of one trace file, in the order of its blocks. Skips
/// damaged blocks and counts them.
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
