//! The messages of a stream, and the log of their processing.

use crate::settings::Settings;
use std::fmt::Write as _;

pub struct Stream {
    pub due_ns: Vec<u64>,
    pub processing_ns: Vec<u64>,
}

impl Stream {
    pub fn read(settings: &Settings, k: usize) -> Result<Stream, String> {
        let path = format!("{}{k}.csv", settings.text("arrivals")?);
        let text = std::fs::read_to_string(&path).map_err(|e| format!("reading {path}: {e}"))?;
        let mut stream = Stream {
            due_ns: vec![],
            processing_ns: vec![],
        };
        for line in text.lines() {
            let parts = line.split_once(',');
            let (Some(due), Some(processing)) = (
                parts.and_then(|p| p.0.parse().ok()),
                parts.and_then(|p| p.1.parse().ok()),
            ) else {
                return Err(format!("{path} is not a list of arrivals: '{line}'"));
            };
            stream.due_ns.push(due);
            stream.processing_ns.push(processing);
        }
        Ok(stream)
    }
}

/// A message that the consumer has processed. Times are in ns of CLOCK_MONOTONIC.
#[derive(Clone, Copy)]
pub struct Received {
    pub sequence: u64,
    pub sent_ns: u64,
    pub in_ns: u64,
    pub out_ns: u64,
}

pub struct ReceivedLog {
    entries: Vec<Received>,
    pub burned_ns: u64,
}

impl ReceivedLog {
    /// Allocates memory for the times of all messages and writes to it, so that the run has no page
    /// faults.
    pub fn new(messages: usize) -> ReceivedLog {
        let untouched = Received {
            sequence: 1,
            sent_ns: 1,
            in_ns: 1,
            out_ns: 1,
        };
        let mut entries = vec![untouched; messages];
        entries.clear();
        ReceivedLog {
            entries,
            burned_ns: 0,
        }
    }

    pub fn add(&mut self, received: Received) {
        self.entries.push(received);
    }

    pub fn write(&self, settings: &Settings, k: usize) -> Result<(), String> {
        let mut text = String::new();
        for e in &self.entries {
            let _ = writeln!(
                text,
                "{},{},{},{}",
                e.sequence, e.sent_ns, e.in_ns, e.out_ns
            );
        }
        let _ = writeln!(text, "# burned_ns={}", self.burned_ns);
        let path = format!("{}{k}.received.csv", settings.text("log")?);
        std::fs::write(&path, text).map_err(|e| format!("writing {path}: {e}"))
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }
}
