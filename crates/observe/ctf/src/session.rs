//! Finds the traces of a session below a directory, and merges their events by time.

use crate::kinds::{Kind, Needs};
use crate::metadata::{Metadata, MetadataError, MAX_METADATA};
use crate::stream::{Gaps, Seen, Stream};
use std::cmp::Reverse;
use std::collections::binary_heap::{BinaryHeap, PeekMut};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

const MAX_DEPTH: usize = 10;
const MAX_DIRECTORIES: usize = 10_000;
/// The largest number of event files in a session. All of them are open at once.
const MAX_STREAMS: usize = 4096;

#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum SessionError {
    #[error("{}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{}: {source}", path.display())]
    Metadata {
        path: PathBuf,
        source: MetadataError,
    },
    #[error("{}: no trace of LTTng is below this directory. Name the directory that `lttng create --output` or `ros2 trace` made", .0.display())]
    Nothing(PathBuf),
    #[error("{}: the trace has no clock, so its events have no times", .0.display())]
    NoClock(PathBuf),
    #[error("{}: more than {MAX_DIRECTORIES} directories or {MAX_STREAMS} files of events. Name the directory of one session", .0.display())]
    TooMany(PathBuf),
}

pub(crate) struct Trace {
    pub(crate) path: PathBuf,
    pub(crate) metadata: Metadata,
    /// The time in ns that the importer adds to the times of this trace, so that they become times
    /// of the clock of the session's first trace. 0 if the two traces have the same clock.
    shift_ns: i128,
}

impl Trace {
    fn time_ns(&self, clock: u64) -> u64 {
        let frequency = self.metadata.clock.as_ref().map_or(1, |c| c.frequency);
        let ns = match frequency {
            1_000_000_000 => i128::from(clock),
            frequency => i128::from(clock) * 1_000_000_000 / i128::from(frequency),
        };
        (ns + self.shift_ns).clamp(0, u64::MAX.into()) as u64
    }
}

pub(crate) trait Visitor {
    /// Returns the parts that [`Visitor::event`] reads of events of this kind.
    fn needs(&self, kind: Kind) -> Needs;

    fn event(&mut self, trace: &Trace, time_ns: u64, seen: &Seen);

    /// Reports that LTTng lost `count` events near this time.
    fn lost(&mut self, _time_ns: u64, _count: u64) {}

    fn progress(&mut self, done: u64, total: u64);
}

pub(crate) struct Session {
    pub(crate) traces: Vec<Trace>,
    streams: Vec<(usize, PathBuf)>,
}

#[derive(Default)]
pub(crate) struct Pass {
    /// The path of each event file, with the events and packets that are missing in it.
    pub(crate) gaps: Vec<(PathBuf, Gaps)>,
}

impl Session {
    pub(crate) fn open(path: &Path) -> Result<Session, SessionError> {
        let mut found = Found::default();
        found.walk(path, 0)?;
        if found.traces.is_empty() {
            return Err(SessionError::Nothing(path.into()));
        }
        let mut session = Session {
            traces: found.traces,
            streams: found.streams,
        };
        session.set_clocks()?;
        Ok(session)
    }

    fn set_clocks(&mut self) -> Result<(), SessionError> {
        for trace in &self.traces {
            if trace.metadata.clock.is_none() {
                return Err(SessionError::NoClock(trace.path.clone()));
            }
        }
        let first = self.traces.first().and_then(|t| t.metadata.clock.as_ref());
        let first = first.map(|c| (c.name.clone(), c.uuid.clone(), c.offset_ns));
        let Some((name, uuid, offset_ns)) = first else {
            return Ok(());
        };
        for trace in &mut self.traces {
            if let Some(clock) = &trace.metadata.clock {
                let is_same = clock.name == name && clock.uuid == uuid;
                if !is_same {
                    trace.shift_ns = clock.offset_ns - offset_ns;
                }
            }
        }
        Ok(())
    }

    pub(crate) fn offset_ns(&self) -> i64 {
        let clock = self.traces.first().and_then(|t| t.metadata.clock.as_ref());
        let offset = clock.map_or(0, |c| c.offset_ns);
        i64::try_from(offset).unwrap_or(0)
    }

