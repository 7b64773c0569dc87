//! Writes a trace directory: blocks into segments, and the manifest beside them.
mod error;
mod retained;

pub use error::{TraceCreateError, TraceWriteError};

use crate::block::{Encoder, MAX_EVENTS};
use crate::event::{Event, Name};
use crate::manifest::{self, Manifest, State, Written};
use crate::segment::{self, Content, FileHeader};
use crate::table::{self, FieldSink};
use onbeat_files::Directory;
use retained::Retained;
use std::fs::File;
use std::hash::{BuildHasher, Hasher};
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

const EVENT_BYTES: usize = 10;

/// The settings of a trace writer: sizes of files and blocks, compression, id.
#[derive(Debug, Clone)]
pub struct WriterOptions {
    /// The size limit of a segment, in bytes. A larger block gets a segment of its own.
    pub segment_bytes: u64,
    /// The approximate size of a block before compression, in bytes: at most 4 MiB.
    pub block_bytes: usize,
    /// The number of latest segments to keep, at least 1. The writer deletes older segments, but
    /// keeps those of their events that later events need. `None` keeps all segments.
    pub max_segments: Option<usize>,
    /// The zstd compression level of blocks.
    pub level: i32,
    /// The id of the recording. `None` chooses a random id.
    pub id: Option<[u8; 16]>,
}

impl Default for WriterOptions {
    fn default() -> Self {
        WriterOptions {
            segment_bytes: 64 << 20,
            block_bytes: 256 << 10,
            max_segments: None,
            level: 3,
            id: None,
        }
    }
}

struct Segment {
    number: u32,
    path: PathBuf,
    file: File,
    length: u64,
}

/// Writes a trace directory. It collects events in blocks, appends the blocks to segment files, and
/// keeps the manifest beside them.
pub struct Writer {
    directory: Directory,
    options: WriterOptions,
    id: [u8; 16],
    segment: Option<Segment>,
    next_segment: u32,
    pending: Pending,
    encoder: Encoder,
    block: Vec<u8>,
    written: Written,
    blocks: u64,
    retained: Option<Retained>,
}

struct Pending {
    events: Vec<Event>,
    bytes: usize,
    sorted: bool,
    latest_ns: u64,
}

/// The files of a trace that perhaps cannot be completed.
pub struct Unfinished {
    directory: Directory,
}

impl Unfinished {
    /// Removes the files of the trace. The directory, and other files in it, stay. The writer must
    /// be dropped before.
    pub fn remove(self) {
        remove_trace(&self.directory);
    }
}

fn remove_trace(directory: &Directory) {
    for name in directory.names().unwrap_or_default() {
        let is_segment = Path::new(&name).extension().is_some_and(|e| e == "obt");
        if is_segment || name == crate::manifest::FILE {
            let _ = directory.remove(&name);
        }
    }
}

impl Writer {
    /// Starts a trace in `dir`. Creates the directory, or uses it if it is empty and owned by the
    /// caller.
    ///
    /// # Errors
    ///
    /// Fails if the directory cannot be created or used, or if a file cannot be written.
    pub fn create(dir: &Path, options: WriterOptions) -> Result<Writer, TraceCreateError> {
        let directory = Directory::make(dir).map_err(|e| TraceCreateError::refused(dir, e))?;
        let ours = directory.try_clone();
        Writer::create_in(directory, options).inspect_err(|_| {
            // The directory was empty, so all files of a trace in it are new.
            if let Ok(directory) = &ours {
                remove_trace(directory);
            }
        })
    }

    /// Starts a trace in an empty directory that is already open. The trace stays in this directory
    /// even if its path is moved or replaced.
    ///
    /// # Errors
    ///
    /// Fails if a file of the trace cannot be written.
    pub fn create_in(
        directory: Directory,
        options: WriterOptions,
    ) -> Result<Writer, TraceCreateError> {
        let mut writer = Writer {
            directory,
            id: options.id.unwrap_or_else(random_id),
            segment: None,
            next_segment: 0,
            pending: Pending {
                events: Vec::new(),
                bytes: 0,
                sorted: true,
                latest_ns: 0,
            },
            encoder: Encoder::new(options.level),
            block: Vec::new(),
            written: Written::default(),
            blocks: 0,
            retained: options.max_segments.map(|_| Retained::default()),
            options,
        };
        writer.write_manifest(&Manifest::default())?;
        writer.begin_segment().map_err(|(path, source)| {
            TraceCreateError::Write(TraceWriteError::new(&path, source, 0))
        })?;
        Ok(writer)
    }

