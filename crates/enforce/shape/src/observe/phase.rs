//! Follows the origin of a chain's cycles through the starts of its first callback. Pure.
//!
//! A timer releases its callback on a grid. The callback starts after its release, never before. So
//! the earliest of the recent starts show where the grid is. When the clock of a sensor drifts or a
//! timer is set again, the grid moves, and the origin of the cycles follows it.

use super::releases::{Grid, Releases};
use onbeat_time::Cycle;
use std::collections::VecDeque;

const STARTS_PER_WINDOW: usize = 32;

const STARTS_AFTER_RESTART: usize = 12;

/// A limit as a divisor of the cycle. The starts of the first callback show the grid of cycles only
/// if their positions within the cycle differ by at most the cycle divided by this number.
const JUMP_PART: i64 = 8;

/// A margin as a divisor of the cycle. In a plan with several inputs, a cycle begins after the last
/// input of the previous cycle. The margin between this input and the start is a cycle divided by
/// this number, so that an input that is a little late still belongs to its own cycle.
const BEHIND_PART: u64 = 10;

const ARRIVALS: usize = 20;

/// The number of arrivals that are stored per input while an application starts.
pub const MOST_ARRIVALS: usize = 32;

/// The arrivals of an input are steady if their positions within the cycle differ by at most the
/// cycle divided by this number. The earliest and the latest tenth of the positions do not count.
/// After the start of an application, arrivals need some time to become steady.
const STEADY_PART: u64 = 16;

/// Two gaps between inputs count as equally long if their lengths differ by at most a cycle divided
/// by this number.
const STAY_PART: u64 = 8;

/// The maximum number of origins that are stored. Earlier origins are needed because an execution
/// is complete only a quarter of a second after its end.
const MAX_ORIGINS: usize = 64;

/// Estimates the origin of a chain's cycles from the starts of its first callback.
#[derive(Debug, Clone)]
pub struct Phase {
    cycle: Cycle,
    recent: [i64; STARTS_PER_WINDOW],
    count: usize,
    window_size: usize,
    grid: Grid,
}

impl Phase {
    /// Creates a phase with cycles of `period_ns`, one of which begins at `origin_ns`
    /// (CLOCK_MONOTONIC). The origin may be a guess.
    pub fn new(period_ns: u64, origin_ns: u64) -> Phase {
        Phase {
            cycle: cycle(period_ns, origin_ns),
            recent: [0; STARTS_PER_WINDOW],
            count: 0,
            window_size: STARTS_PER_WINDOW,
            grid: Grid::new(Releases::Other),
        }
    }

    fn released_by(mut self, releases: Releases) -> Phase {
        self.grid = Grid::new(releases);
        self
    }

    /// Returns the origin: the start of one cycle, in ns (CLOCK_MONOTONIC).
    pub fn origin_ns(&self) -> u64 {
        self.cycle.origin_ns().max(0) as u64
    }

    /// Returns the number of the cycle that contains `at_ns`, and the time in ns from the start of
    /// this cycle to `at_ns`. Cycle 0 begins at the origin. Cycles before the origin have negative
    /// numbers.
    pub fn cycle(&self, at_ns: u64) -> (i64, u64) {
        let position = self.cycle.position(at_ns);
        (position.cycle, position.offset_ns)
    }

