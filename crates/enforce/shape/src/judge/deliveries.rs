//! Counts the cycles of a chain in which an output was delivered, and those in which none was.
//! Pure.

use std::collections::VecDeque;

/// The numbers of cycles with and without an output of one chain.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Delivery {
    pub delivered: u64,
    /// The number of cycles without an output, because the first callback did not start or its data
    /// did not arrive.
    pub without: u64,
}

impl Delivery {
    /// Returns the share of cycles with an output, from 0 to 1. Returns `None` if there were no
    /// cycles.
    pub fn share(&self) -> Option<f64> {
        let all = self.delivered + self.without;
        (all > 0).then(|| self.delivered as f64 / all as f64)
    }
}

#[derive(Debug)]
struct OpenCycle {
    start_ns: u64,
    delivered: Box<[bool]>,
}

/// The time in ns that an application may take to shut down, from its last output to the end of its
/// process. Cycles without an output in this time break no promise.
pub(crate) const SHUTDOWN_NS: u64 = 5_000_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Starts {
    /// A timer releases the first callback in every cycle. A cycle in which it did not start
    /// therefore counts as a cycle without output.
    EveryCycle,
    OnEvents,
}

#[derive(Debug)]
pub(crate) struct Deliveries {
    cycle_ns: u64,
    starts: Starts,
    /// The time in ns after the start of a cycle for which onbeat waits for the cycle's output.
    patience_ns: u64,
    open_cycles: VecDeque<OpenCycle>,
    since_ns: u64,
    last_closed_ns: Option<u64>,
    counts: Vec<Delivery>,
    plan_changes: VecDeque<u64>,
    ends: Vec<Vec<Delivery>>,
}

impl Deliveries {
    /// Creates a counter of the cycles with and without output, for `chains` chains. It counts from
    /// `since_ns` on. `worst_ns` is the worst case of the latency that the plan promises.
    pub(crate) fn new(
        cycle_ns: u64,
        worst_ns: u64,
        chains: usize,
        (starts, since_ns): (Starts, u64),
    ) -> Deliveries {
        let cycle_ns = cycle_ns.max(1);
        Deliveries {
            cycle_ns,
            starts,
            // The recording reports outputs a quarter of a second after they leave.
            patience_ns: worst_ns + 4 * cycle_ns + 2_000_000_000,
            open_cycles: VecDeque::new(),
            since_ns,
            last_closed_ns: None,
            counts: vec![Delivery::default(); chains],
            plan_changes: VecDeque::new(),
            ends: Vec::new(),
        }
    }

    pub(crate) fn begin_plan(&mut self, from_ns: u64, worst_ns: u64) {
        let patience_ns = worst_ns + 4 * self.cycle_ns + 2_000_000_000;
        self.patience_ns = self.patience_ns.max(patience_ns);
        self.plan_changes.push_back(from_ns);
    }

    pub(crate) fn by_plan(&self) -> Vec<Vec<Delivery>> {
        let none = vec![Delivery::default(); self.counts.len()];
        let ends = self.ends.iter().chain([&self.counts]);
        let begins = std::iter::once(&none).chain(&self.ends);
        let between = |(from, to): (&Vec<Delivery>, &Vec<Delivery>)| {
            let both = from.iter().zip(to);
            let less = |(from, to): (&Delivery, &Delivery)| Delivery {
                delivered: to.delivered - from.delivered,
                without: to.without - from.without,
            };
            both.map(less).collect()
        };
        let begun = begins.zip(ends).map(between);
        begun
            .chain(self.plan_changes.iter().map(|_| none.clone()))
            .collect()
    }

    fn end_plans(&mut self, at_ns: u64) {
        let half = self.cycle_ns / 2;
        while let Some(&plan_change) = self.plan_changes.front() {
            if plan_change > at_ns.saturating_add(half) {
                break;
            }
            self.plan_changes.pop_front();
            // Cycles without a start before the change belong to the earlier plan.
            self.count_silent(plan_change);
            self.ends.push(self.counts.clone());
        }
    }

