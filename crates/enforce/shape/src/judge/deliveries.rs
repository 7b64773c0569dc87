//! Cycles of a chain in which an output was delivered, and those in which none was. Pure.

use std::collections::VecDeque;

/// Cycles that a chain began, by whether an output came of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Delivery {
    /// Cycles of which an output was delivered.
    pub delivered: u64,
    /// Cycles of which none was: the first callback did not start, or its data did not arrive.
    pub without: u64,
}

impl Delivery {
    /// Share of the cycles that delivered, 0 to 1. `None` if there were no cycles.
    pub fn share(&self) -> Option<f64> {
        let all = self.delivered + self.without;
        (all > 0).then(|| self.delivered as f64 / all as f64)
    }
}

/// A cycle whose outputs may still come.
#[derive(Debug)]
struct Begun {
    /// The first start in it.
    start_ns: u64,
    /// By chain: whether an output of it was delivered.
    delivered: Box<[bool]>,
}

/// Whether a chain starts in every cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Starts {
    /// A timer releases its first callback: a cycle without a start has no output either.
    EveryCycle,
    /// It starts when an event comes.
    OnEvents,
}

/// Counts the cycles of chains that start together.
#[derive(Debug)]
pub(crate) struct Deliveries {
    cycle_ns: u64,
    starts: Starts,
    /// So long after a newer start an output may still come.
    patience_ns: u64,
    /// In order of time.
    begun: VecDeque<Begun>,
    /// Start of the last cycle that is no longer among the begun ones.
    closed_ns: Option<u64>,
    /// By chain.
    counts: Vec<Delivery>,
}

impl Deliveries {
    /// For so many chains. `worst_ns`: the promised worst case.
    pub(crate) fn new(cycle_ns: u64, worst_ns: u64, chains: usize, starts: Starts) -> Deliveries {
        let cycle_ns = cycle_ns.max(1);
        Deliveries {
            cycle_ns,
            starts,
            // Outputs are known a quarter of a second after they leave.
            patience_ns: worst_ns + 4 * cycle_ns + 2_000_000_000,
            begun: VecDeque::new(),
            closed_ns: None,
            counts: vec![Delivery::default(); chains],
        }
    }

    /// The first callback started. Starts within half a cycle belong to one cycle.
    pub(crate) fn started(&mut self, start_ns: u64) {
        self.begin(start_ns);
        while let Some(oldest) = self.begun.front() {
            if oldest.start_ns.saturating_add(self.patience_ns) >= start_ns {
                break;
            }
            self.close_oldest();
        }
    }

    /// An output of the execution that started at `start_ns` was delivered.
    pub(crate) fn delivered(&mut self, chain: usize, start_ns: u64) {
        if let Some(delivered) = self
            .begin(start_ns)
            .and_then(|begun| begun.delivered.get_mut(chain))
        {
            *delivered = true;
        }
    }

    /// Ends the counting: cycles that began after `until_ns` do not count.
    pub(crate) fn finish(&mut self, until_ns: u64) {
        while self.begun.front().is_some_and(|b| b.start_ns <= until_ns) {
            self.close_oldest();
        }
        self.begun.clear();
    }

    /// By chain: the cycles of which nothing more is expected.
    pub(crate) fn counts(&self) -> &[Delivery] {
        &self.counts
    }

    /// The cycle to which a start belongs; `None` if it is over.
    fn begin(&mut self, start_ns: u64) -> Option<&mut Begun> {
        let half = self.cycle_ns / 2;
        if self.closed_ns.is_some_and(|c| start_ns <= c + half) {
            return None;
        }
        let after = self.begun.partition_point(|b| b.start_ns <= start_ns);
        let near = |b: &Begun| b.start_ns.abs_diff(start_ns) <= half;
        let place = match after {
            n if n > 0 && near(&self.begun[n - 1]) => n - 1,
            n if self.begun.get(n).is_some_and(near) => n,
            n => {
                let delivered = vec![false; self.counts.len()].into();
                self.begun.insert(
                    n,
                    Begun {
                        start_ns,
                        delivered,
                    },
                );
                n
            }
        };
        self.begun.get_mut(place)
    }

    fn close_oldest(&mut self) {
        let Some(begun) = self.begun.pop_front() else {
            return;
        };
        let without_start = match (self.starts, self.closed_ns) {
            (Starts::EveryCycle, Some(last_ns)) => {
                let cycles = (begun.start_ns - last_ns + self.cycle_ns / 2) / self.cycle_ns;
                cycles.saturating_sub(1)
            }
            _ => 0,
        };
        for (count, delivered) in self.counts.iter_mut().zip(&begun.delivered) {
            count.delivered += u64::from(*delivered);
            count.without += without_start + u64::from(!delivered);
        }
        self.closed_ns = Some(begun.start_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CYCLE: u64 = 100_000_000;

    fn deliveries(starts: Starts) -> Deliveries {
        Deliveries::new(CYCLE, CYCLE / 2, 1, starts)
    }

    #[test]
    fn a_cycle_without_start_counts_where_a_timer_starts_the_chain() {
        for (starts, without) in [(Starts::EveryCycle, 3), (Starts::OnEvents, 0)] {
            let mut d = deliveries(starts);
            for cycle in [1, 2, 3, 7, 8] {
                d.started(cycle * CYCLE);
                d.delivered(0, cycle * CYCLE);
            }
            d.finish(8 * CYCLE);
            let delivered = 5;
            assert_eq!(d.counts(), [Delivery { delivered, without }]);
        }
    }

    #[test]
    fn an_output_may_be_known_before_its_start_and_two_starts_may_share_a_cycle() {
        let mut d = deliveries(Starts::EveryCycle);
        d.delivered(0, 2 * CYCLE);
        d.started(CYCLE);
        d.started(2 * CYCLE);
        d.started(2 * CYCLE + CYCLE / 4);
        d.finish(9 * CYCLE);
        let expected = Delivery {
            delivered: 1,
            without: 1,
        };
        assert_eq!(d.counts(), [expected]);
        assert_eq!(expected.share(), Some(0.5));
        assert_eq!(Delivery::default().share(), None);
    }

    #[test]
    fn what_is_under_way_at_the_end_does_not_count() {
        let mut d = deliveries(Starts::EveryCycle);
        d.started(CYCLE);
        d.started(2 * CYCLE);
        d.finish(CYCLE);
        assert_eq!(d.counts()[0].without, 1);
    }

    proptest! {
        /// Whatever comes when, delivered and undelivered cycles add up to those that passed.
        #[test]
        fn cycles_add_up(
            cycles in prop::collection::vec((any::<bool>(), any::<bool>(), 0..CYCLE / 5), 1..300),
        ) {
            let mut d = deliveries(Starts::EveryCycle);
            let (mut known, mut kept, mut last) = (Vec::new(), 0, 0);
            for (n, (starts, delivers, jitter)) in cycles.iter().enumerate() {
                if *starts {
                    let at = (n as u64 + 1) * CYCLE + jitter;
                    d.started(at);
                    if *delivers {
                        d.delivered(0, at);
                        kept += 1;
                    }
                    known.push(n as u64);
                    last = at;
                }
            }
            d.finish(last);
            let passed = known.last().map_or(0, |last| last - known[0] + 1);
            prop_assert_eq!(d.counts()[0].delivered, kept);
            prop_assert_eq!(d.counts()[0].delivered + d.counts()[0].without, passed);
            // A run of days keeps few of them.
            prop_assert!(d.begun.len() <= 64);
        }
    }
}
