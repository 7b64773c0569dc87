//! Who makes most of the records where there are too many: everybody may call the functions that are
//! probed, and what one process makes too many of is lost to all.

use crate::decode::Decoded;
use std::collections::HashMap;

/// Records that come at once before it is asked who made them: a quarter of a second's. A busy robot
/// makes a tenth of them.
const MANY: usize = 1 << 16;
/// Processes that are told apart.
const PROCESSES_MAX: usize = 1024;

/// Records of the moments in which many came, by process.
#[derive(Debug, Default)]
pub struct Crowd {
    all: u64,
    by_process: HashMap<u32, u64>,
}

impl Crowd {
    /// Counts the records that came at once, if they are many.
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

    /// The processes that made more than a quarter of them, a sentence each.
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
                "process {pid} made {count} of the {} records that came in moments with more than {MANY}.",
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
    fn who_makes_most_of_many_records_is_named() {
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
        let said = crowd.sentences();
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(
            said[0].starts_with("process 7 made 57344 of the 65536"),
            "{said:?}"
        );
        assert!(crowd.by_process.len() <= PROCESSES_MAX);
    }
}
