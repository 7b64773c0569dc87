//! The slowest executions of a profile, which a plan may leave out.

use crate::bands::Samples;
use onbeat_document::Dist;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Slowest {
    pub(crate) count: u64,
    /// The number of all measured executions, including the ones that are left out.
    pub(crate) of: u64,
    /// The shortest and the longest latency of the left-out executions, or (0, 0) if there are
    /// none.
    pub(crate) latency_ns: (u64, u64),
}

impl Slowest {
    /// Removes the `count` slowest executions from the latencies, and returns the rest and a
    /// summary of the removed ones. At least one execution remains.
    pub(crate) fn taken_from(latency: &Dist, count: u64) -> (Dist, Slowest) {
        let of = latency.count();
        let count = count.min(of.saturating_sub(1));
        if count == 0 {
            let none = Slowest {
                of,
                ..Slowest::default()
            };
            return (latency.clone(), none);
        }
        let mut kept = Dist::new();
        let (mut left, mut shortest) = (of - count, 0);
        for (value, n) in Samples::pairs(latency) {
            let take = n.min(left);
            (0..take).for_each(|_| kept.record(value));
            left -= take;
            if take < n {
                shortest = value;
                break;
            }
        }
        let slowest = Slowest {
            count,
            of,
            latency_ns: (shortest, latency.max()),
        };
        (kept, slowest)
    }

    pub(crate) fn share(&self) -> f64 {
        self.count as f64 / self.of.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taking_away_the_slowest_executions_keeps_all_others() {
        let mut all = Dist::new();
        [10_000, 20_000, 20_000, 90_000, 400_000]
            .iter()
            .for_each(|&v| all.record(v));
        let (kept, slowest) = Slowest::taken_from(&all, 2);
        assert_eq!((kept.count(), slowest.count, slowest.of), (3, 2, 5));
        assert!(
            kept.max() >= 20_000 && kept.max() < 20_100,
            "{}",
            kept.max()
        );
        assert_eq!(slowest.latency_ns.1, 400_000);
        assert!((90_000..90_100).contains(&slowest.latency_ns.0));
        assert_eq!(slowest.share(), 0.4);
        let (kept, slowest) = Slowest::taken_from(&all, 0);
        assert_eq!((kept, slowest.share()), (all.clone(), 0.0));
        assert_eq!(Slowest::taken_from(&all, 9).0.count(), 1);
    }
}