    /// Returns a handle that can remove the trace's files if the trace cannot be completed.
    ///
    /// # Errors
    ///
    /// Fails if the process has no descriptor left.
    pub fn unfinished(&self) -> std::io::Result<Unfinished> {
        let directory = self.directory.try_clone()?;
        Ok(Unfinished { directory })
    }

    /// Returns the id of the recording, as the manifest has it: 32 hexadecimal digits.
    pub fn id(&self) -> String {
        segment::id_text(&self.id)
    }

    /// Adds an event. Events should come in order of time.
    ///
    /// The writer counts events that come late, and sorts them within the current block. If a late
    /// event belongs to the time of the previous block, a reader moves the event there.
    pub fn push(&mut self, event: &Event) -> Result<(), TraceWriteError> {
        if event.time_ns < self.pending.latest_ns {
            self.written.out_of_order += 1;
            self.pending.sorted = false;
        } else {
            self.pending.latest_ns = event.time_ns;
        }
        let mut names = NameBytes::default();
        table::put(&event.kind, &mut names);
        self.pending.bytes += EVENT_BYTES + names.0;
        self.pending.events.push(event.clone());
        // The upper limits keep a block below the size that readers refuse.
        let full = self.pending.bytes >= self.options.block_bytes.min(4 << 20)
            || self.pending.events.len() >= MAX_EVENTS / 2;
        if full {
            self.flush()?;
        }
        Ok(())
    }

    /// Writes the current block. All events so far can then be read even if the writer is killed.
    pub fn flush(&mut self) -> Result<(), TraceWriteError> {
        if self.pending.events.is_empty() {
            return Ok(());
        }
        let mut events = std::mem::take(&mut self.pending.events);
        self.pending.bytes = 0;
        if !std::mem::replace(&mut self.pending.sorted, true) {
            events.sort_by_key(|e| e.time_ns);
        }
        self.block.clear();
        self.encoder.encode(&events, self.blocks, &mut self.block);
        let count = events.len() as u64;
        self.write_block()
            .map_err(|(path, source)| TraceWriteError::new(&path, source, count))?;
        self.written.events += count;
        if let (Some(retained), Some(segment)) = (&mut self.retained, &self.segment) {
            retained.note(segment.number, &events);
        }
        events.clear();
        self.pending.events = events;
        Ok(())
    }

    /// Returns the number of bytes that were written to segments so far.
    pub fn bytes_written(&self) -> u64 {
        self.written.bytes
    }

    /// Returns the number of events that were written to segments so far. Events of the current
    /// block are not included.
    pub fn events_written(&self) -> u64 {
        self.written.events
    }

    /// Returns the number of events that were pushed after an event with a later time.
    pub fn out_of_order(&self) -> u64 {
        self.written.out_of_order
    }

    /// Replaces the manifest and sets its state to *recording*.
    pub fn write_manifest(&mut self, manifest: &Manifest) -> Result<(), TraceWriteError> {
        self.save_manifest(manifest.clone(), State::Recording)
    }

    /// Ends the trace: writes the last block, syncs the segment to disk, and writes the manifest
    /// with the state *complete*.
    pub fn finish(mut self, manifest: Manifest) -> Result<(), TraceWriteError> {
        self.flush()?;
        if let Some(segment) = &self.segment {
            let synced = segment.file.sync_data();
            synced.map_err(|source| TraceWriteError::new(&segment.path, source, 0))?;
        }
        self.save_manifest(manifest, State::Complete)
    }

    fn save_manifest(&self, mut manifest: Manifest, state: State) -> Result<(), TraceWriteError> {
        manifest.schema = manifest::SCHEMA.to_string();
        manifest.id = self.id();
        manifest.state = state;
        manifest.written = self.written.clone();
        let saved = manifest.save(&self.directory);
        saved.map_err(|e| TraceWriteError::new(&self.path(manifest::FILE), e, 0))
    }

    fn write_block(&mut self) -> Result<(), (PathBuf, io::Error)> {
        let length = self.block.len() as u64;
        let begin = match &self.segment {
            None => true,
            // A block larger than a segment gets a segment of its own.
            Some(s) => {
                s.length > segment::HEADER_LEN as u64
                    && s.length + length > self.options.segment_bytes
            }
        };
        if begin {
            self.begin_segment()?;
        }
        let Some(segment) = &mut self.segment else {
            return Ok(());
        };
        if let Err(error) = segment.file.write_all(&self.block) {
            // A half-written block would look like damage. Truncating the file needs no space.
            let _ = segment.file.set_len(segment.length);
            let _ = segment.file.seek(SeekFrom::Start(segment.length));
            return Err((segment.path.clone(), error));
        }
        segment.length += length;
        self.written.bytes += length;
        self.blocks += 1;
        Ok(())
    }