    pub(crate) fn started(&mut self, start_ns: u64) {
        self.begin(start_ns);
        self.close_before(start_ns.saturating_sub(self.patience_ns));
    }

    /// Counts the cycles in which the first callback did not start. Leaves out the latest cycles:
    /// those within [`SHUTDOWN_NS`] or `patience_ns` before `now_ns`, whichever time is longer. The
    /// caller must have recorded all earlier starts.
    pub(crate) fn passed(&mut self, now_ns: u64) {
        let until_ns = now_ns.saturating_sub(self.patience_ns.max(SHUTDOWN_NS));
        self.close_before(until_ns);
        if self.open_cycles.is_empty() {
            self.count_silence(until_ns);
        }
    }

    pub(crate) fn delivered(&mut self, chain: usize, start_ns: u64) {
        if let Some(delivered) = self
            .begin(start_ns)
            .and_then(|begun| begun.delivered.get_mut(chain))
        {
            *delivered = true;
        }
    }

    pub(crate) fn finish(&mut self, until_ns: u64) {
        self.close_before(until_ns.saturating_add(1));
        self.open_cycles.clear();
        self.count_silence(until_ns);
    }

    pub(crate) fn counts(&self) -> &[Delivery] {
        &self.counts
    }

    #[cfg(test)]
    pub(crate) fn count_from(&mut self, since_ns: u64) {
        self.since_ns = since_ns;
    }

    /// Returns the cycle to which a start belongs, and adds the cycle if it is new. Returns `None`
    /// if the cycle is already counted.
    fn begin(&mut self, start_ns: u64) -> Option<&mut OpenCycle> {
        let half = self.cycle_ns / 2;
        if self.last_closed_ns.is_some_and(|c| start_ns <= c + half) {
            return None;
        }
        let after = self.open_cycles.partition_point(|b| b.start_ns <= start_ns);
        let near = |b: &OpenCycle| b.start_ns.abs_diff(start_ns) <= half;
        let place = match after {
            n if n > 0 && near(&self.open_cycles[n - 1]) => n - 1,
            n if self.open_cycles.get(n).is_some_and(near) => n,
            n => {
                let delivered = vec![false; self.counts.len()].into();
                self.open_cycles.insert(
                    n,
                    OpenCycle {
                        start_ns,
                        delivered,
                    },
                );
                n
            }
        };
        self.open_cycles.get_mut(place)
    }

    fn close_before(&mut self, at_ns: u64) {
        while self.open_cycles.front().is_some_and(|b| b.start_ns < at_ns) {
            self.close_oldest();
        }
    }

    fn close_oldest(&mut self) {
        let Some(begun) = self.open_cycles.pop_front() else {
            return;
        };
        self.end_plans(begun.start_ns);
        let without_start = match (self.starts, self.last_closed_ns) {
            (Starts::OnEvents, _) => 0,
            (Starts::EveryCycle, Some(last_ns)) => {
                let cycles = (begun.start_ns - last_ns + self.cycle_ns / 2) / self.cycle_ns;
                cycles.saturating_sub(1)
            }
            (Starts::EveryCycle, None) => {
                begun.start_ns.saturating_sub(self.since_ns) / self.cycle_ns
            }
        };
        for (count, delivered) in self.counts.iter_mut().zip(&begun.delivered) {
            count.delivered += u64::from(*delivered);
            count.without += without_start + u64::from(!delivered);
        }
        self.last_closed_ns = Some(begun.start_ns);
    }

    fn count_silence(&mut self, until_ns: u64) {
        self.end_plans(until_ns);
        self.count_silent(until_ns);
    }

