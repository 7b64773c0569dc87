//! Estimates how much figures differ from run to run if each model has only one run: from all
//! figures of the same two runs.
//!
//! Most figures did not change, so their shifts show the spread between these two runs. The
//! estimate is the median of the shifts' absolute values. Changes of up to half of the figures do
//! not make it arbitrarily large. Three kinds of figures have spreads of their own:
//!
//!   - *Execution times*: the spread is proportional to the width of a callback's middle half. A
//!     callback whose executions differ much also differs much from run to run.
//!   - *Times that include waiting*: one spread for all. It is never below the assumed one, because
//!     the offset between two timers can change one callback's waiting alone.
//!   - *Periods*: one spread for all, never below the assumed one.

use crate::compare::{Change, Measured, Single, EXACT, LEAST_SPREAD};
use crate::rows::Figure;
use crate::speed::median;
use crate::{Options, WAITING};
use onbeat_stats::student_quantile;
use serde::Serialize;

const ASSUMED_UP_TO_FIGURES: f64 = 2.0;
const ESTIMATED_FROM_FIGURES: f64 = 10.0;
/// The degrees of freedom of an estimated spread. Callbacks differ in their spreads and have heavy
/// tails, so more figures do not add degrees of freedom.
const FREEDOM: f64 = 8.0;
/// The smallest estimated spread of execution times, as a share of the assumed spread. It is not 0,
/// because one callback can be slower in a run in which all other callbacks take their usual time.
const LEAST_SHARE: f64 = 0.22;
/// The ratio of the median absolute deviation to the standard deviation of normal values.
const MEDIAN_DEVIATION: f64 = 0.6745;
/// The assumed spread of periods between runs, as a share of the assumed spread of execution times.
/// It is small, because the median of a period changes only if the clock or the source changes.
const OF_PERIODS: f64 = 0.1;

/// A kind of figures. Each kind has its own spread between runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Execution times. Their assumed spread is `Options::run_spread`.
    Execution,
    /// Response times and latencies, which include waiting. Their assumed spread is twice the
    /// assumed spread of execution times.
    Waiting,
    /// Periods of callbacks. Their assumed spread is a tenth of the assumed spread of execution
    /// times.
    Period,
}

impl Kind {
    const ALL: [Kind; 3] = [Kind::Execution, Kind::Waiting, Kind::Period];

    fn of(figure: Figure) -> Kind {
        match figure {
            f if f.waits() => Kind::Waiting,
            Figure::Period => Kind::Period,
            _ => Kind::Execution,
        }
    }

    /// Returns the kind of figures in words.
    pub fn text(self) -> &'static str {
        match self {
            Kind::Execution => "execution times",
            Kind::Waiting => "times that include waiting",
            Kind::Period => "periods",
        }
    }

    /// Returns the assumed standard deviation of a figure from run to run, as a share of the
    /// figure.
    fn assumed(self, options: &Options) -> f64 {
        let times = match self {
            Kind::Execution => 1.0,
            Kind::Waiting => WAITING,
            Kind::Period => OF_PERIODS,
        };
        times * options.run_spread
    }
}

/// The spread between runs that was estimated or assumed for one kind of figures.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RunSpread {
    pub kind: Kind,
    /// The standard deviation of a figure from run to run, as a share of the figure: the median
    /// over the figures of this kind.
    pub share: f64,
    pub figures: usize,
    pub estimated: bool,
}