    fn begin_segment(&mut self) -> Result<(), (PathBuf, io::Error)> {
        let number = self.next_segment;
        let name = segment::name(number);
        let path = self.path(&name);
        let header = self.header(Content::Segment, number);
        let mut file = match self.directory.create_new(&name, 0o666) {
            Ok(file) => file,
            Err(error) => return Err((path, error)),
        };
        if let Err(error) = file.write_all(&header.to_bytes()) {
            // Remove the file so that a later attempt can begin the same segment.
            let _ = self.directory.remove(&name);
            return Err((path, error));
        }
        self.segment = Some(Segment {
            number,
            path,
            file,
            length: segment::HEADER_LEN as u64,
        });
        self.written.bytes += segment::HEADER_LEN as u64;
        self.next_segment = number + 1;
        if let Some(retained) = &mut self.retained {
            retained.begin(number);
        }
        self.delete_oldest()
    }

    fn delete_oldest(&mut self) -> Result<(), (PathBuf, io::Error)> {
        let (Some(mut retained), Some(max)) = (self.retained.take(), self.options.max_segments)
        else {
            return Ok(());
        };
        let mut result = Ok(());
        while retained.segments() > max.max(1) {
            let Some(number) = retained.take_over_oldest() else {
                break;
            };
            // First save the events that must stay, under a name that replaces the old file
            // atomically. Its header says which segments it replaces, so a crash here neither loses
            // nor duplicates events.
            result = self.save_init(retained.past(), number + 1).and_then(|()| {
                let name = segment::name(number);
                match self.directory.remove(&name) {
                    Err(error) if error.kind() != ErrorKind::NotFound => {
                        Err((self.path(&name), error))
                    }
                    _ => Ok(()),
                }
            });
            if result.is_err() {
                // The deletion is tried again later.
                retained.put_back(number);
                break;
            }
        }
        self.retained = Some(retained);
        result
    }

    fn save_init(&mut self, events: &[Event], covered: u32) -> Result<(), (PathBuf, io::Error)> {
        let mut bytes = self.header(Content::Init, covered).to_bytes().to_vec();
        let mut encoder = Encoder::new(self.options.level);
        for (number, events) in events.chunks(1 << 14).enumerate() {
            encoder.encode(events, number as u64, &mut bytes);
        }
        let saved = self
            .directory
            .replace(segment::INIT_FILE, |file| file.write_all(&bytes));
        saved.map_err(|e| (self.path(segment::INIT_FILE), e))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn header(&self, content: Content, number: u32) -> FileHeader {
        FileHeader {
            version: segment::VERSION,
            content,
            number,
            id: self.id,
            created_realtime_ns: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |d| d.as_nanos() as u64),
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // A writer that is dropped without `finish`, after an error elsewhere, still saves its
        // events. The state in the manifest stays *recording*.
        let _ = self.flush();
    }
}

#[derive(Default)]
struct NameBytes(usize);

impl FieldSink for NameBytes {
    fn handle(&mut self, _: &'static str, _: u64) {}
    fn message(&mut self, _: &'static str, _: u64) {}
    fn tid(&mut self, _: &'static str, _: u32) {}
    fn small(&mut self, _: &'static str, _: u16) {}
    fn int(&mut self, _: &'static str, _: i64) {}
    fn uint(&mut self, _: &'static str, _: u64) {}
    fn mask(&mut self, _: &'static str, _: u64) {}
    fn gid(&mut self, _: &'static str, _: &[u8; 16]) {}
    fn stamp(&mut self, _: &'static str, _: Option<i64>) {}
    fn flag(&mut self, _: &'static str, _: bool) {}
    fn name(&mut self, _: &'static str, value: &Name) {
        self.0 += value.len();
    }
    fn choice(&mut self, _: &'static str, _: &'static [&'static str], _: u8) {}
}

fn random_id() -> [u8; 16] {
    let mut id = [0; 16];
    for half in id.chunks_exact_mut(8) {
        // The standard library keys its hashes from the system's random source.
        let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
        hasher.write_u32(std::process::id());
        hasher.write_u128(
            SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |d| d.as_nanos()),
        );
        half.copy_from_slice(&hasher.finish().to_le_bytes());
    }
    id
}
