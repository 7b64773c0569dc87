//! The events of a trace as one stream, in order of time.
use super::blocks::Blocks;
use super::log::{Log, Sequence};
use crate::block::Decoder;
use crate::event::Event;
use std::fs::File;
use std::path::PathBuf;

/// An iterator over the events of a trace, in order of time.
pub struct Events<'a> {
    files: std::vec::IntoIter<PathBuf>,
    log: Log<'a>,
    blocks: Option<Blocks<File>>,
    decoder: Decoder,
    expected: Sequence,
    current: std::vec::IntoIter<Event>,
    /// The events of the next block. They are read in advance, because late events among them
    /// belong before some events of `current`.
    ahead: Vec<Event>,
    latest_ns: u64,
}

impl<'a> Events<'a> {
    pub(super) fn new(files: Vec<PathBuf>, from_start: bool, log: Log<'a>) -> Events<'a> {
        Events {
            files: files.into_iter(),
            log,
            blocks: None,
            decoder: Decoder::new(),
            expected: Sequence {
                next: from_start.then_some(0),
                counted: 0,
            },
            current: Vec::new().into_iter(),
            ahead: Vec::new(),
            latest_ns: 0,
        }
    }

    /// Fills `current` with the next events of the trace, as many as one block contains. Returns
    /// false at the end of the trace.
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
                // Both lists are sorted, so this sort is a merge. Equal times keep the order of the
                // blocks.
                now.append(&mut next);
                now.sort_by_key(|e| e.time_ns);
                next = now.split_off(length);
            }
            self.ahead = next;
        }
        self.current = now.into_iter();
        true
    }

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
