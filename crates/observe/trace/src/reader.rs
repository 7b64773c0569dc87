//! Reads a trace directory as one stream of events, whatever happened to its files.
//!
//! A damaged block costs that block, nothing more, and is reported. Memory holds two blocks.
use crate::block::{BlockError, BlockHeader, Decoder, HEADER_LEN, MAGIC};
use crate::event::Event;
use crate::manifest::{self, Manifest, State};
use crate::segment::{self, Content, FileHeader};
use std::cmp::Ordering;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// More bytes than this are no manifest.
const MAX_MANIFEST: u64 = 64 << 20;
/// After this many warnings of one pass only the counters go on.
const MAX_WARNINGS: usize = 200;

/// Why a path cannot be read as a trace.
#[derive(Debug, thiserror::Error)]
pub enum TraceReadError {
    /// The system refuses.
    #[error("cannot open the trace {}: {source}; give the directory that `onbeat record` wrote", path.display())]
    Open {
        /// The path.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Something else.
    #[error("{} is not a trace ({reason}); give the directory that `onbeat record` wrote", path.display())]
    NotATrace {
        /// The path.
        path: PathBuf,
        /// How one can tell.
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

/// What a pass over the events found.
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
        let mut segments = if is_dir {
            segment::list(&path).map_err(refused)?
        } else {
            vec![(0, path.clone())]
        };
        let stored = if is_dir {
            load_manifest(&path, &mut warnings)
        } else {
            warnings.push(format!(
                "{}: a single segment, read without its manifest",
                shown(&path)
            ));
            None
        };
        let mut files = Vec::new();
        let init = path.join(segment::INIT_FILE);
        if is_dir && init.exists() {
            match file_header(&init) {
                Ok(Some(header)) => segments.retain(|(number, _)| *number >= header.number),
                // Which segments it stands for is unknown then, but segments that it stands for
                // exist only if the recorder was killed while it deleted one.
                Ok(None) => warnings.push(format!("{}: damaged header", shown(&init))),
                Err(error) => warnings.push(format!("{}: {error}", shown(&init))),
            }
            files.push(init);
        } else if is_dir && segments.first().is_some_and(|(number, _)| *number > 0) {
            warnings.push(format!(
                "{}: the first segments and init.obt are missing; names may be unknown",
                shown(&path)
            ));
        }
        let from_start = is_dir && segments.first().is_some_and(|(number, _)| *number == 0);
        for pair in segments.windows(2) {
            if pair[0].0 + 1 != pair[1].0 {
                let (from, to) = (pair[0].0 + 1, pair[1].0 - 1);
                warnings.push(format!("segments {from} to {to} are missing"));
            }
        }
        files.extend(segments.into_iter().map(|(_, path)| path));

        let mut first = None;
        for file in &files {
            let header = file_header(file).map_err(|source| TraceReadError::Open {
                path: file.clone(),
                source,
            })?;
            if let Some(header) = header {
                let version = header.version;
                match version.cmp(&segment::VERSION) {
                    Ordering::Less => return Err(TraceReadError::Older { path, version }),
                    Ordering::Greater => return Err(TraceReadError::Newer { path, version }),
                    Ordering::Equal => {}
                }
                first.get_or_insert(header);
            }
        }
        let foreign = |reason| TraceReadError::NotATrace {
            path: path.clone(),
            reason,
        };
        if files.is_empty() && stored.is_none() {
            return Err(foreign(if is_dir {
                "the directory holds no segments and no readable manifest"
            } else {
                "empty"
            }));
        }
        if first.is_none() && stored.is_none() && !files.iter().any(|f| has_block(f)) {
            return Err(foreign("it holds nothing that onbeat has written"));
        }
        if files.is_empty() {
            warnings.push(format!("{}: no segments, so no events", shown(&path)));
        }
        if let (Some(stored), Some(first)) = (&stored, &first) {
            if !stored.id.is_empty() && stored.id != segment::id_text(&first.id) {
                warnings
                    .push("manifest.json belongs to another recording than the segments".into());
            }
        }
        let manifest = stored.unwrap_or_else(|| recovered_manifest(&path, first.as_ref(), &files));
        if is_dir && manifest.state == State::Recording {
            warnings.push(
                "the recording was not ended properly (or still goes on): counts in the manifest are those of its last update"
                    .into(),
            );
        }
        Ok(Reader {
            path,
            files,
            from_start,
            manifest,
            open_warnings: warnings.len(),
            warnings,
            stats: ReadStats::default(),
        })
    }

    /// Where the trace is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the recording says about itself; if that is lost, what can be told without it.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// What was wrong when the trace was opened, and in the last pass over its events.
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

    /// Whether the recording's beginning is there: a flight recorder deletes what is old, but for what
    /// describes the system.
    pub fn has_beginning(&self) -> bool {
        self.from_start
    }

    /// All events from the beginning, in the order of their time.
    pub fn events(&mut self) -> Events<'_> {
        self.warnings.truncate(self.open_warnings);
        self.stats = ReadStats::default();
        Events {
            files: self.files.clone().into_iter(),
            log: Log {
                warnings: &mut self.warnings,
                limit: self.open_warnings + MAX_WARNINGS,
                stats: &mut self.stats,
                file: String::new(),
            },
            blocks: None,
            decoder: Decoder::new(),
            expected: Sequence {
                next: self.from_start.then_some(0),
                counted: 0,
            },
            current: Vec::new().into_iter(),
            ahead: Vec::new(),
            latest_ns: 0,
        }
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

/// Streams the events of a trace.
pub struct Events<'a> {
    files: std::vec::IntoIter<PathBuf>,
    log: Log<'a>,
    blocks: Option<Blocks<File>>,
    decoder: Decoder,
    expected: Sequence,
    /// What is delivered now.
    current: std::vec::IntoIter<Event>,
    /// What comes after that as far as is known: stragglers of the next block go before.
    ahead: Vec<Event>,
    latest_ns: u64,
}

impl Events<'_> {
    /// Makes `current` the next block's worth of events; false at the end.
    #[cold]
    fn advance(&mut self) -> bool {
        if self.ahead.is_empty() {
            self.ahead = self.next_block().unwrap_or_default();
        }
        let mut now = std::mem::take(&mut self.ahead);
        if now.is_empty() {
            return false;
        }
        if let Some(mut next) = self.next_block() {
            let length = now.len();
            if next.first().map(|e| e.time_ns) < now.last().map(|e| e.time_ns) {
                // Both are sorted, so this is a merge; equal times keep the order of the blocks.
                now.append(&mut next);
                now.sort_by_key(|e| e.time_ns);
                next = now.split_off(length);
            }
            self.ahead = next;
        }
        self.current = now.into_iter();
        true
    }

