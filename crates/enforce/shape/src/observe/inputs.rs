//! Follows the clock of throttled inputs through their arrivals. Pure.
//!
//! A sensor has a clock of its own. If it is 50 ppm off, its messages move through a cycle of 100
//! ms in half an hour. So the origin of the cycles follows them, a little at a time.
//!
//! - **Position of an input:** a line through its latest arrivals, in deviations from a grid. The
//!   slope is the median of the slopes between arrivals half a window apart (after Theil 1950 and
//!   Sen 1968), and is smoothed. The height is the 90th percentile of the arrivals, so that a late
//!   message is still in its own cycle. Arrivals far from the line are outliers and do not move it.
//! - **Begin of cycles:** after the last input before the longest time without one, as at the start
//!   ([`Phase::behind`]). The origin moves there by at most one in [`SLEW_PART`] of a cycle per
//!   cycle (250 ppm). This is faster than the clock of any sensor drifts and slower than any slot
//!   notices. At its goal the origin rests until the inputs have moved away from it by one in
//!   `REST_PART` of a cycle.
//! - **Found again:** if the arrivals of an input stay elsewhere (its process was restarted, or it
//!   was silent for long), they form its new line. The origin moves there at once.
//! - **Slips:** an input comes twice in a cycle, or not in one, although it came at its usual
//!   distance. Each slip is counted.

use super::phase::{behind_last, Phase};
use onbeat_time::Cycle;
use std::collections::VecDeque;

const WINDOW: usize = 64;

const MIN_ARRIVALS: usize = 12;

const REFIT_AFTER: usize = 8;

/// A limit as a divisor of the cycle. onbeat fits a line to an input's arrivals only if they spread
/// around the line by at most a cycle divided by this number.
const SPREAD_PART: i64 = 8;

/// A limit as a divisor of the cycle. An arrival is an outlier if its distance from the line that
/// is fitted to its input's arrivals exceeds a cycle divided by this number.
const OUTLIER_PART: i64 = 16;

/// The limit of the origin's speed as a divisor: in each cycle, the origin moves by at most a cycle
/// divided by this number (250 ppm).
pub const SLEW_PART: i64 = 4000;

/// A limit as a divisor. A step of the origin covers at most the remaining distance to the origin's
/// goal, divided by this number.
const WAY_PART: i64 = 4;

/// The origin does not start to move while its distance from its goal is below a cycle divided by
/// this number. Smaller differences are noise of the arrivals, and each step of the origin adds
/// jitter to an output.
const REST_PART: i64 = 40;

/// The origin stops moving when its distance from its goal is below a cycle divided by this number.
const NEAR_PART: i64 = 1000;

const MOST_SLOPE: f64 = 1e-3;

/// The divisor for smoothing the slope of the line that is fitted to an input's arrivals. The slope
/// shows the drift of the input's clock. The smoothed slope moves towards each new slope by their
/// difference divided by this number.
const SLOPE_PART: f64 = 8.0;

#[derive(Debug, Clone, Copy)]
struct Arrival {
    at_ns: u64,
    /// The arrival's deviation from the fixed grid of cycles, in ns. It includes the drift since
    /// the first arrival, so it can exceed a cycle.
    off_ns: i64,
}

#[derive(Debug, Clone, Copy)]
struct Line {
    at_ns: u64,
    late_ns: f64,
    usual_ns: f64,
    slope: f64,
}

impl Line {
    fn moved_ns(&self, at_ns: u64) -> f64 {
        (at_ns as f64 - self.at_ns as f64) * self.slope
    }
}

#[derive(Debug, Clone, Default)]
struct Input {
    window: VecDeque<Arrival>,
    /// The latest consecutive arrivals that are outliers of the line that is fitted to the input's
    /// arrivals. They may show that the input has a new phase.
    elsewhere: VecDeque<Arrival>,
    line: Option<Line>,
    slope: Option<f64>,
    was_silent: bool,
    since: usize,
    last: Option<(u64, i64)>,
    slips: u64,
}

/// A movement of the origin, the instant at which cycles begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moved {
    /// The origin moved by a small step. The value is the new origin (CLOCK_MONOTONIC), in ns.
    Slewed(u64),
    /// The inputs arrived at another phase, so the origin moved at once. The value is the new
    /// origin (CLOCK_MONOTONIC), in ns.
    FoundAgain(u64),
}