    /// Records a start of the first callback. Returns true if the origin has moved.
    pub fn started(&mut self, start_ns: u64) -> bool {
        let period_ns = self.cycle.period_ns() as i64;
        let deviation_ns = self.cycle.deviation_ns(start_ns);
        // Moves the deviation by whole periods, as near to the first as possible, because half a
        // cycle early is also half a cycle late.
        let first = if self.count == 0 {
            deviation_ns
        } else {
            self.recent[0]
        };
        let periods = (deviation_ns - first + period_ns / 2).div_euclid(period_ns);
        self.recent[self.count] = deviation_ns - periods * period_ns;
        self.count += 1;
        if self.count < self.window_size {
            return false;
        }
        let most_ns = self.most_spread_ns();
        let sorted = &mut self.recent[..std::mem::take(&mut self.count)];
        sorted.sort_unstable();
        let window = self.grid.bounds(sorted, most_ns);
        // Starts all over the cycle show no grid. An overloaded chain must not move the origin.
        if window.early == 0 || window.late - window.early > most_ns {
            return false;
        }
        let step = match std::mem::replace(&mut self.window_size, STARTS_PER_WINDOW) {
            STARTS_AFTER_RESTART => window.early,
            _ => self.grid.step(window),
        };
        self.shift(step);
        step != 0
    }

    /// Starts the search for the phase again, because the first callback now runs in another
    /// process. The next [`STARTS_AFTER_RESTART`] starts determine the phase.
    pub fn anew(&mut self) {
        self.count = 0;
        self.window_size = STARTS_AFTER_RESTART;
        self.grid = self.grid.anew();
    }

    /// Returns true while the search that [`Phase::anew`] began is not finished.
    pub fn is_sought(&self) -> bool {
        self.window_size == STARTS_AFTER_RESTART
    }

    /// Returns a phase whose cycles begin when all inputs have arrived: in the longest gap without
    /// inputs, shortly after the input before this gap. Each of `inputs` has the latest arrivals of
    /// one input. Returns `None` if one of the inputs does not arrive once per cycle.
    pub fn behind<'a>(
        period_ns: u64,
        inputs: impl IntoIterator<Item = &'a VecDeque<u64>>,
    ) -> Option<Phase> {
        let period_ns = period_ns.max(1);
        let mut come: Vec<u64> = Vec::new();
        for input in inputs {
            let times = last(input);
            let phase = Phase::of(period_ns, &times, Releases::Other).ok()?;
            // Late arrivals count, except for the latest tenth, as in the line that the origin
            // follows later.
            let mut behind: Vec<u64> = times.iter().map(|&t| phase.cycle(t).1).collect();
            behind.retain(|&b| b <= period_ns / 2);
            behind.sort_unstable();
            let late = behind
                .get((behind.len() * 9).div_ceil(10).saturating_sub(1))
                .copied()
                .unwrap_or(0);
            come.push((phase.origin_ns() + late) % period_ns);
        }
        behind_last(period_ns, come, None).map(|origin_ns| Phase::new(period_ns, origin_ns))
    }

    /// Returns true if one of the inputs may still become steadier: too few of its arrivals are
    /// known, or they spread too far. Until the inputs are steady, the origin that
    /// [`Phase::behind`] finds may still change. Each of `inputs` has the latest arrivals of one
    /// input.
    pub fn may_settle<'a>(
        period_ns: u64,
        inputs: impl IntoIterator<Item = &'a VecDeque<u64>>,
    ) -> bool {
        let period_ns = period_ns.max(1);
        let may_settle = |input: &'a VecDeque<u64>| {
            let times = last(input);
            let Ok(phase) = Phase::of(period_ns, &times, Releases::Other) else {
                // An input that still scatters after so many arrivals will not settle.
                return input.len() < MOST_ARRIVALS;
            };
            let mut off: Vec<i64> = times.iter().map(|&t| phase.cycle.deviation_ns(t)).collect();
            off.sort_unstable();
            let spread = off[off.len() - 1 - off.len() / 10] - off[off.len() / 10];
            times.len() < ARRIVALS || spread as u64 > period_ns / STEADY_PART
        };
        inputs.into_iter().any(may_settle)
    }

    pub(super) fn grid(&self) -> Cycle {
        self.cycle
    }

    /// Returns a phase that fits the starts of a callback, with period `period_ns`. `releases` is
    /// the kind of event that releases the callback.
    ///
    /// # Errors
    ///
    /// If the starts do not fit cycles of `period_ns`, returns their spread in ns.
    pub fn of(period_ns: u64, starts: &[u64], releases: Releases) -> Result<Phase, u64> {
        let Some(&first) = starts.first() else {
            return Err(period_ns);
        };
        let mut phase = Phase::new(period_ns, first).released_by(releases);
        let deviation = |&start| phase.cycle.deviation_ns(start);
        let mut behind: Vec<i64> = starts.iter().map(deviation).collect();
        behind.sort_unstable();
        let window = phase.grid.bounds(&behind, phase.most_spread_ns());
        let spread = window.late - window.early;
        if spread > phase.most_spread_ns() {
            return Err(spread as u64);
        }
        phase.shift(window.early);
        Ok(phase)
    }

    fn most_spread_ns(&self) -> i64 {
        (self.cycle.period_ns() as i64 / JUMP_PART).max(1)
    }

    fn shift(&mut self, by_ns: i64) {
        let origin_ns = self.origin_ns().saturating_add_signed(by_ns);
        self.cycle = cycle(self.cycle.period_ns(), origin_ns);
    }
}

