//! Finds the processes that make most of the records when too many come at once.
//!
//! Every process may call the probed functions. One that calls them too often fills the ring
//! buffer, and records of all processes are lost.

use crate::decode::Decoded;
use std::collections::HashMap;

/// The number of records in one reading above which the recorder counts the records by process. A
/// busy robot makes a tenth of this number in a quarter of a second, the longest time between two
/// readings.
const MANY: usize = 1 << 16;
const PROCESSES_MAX: usize = 1024;

/// A counter of the records of each process. It counts only while very many records come at once.
#[derive(Debug, Default)]
pub struct Crowd {
    all: u64,
    by_process: HashMap<u32, u64>,
}

impl Crowd {
    pub fn count(&mut self, records: &[Decoded]) {
        if records.len() < MANY {
            return;
        }
        self.all += records.len() as u64;
        for record in records {
            let Decoded::Event(event) = record else {
                continue;
            };
            if self.by_process.len() < PROCESSES_MAX || self.by_process.contains_key(&event.pid) {
                *self.by_process.entry(event.pid).or_default() += 1;
            }
        }
    }

    pub fn sentences(&self) -> Vec<String> {
        let mut most: Vec<(u32, u64)> = self
            .by_process
            .iter()
            .map(|(&pid, &count)| (pid, count))
            .filter(|(_, count)| count * 4 > self.all)
            .collect();
        most.sort_unstable();
        let sentence = |(pid, count)| {
            format!(
                "process {pid} made {count} of the {} records that arrived in bursts of {MANY} or more.",
                self.all
            )
        };
        most.into_iter().map(sentence).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onbeat_trace::{Event, EventKind};

    #[test]
    fn a_process_that_causes_most_records_is_named_if_there_are_many() {
        let of = |pid| {
            Decoded::Event(Event {
                time_ns: 0,
                cpu: 0,
                pid,
                tid: pid,
                kind: EventKind::TimerCall { timer: 1 },
            })
        };
        let mut crowd = Crowd::default();
        crowd.count(&vec![of(1); MANY - 1]);
        assert!(crowd.sentences().is_empty());
        let records: Vec<_> = (0..MANY as u32)
            .map(|n| of(if n % 8 == 0 { n } else { 7 }))
            .collect();
        crowd.count(&records);
        let sentences = crowd.sentences();
        assert_eq!(sentences.len(), 1, "{sentences:?}");
        assert!(
            sentences[0].starts_with("process 7 made 57344 of the 65536"),
            "{sentences:?}"
        );
        assert!(crowd.by_process.len() <= PROCESSES_MAX);
    }
}
