//! How far threads ran outside their server's slots, from the kernel's own switches. Pure.

use onbeat_plan::schema::Slot;

/// Runs of one thread, held against its server's slots.
#[derive(Debug, Clone)]
pub struct Isolation {
    cycle_ns: u64,
    /// [start, end) within the cycle, ascending; ends may lie beyond the cycle.
    slots: Vec<(u64, u64)>,
    running_since: Option<u64>,
}

impl Isolation {
    /// For the slots of a server.
    pub fn new(cycle_ns: u64, slots: &[Slot]) -> Isolation {
        Isolation {
            cycle_ns: cycle_ns.max(1),
            slots: slots.iter().map(|s| (s.0 .0, s.1 .0)).collect(),
            running_since: None,
        }
    }

    /// The thread begins to run.
    pub fn runs(&mut self, at_ns: u64) {
        self.running_since = Some(at_ns);
    }

    /// The thread stops running; how far its run reached outside the slots of cycles that begin at
    /// `origin_ns`: the longest stretch of it that lies in no slot. None where the start was not
    /// seen.
    pub fn stops(&mut self, at_ns: u64, origin_ns: u64) -> Option<u64> {
        let from = self.running_since.take()?;
        Some(self.outside(from, at_ns, origin_ns))
    }

    fn outside(&self, from_ns: u64, until_ns: u64, origin_ns: u64) -> u64 {
        let cycle = i128::from(self.cycle_ns);
        let (from, until) = (
            i128::from(from_ns) - i128::from(origin_ns),
            i128::from(until_ns) - i128::from(origin_ns),
        );
        if self.slots.is_empty() || until <= from {
            return 0;
        }
        // Runs are short against the cycle; of a longer one, two cycles tell everything.
        let until = until.min(from + 2 * cycle);
        let (mut longest, mut at) = (0, from);
        let mut base = (from.div_euclid(cycle) - 1) * cycle;
        while at < until {
            for &(start, end) in &self.slots {
                let (start, end) = (base + i128::from(start), base + i128::from(end));
                if start >= until {
                    break;
                }
                if end > at {
                    longest = longest.max(start - at);
                    at = at.max(end);
                }
            }
            base += cycle;
            if base > until {
                longest = longest.max(until - at);
                break;
            }
        }
        longest.max(0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onbeat_plan::schema::Ms;
    use proptest::prelude::*;

    fn open(slots: &[(u64, u64)], cycle: u64, at: i64) -> bool {
        let within = at.rem_euclid(cycle as i64) as u64;
        slots
            .iter()
            .any(|&(s, e)| (s..e).contains(&within) || (s..e).contains(&(within + cycle)))
    }

    proptest! {
        #[test]
        fn the_longest_stretch_is_found_as_by_looking_at_every_instant(
            cuts in prop::collection::btree_set(0u64..60, 2..7),
            from in 0i64..200,
            long in 1i64..100,
            origin in 0u64..300,
        ) {
            let cuts: Vec<u64> = cuts.into_iter().collect();
            let slots: Vec<(u64, u64)> = cuts.chunks_exact(2).map(|c| (c[0], c[1])).collect();
            let (mut longest, mut now) = (0, 0);
            for at in from..from + long {
                now = if open(&slots, 50, at - origin as i64) { 0 } else { now + 1 };
                longest = longest.max(now);
            }
            // Slots that wrap into the next cycle's first one would overlap it.
            prop_assume!(slots.last().is_some_and(|l| l.1 <= 50 + slots[0].0));
            let slots: Vec<Slot> = slots.iter().map(|&(s, e)| Slot(Ms(s), Ms(e))).collect();
            let mut isolation = Isolation::new(50, &slots);
            isolation.runs(from as u64);
            prop_assert_eq!(isolation.stops((from + long) as u64, origin), Some(longest));
        }
    }

    #[test]
    fn a_run_whose_start_was_not_seen_tells_nothing() {
        assert_eq!(Isolation::new(10, &[]).stops(5, 0), None);
    }
}