fn last(input: &VecDeque<u64>) -> Vec<u64> {
    let skipped = input.len().saturating_sub(ARRIVALS);
    input.iter().skip(skipped).copied().collect()
}

fn cycle(period_ns: u64, origin_ns: u64) -> Cycle {
    let origin_ns = i64::try_from(origin_ns).unwrap_or(i64::MAX);
    Cycle::new(period_ns.max(1), origin_ns).expect("1 at least")
}

/// Returns the start of a cycle: a time in the longest gap without inputs, shortly after the input
/// before this gap. `come` contains the positions of the inputs within a cycle, and `now` the
/// present start of a cycle, both in ns. If `now` lies in another gap that is nearly as long, the
/// start stays in that gap. Otherwise the origin could jump between the two gaps.
pub(super) fn behind_last(period_ns: u64, mut come: Vec<u64>, now: Option<u64>) -> Option<u64> {
    come.sort_unstable();
    let wait = |i: usize| match come.get(i + 1) {
        Some(next) => next - come[i],
        None => come[0] + period_ns - come[i],
    };
    let longest = (0..come.len()).max_by_key(|&i| wait(i))?;
    let present = now.map(|now| come.iter().rposition(|&c| c <= now));
    let present = present.map(|i| i.unwrap_or(come.len() - 1));
    let is_enough = |&i: &usize| wait(i) + period_ns / STAY_PART >= wait(longest);
    let last = present.filter(is_enough).unwrap_or(longest);
    let margin = (period_ns / BEHIND_PART).min(wait(last) / 2);
    Some(come[last] + margin)
}

/// A phase with its earlier origins. The earlier origins are needed to judge an output by the
/// origin that applied when it left.
#[derive(Debug, Clone)]
pub struct PhaseHistory {
    phase: Phase,
    /// The latest origins. Each entry holds the time from which an origin applied, then the origin.
    origins: VecDeque<(u64, u64)>,
}

impl PhaseHistory {
    /// Creates a history whose only origin is that of `phase`.
    pub fn new(phase: Phase) -> PhaseHistory {
        let origins = VecDeque::from([(0, phase.origin_ns())]);
        PhaseHistory { phase, origins }
    }

    /// Returns the present phase, estimated from all executions so far.
    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    /// Records a start of the first callback. Returns the new origin if it has moved. `since`
    /// contains two times: the time from which the new origin applies, and the present time.
    pub fn started(&mut self, start_ns: u64, since: (u64, u64)) -> Option<u64> {
        if !self.phase.started(start_ns) {
            return None;
        }
        let origin_ns = self.phase.origin_ns();
        self.note(origin_ns, since);
        Some(origin_ns)
    }

    /// Starts the search for the phase again: see [`Phase::anew`].
    pub fn anew(&mut self) {
        self.phase.anew();
    }