impl RunSpread {
    /// Returns the spread in words for a report, with the number of figures behind it.
    pub fn text(&self) -> String {
        let share = onbeat_document::text::percent(self.share);
        match self.estimated {
            true => format!(
                "{} {share} (estimated from {} figures)",
                self.kind.text(),
                self.figures
            ),
            false => format!("{} {share} (assumed)", self.kind.text()),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Spread {
    kinds: [Scale; 3],
    options: Options,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Scale {
    kind: Kind,
    /// The estimated spread between runs, in the form that [`unit`] takes as `factor`. With this
    /// spread, chance alone explains the size of the measured shifts.
    factor: f64,
    figures: usize,
}

impl Spread {
    /// Estimates the spread between runs from the figures that did not change between the two
    /// models.
    pub fn of(unchanged: &[(Figure, Single)], options: &Options) -> Spread {
        let scale = |kind: Kind| {
            let own = unchanged.iter().filter(|(f, _)| Kind::of(*f) == kind);
            let own: Vec<&Single> = own.map(|(_, single)| single).collect();
            Scale {
                kind,
                factor: fit(kind, &own),
                figures: own.len(),
            }
        };
        Spread {
            kinds: Kind::ALL.map(scale),
            options: *options,
        }
    }

    pub fn change(&self, figure: Figure, measured: &Measured) -> Change {
        match measured {
            Measured::Runs(change) => *change,
            Measured::Single(single) => {
                let (error, freedom) = self.error(figure, single);
                single.change(error, freedom)
            }
        }
    }

    /// Returns the standard error of a figure's `shift` ([`Single`]), and its degrees of freedom.
    fn error(&self, figure: Figure, single: &Single) -> (f64, f64) {
        let scale = self.scale(Kind::of(figure));
        let assumed = self.assumed(scale, single);
        let assumed = (single.within.hypot(assumed).max(LEAST_SPREAD), EXACT);
        let trust = self.trust(scale);
        if trust == 0.0 {
            return assumed;
        }
        let spread = self.blend(scale, single);
        let error = single.within.hypot(spread).max(LEAST_SPREAD);
        let freedom = match scale.kind {
            // Welch's degrees of freedom: what the executions themselves show is known.
            Kind::Execution => FREEDOM * (error / spread.max(LEAST_SPREAD)).powi(4).max(1.0),
            _ => FREEDOM,
        };
        let estimated = (error, (freedom / trust).min(EXACT));
        let far = |(error, freedom): (f64, f64)| error * student_quantile(0.9995, freedom);
        match scale.kind {
            Kind::Execution => estimated,
            _ if far(assumed) > far(estimated) => assumed,
            _ => estimated,
        }
    }

    /// Returns the spread for each kind that occurs among these figures.
    pub fn typical(&self, figures: &[(Figure, Single)]) -> Vec<RunSpread> {
        let of = |scale: &Scale| {
            let own = figures.iter().filter(|(f, _)| Kind::of(*f) == scale.kind);
            let least = match scale.kind {
                Kind::Execution => 0.0,
                kind => kind.assumed(&self.options),
            };
            let blends = own.map(|(_, s)| self.blend(scale, s) / s.runs);
            let blends: Vec<f64> = blends.collect();
            let any = !blends.is_empty();
            let estimated = median(blends);
            any.then_some(RunSpread {
                kind: scale.kind,
                share: estimated.max(least),
                figures: scale.figures,
                estimated: self.trust(scale) > 0.0 && estimated > least,
            })
        };
        self.kinds.iter().filter_map(of).collect()
    }

    fn scale(&self, kind: Kind) -> &Scale {
        let [execution, waiting, period] = &self.kinds;
        match kind {
            Kind::Execution => execution,
            Kind::Waiting => waiting,
            Kind::Period => period,
        }
    }

    /// Returns the weight of the estimated spread in the result of [`Self::blend`], 0 to 1. The
    /// assumed spread has the rest of the weight.
    fn trust(&self, scale: &Scale) -> f64 {
        match self.options.estimate_spread {
            true => ((scale.figures as f64 - ASSUMED_UP_TO_FIGURES)
                / (ESTIMATED_FROM_FIGURES - ASSUMED_UP_TO_FIGURES))
                .clamp(0.0, 1.0),
            false => 0.0,
        }
    }

    fn assumed(&self, scale: &Scale, single: &Single) -> f64 {
        scale.kind.assumed(&self.options) * single.runs
    }

    /// Returns a spread between the assumed and the estimated spread. The more figures `scale` was
    /// estimated from, the closer the result is to the estimated spread.
    fn blend(&self, scale: &Scale, single: &Single) -> f64 {
        let trust = self.trust(scale);
        let assumed = self.assumed(scale, single);
        let least = match scale.kind {
            Kind::Execution => LEAST_SHARE * assumed,
            _ => 0.0,
        };
        let estimated = unit(scale.kind, single, scale.factor).max(least);
        assumed.powf(1.0 - trust) * estimated.powf(trust)
    }
}

/// Returns the standard deviation of a figure's shift that the spread between runs causes. For
/// execution times, `factor` is this spread as a multiple of the figure's width; for other figures,
/// it is the spread itself.
fn unit(kind: Kind, single: &Single, factor: f64) -> f64 {
    let of_run = match kind {
        Kind::Execution => factor * single.width,
        _ => factor,
    };
    of_run * single.runs
}

/// Estimates the spread between runs, in the form that [`unit`] takes as `factor`. With the
/// returned spread, chance alone explains the size of the measured shifts. Returns 0 if the spread
/// of the executions within runs already explains these shifts.
fn fit(kind: Kind, own: &[&Single]) -> f64 {
    let deviation = |factor: f64| {
        let errors = own.iter().map(|s| {
            let error = s.within.hypot(unit(kind, s, factor));
            s.shift.abs() / error.max(LEAST_SPREAD)
        });
        median(errors.collect()) / MEDIAN_DEVIATION
    };
    let (mut low, mut high) = (0.0, 30.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        match deviation(middle) > 1.0 {
            true => low = middle,
            false => high = middle,
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns shifts that represent a normal distribution with this standard deviation: its
    /// quantiles at equal steps of probability. Adds 0.5 to the last `changed` shifts.
    fn shifts(count: usize, deviation: f64, changed: usize) -> Vec<(Figure, Single)> {
        let value = |i: usize| {
            let share = (i as f64 + 0.5) / count as f64;
            let half = student_quantile(share.max(1.0 - share), EXACT);
            let shift = if share < 0.5 { -half } else { half } * deviation;
            let own = if i + changed >= count { 0.5 } else { 0.0 };
            Single {
                shift: shift + own,
                within: 0.005,
                runs: 2f64.sqrt(),
                width: 0.1,
                delta: 0.0,
            }
        };
        (0..count).map(|i| (Figure::Execution, value(i))).collect()
    }

    #[test]
    fn the_spread_between_runs_is_estimated_although_some_callbacks_changed() {
        let options = Options::default();
        for (changed, most) in [(0, 1.1), (5, 1.3), (15, 2.0)] {
            let figures = shifts(40, 0.05, changed);
            let spread = Spread::of(&figures, &options);
            let (error, _) = spread.error(Figure::Execution, &figures[0].1);
            assert!((0.045..0.05 * most).contains(&error), "{changed}: {error}");
        }
    }

    #[test]
    fn callbacks_with_widely_varying_times_get_a_larger_spread() {
        let figures = shifts(40, 0.05, 0);
        let spread = Spread::of(&figures, &Options::default());
        let wide = Single {
            width: 0.4,
            ..figures[0].1
        };
        let error = |single: &Single| spread.error(Figure::Execution, single).0;
        let ratio = error(&wide) / error(&figures[0].1);
        assert!((3.8..4.1).contains(&ratio), "{ratio}");
    }

    #[test]
    fn runs_that_differ_only_by_chance_get_the_smallest_spread() {
        let figures = shifts(40, 0.004, 0);
        let options = Options::default();
        let spread = Spread::of(&figures, &options);
        let share = spread.typical(&figures)[0].share;
        assert!(
            (share - LEAST_SHARE * options.run_spread).abs() < 1e-9,
            "{share}"
        );
    }

    #[test]
    fn times_that_include_waiting_get_at_least_the_assumed_spread() {
        let options = Options::default();
        let of = |deviation: f64| {
            let figures = shifts(40, deviation, 0);
            let figures = figures.into_iter().map(|(_, s)| (Figure::Response, s));
            let figures: Vec<(Figure, Single)> = figures.collect();
            let spread = Spread::of(&figures, &options);
            spread.error(Figure::Response, &figures[0].1)
        };
        let (quiet, freedom) = of(0.01);
        assert!((quiet - 0.16 * 2f64.sqrt()).abs() < 0.001 && freedom == EXACT);
        assert!(of(0.5).0 > 0.4);
    }
}