    pub(crate) fn each(&self, visitor: &mut dyn Visitor) -> Result<Pass, SessionError> {
        let mut streams = Vec::with_capacity(self.streams.len());
        for (trace, path) in &self.streams {
            let trace = &self.traces[*trace];
            let stream = Stream::open(path, &trace.metadata).map_err(read(path))?;
            streams.push((trace, stream));
        }
        let total = streams.iter().map(|(_, s)| s.length()).sum();
        let mut heap = BinaryHeap::new();
        // Events that a stream lost before its first event.
        let mut lost_first = vec![0; streams.len()];
        for (i, (trace, stream)) in streams.iter_mut().enumerate() {
            if let Some(time) = next(trace, stream)? {
                heap.push(Reverse((time, i)));
            }
            lost_first[i] = stream.gaps.discarded;
        }
        let mut count = 0u64;
        // The next event of a file is often earlier than those of all others, so the file keeps its place.
        while let Some(mut earliest) = heap.peek_mut() {
            let Reverse((time, i)) = *earliest;
            let (trace, stream) = &mut streams[i];
            let lost = std::mem::take(&mut lost_first[i]);
            if lost > 0 {
                visitor.lost(time, lost);
            }
            let needs = stream
                .kind()
                .map_or(Needs::Nothing, |kind| visitor.needs(kind));
            stream.take(needs, &mut |seen| visitor.event(trace, time, seen));
            let before = stream.gaps.discarded;
            match next(trace, stream)? {
                Some(time) => *earliest = Reverse((time, i)),
                None => drop(PeekMut::pop(earliest)),
            }
            if stream.gaps.discarded > before {
                visitor.lost(time, stream.gaps.discarded - before);
            }
            count += 1;
            if count.is_multiple_of(8192) {
                visitor.progress(streams.iter().map(|(_, s)| s.position()).sum(), total);
            }
        }
        let gaps = streams.into_iter().map(|(_, s)| (s.path, s.gaps));
        Ok(Pass {
            gaps: gaps.collect(),
        })
    }
}

fn next(trace: &Trace, stream: &mut Stream) -> Result<Option<u64>, SessionError> {
    let found = stream.advance();
    let clock = found.map_err(read(&stream.path))?;
    Ok(clock.map(|clock| trace.time_ns(clock)))
}

fn read(path: &Path) -> impl FnOnce(io::Error) -> SessionError + '_ {
    |source| SessionError::Read {
        path: path.into(),
        source,
    }
}

#[derive(Default)]
struct Found {
    traces: Vec<Trace>,
    streams: Vec<(usize, PathBuf)>,
    directories: usize,
}

impl Found {
    fn walk(&mut self, path: &Path, depth: usize) -> Result<(), SessionError> {
        self.directories += 1;
        if self.directories > MAX_DIRECTORIES {
            return Err(SessionError::TooMany(path.into()));
        }
        let mut inner = Vec::new();
        let mut files = Vec::new();
        for entry in fs::read_dir(path).map_err(read(path))? {
            let entry = entry.map_err(read(path))?;
            let kind = entry.file_type().map_err(read(path))?;
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                continue;
            }
            // Links and pipes are left out: a link can lead out of the session, and a pipe can be endless.
            if kind.is_dir() {
                inner.push(entry.path());
            } else if kind.is_file() {
                files.push(entry.path());
            }
        }
        // The order of the entries of a directory differs from machine to machine.
        inner.sort();
        files.sort();
        if let Some(at) = files.iter().position(|f| f.ends_with("metadata")) {
            let metadata = files.remove(at);
            self.trace(path, &metadata, files)?;
            // The directories below contain indexes.
            return Ok(());
        }
        for directory in inner.into_iter().filter(|_| depth < MAX_DEPTH) {
            self.walk(&directory, depth + 1)?;
        }
        Ok(())
    }

    fn trace(
        &mut self,
        path: &Path,
        metadata: &Path,
        files: Vec<PathBuf>,
    ) -> Result<(), SessionError> {
        let mut bytes = Vec::new();
        File::open(metadata)
            .and_then(|f| f.take(MAX_METADATA as u64 + 1).read_to_end(&mut bytes))
            .map_err(read(metadata))?;
        if bytes.is_empty() {
            // LTTng creates the metadata before it writes to it. The metadata of a user without events
            // stays empty.
            return Ok(());
        }
        let parsed = Metadata::read(&bytes).map_err(|source| SessionError::Metadata {
            path: path.into(),
            source,
        })?;
        let number = self.traces.len();
        self.streams.extend(files.into_iter().map(|f| (number, f)));
        if self.streams.len() > MAX_STREAMS {
            return Err(SessionError::TooMany(path.into()));
        }
        self.traces.push(Trace {
            path: path.into(),
            metadata: parsed,
            shift_ns: 0,
        });
        Ok(())
    }
}
