//! Cycles that repeat forever, and the position of an instant in them.

/// The division of time into cycles of a fixed period. Cycle 0 begins at the origin. Cycles before
/// the origin have negative numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cycle {
    period_ns: u64,
    origin_ns: i64,
}

/// An instant as a cycle number and an offset within that cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The number of the cycle that contains the instant. Cycles before the origin have negative
    /// numbers.
    pub cycle: i64,
    /// The time from the start of the cycle that contains the instant to the instant, in ns. It is
    /// less than the period.
    pub offset_ns: u64,
}

impl Cycle {
    /// Divides time into cycles of `period_ns`. Cycle 0 begins at `origin_ns`. Returns `None` for a
    /// period of 0.
    pub const fn new(period_ns: u64, origin_ns: i64) -> Option<Cycle> {
        match period_ns {
            0 => None,
            _ => Some(Cycle {
                period_ns,
                origin_ns,
            }),
        }
    }

    /// Returns the length of a cycle in ns, which is never 0.
    pub const fn period_ns(&self) -> u64 {
        self.period_ns
    }

    /// Returns the instant at which cycle 0 begins.
    pub const fn origin_ns(&self) -> i64 {
        self.origin_ns
    }

    /// Returns a cycle with the same period and another origin.
    pub const fn with_origin(self, origin_ns: i64) -> Cycle {
        Cycle { origin_ns, ..self }
    }

    /// Returns the number of the cycle that contains an instant, and the time from that cycle's
    /// start to the instant.
    #[inline]
    pub fn position(&self, at_ns: impl Into<i128>) -> Position {
        let since = at_ns.into() - i128::from(self.origin_ns);
        // The instant is nearly always after the origin and fits into 64 bits: one unsigned
        // division is enough.
        if let Ok(since) = u64::try_from(since) {
            let cycle = since / self.period_ns;
            return Position {
                cycle: cycle.min(i64::MAX as u64 / 2) as i64,
                offset_ns: since % self.period_ns,
            };
        }
        // A division of 128 bits takes many times as long.
        if let (Ok(since), Ok(period)) = (i64::try_from(since), i64::try_from(self.period_ns)) {
            return Position {
                cycle: since.div_euclid(period),
                offset_ns: since.rem_euclid(period) as u64,
            };
        }
        let period = i128::from(self.period_ns);
        Position {
            cycle: limited(since.div_euclid(period)),
            offset_ns: since.rem_euclid(period) as u64,
        }
    }

    /// Returns the number of the cycle that contains an instant.
    #[inline]
    pub fn index(&self, at_ns: impl Into<i128>) -> i64 {
        self.position(at_ns).cycle
    }

    /// Returns the time from the start of the cycle that contains an instant to that instant.
    #[inline]
    pub fn offset_ns(&self, at_ns: impl Into<i128>) -> u64 {
        self.position(at_ns).offset_ns
    }

    /// Returns the instant at which the given cycle begins, in ns, on the clock of the origin.
    #[inline]
    pub fn start_ns(&self, cycle: i64) -> i64 {
        limited(self.start(cycle))
    }

    /// Returns the first start of a cycle at or after an instant.
    pub fn next_start_ns(&self, at_ns: impl Into<i128>) -> i64 {
        let at_ns = at_ns.into();
        let Position { cycle, offset_ns } = self.position(at_ns);
        self.start_ns(if offset_ns == 0 {
            cycle
        } else {
            cycle.saturating_add(1)
        })
    }

    /// Returns the time from the start of the given cycle to an instant, in ns. The result is
    /// negative for an earlier instant.
    pub fn since_start_ns(&self, cycle: i64, at_ns: impl Into<i128>) -> i64 {
        limited(at_ns.into() - self.start(cycle))
    }

    /// Returns the distance of an instant from the nearest start of a cycle, in ns: at most half a
    /// period. The distance is negative if the instant is before that start.
    pub fn deviation_ns(&self, at_ns: impl Into<i128>) -> i64 {
        let offset_ns = self.offset_ns(at_ns);
        if offset_ns > self.period_ns / 2 {
            limited(i128::from(offset_ns) - i128::from(self.period_ns))
        } else {
            limited(i128::from(offset_ns))
        }
    }

    pub(crate) fn start(&self, cycle: i64) -> i128 {
        i128::from(self.origin_ns) + i128::from(cycle) * i128::from(self.period_ns)
    }
}

/// Clamps a value to half the range of an `i64`, so that the sum or difference of two clamped
/// values still fits into an `i64`.
pub(crate) fn limited(value: i128) -> i64 {
    value.clamp(i128::from(i64::MIN / 2), i128::from(i64::MAX / 2)) as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_position_in_a_cycle_equals_a_count_of_ticks(period in 1u64..20, origin in -60i64..60, at in -60i64..60) {
            let cycle = Cycle::new(period, origin).unwrap();
            let (mut index, mut offset) = (0i64, 0u64);
            for _ in origin..at {
                offset += 1;
                if offset == period {
                    (index, offset) = (index + 1, 0);
                }
            }
            for _ in at..origin {
                if offset == 0 {
                    (index, offset) = (index - 1, period);
                }
                offset -= 1;
            }
            prop_assert_eq!(cycle.position(at), Position { cycle: index, offset_ns: offset });
            prop_assert_eq!(cycle.start_ns(index), at - offset as i64);
            prop_assert_eq!(cycle.since_start_ns(index, at), offset as i64);
            let next = (at..).find(|&t| cycle.offset_ns(t) == 0).unwrap();
            prop_assert_eq!(cycle.next_start_ns(at), next);
        }

        #[test]
        fn a_deviation_is_measured_from_the_nearest_start_of_a_cycle(period in 1u64..20, origin in -60i64..60, at in -60i64..60) {
            let cycle = Cycle::new(period, origin).unwrap();
            let nearest = (-200..200)
                .map(|k| at - (origin + k * period as i64))
                .min_by_key(|d| (d.abs(), -d))
                .unwrap();
            prop_assert_eq!(cycle.deviation_ns(at), nearest);
        }

        #[test]
        fn positions_of_extreme_instants_do_not_overflow(period in 1u64.., origin in any::<i64>(), at in any::<u64>(), k in any::<i64>()) {
            let cycle = Cycle::new(period, origin).unwrap();
            let Position { cycle: index, offset_ns } = cycle.position(at);
            prop_assert!(offset_ns < period);
            let exact = (i128::from(at) - i128::from(origin)).div_euclid(i128::from(period));
            prop_assert_eq!(index, limited(exact));
            let _ = (cycle.start_ns(k), cycle.since_start_ns(k, at), cycle.deviation_ns(at));
            let _ = (cycle.next_start_ns(at), cycle.next_start_ns(i64::MIN));
        }
    }

    #[test]
    fn a_cycle_with_period_zero_is_refused() {
        assert_eq!(Cycle::new(0, 5), None);
        let cycle = Cycle::new(10, 5).unwrap().with_origin(7);
        assert_eq!((cycle.period_ns(), cycle.origin_ns()), (10, 7));
    }
}