    /// Moves the origin to `origin_ns`. `since` contains two times: the time from which the new
    /// origin applies, and the present time.
    pub fn move_to(&mut self, origin_ns: u64, since: (u64, u64)) {
        self.phase.cycle = cycle(self.phase.cycle.period_ns(), origin_ns);
        self.note(origin_ns, since);
    }

    fn note(&mut self, origin_ns: u64, (from_ns, now_ns): (u64, u64)) {
        // A newer origin replaces origins that do not apply yet.
        while self.origins.back().is_some_and(|o| o.0 > now_ns) {
            self.origins.pop_back();
        }
        self.origins.push_back((from_ns, origin_ns));
        if self.origins.len() > MAX_ORIGINS {
            self.origins.pop_front();
        }
    }

    /// Returns the origin that applied at `at_ns`, or the present one if `at_ns` is before the
    /// oldest stored origin.
    pub fn origin_at(&self, at_ns: u64) -> u64 {
        let mut origins = self.origins.iter().rev();
        let of_then = origins.find(|(since_ns, _)| *since_ns <= at_ns);
        of_then.map_or(self.phase.origin_ns(), |(_, origin_ns)| *origin_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PERIOD: u64 = 100_000_000;

    fn starts(origin: u64, from: u64, delays: &[u64]) -> Vec<u64> {
        (from..)
            .zip(delays)
            .map(|(n, d)| origin + n * PERIOD + d)
            .collect()
    }

    proptest! {
        #[test]
        fn the_releases_of_a_timer_are_followed_in_spite_of_delays(
            origin in 10 * PERIOD..20 * PERIOD,
            drift_ppm in -100i64..100,
            delays in prop::collection::vec(0u64..400_000, 400),
        ) {
            let mut delays = delays;
            // Some starts are hardly delayed, as on any machine.
            delays.iter_mut().step_by(5).for_each(|d| *d %= 20_000);
            let first: Vec<u64> = starts(origin, 0, &delays[..20]);
            let mut phase = Phase::of(PERIOD, &first, Releases::Other).expect("a grid");
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
            // The grid drifts until it is evaluated again, and the early starts are delayed.
            prop_assert!(off <= 64 * 10_000 + 120_000, "off by {off} ns");
        }

        #[test]
        fn the_phase_of_starts_is_found_again_after_a_restart_at_any_phase(
            origin in 10 * PERIOD..20 * PERIOD,
            off in prop_oneof![0..PERIOD, PERIOD / 2 - 400_000..PERIOD / 2 + 100_000],
            calls_anew: bool,
            delays in prop::collection::vec(0u64..400_000, 96),
        ) {
            let mut phase = Phase::new(PERIOD, origin);
            if calls_anew {
                phase.anew();
            }
            // Without a call of `anew`, up to two windows of starts are needed.
            let needed = if calls_anew { 12 } else { 2 * STARTS_PER_WINDOW };
            for start in starts(origin + off, 0, &delays[..needed]) {
                phase.started(start);
            }
            let behind = phase.cycle(origin + off + 200_000).1;
            let off = behind.min(PERIOD - behind);
            prop_assert!(off <= 700_000, "off by {off} ns");
        }

        #[test]
        fn starts_delayed_by_other_callbacks_do_not_move_the_origin_of_a_timer(
            origin in 10 * PERIOD..20 * PERIOD,
            delays in prop::collection::vec(600_000u64..5_000_000, 640),
        ) {
            let mut delays = delays;
            delays.iter_mut().step_by(10).for_each(|d| *d %= 20_000);
            let first = starts(origin, 0, &delays[..12]);
            let mut phase = Phase::of(PERIOD, &first, Releases::Timer).expect("a grid");
            for (n, &start) in starts(origin, 0, &delays).iter().enumerate().skip(12) {
                phase.started(start);
                let (_, behind) = phase.cycle(origin + n as u64 * PERIOD + PERIOD / 2);
                let off = behind as i64 - PERIOD as i64 / 2;
                prop_assert!((-20_000..=0).contains(&off), "the origin lies {off} ns before");
            }
        }

        #[test]
        fn a_cycle_number_and_its_offset_reproduce_the_time(origin in 0..1u64 << 60, at in 0..1u64 << 60) {
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
    fn callback_starts_spread_over_the_whole_cycle_show_no_phase() {
        let wild: Vec<u64> = (0..40u64)
            .map(|n| n * PERIOD + n * 37_000_000 % PERIOD)
            .collect();
        assert!(Phase::of(PERIOD, &wild, Releases::Timer).is_err());
        let mut phase =
            Phase::of(PERIOD, &[0, PERIOD, 2 * PERIOD], Releases::Timer).expect("a grid");
        wild.iter().for_each(|&s| assert!(!phase.started(s)));
        assert_eq!(phase.origin_ns() % PERIOD, 0);
    }

    #[test]
    fn a_cycle_begins_when_its_last_input_has_arrived() {
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
        assert_eq!(place(&[on(10 * MS, 0)]), Some(20 * MS));
        assert_eq!(place(&[on(10 * MS, 2 * MS), on(13 * MS, 0)]), Some(23 * MS));
        // One late arrival in ten does not count, two do.
        assert_eq!(place(&[on(10 * MS, 4 * MS), on(13 * MS, 0)]), Some(23 * MS));
        let mut twice = on(10 * MS, 4 * MS);
        twice[7] += 4 * MS;
        assert_eq!(place(&[twice, on(13 * MS, 0)]), Some(24 * MS));
        // Inputs around the end of a cycle.
        assert_eq!(place(&[on(2 * MS, 0), on(98 * MS, 0)]), Some(12 * MS));
        assert_eq!(place(&[on(97 * MS, 0), on(50 * MS, 0)]), Some(7 * MS));
        let wild = (0..12u64).map(|n| n * 137 * MS).collect();
        assert_eq!(place(&[on(2 * MS, 0), wild]), None);
        assert_eq!(place(&[on(2 * MS, 0), VecDeque::new()]), None);
        assert_eq!(place(&[]), None);
    }

    #[test]
    fn the_origin_follows_a_timer_that_is_reset() {
        let mut phase = Phase::new(PERIOD, 0);
        for n in 0..32u64 {
            phase.started(n * PERIOD + 30_000_000);
        }
        assert_eq!(phase.cycle(32 * PERIOD + 30_000_000), (32, 0));
    }

    #[test]
    fn an_output_is_judged_by_the_origin_that_applied_when_it_left() {
        let mut history = PhaseHistory::new(Phase::new(PERIOD, 0));
        let moved: Vec<Option<u64>> = (0..32u64)
            .map(|n| history.started(n * PERIOD + 30_000_000, (5 * PERIOD, 4 * PERIOD)))
            .collect();
        assert_eq!(moved[31], Some(30_000_000));
        assert!(moved[..31].iter().all(Option::is_none));
        assert_eq!(history.origin_at(5 * PERIOD - 1), 0);
        assert_eq!(history.origin_at(5 * PERIOD), 30_000_000);
        // An origin that does not apply yet when the next one comes never applies.
        let mut replaced = history.clone();
        replaced.move_to(1, (8 * PERIOD, 7 * PERIOD));
        replaced.move_to(2, (9 * PERIOD, 7 * PERIOD));
        assert_eq!(replaced.origin_at(9 * PERIOD - 1), 30_000_000);
        assert_eq!(replaced.origin_at(9 * PERIOD), 2);
        // Origins that are too old are forgotten.
        for shift in 2..100u64 {
            for n in 0..32u64 {
                history.started(
                    shift * 100 * PERIOD + n * PERIOD + shift * 30_000_000,
                    (shift * PERIOD * 100, shift * PERIOD * 100),
                );
            }
        }
        assert_eq!(history.origin_at(0), history.phase().origin_ns());
        assert_eq!(history.origins.len(), MAX_ORIGINS);
    }
}
