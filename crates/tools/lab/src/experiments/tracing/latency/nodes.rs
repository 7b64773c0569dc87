//! The program of the two nodes, the samples it writes, and the events in recordings of it.

use super::super::lttng::Lttng;
use crate::frame::files;
use crate::frame::{LabError, Result};
use crate::measure::recorder;
use onbeat_trace::Manifest;
use std::path::Path;

pub const REAL_TIME_PRIORITY: i32 = 20;

pub struct Nodes<'a> {
    pub program: &'a Path,
    pub env: &'a Path,
    pub lttng: Option<Lttng>,
}

pub struct Sample {
    pub sequence: u64,
    pub intended_ns: i64,
    pub sent_ns: i64,
    pub received_ns: i64,
}

#[derive(Default)]
pub struct RecordedEvents {
    pub hits: u64,
    pub lost: u64,
}

impl RecordedEvents {
    pub fn add(&mut self, manifest: &Manifest) {
        self.hits += recorder::hits(manifest);
        self.lost += recorder::lost(manifest);
    }
}

pub fn read_samples(file: &Path) -> Result<Vec<Sample>> {
    let text = files::text(file)?;
    text.lines()
        .map(|line| {
            let n: Vec<i64> = line.split(',').filter_map(|v| v.parse().ok()).collect();
            match n[..] {
                [sequence, intended_ns, sent_ns, received_ns] if sequence >= 0 => Ok(Sample {
                    sequence: sequence as u64,
                    intended_ns,
                    sent_ns,
                    received_ns,
                }),
                _ => Err(LabError::in_file(file, format!("line '{line}'"))),
            }
        })
        .collect()
}
