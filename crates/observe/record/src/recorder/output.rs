//! Sorts events by time, shows them to the observer, and writes them to the trace directory.

use super::observer::{Control, Observer};
use super::options::RecordOptions;
use super::place::{Place, SharedDirectory};
use super::RecordError;
use onbeat_trace::manifest::Manifest;
use onbeat_trace::writer::{TraceWriteError, Writer, WriterOptions};
use onbeat_trace::{Event, EventKind};

/// The age in ns above which events are complete: no CPU will deliver an earlier event.
pub const REORDER_NS: u64 = 5_000_000;

pub struct Output {
    writer: Writer,
    pending: Vec<Event>,
    shared: Option<SharedDirectory>,
    note: Option<String>,
}

impl Output {
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

    pub fn note(&self) -> Option<String> {
        self.note.clone()
    }

    pub fn push(&mut self, event: Event) {
        self.pending.push(event);
    }

    pub fn push_own(&mut self, time_ns: u64, pid: u32, tid: u32, kind: EventKind) {
        self.pending.push(Event {
            time_ns,
            cpu: 0,
            pid,
            tid,
            kind,
        });
    }

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

    pub fn flush(&mut self) -> Result<(), TraceWriteError> {
        self.writer.flush()
    }

    pub fn write_manifest(&mut self, manifest: &Manifest) -> Result<(), TraceWriteError> {
        self.writer.write_manifest(manifest)
    }

    pub fn bytes(&self) -> u64 {
        self.writer.bytes_written()
    }

    pub fn finish(self, manifest: Manifest) -> Result<(), TraceWriteError> {
        self.writer.finish(manifest)?;
        // Dropping this last keeps our right to write there until then.
        drop(self.shared);
        Ok(())
    }
}