    /// The next block that is not empty.
    fn next_block(&mut self) -> Option<Vec<Event>> {
        loop {
            if self.blocks.is_none() {
                let path = self.files.next()?;
                self.log.file = path
                    .file_name()
                    .map_or_else(String::new, |n| n.to_string_lossy().into_owned());
                let opened = File::open(&path).and_then(|f| Blocks::new(f, &mut self.log));
                match opened {
                    Ok(blocks) => self.blocks = Some(blocks),
                    Err(error) => {
                        self.log.warn(format_args!("cannot be read: {error}"));
                        continue;
                    }
                }
            }
            let blocks = self.blocks.as_mut()?;
            let mut events = Vec::new();
            if !blocks.next(
                &mut self.decoder,
                &mut events,
                &mut self.expected,
                &mut self.log,
            ) {
                self.blocks = None;
            } else if !events.is_empty() {
                return Some(events);
            }
        }
    }
}

impl Iterator for Events<'_> {
    type Item = Event;

    #[inline]
    fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.current.next() {
                self.log.stats.events += 1;
                if event.time_ns < self.latest_ns {
                    self.log.stats.late_events += 1;
                } else {
                    self.latest_ns = event.time_ns;
                }
                return Some(event);
            }
            if !self.advance() {
                return None;
            }
        }
    }
}

/// Where a pass writes down what it meets.
struct Log<'a> {
    warnings: &'a mut Vec<String>,
    limit: usize,
    stats: &'a mut ReadStats,
    file: String,
}

impl Log<'_> {
    fn warn(&mut self, text: std::fmt::Arguments<'_>) {
        match self.warnings.len() {
            n if n < self.limit => self.warnings.push(format!("{}: {text}", self.file)),
            n if n == self.limit => self.warnings.push("further warnings are left out".into()),
            _ => {}
        }
    }
}

/// Notices blocks that are missing altogether.
#[derive(Default)]
struct Sequence {
    next: Option<u64>,
    /// Damage already counted since the last good block.
    counted: u64,
}

impl Sequence {
    fn saw(&mut self, number: u64, log: &mut Log<'_>) {
        let missing = number.saturating_sub(self.next.unwrap_or(number));
        let more = missing.saturating_sub(self.counted);
        if more > 0 {
            log.stats.damaged_blocks = log.stats.damaged_blocks.saturating_add(more);
            log.warn(format_args!(
                "{more} blocks before block {number} are missing"
            ));
        }
        self.counted = 0;
        self.next = number.checked_add(1);
    }
}

/// Finds the blocks of one file.
struct Blocks<R> {
    input: R,
    position: u64,
    length: u64,
    body: Vec<u8>,
    /// Blocks of init.obt are numbered on their own.
    numbered: bool,
}

