//! Reads the samples file of a peer: one record per message.

use crate::frame::{LabError, Result};
use std::path::Path;

/// The times of one message, in ns of CLOCK_MONOTONIC.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    pub sequence: i64,
    pub intended_ns: i64,
    pub sent_ns: i64,
    pub received_ns: i64,
}

impl Sample {
    pub fn latency_us(&self) -> f64 {
        (self.received_ns - self.sent_ns) as f64 / 1e3
    }

    /// Returns the time in us from when the message was due to be sent until it could be read. A
    /// delay of the sender counts, too.
    pub fn since_due_us(&self) -> f64 {
        (self.received_ns - self.intended_ns) as f64 / 1e3
    }
}

pub fn latencies_us(samples: &[Sample]) -> Vec<f64> {
    samples.iter().map(Sample::latency_us).collect()
}

pub fn read(file: &Path) -> Result<Vec<Sample>> {
    let bytes = std::fs::read(file).map_err(LabError::file("reading", file))?;
    parse(&bytes).ok_or_else(|| {
        LabError::in_file(
            file,
            format!(
                "{} bytes are not a whole number of samples of 32 bytes",
                bytes.len()
            ),
        )
    })
}

fn parse(bytes: &[u8]) -> Option<Vec<Sample>> {
    if !bytes.len().is_multiple_of(32) {
        return None;
    }
    let word = |chunk: &[u8], i: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&chunk[i * 8..][..8]);
        i64::from_le_bytes(word)
    };
    let sample = |c: &[u8]| Sample {
        sequence: word(c, 0),
        intended_ns: word(c, 1),
        sent_ns: word(c, 2),
        received_ns: word(c, 3),
    };
    Some(bytes.chunks_exact(32).map(sample).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_samples_are_parsed() {
        let bytes: Vec<u8> = [3i64, -1, 7, 9, 4, 5, 6, 7]
            .iter()
            .flat_map(|w| w.to_le_bytes())
            .collect();
        let samples = parse(&bytes).unwrap();
        assert_eq!(samples.len(), 2);
        assert_eq!((samples[0].sequence, samples[0].intended_ns), (3, -1));
        assert_eq!((samples[1].sent_ns, samples[1].received_ns), (6, 7));
        assert_eq!(parse(&bytes[..40]), None, "half a sample");
        assert_eq!(parse(&[]), Some(vec![]));
    }
}
