//! The histogram of a distribution, with its percentiles marked.

use super::{tick_label, Axis};
use crate::layout::text_width;
use onbeat_document::text::{duration, xml};
use onbeat_document::Dist;
use std::fmt::Write as _;

const WIDTH: f64 = 560.0;
const LEFT: f64 = 8.0;
const PLOT_WIDTH: f64 = WIDTH - 16.0;
const PLOT_HEIGHT: f64 = 116.0;
const BINS: usize = 70;

pub(crate) fn histogram(dist: &Dist, what: &str) -> String {
    if dist.count() == 0 {
        return String::new();
    }
    let axis = axis(dist);
    let marks = marks(dist, &axis);
    let rows = marks.iter().map(|m| m.row + 1).max().unwrap_or(0);
    let top = 6.0 + 11.0 * rows as f64;
    let bottom = top + PLOT_HEIGHT;
    let mut out = format!(
        "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"{}\">",
        bottom + 22.0,
        xml(what)
    );
    draw_grid(&mut out, &axis, top, bottom);
    draw_bars(&mut out, &bins(dist, &axis), bottom);
    let _ = write!(
        out,
        "<path class=\"axis\" d=\"M{LEFT} {bottom}h{PLOT_WIDTH}\"/>"
    );
    for mark in &marks {
        mark.draw(&mut out, top, bottom);
    }
    if axis.log {
        let _ = write!(
            out,
            "<text class=\"tick end\" x=\"{:.1}\" y=\"{:.1}\">logarithmic</text>",
            LEFT + PLOT_WIDTH,
            bottom - PLOT_HEIGHT + 9.0
        );
    }
    out.push_str("</svg>");
    out
}

fn axis(dist: &Dist) -> Axis {
    let (min, max) = (dist.min() as f64, dist.max() as f64);
    let p99 = dist.quantile(0.99) as f64;
    // A linear axis would squeeze the rest into one bar if the tail is many times longer.
    let log = max > 5.0 * p99.max(1.0) && min > 0.0;
    let pad = if max > min {
        (max - min) * 0.02
    } else {
        (min * 0.05).max(1.0)
    };
    let (low, high) = if log {
        (min * 0.95, max * 1.05)
    } else {
        ((min - pad).max(0.0), max + pad)
    };
    Axis {
        low,
        high,
        left: LEFT,
        width: PLOT_WIDTH,
        log,
    }
}

/// Returns the number of values in each bar. The values of a bucket that is wider than a bar are
/// divided evenly among the bars.
fn bins(dist: &Dist, axis: &Axis) -> Vec<f64> {
    let (min, max) = (dist.min() as f64, dist.max() as f64);
    let mut bins = vec![0.0f64; BINS];
    for (low, width, count) in dist.buckets() {
        // The extremes are exact, but buckets extend a little beyond them.
        let from = (low as f64).max(min);
        let to = (low as f64 + width as f64).min(max).max(from);
        let (a, b) = (bin_of(axis, from), bin_of(axis, to));
        for bin in &mut bins[a..=b] {
            *bin += count as f64 / (b - a + 1) as f64;
        }
    }
    bins
}

fn bin_of(axis: &Axis, value: f64) -> usize {
    let share = (axis.place(value) - axis.left) / axis.width;
    ((share * BINS as f64) as usize).min(BINS - 1)
}

struct Mark {
    label: String,
    start: f64,
    row: usize,
    x: f64,
}

fn marks(dist: &Dist, axis: &Axis) -> Vec<Mark> {
    let values = [
        ("median", dist.quantile(0.5)),
        ("99 %", dist.quantile(0.99)),
        ("max", dist.max()),
    ];
    let mut ends = [f64::MIN; 3];
    let mark = |(name, value): (&str, u64)| {
        let x = axis.place(value as f64);
        let label = format!("{name} {}", duration(value as f64));
        let w = text_width(&label, 10.5);
        let start = (x - w / 2.0).clamp(LEFT, LEFT + PLOT_WIDTH - w);
        let row = ends.iter().position(|e| start > *e + 8.0).unwrap_or(2);
        ends[row] = start + w;
        Mark {
            label,
            start,
            row,
            x,
        }
    };
    values.into_iter().map(mark).collect()
}

impl Mark {
    fn draw(&self, out: &mut String, top: f64, bottom: f64) {
        let _ = write!(
            out,
            "<path class=\"mark\" d=\"M{:.1} {:.1}V{bottom}\"/>\
             <text class=\"marktext\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            self.x,
            top - 2.0,
            self.start,
            top - 4.0 - 11.0 * self.row as f64,
            xml(&self.label)
        );
    }
}

fn draw_grid(out: &mut String, axis: &Axis, top: f64, bottom: f64) {
    for v in axis.ticks(8.0) {
        let x = axis.place(v);
        let _ = write!(
            out,
            "<path class=\"grid\" d=\"M{x:.1} {top}V{bottom}\"/>\
             <text class=\"tick\" x=\"{:.1}\" y=\"{}\">{}</text>",
            x.clamp(LEFT + 14.0, LEFT + PLOT_WIDTH - 16.0),
            bottom + 15.0,
            xml(&tick_label(v))
        );
    }
}

fn draw_bars(out: &mut String, bins: &[f64], bottom: f64) {
    let tallest = bins.iter().copied().fold(0.0, f64::max).max(1.0);
    let width = PLOT_WIDTH / BINS as f64;
    for (i, count) in bins.iter().enumerate().filter(|(_, c)| **c > 0.0) {
        // Even a single outlier must be visible.
        let h = (PLOT_HEIGHT * count / tallest).max(1.5);
        let _ = write!(
            out,
            "<rect class=\"bar\" x=\"{:.2}\" y=\"{:.2}\" width=\"{:.2}\" height=\"{h:.2}\"/>",
            LEFT + width * i as f64 + 0.4,
            bottom - h,
            width - 0.8
        );
    }
}