/// Follows the arrivals of a plan's throttled inputs, and moves the origin of the cycles
/// accordingly.
#[derive(Debug, Clone)]
pub struct InputClock {
    grid: Cycle,
    inputs: Vec<Input>,
    moved_ns: Option<u64>,
    is_lost: bool,
    is_moving: bool,
}

impl InputClock {
    /// Creates a clock for `inputs` inputs, without arrivals. Its cycles are as long as the cycles
    /// of `phase`. The origin of `phase` must be near the present time.
    pub fn new(phase: &Phase, inputs: usize) -> InputClock {
        InputClock {
            grid: phase.grid(),
            inputs: vec![Input::default(); inputs],
            moved_ns: None,
            is_lost: false,
            is_moving: false,
        }
    }

    /// Records that the input with index `input` arrived at `at_ns` (CLOCK_MONOTONIC). `phase`
    /// gives the present origin.
    pub fn arrived(&mut self, input: usize, at_ns: u64, phase: &Phase) {
        let period_ns = self.grid.period_ns();
        let raw_ns = self.grid.deviation_ns(at_ns);
        let Some(input) = self.inputs.get_mut(input) else {
            return;
        };
        input.count_slip(at_ns, phase.cycle(at_ns).0, period_ns);
        self.is_lost |= input.add(at_ns, raw_ns, period_ns as i64);
    }

    /// Returns the next movement of the origin from its present time `origin_ns`, or `None` if the
    /// origin stays there.
    pub fn follow(&mut self, origin_ns: u64, now_ns: u64) -> Option<Moved> {
        let period_ns = self.grid.period_ns();
        let mut come = Vec::with_capacity(self.inputs.len());
        for input in &self.inputs {
            // An input without a line has no phase.
            let line = input.line?;
            let off_ns = (line.late_ns + line.moved_ns(now_ns)) as i64;
            let at_ns = i128::from(self.grid.origin_ns()) + i128::from(off_ns);
            come.push(at_ns.rem_euclid(i128::from(period_ns)) as u64);
        }
        let wanted_ns = behind_last(period_ns, come, Some(origin_ns % period_ns))?;
        let origin = self.grid.with_origin(i64::try_from(origin_ns).ok()?);
        let way_ns = origin.deviation_ns(wanted_ns);
        let since_ns = now_ns.saturating_sub(self.moved_ns.replace(now_ns).unwrap_or(now_ns));
        let is_lost = std::mem::take(&mut self.is_lost);
        if is_lost && way_ns.abs() > period_ns as i64 / OUTLIER_PART {
            self.inputs.iter_mut().for_each(|input| input.last = None);
            return Some(Moved::FoundAgain(origin_ns.saturating_add_signed(way_ns)));
        }
        let rest_part = if self.is_moving { NEAR_PART } else { REST_PART };
        self.is_moving = way_ns.abs() >= period_ns as i64 / rest_part;
        if !self.is_moving {
            return None;
        }
        let most_ns = i64::try_from(since_ns).unwrap_or(i64::MAX) / SLEW_PART;
        let most_ns = most_ns.min(period_ns as i64 / SLEW_PART * WINDOW as i64);
        let step_ns = (way_ns / WAY_PART).clamp(-most_ns, most_ns);
        (step_ns != 0).then(|| Moved::Slewed(origin_ns.saturating_add_signed(step_ns)))
    }

    /// Returns the number of slips. A slip is a cycle in which an input came twice or not at all,
    /// although the input's interval was normal.
    pub fn slips(&self) -> u64 {
        self.inputs.iter().map(|input| input.slips).sum()
    }
}

impl Input {
    fn count_slip(&mut self, at_ns: u64, cycle: i64, period_ns: u64) {
        if let (Some((last_ns, last)), true) = (self.last, self.line.is_some()) {
            let passed = at_ns.saturating_sub(last_ns).saturating_add(period_ns / 2) / period_ns;
            self.slips += u64::from(cycle - last != passed as i64);
        }
        self.last = Some((at_ns, cycle));
    }

