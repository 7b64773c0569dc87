//! A stream's messages, and the logs of what happened to them.

use crate::settings::Settings;
use std::fmt::Write as _;

/// The messages of a stream.
pub struct Stream {
    /// When each is due after the start.
    pub due_ns: Vec<u64>,
    /// How long its processing takes.
    pub processing_ns: Vec<u64>,
}

impl Stream {
    /// Reads the messages of stream `k`.
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

/// A message at the consumer.
#[derive(Clone, Copy)]
pub struct Received {
    /// Number in the stream.
    pub sequence: u64,
    /// When it was sent.
    pub sent_ns: u64,
    /// When the consumer got it.
    pub in_ns: u64,
    /// When it was processed.
    pub out_ns: u64,
}

/// What the consumer did.
pub struct ReceivedLog {
    entries: Vec<Received>,
    /// CPU time that processing took.
    pub burned_ns: u64,
}

impl ReceivedLog {
    /// Room for all, touched before the start.
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

    /// One more message.
    pub fn add(&mut self, received: Received) {
        self.entries.push(received);
    }

    /// Writes it for stream `k`.
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

    /// How many messages were processed.
    pub fn len(&self) -> usize {
        self.entries.len()
    }
}
