//! Ranges, ticks and labels of axes.

use crate::frame::report::number;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use std::ops::Range;

pub(super) fn span(values: impl Iterator<Item = f64>, from_zero: bool) -> Range<f64> {
    let (low, high) = values
        .filter(|v| v.is_finite())
        .fold((f64::MAX, f64::MIN), |(l, h), v| (l.min(v), h.max(v)));
    if low > high {
        return 0.0..1.0;
    }
    let low = if from_zero { low.min(0.0) } else { low };
    // A quarter more than needed leaves room for the legend.
    let room = ((high - low) * 0.25).max(high.abs() * 0.01).max(1e-9);
    (if low < 0.0 || !from_zero {
        low - room
    } else {
        low
    })..(high + room)
}

pub(super) fn label(v: &f64) -> String {
    let a = v.abs();
    if a >= 1e6 {
        format!("{} M", number(v / 1e6))
    } else if a >= 1e4 {
        format!("{} k", number(v / 1e3))
    } else {
        number(*v)
    }
}

pub(super) struct Ticks {
    pub(super) range: Range<f64>,
    pub(super) ticks: Vec<(f64, String)>,
}

impl Ranged for Ticks {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;
    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let share = (value - self.range.start) / (self.range.end - self.range.start);
        limit.0 + (f64::from(limit.1 - limit.0) * share) as i32
    }
    fn key_points<H: KeyPointHint>(&self, _: H) -> Vec<f64> {
        self.ticks.iter().map(|t| t.0).collect()
    }
    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for Ticks {
    fn format_ext(&self, value: &f64) -> String {
        self.ticks
            .iter()
            .find(|t| t.0 == *value)
            .map(|t| t.1.clone())
            .unwrap_or_default()
    }
}

/// Returns the position of a share on the axis of percentiles. On this axis, 1 is 90 %, 2 is 99 %
/// and 3 is 99.9 %, as in HdrHistogram's plots. The share must be below 1.
fn nines(share: f64) -> f64 {
    -(1.0 - share).log10()
}

pub(super) fn percentile_axis(count: f64) -> Ticks {
    let ticks = [
        (0.0, "0"),
        (0.5, "50"),
        (0.9, "90"),
        (0.99, "99"),
        (0.999, "99.9"),
        (0.9999, "99.99"),
        (0.99999, "99.999"),
    ];
    let end = count.log10();
    Ticks {
        range: 0.0..end,
        ticks: ticks
            .into_iter()
            .map(|(q, t)| (nines(q), format!("{t} %")))
            .filter(|t| t.0 <= end)
            .collect(),
    }
}

/// Returns an axis with ticks at round numbers: 1, 2 and 5, times powers of ten. For a logarithmic
/// axis, `range` contains exponents of ten, and all of these numbers have ticks. A linear axis has
/// about eight ticks.
pub(super) fn number_axis(range: Range<f64>, log: bool) -> Ticks {
    let steps = [1.0, 2.0, 5.0];
    let ticks: Vec<f64> = if log {
        let decades = range.start.floor() as i32..=range.end.ceil() as i32;
        decades
            .flat_map(|d| steps.map(|s: f64| s.log10() + f64::from(d)))
            .collect()
    } else {
        let rough = ((range.end - range.start) / 8.0).max(1e-12);
        let decade = 10f64.powf(rough.log10().floor());
        let step = steps
            .into_iter()
            .chain([10.0])
            .map(|s| s * decade)
            .find(|s| *s >= rough)
            .unwrap_or(rough);
        let first = (range.start / step).ceil() as i64;
        (first..first + 20).map(|i| i as f64 * step).collect()
    };
    let ticks = ticks
        .into_iter()
        .filter(|t| range.contains(t))
        .map(|t| (t, label(&if log { 10f64.powf(t) } else { t })))
        .collect();
    Ticks { range, ticks }
}