impl<R: Read + Seek> Blocks<R> {
    fn new(mut input: R, log: &mut Log<'_>) -> io::Result<Self> {
        let length = input.seek(SeekFrom::End(0))?;
        let mut blocks = Blocks {
            input,
            position: 0,
            length,
            body: Vec::new(),
            numbered: true,
        };
        let mut start = [0; segment::HEADER_LEN];
        if blocks.read_at(0, &mut start)? {
            match FileHeader::from_bytes(&start) {
                Some(header) => {
                    blocks.numbered = header.content == Content::Segment;
                    blocks.position = segment::HEADER_LEN as u64;
                }
                None => {
                    log.warn(format_args!("damaged file header"));
                    // Blocks are where they would be, most likely; otherwise they are found.
                    let mut block = [0; 8];
                    if blocks.read_at(segment::HEADER_LEN as u64, &mut block)? && block == MAGIC {
                        blocks.position = segment::HEADER_LEN as u64;
                    }
                }
            }
        } else {
            log.stats.cut_blocks += 1;
            log.stats.skipped_bytes += length;
            log.warn(format_args!("ends inside its file header"));
            blocks.position = length;
        }
        Ok(blocks)
    }

    /// Fills `out` from `position`; false where the file ends before.
    fn read_at(&mut self, position: u64, out: &mut [u8]) -> io::Result<bool> {
        let end = position.saturating_add(out.len() as u64);
        if end > self.length {
            return Ok(false);
        }
        self.input.seek(SeekFrom::Start(position))?;
        match self.input.read_exact(out) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// The events of the next readable block; false at the end of the file.
    fn next(
        &mut self,
        decoder: &mut Decoder,
        out: &mut Vec<Event>,
        sequence: &mut Sequence,
        log: &mut Log<'_>,
    ) -> bool {
        match self.try_next(decoder, out, sequence, log) {
            Ok(more) => more,
            Err(error) => {
                log.warn(format_args!(
                    "cannot be read beyond byte {}: {error}",
                    self.position
                ));
                log.stats.skipped_bytes += self.length.saturating_sub(self.position);
                self.position = self.length;
                false
            }
        }
    }

    fn try_next(
        &mut self,
        decoder: &mut Decoder,
        out: &mut Vec<Event>,
        sequence: &mut Sequence,
        log: &mut Log<'_>,
    ) -> io::Result<bool> {
        while self.position < self.length {
            let at = self.position;
            let Some(header) = self.header_at(at)? else {
                self.damage(at, at + 1, "no block begins here", sequence, log)?;
                continue;
            };
            let end = at + HEADER_LEN as u64 + u64::from(header.body_len);
            let mut body = std::mem::take(&mut self.body);
            // The length is checked against the file before memory is taken.
            let error = if end > self.length {
                None
            } else {
                body.resize(header.body_len as usize, 0);
                self.read_at(at + HEADER_LEN as u64, &mut body)?;
                match decoder.decode(&header, &body, out) {
                    Ok(()) => {
                        self.body = body;
                        self.position = end;
                        if self.numbered {
                            sequence.saw(header.sequence, log);
                        }
                        log.stats.blocks += 1;
                        return Ok(true);
                    }
                    Err(error) => Some(error),
                }
            };
            self.body = body;
            match error {
                None => self.damage(at, at + 8, "the file ends inside a block", sequence, log)?,
                Some(error) => self.bad_block(at, end, &error, sequence, log)?,
            }
        }
        Ok(false)
    }

    fn header_at(&mut self, at: u64) -> io::Result<Option<BlockHeader>> {
        let mut bytes = [0; HEADER_LEN];
        Ok(if self.read_at(at, &mut bytes)? {
            BlockHeader::from_bytes(&bytes)
        } else {
            None
        })
    }

    /// Skips a block whose header is good and whose body is not.
    fn bad_block(
        &mut self,
        at: u64,
        end: u64,
        error: &BlockError,
        sequence: &mut Sequence,
        log: &mut Log<'_>,
    ) -> io::Result<()> {
        if end < self.length && self.header_at(end)?.is_none() {
            // Bytes are missing or too many: the next block is not where the header says.
            return self.damage(at, at + 8, &error.to_string(), sequence, log);
        }
        log.stats.damaged_blocks += 1;
        log.stats.skipped_bytes += end - at;
        sequence.counted += 1;
        log.warn(format_args!("damaged block at byte {at} left out: {error}"));
        self.position = end;
        Ok(())
    }

    /// Goes from `at` to the next block header at `search` or later, or to the end of the file.
    fn damage(
        &mut self,
        at: u64,
        search: u64,
        why: &str,
        sequence: &mut Sequence,
        log: &mut Log<'_>,
    ) -> io::Result<()> {
        let found = self.find_header(search)?;
        let end = found.unwrap_or(self.length);
        let skipped = end - at;
        log.stats.skipped_bytes += skipped;
        self.position = end;
        if found.is_none() && self.looks_cut(at)? {
            log.stats.cut_blocks += 1;
            log.warn(format_args!(
                "ends inside a block, as after a kill: its last {skipped} bytes are left out"
            ));
        } else {
            log.stats.damaged_blocks += 1;
            sequence.counted += 1;
            log.warn(format_args!(
                "damage at byte {at}, {skipped} bytes left out: {why}"
            ));
        }
        Ok(())
    }

    /// Whether what stands at `at` is the beginning of a block that the file ends in.
    fn looks_cut(&mut self, at: u64) -> io::Result<bool> {
        if let Some(header) = self.header_at(at)? {
            return Ok(at + HEADER_LEN as u64 + u64::from(header.body_len) > self.length);
        }
        let rest = self.length - at;
        if rest >= HEADER_LEN as u64 {
            return Ok(false);
        }
        let mut start = [0; 8];
        let known = (rest as usize).min(8);
        self.read_at(at, &mut start[..known])?;
        Ok(start[..known] == MAGIC[..known])
    }

    fn find_header(&mut self, from: u64) -> io::Result<Option<u64>> {
        // Small at first: most often the next block is near.
        let mut buffer = vec![0; 4 << 10];
        let mut from = from;
        while from + (HEADER_LEN as u64) <= self.length {
            let size = (self.length - from).min(buffer.len() as u64) as usize;
            if !self.read_at(from, &mut buffer[..size])? {
                return Ok(None);
            }
            for (offset, window) in buffer[..size].windows(8).enumerate() {
                let candidate = from + offset as u64;
                if window == MAGIC && self.header_at(candidate)?.is_some() {
                    return Ok(Some(candidate));
                }
            }
            // The magic may lie across two pieces.
            from += (size - 7) as u64;
            buffer.resize(64 << 10, 0);
        }
        Ok(None)
    }
}

fn file_header(path: &Path) -> io::Result<Option<FileHeader>> {
    let mut bytes = [0; segment::HEADER_LEN];
    match File::open(path)?.read_exact(&mut bytes) {
        Ok(()) => Ok(FileHeader::from_bytes(&bytes)),
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(e) => Err(e),
    }
}

/// Whether a file without a good header has a block at least.
fn has_block(path: &Path) -> bool {
    first_block(path).is_some()
}

fn first_block(path: &Path) -> Option<BlockHeader> {
    let mut file = File::open(path).ok()?;
    let length = file.seek(SeekFrom::End(0)).ok()?;
    let mut blocks = Blocks {
        input: file,
        position: 0,
        length,
        body: Vec::new(),
        numbered: true,
    };
    let at = blocks.find_header(0).ok()??;
    blocks.header_at(at).ok()?
}

/// The manifest, or `None` with a warning.
fn load_manifest(dir: &Path, warnings: &mut Vec<String>) -> Option<Manifest> {
    let path = dir.join(manifest::FILE);
    let mut text = Vec::new();
    let read = File::open(&path).and_then(|f| f.take(MAX_MANIFEST).read_to_end(&mut text));
    let problem = match read {
        Err(error) => error.to_string(),
        Ok(_) => match parse_manifest(&text) {
            Ok(manifest) => return Some(manifest),
            Err(problem) => problem,
        },
    };
    warnings.push(format!(
        "manifest.json cannot be used ({problem}): mode, probes and losses of the recording are unknown"
    ));
    None
}

/// Parses the content of a manifest.
pub fn parse_manifest(text: &[u8]) -> Result<Manifest, String> {
    let manifest: Manifest = serde_json::from_slice(text).map_err(|e| e.to_string())?;
    if manifest.schema.starts_with("onbeat-trace/") {
        Ok(manifest)
    } else {
        Err(format!("its schema is not {}", manifest::SCHEMA))
    }
}

/// What can be told without a manifest.
fn recovered_manifest(path: &Path, first: Option<&FileHeader>, files: &[PathBuf]) -> Manifest {
    let block = files.iter().find_map(|f| first_block(f));
    Manifest {
        schema: manifest::SCHEMA.to_string(),
        id: first.map_or_else(
            || {
                let name = path.file_name().unwrap_or_default();
                name.to_string_lossy().into_owned()
            },
            |h| segment::id_text(&h.id),
        ),
        start_realtime_ns: first.map_or(0, |h| h.created_realtime_ns),
        start_monotonic_ns: block.map_or(0, |b| b.first_ns),
        ..Manifest::default()
    }
}

fn shown(path: &Path) -> std::path::Display<'_> {
    path.display()
}