    /// Adds an arrival of the input. `raw_ns` is the distance of the arrival from the nearest start
    /// of a cycle in the fixed grid. Returns true if the input now arrives at another phase.
    fn add(&mut self, at_ns: u64, raw_ns: i64, period_ns: i64) -> bool {
        let last_ns = self.window.back().map_or(at_ns, |last| last.at_ns);
        if at_ns.saturating_sub(last_ns) > WINDOW as u64 * period_ns as u64
            && self.elsewhere.is_empty()
        {
            // The clock may have drifted anywhere during the silence.
            self.was_silent = self.line.take().is_some();
            self.window.clear();
            self.since = 0;
        }
        let expected_ns = match (&self.line, self.window.back()) {
            (Some(line), _) => (line.usual_ns + line.moved_ns(at_ns)) as i64,
            (None, Some(last)) => last.off_ns,
            (None, None) => raw_ns,
        };
        // Moves the deviation by whole periods, as near to the expected one as possible.
        let near_ns = raw_ns - expected_ns;
        let near_ns = near_ns - (near_ns + period_ns / 2).div_euclid(period_ns) * period_ns;
        let arrival = Arrival {
            at_ns,
            off_ns: expected_ns + near_ns,
        };
        if self.line.is_some() && near_ns.abs() > period_ns / OUTLIER_PART {
            return self.add_elsewhere(arrival, period_ns);
        }
        self.elsewhere.clear();
        if self.window.len() == WINDOW {
            self.window.pop_front();
        }
        self.window.push_back(arrival);
        self.since += 1;
        if self.since >= REFIT_AFTER && self.window.len() >= MIN_ARRIVALS {
            self.since = 0;
            return self.lay(period_ns);
        }
        false
    }

    /// Fits a line to the deviations of the input's latest arrivals from the grid of cycles.
    /// Returns true if this is the first line after a silence of the input.
    fn lay(&mut self, period_ns: i64) -> bool {
        self.line = line(&self.window, self.slope, period_ns);
        self.slope = self.line.map_or(self.slope, |line| Some(line.slope));
        self.line.is_some() && std::mem::take(&mut self.was_silent)
    }

    fn add_elsewhere(&mut self, arrival: Arrival, period_ns: i64) -> bool {
        let mut arrival = arrival;
        if let Some(last) = self.elsewhere.back() {
            let step = arrival.off_ns - last.off_ns;
            arrival.off_ns -= (step + period_ns / 2).div_euclid(period_ns) * period_ns;
        }
        self.elsewhere.push_back(arrival);
        if self.elsewhere.len() < MIN_ARRIVALS {
            return false;
        }
        // The input's clock is still the same one, or nearly.
        if let Some(found) = line(&self.elsewhere, self.slope, period_ns) {
            self.window = std::mem::take(&mut self.elsewhere);
            self.line = Some(found);
            self.since = 0;
            return true;
        }
        self.elsewhere.pop_front();
        // After a whole window of arrivals elsewhere, the line no longer holds.
        self.since += 1;
        if self.since > WINDOW {
            *self = Input {
                slips: self.slips,
                ..Input::default()
            };
        }
        false
    }
}

/// Returns a line that shows the deviations of the arrivals from the grid of cycles over time.
/// Returns `None` if the arrivals spread too far around the line. `slope` is the slope of the
/// previous line. The new slope is smoothed with it.
fn line(arrivals: &VecDeque<Arrival>, slope: Option<f64>, period_ns: i64) -> Option<Line> {
    let half = arrivals.len() / 2;
    let first = arrivals.front()?;
    let pairs = arrivals.iter().zip(arrivals.iter().skip(half));
    let between = |(a, b): (&Arrival, &Arrival)| {
        let time = b.at_ns.saturating_sub(a.at_ns).max(1) as f64;
        (b.off_ns - a.off_ns) as f64 / time
    };
    let seen = quantile(pairs.map(between).collect(), 0.5);
    let slope = match slope {
        Some(before) => before + (seen - before) / SLOPE_PART,
        // Too few arrivals give no reliable slope.
        None if arrivals.len() < WINDOW => 0.0,
        None => seen,
    };
    let slope = slope.clamp(-MOST_SLOPE, MOST_SLOPE);
    let last = arrivals.back()?;
    let height = |a: &Arrival| {
        let since = last.at_ns.saturating_sub(a.at_ns) as f64;
        (a.off_ns - first.off_ns) as f64 + since * slope
    };
    let heights: Vec<f64> = arrivals.iter().map(height).collect();
    let (early, late) = (
        quantile(heights.clone(), 0.1),
        quantile(heights.clone(), 0.9),
    );
    (late - early <= (period_ns / SPREAD_PART) as f64).then(|| Line {
        at_ns: last.at_ns,
        late_ns: first.off_ns as f64 + late,
        usual_ns: first.off_ns as f64 + quantile(heights, 0.5),
        slope,
    })
}

fn quantile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = (values.len() as f64 * share) as usize;
    values.get(at).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests;