    fn count_silent(&mut self, until_ns: u64) {
        if self.starts == Starts::OnEvents {
            return;
        }
        let last_ns = self.last_closed_ns.unwrap_or(self.since_ns);
        // A start may be half a cycle late.
        let silent_ns = until_ns.saturating_sub(last_ns + self.cycle_ns / 2);
        let cycles = silent_ns / self.cycle_ns;
        if cycles > 0 {
            self.counts.iter_mut().for_each(|c| c.without += cycles);
            self.last_closed_ns = Some(last_ns + cycles * self.cycle_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CYCLE: u64 = 100_000_000;

    fn deliveries(starts: Starts) -> Deliveries {
        Deliveries::new(CYCLE, CYCLE / 2, 1, (starts, CYCLE))
    }

    #[test]
    fn a_chain_that_does_not_start_any_more_has_cycles_without_output() {
        for (starts, silent) in [(Starts::EveryCycle, 50), (Starts::OnEvents, 0)] {
            let mut d = deliveries(starts);
            for cycle in 1..=10 {
                d.started(cycle * CYCLE);
                d.delivered(0, cycle * CYCLE);
            }
            // The time passes in steps of a second. The last [`SHUTDOWN_NS`] do not count, as for
            // an application that ends.
            let mut last = 0;
            for second in 2..=20 {
                d.passed(second * 10 * CYCLE);
                assert!(d.counts()[0].without >= last);
                last = d.counts()[0].without;
            }
            let live = 200 - 10 - SHUTDOWN_NS / CYCLE - 1;
            assert_eq!(last, if silent > 0 { live } else { 0 });
            // The chain runs again, and ends again.
            let mut again = deliveries(starts);
            for cycle in (1..=10).chain(61..=70) {
                again.started(cycle * CYCLE);
                again.delivered(0, cycle * CYCLE);
                again.passed(cycle * CYCLE);
            }
            again.finish(120 * CYCLE + CYCLE / 2);
            let expected = Delivery {
                delivered: 20,
                without: 2 * silent,
            };
            assert_eq!(again.counts(), [expected]);
        }
    }

    #[test]
    fn a_chain_that_never_starts_has_cycles_without_output() {
        let mut d = deliveries(Starts::EveryCycle);
        d.finish(21 * CYCLE + CYCLE / 2);
        assert_eq!((d.counts()[0].without, d.counts()[0].delivered), (20, 0));
        let mut late = deliveries(Starts::EveryCycle);
        late.started(6 * CYCLE);
        late.delivered(0, 6 * CYCLE);
        late.finish(6 * CYCLE);
        assert_eq!(
            (late.counts()[0].without, late.counts()[0].delivered),
            (5, 1)
        );
    }

    #[test]
    fn a_timer_cycle_without_a_start_counts_as_without_output() {
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
    fn a_cycle_counts_once_even_if_its_output_is_reported_first_or_it_starts_twice() {
        let mut d = deliveries(Starts::EveryCycle);
        d.delivered(0, 2 * CYCLE);
        d.started(CYCLE);
        d.started(2 * CYCLE);
        d.started(2 * CYCLE + CYCLE / 4);
        d.finish(3 * CYCLE);
        let expected = Delivery {
            delivered: 1,
            without: 1,
        };
        assert_eq!(d.counts(), [expected]);
        assert_eq!(expected.share(), Some(0.5));
        assert_eq!(Delivery::default().share(), None);
    }

    #[test]
    fn cycles_that_have_not_ended_when_counting_ends_do_not_count() {
        let mut d = deliveries(Starts::EveryCycle);
        d.started(CYCLE);
        d.started(2 * CYCLE);
        d.finish(CYCLE);
        assert_eq!(d.counts()[0].without, 1);
    }

    proptest! {
        #[test]
        fn cycles_with_and_without_output_add_up_to_all_cycles(
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
            let passed = known.last().map_or(0, |last| last + 1);
            prop_assert_eq!(d.counts()[0].delivered, kept);
            prop_assert_eq!(d.counts()[0].delivered + d.counts()[0].without, passed);
            // A run of days keeps few cycles.
            prop_assert!(d.open_cycles.len() <= 64);
        }
    }
}
