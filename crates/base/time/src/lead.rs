//! A lead time that adapts to measured delays.

const KEPT: usize = 128;

/// A lead: the time by which an action begins before its planned instant, to make up for its delay.
/// The lead is the smallest time that is at least as long as a given share of the last 128 measured
/// delays. It stays between a floor and a cap.
///
/// Real-time safe: the value takes 0.5 KiB, does not allocate, and sorts 128 numbers for each
/// delay.
#[derive(Debug, Clone)]
pub struct Lead {
    delays_ns: [u32; KEPT],
    count: usize,
    covers: usize,
    floor_ns: u64,
    cap_ns: u64,
    lead_ns: u64,
}

impl Lead {
    /// Creates a lead, which is `begin_ns` until the first delay is measured. `covers` is the share
    /// of the measured delays, in 1/1000, that are no longer than the lead. `floor_ns` and `cap_ns`
    /// limit the lead.
    pub fn new(covers: usize, begin_ns: u64, (floor_ns, cap_ns): (u64, u64)) -> Lead {
        Lead {
            delays_ns: [0; KEPT],
            count: 0,
            covers: covers.min(1000),
            floor_ns,
            cap_ns,
            lead_ns: begin_ns.max(floor_ns).min(cap_ns),
        }
    }

    /// Returns the current lead in ns.
    pub fn ns(&self) -> u64 {
        self.lead_ns
    }

    /// Records a delay: the time from the requested instant to the actual one.
    pub fn record(&mut self, delay_ns: u64) {
        self.delays_ns[self.count % KEPT] = u32::try_from(delay_ns).unwrap_or(u32::MAX);
        self.count = self.count.checked_add(1).unwrap_or(KEPT);
        let mut sorted = self.delays_ns;
        let known = &mut sorted[..self.count.min(KEPT)];
        known.sort_unstable();
        let rank = (self.covers * known.len()).div_ceil(1000).max(1);
        let wanted_ns = u64::from(known[rank - 1]);
        self.lead_ns = wanted_ns.max(self.floor_ns).min(self.cap_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_lead_covers_the_configured_share_of_the_last_delays(
            delays in prop::collection::vec(0u64..5_000_000_000, 1..400),
            covers in 1usize..=1000,
        ) {
            let mut lead = Lead::new(covers, 7, (1_000, 3_000_000_000));
            prop_assert_eq!(lead.ns(), 1_000);
            delays.iter().for_each(|&d| lead.record(d));
            let last = &delays[delays.len().saturating_sub(KEPT)..];
            let within = |ns: u64| last.iter().filter(|&&d| d <= ns).count() * 1000;
            let found = lead.ns();
            prop_assert!((1_000..=3_000_000_000).contains(&found));
            if found < 3_000_000_000 {
                prop_assert!(within(found) >= covers * last.len());
            }
            if found > 1_000 {
                prop_assert!(within(found - 1) < covers * last.len());
            }
        }
    }

    #[test]
    fn an_outlier_lengthens_a_lead_only_until_enough_other_delays_are_recorded() {
        let mut lead = Lead::new(1000, 50, (0, 500));
        lead.record(u64::MAX);
        assert_eq!(lead.ns(), 500);
        (0..KEPT).for_each(|_| lead.record(20));
        assert_eq!(lead.ns(), 20);
    }
}
