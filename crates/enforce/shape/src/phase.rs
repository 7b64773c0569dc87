//! Where in time a chain's cycles begin, followed through what is seen of its first callback. Pure.
//!
//! A timer releases its callback on a grid; the callback starts some time after, never before. So
//! the grid's place is taken from the early ones among the recent starts, and moves with them: a
//! sensor's clock, or a timer that was set anew, takes the cycle's origin along.

use std::collections::VecDeque;

/// How many starts are looked at together.
const RECENT: usize = 32;

/// Starts this far from the grid belong to another one: the timer was set anew.
const JUMP_PART: i64 = 8;

/// What is this near to the grid is mostly the early starts' own delay, and moves the origin by a
/// [`NEAR_PART`]th: the origin is a reference for outputs, and would carry that noise to them.
const NEAR_NS: i64 = 100_000;

/// See [`NEAR_NS`].
const NEAR_PART: i64 = 4;

/// Cycles begin this part of a cycle behind the last of several inputs, that a late one still finds its own.
const BEHIND_PART: u64 = 20;

/// Follows the origin of cycles.
#[derive(Debug, Clone)]
pub struct Phase {
    period_ns: u64,
    origin_ns: u64,
    /// How far the last starts were behind the origin.
    recent: [i64; RECENT],
    count: usize,
}

impl Phase {
    /// Cycles of `period_ns` of which one begins at `origin_ns` (CLOCK_MONOTONIC), as a first guess.
    pub fn new(period_ns: u64, origin_ns: u64) -> Phase {
        Phase {
            period_ns: period_ns.max(1),
            origin_ns,
            recent: [0; RECENT],
            count: 0,
        }
    }

    /// A start of some cycle, CLOCK_MONOTONIC.
    pub fn origin_ns(&self) -> u64 {
        self.origin_ns
    }

    /// The number of the cycle that holds an instant, and how far it lies behind the cycle's start.
    /// Numbers count from the origin and are negative before it.
    pub fn cycle(&self, at_ns: u64) -> (i64, u64) {
        let since = at_ns as i128 - i128::from(self.origin_ns);
        let period = i128::from(self.period_ns);
        (
            since.div_euclid(period) as i64,
            since.rem_euclid(period) as u64,
        )
    }

    /// The first callback started. True if the origin has moved.
    pub fn started(&mut self, start_ns: u64) -> bool {
        let (_, behind) = self.cycle(start_ns);
        let mut behind = behind as i64;
        if behind > (self.period_ns / 2) as i64 {
            behind -= self.period_ns as i64;
        }
        self.recent[self.count % RECENT] = behind;
        self.count += 1;
        if self.count % RECENT != 0 {
            return false;
        }
        let mut sorted = self.recent;
        sorted.sort_unstable();
        let early = sorted[RECENT / 10];
        let late = sorted[RECENT - 1 - RECENT / 10];
        let jump = (self.period_ns as i64 / JUMP_PART).max(1);
        // Starts all over the cycle tell of no grid: a chain that is overloaded must not drag the
        // origin about.
        if early == 0 || late - early > jump {
            return false;
        }
        let step = match early {
            near if near.abs() <= NEAR_NS => near / NEAR_PART,
            far => far,
        };
        self.origin_ns = self.origin_ns.saturating_add_signed(step);
        true
    }

