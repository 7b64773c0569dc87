//! The trace directory: events are put in order of time, shown to the observer, and written.

use super::observer::{Control, Observer};
use super::options::RecordOptions;
use super::place::{Place, SharedDirectory};
use super::RecordError;
use onbeat_trace::manifest::Manifest;
use onbeat_trace::writer::{TraceWriteError, Writer, WriterOptions};
use onbeat_trace::{Event, EventKind};

/// Events older than this are complete: no earlier one is still to come from another CPU.
pub const REORDER_NS: u64 = 5_000_000;

/// The trace directory of a recording.
pub struct Output {
    writer: Writer,
    /// Not yet written: earlier events may still come.
    pending: Vec<Event>,
    /// Present when the directory belongs to the user behind sudo.
    shared: Option<SharedDirectory>,
    note: Option<String>,
}

impl Output {
    /// Makes the directory.
    pub fn create(options: &RecordOptions) -> Result<Output, RecordError> {
        let Place {
            directory,
            shared,
            note,
        } = Place::make(options)?;
        let writer = Writer::create_in(
            directory,
            WriterOptions {
                segment_bytes: options.files.segment_bytes,
                max_segments: options.files.max_segments,
                ..WriterOptions::default()
            },
        )?;
        Ok(Output {
            writer,
            pending: Vec::new(),
            shared,
            note,
        })
    }

    /// What the user should know of the directory.
    pub fn note(&self) -> Option<String> {
        self.note.clone()
    }

    /// Takes an event; writes it later.
    pub fn push(&mut self, event: Event) {
        self.pending.push(event);
    }

    /// Takes an event that the recorder itself has to report.
    pub fn push_own(&mut self, time_ns: u64, pid: u32, tid: u32, kind: EventKind) {
        self.pending.push(Event {
            time_ns,
            cpu: 0,
            pid,
            tid,
            kind,
        });
    }

    /// Shows and writes the events up to a time.
    pub fn write_until(
        &mut self,
        until_ns: u64,
        control: &Control<'_>,
        observer: &mut dyn Observer,
    ) -> Result<(), TraceWriteError> {
        self.pending.sort_by_key(|e| e.time_ns);
        let complete = self.pending.partition_point(|e| e.time_ns <= until_ns);
        observer.events(&self.pending[..complete], control);
        for event in self.pending.drain(..complete) {
            if observer.is_kept(&event) {
                self.writer.push(&event)?;
            }
        }
        Ok(())
    }

    /// Ends a block, so that everything written so far can be read.
    pub fn flush(&mut self) -> Result<(), TraceWriteError> {
        self.writer.flush()
    }

    /// Replaces the manifest by a newer one.
    pub fn write_manifest(&mut self, manifest: &Manifest) -> Result<(), TraceWriteError> {
        self.writer.write_manifest(manifest)
    }

    /// Bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.writer.bytes_written()
    }

    /// Completes the trace.
    pub fn finish(self, manifest: Manifest) -> Result<(), TraceWriteError> {
        self.writer.finish(manifest)?;
        // Last: it takes the right to write there from us.
        drop(self.shared);
        Ok(())
    }
}
