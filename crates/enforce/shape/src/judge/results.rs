//! Keeps the judgements of a session in bounded memory. Pure.

use super::{jitter_ns, Judgement};
use crate::observe::{Attribution, Execution, Fate};
use std::collections::VecDeque;

/// The number of latest judgements that onbeat stores. At 10 Hz they cover more than a day.
const MAX_JUDGEMENTS: usize = 1_000_000;

const LIVE_EXECUTIONS: usize = 200;

/// The executions of a chain, counted by the fate of their outputs.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// The number of outputs that missed their last slot.
    pub late: u64,
    pub discarded: u64,
    /// The number of outputs that the middleware refused to publish.
    pub refused: u64,
    /// The number of outputs whose cycle is known from their lineage.
    pub known: u64,
    /// The number of outputs whose cycle the shaper inferred from the time of their arrival.
    pub inferred: u64,
    /// The number of outputs for which the lineage and the recording show different cycles.
    pub disputed: u64,
}

impl Counts {
    /// Returns these counts plus one execution.
    pub fn with(mut self, execution: &Execution) -> Counts {
        self.late += u64::from(execution.late);
        self.discarded += u64::from(execution.fate == Fate::Discarded);
        self.refused += u64::from(execution.fate == Fate::Refused);
        self.known += u64::from(execution.attribution == Attribution::Lineage);
        self.inferred += u64::from(execution.attribution == Attribution::Arrival);
        self.disputed += u64::from(execution.attribution == Attribution::Disputed);
        self
    }
}

#[derive(Debug, Default)]
pub(crate) struct Results {
    judgements: VecDeque<Judgement>,
    count: u64,
    reported: u64,
    counts: Vec<Counts>,
}

impl Results {
    pub(crate) fn add(&mut self, judgement: Judgement) {
        self.add_to(judgement, MAX_JUDGEMENTS);
    }

    fn add_to(&mut self, judgement: Judgement, most: usize) {
        let chain = judgement.execution.chain;
        if self.counts.len() <= chain {
            self.counts.resize(chain + 1, Counts::default());
        }
        self.counts[chain] = self.counts[chain].with(&judgement.execution);
        self.count += 1;
        if self.judgements.len() == most {
            self.judgements.pop_front();
        }
        self.judgements.push_back(judgement);
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn forgotten(&self) -> u64 {
        self.count - self.judgements.len() as u64
    }

    pub(crate) fn take_new(&mut self) -> Vec<Judgement> {
        let new = usize::try_from(self.count - self.reported).unwrap_or(usize::MAX);
        let known = self.judgements.len().saturating_sub(new);
        self.reported = self.count;
        self.judgements.range(known..).copied().collect()
    }

    pub(crate) fn recent_jitter_ns(&self, of: fn(&Execution) -> u64) -> u64 {
        let recent = self.judgements.len().saturating_sub(LIVE_EXECUTIONS);
        let recent = self.judgements.range(recent..);
        let in_time = recent.filter(|j| !j.execution.late);
        let mut latencies: Vec<u64> = in_time.map(|j| of(&j.execution)).collect();
        latencies.sort_unstable();
        jitter_ns(&latencies)
    }

    pub(crate) fn late(&self) -> u64 {
        self.counts.iter().map(|c| c.late).sum()
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.counts.iter().map(|c| c.discarded).sum()
    }

    pub(crate) fn counts(&self) -> &[Counts] {
        &self.counts
    }

    pub(crate) fn into_kept(self) -> Vec<Judgement> {
        self.judgements.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judgement(latency_ns: u64, late: bool) -> Judgement {
        Judgement {
            execution: Execution {
                chain: 0,
                start_ns: 100,
                left_ns: 100 + latency_ns / 10,
                output_ns: 100 + latency_ns,
                fate: Fate::Delivered,
                late,
                attribution: Attribution::NotHeld,
            },
            offset_ns: 0,
            band: None,
        }
    }

    #[test]
    fn each_judgement_is_reported_once() {
        let mut results = Results::default();
        let jitter = |r: &Results| r.recent_jitter_ns(Execution::latency_ns);
        assert_eq!((results.take_new().len(), jitter(&results)), (0, 0));
        results.add(judgement(10, false));
        results.add(judgement(30, false));
        assert_eq!(results.take_new().len(), 2);
        // A late execution is counted, but not part of the jitter.
        results.add(judgement(900, true));
        assert_eq!(results.take_new(), [judgement(900, true)]);
        assert_eq!((results.late(), results.dropped()), (1, 0));
        assert_eq!(jitter(&results), 10);
        assert_eq!(results.recent_jitter_ns(Execution::unshaped_ns), 1);
        assert_eq!((results.count(), results.forgotten()), (3, 0));
    }

    #[test]
    fn a_long_session_keeps_its_last_executions() {
        let mut results = Results::default();
        for latency_ns in 0..100 {
            results.add_to(judgement(latency_ns * 10, latency_ns == 0), 10);
            assert_eq!(
                results.take_new(),
                [judgement(latency_ns * 10, latency_ns == 0)]
            );
        }
        assert_eq!(
            (results.count(), results.forgotten(), results.late()),
            (100, 90, 1)
        );
        assert_eq!(results.recent_jitter_ns(Execution::latency_ns), 45);
        let late = Counts {
            late: 1,
            ..Counts::default()
        };
        assert_eq!(results.counts(), [late], "of the whole run");
        assert_eq!(results.into_kept().first(), Some(&judgement(900, false)));
    }
}