    /// Cycles that begin when all of several inputs have come: behind the last one before the longest time in
    /// which nothing comes. None where one of them does not come once per cycle.
    pub fn behind<'a>(
        period_ns: u64,
        inputs: impl IntoIterator<Item = &'a VecDeque<u64>>,
    ) -> Option<Phase> {
        let period_ns = period_ns.max(1);
        let mut come: Vec<u64> = Vec::new();
        for input in inputs {
            let times: Vec<u64> = input.iter().copied().collect();
            let phase = Phase::of(period_ns, &times).ok()?;
            // Late ones count.
            let mut behind: Vec<u64> = times.iter().map(|&t| phase.cycle(t).1).collect();
            behind.retain(|&b| b <= period_ns / 2);
            let late = behind.iter().max().copied().unwrap_or(0);
            come.push((phase.origin_ns() + late) % period_ns);
        }
        come.sort_unstable();
        let wait = |i: usize| match come.get(i + 1) {
            Some(next) => next - come[i],
            None => come[0] + period_ns - come[i],
        };
        let last = (0..come.len()).max_by_key(|&i| wait(i))?;
        let margin = (period_ns / BEHIND_PART).min(wait(last) / 2);
        Some(Phase::new(period_ns, come[last] + margin))
    }

    /// The grid that starts lie on, from several of them; none where they do not lie on one: then
    /// the second value is how far they spread.
    pub fn of(period_ns: u64, starts: &[u64]) -> Result<Phase, u64> {
        let Some(&first) = starts.first() else {
            return Err(period_ns);
        };
        let mut phase = Phase::new(period_ns, first);
        let mut behind: Vec<i64> = starts
            .iter()
            .map(|&s| {
                let (_, b) = phase.cycle(s);
                if b > period_ns / 2 {
                    b as i64 - period_ns as i64
                } else {
                    b as i64
                }
            })
            .collect();
        behind.sort_unstable();
        let early = behind[behind.len() / 10];
        let spread = behind[behind.len() - 1 - behind.len() / 10] - early;
        if spread > (period_ns as i64 / JUMP_PART).max(1) {
            return Err(spread as u64);
        }
        phase.origin_ns = phase.origin_ns.saturating_add_signed(early);
        Ok(phase)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PERIOD: u64 = 100_000_000;

    /// Starts on a grid from `origin` with delays.
    fn starts(origin: u64, from: u64, delays: &[u64]) -> Vec<u64> {
        (from..)
            .zip(delays)
            .map(|(n, d)| origin + n * PERIOD + d)
            .collect()
    }

    proptest! {
        #[test]
        fn the_grid_is_found_and_followed_whatever_the_delays(
            origin in 10 * PERIOD..20 * PERIOD,
            drift_ppm in -100i64..100,
            delays in prop::collection::vec(0u64..400_000, 400),
        ) {
            let mut delays = delays;
            // Some starts are hardly delayed, as on any machine.
            delays.iter_mut().step_by(5).for_each(|d| *d %= 20_000);
            let first: Vec<u64> = starts(origin, 0, &delays[..20]);
            let mut phase = Phase::of(PERIOD, &first).expect("a grid");
            for (n, delay) in delays.iter().enumerate().skip(20) {
                let drift = drift_ppm * n as i64 * PERIOD as i64 / 1_000_000;
                let due = (origin + n as u64 * PERIOD).saturating_add_signed(drift);
                phase.started(due + delay);
            }
            let last = delays.len() as i64 - 1;
            let due = (origin + last as u64 * PERIOD)
                .saturating_add_signed(drift_ppm * last * PERIOD as i64 / 1_000_000);
            let (_, behind) = phase.cycle(due);
            let off = behind.min(PERIOD - behind);
            // As much as the grid drifts until it is looked at again, and the early starts' delay.
            prop_assert!(off <= 64 * 10_000 + 120_000, "off by {off} ns");
        }

        #[test]
        fn cycles_follow_each_other(origin in 0..1u64 << 60, at in 0..1u64 << 60) {
            let phase = Phase::new(PERIOD, origin);
            let (cycle, behind) = phase.cycle(at);
            prop_assert_eq!(
                i128::from(origin) + i128::from(cycle) * i128::from(PERIOD) + i128::from(behind),
                i128::from(at)
            );
            prop_assert!(behind < PERIOD);
        }
    }

    #[test]
    fn starts_all_over_the_cycle_are_no_grid() {
        let wild: Vec<u64> = (0..40u64)
            .map(|n| n * PERIOD + n * 37_000_000 % PERIOD)
            .collect();
        assert!(Phase::of(PERIOD, &wild).is_err());
        let mut phase = Phase::of(PERIOD, &[0, PERIOD, 2 * PERIOD]).expect("a grid");
        wild.iter().for_each(|&s| assert!(!phase.started(s)));
        assert_eq!(phase.origin_ns() % PERIOD, 0);
    }

    #[test]
    fn cycles_begin_behind_the_last_input() {
        let on = |at: u64, late: u64| -> VecDeque<u64> {
            let come = (0..12u64).map(|n| 700 * PERIOD + n * PERIOD + at);
            come.enumerate()
                .map(|(i, t)| t + if i == 5 { late } else { 0 })
                .collect()
        };
        let place = |inputs: &[VecDeque<u64>]| {
            Phase::behind(PERIOD, inputs).map(|p| p.origin_ns() % PERIOD)
        };
        const MS: u64 = 1_000_000;
        assert_eq!(place(&[on(10 * MS, 0)]), Some(15 * MS));
        assert_eq!(place(&[on(10 * MS, 2 * MS), on(13 * MS, 0)]), Some(18 * MS));
        assert_eq!(place(&[on(10 * MS, 4 * MS), on(13 * MS, 0)]), Some(19 * MS));
        // Around the end of a cycle.
        assert_eq!(place(&[on(2 * MS, 0), on(98 * MS, 0)]), Some(7 * MS));
        assert_eq!(place(&[on(97 * MS, 0), on(50 * MS, 0)]), Some(2 * MS));
        let wild = (0..12u64).map(|n| n * 137 * MS).collect();
        assert_eq!(place(&[on(2 * MS, 0), wild]), None);
        assert_eq!(place(&[on(2 * MS, 0), VecDeque::new()]), None);
        assert_eq!(place(&[]), None);
    }

    #[test]
    fn a_timer_that_was_set_anew_takes_the_origin_along() {
        let mut phase = Phase::new(PERIOD, 0);
        for n in 0..32u64 {
            phase.started(n * PERIOD + 30_000_000);
        }
        assert_eq!(phase.cycle(32 * PERIOD + 30_000_000), (32, 0));
    }
}
