//! The executions of a session and their judgements. Pure.

use super::{jitter_ns, Judgement};

/// Most judgements that are kept.
const MOST: usize = 1_000_000;

/// Number of executions that the live jitter is taken from.
const RECENT: usize = 200;

/// Judgements so far.
#[derive(Debug, Default)]
pub(crate) struct Results {
    judgements: Vec<Judgement>,
    /// How many of them were reported.
    reported: usize,
    late: u64,
    dropped: u64,
}

impl Results {
    /// Adds a judgement.
    pub(crate) fn add(&mut self, judgement: Judgement) {
        self.late += u64::from(judgement.execution.late);
        self.dropped += u64::from(judgement.execution.dropped);
        if self.judgements.len() < MOST {
            self.judgements.push(judgement);
        }
    }

    /// All judgements.
    pub(crate) fn all(&self) -> &[Judgement] {
        &self.judgements
    }

    /// The judgements since the last call.
    pub(crate) fn take_new(&mut self) -> Vec<Judgement> {
        let new = self.judgements[self.reported..].to_vec();
        self.reported = self.judgements.len();
        new
    }

    /// Jitter of the last executions.
    pub(crate) fn recent_jitter_ns(&self) -> u64 {
        let recent = self.judgements.len().saturating_sub(RECENT);
        let recent = self.judgements[recent..].iter();
        let mut latencies: Vec<u64> = recent.map(|j| j.execution.latency_ns()).collect();
        latencies.sort_unstable();
        jitter_ns(&latencies)
    }

    /// Number of outputs that missed their last slot.
    pub(crate) fn late(&self) -> u64 {
        self.late
    }

    /// Number of discarded outputs.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    pub(crate) fn into_all(self) -> Vec<Judgement> {
        self.judgements
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::Execution;

    #[test]
    fn judgements_are_reported_once() {
        let judgement = |latency_ns: u64, late| Judgement {
            execution: Execution {
                chain: 0,
                start_ns: 100,
                left_ns: 100 + latency_ns,
                output_ns: 100 + latency_ns,
                dropped: false,
                late,
            },
            offset_ns: 0,
            band: None,
        };
        let mut results = Results::default();
        assert_eq!(
            (results.take_new().len(), results.recent_jitter_ns()),
            (0, 0)
        );
        results.add(judgement(10, false));
        results.add(judgement(30, true));
        assert_eq!(results.take_new().len(), 2);
        results.add(judgement(20, true));
        assert_eq!(results.take_new(), [judgement(20, true)]);
        assert_eq!((results.late(), results.dropped()), (2, 0));
        assert_eq!(results.recent_jitter_ns(), 10);
        assert_eq!(results.all().len(), 3);
    }
}
