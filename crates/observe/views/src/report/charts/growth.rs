//! The chart of thesis Figure 3.9: the measured extremes of a callback as runs are added.

use super::{tick_label, Axis};
use onbeat_document::schema::{Callback, RunExtremes};
use onbeat_document::text::xml;
use std::fmt::Write as _;

const WIDTH: f64 = 380.0;
const HEIGHT: f64 = 150.0;
const LEFT: f64 = 52.0;
const TOP: f64 = 8.0;
const PLOT_WIDTH: f64 = WIDTH - 52.0 - 62.0;
const PLOT_HEIGHT: f64 = HEIGHT - 8.0 - 34.0;

struct Point {
    best: f64,
    mean: f64,
    worst: f64,
}

type Series = (&'static str, &'static str, fn(&Point) -> f64);

const SERIES: [Series; 3] = [
    ("mWCET", "g-max", |p| p.worst),
    ("mACET", "g-mean", |p| p.mean),
    ("mBCET", "g-min", |p| p.best),
];

/// Draws the measured best, average and worst case of each run, in the order of the runs' starts.
/// Draws nothing if the callback ran in fewer than two runs.
pub(crate) fn growth(callback: &Callback) -> String {
    let points = points(callback);
    let Some(last) = points.last().filter(|_| points.len() >= 2) else {
        return String::new();
    };
    let plot = Plot {
        scale: Axis {
            low: 0.0,
            high: (last.worst * 1.06).max(1.0),
            left: 0.0,
            width: PLOT_HEIGHT,
            log: false,
        },
        runs: points.len(),
    };
    let mut out = format!(
        "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-label=\"Growth over runs\">"
    );
    plot.draw_axes(&mut out);
    // Each label is at least a line below the previous one.
    let mut label_y = f64::MIN;
    for (name, class, value) in SERIES {
        label_y = (plot.y(value(last)) + 3.5).max(label_y + 11.0);
        let values: Vec<f64> = points.iter().map(value).collect();
        let _ = write!(
            out,
            "<path class=\"line {class}\" d=\"{}\"/>\
             <text class=\"linename {class}\" x=\"{:.1}\" y=\"{label_y:.1}\">{name}</text>",
            plot.path(&values),
            LEFT + PLOT_WIDTH + 6.0
        );
    }
    out.push_str("</svg>");
    out
}

fn points(callback: &Callback) -> Vec<Point> {
    let mut runs: Vec<&RunExtremes> = callback.per_run.values().filter(|r| r.count > 0).collect();
    runs.sort_by_key(|r| r.start);
    let (mut low, mut high, mut sum, mut count) = (u64::MAX, 0u64, 0.0, 0.0);
    let point = |r: &RunExtremes| {
        low = low.min(r.min_ns);
        high = high.max(r.max_ns);
        sum += r.mean_ns * r.count as f64;
        count += r.count as f64;
        Point {
            best: low as f64,
            mean: sum / count,
            worst: high as f64,
        }
    };
    runs.into_iter().map(point).collect()
}

struct Plot {
    scale: Axis,
    runs: usize,
}

impl Plot {
    fn x(&self, run: usize) -> f64 {
        LEFT + PLOT_WIDTH * run as f64 / (self.runs - 1) as f64
    }

    fn y(&self, ns: f64) -> f64 {
        TOP + PLOT_HEIGHT - self.scale.place(ns)
    }

    fn path(&self, values: &[f64]) -> String {
        let point = |(i, v): (usize, &f64)| {
            let command = if i == 0 { "M" } else { "L" };
            format!("{command}{:.1} {:.1}", self.x(i), self.y(*v))
        };
        values.iter().enumerate().map(point).collect()
    }

    fn draw_axes(&self, out: &mut String) {
        for v in self.scale.ticks(4.6) {
            let _ = write!(
                out,
                "<path class=\"grid\" d=\"M{LEFT} {0:.1}h{PLOT_WIDTH}\"/>\
                 <text class=\"tick end\" x=\"{1}\" y=\"{2:.1}\">{3}</text>",
                self.y(v),
                LEFT - 6.0,
                self.y(v) + 3.5,
                xml(&tick_label(v))
            );
        }
        let last = self.runs - 1;
        let step = self.runs.div_ceil(6).max(1);
        // The last run's number is always shown. A number just before it would overlap.
        let numbered = (0..last).step_by(step);
        let numbered = numbered.filter(|i| (last - i) * 2 > step).chain([last]);
        for i in numbered {
            let _ = write!(
                out,
                "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                self.x(i),
                TOP + PLOT_HEIGHT + 14.0,
                i + 1
            );
        }
        let _ = write!(
            out,
            "<path class=\"axis\" d=\"M{LEFT} {0}h{PLOT_WIDTH}\"/>\
             <text class=\"tick\" x=\"{1:.1}\" y=\"{2:.1}\">runs</text>",
            TOP + PLOT_HEIGHT,
            LEFT + PLOT_WIDTH / 2.0,
            TOP + PLOT_HEIGHT + 28.0
        );
    }
}
