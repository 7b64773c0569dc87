//! A chart of two distributions of one figure, one above the other on a shared axis.

use super::{tick_label, Axis};
use onbeat_document::text::{duration, xml};
use onbeat_document::Dist;
use std::fmt::Write as _;

const WIDTH: f64 = 560.0;
const LEFT: f64 = 8.0;
const PLOT_WIDTH: f64 = WIDTH - 16.0;
const PLOT_HEIGHT: f64 = 74.0;
const GAP: f64 = 24.0;
const BINS: usize = 70;

/// Draws two distributions on one axis, the first above the second. Draws nothing if one is empty.
/// `what` describes the chart to screen readers.
pub fn pair(a: &Dist, b: &Dist, names: [&str; 2], what: &str) -> String {
    if a.count() == 0 || b.count() == 0 {
        return String::new();
    }
    let axis = axis(a, b);
    let height = 2.0 * (PLOT_HEIGHT + GAP) + 20.0;
    let mut out = format!(
        "<svg class=\"chart pair\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">",
        xml(what)
    );
    for v in axis.ticks(7.0) {
        let x = axis.place(v);
        let (text_x, bottom) = (
            x.clamp(LEFT + 14.0, LEFT + PLOT_WIDTH - 16.0),
            height - 20.0,
        );
        let _ = write!(
            out,
            "<path class=\"grid\" d=\"M{x:.1} {GAP}V{bottom}\"/><text class=\"tick\" x=\"{text_x:.1}\" y=\"{:.1}\">{}</text>",
            bottom + 15.0,
            xml(&tick_label(v))
        );
    }
    for (i, (dist, name)) in [a, b].into_iter().zip(names).enumerate() {
        let bottom = (i + 1) as f64 * (PLOT_HEIGHT + GAP);
        bars(&mut out, dist, &axis, (bottom, ["first", "second"][i]));
        let _ = write!(
            out,
            "<path class=\"axis\" d=\"M{LEFT} {bottom}h{PLOT_WIDTH}\"/>\
             <text class=\"pairname\" x=\"{LEFT}\" y=\"{:.1}\">{}: median {}, 99 % {}, max {}</text>",
            bottom - PLOT_HEIGHT - 6.0,
            xml(name),
            duration(dist.quantile(0.5) as f64),
            duration(dist.quantile(0.99) as f64),
            duration(dist.max() as f64),
        );
    }
    // The first distribution's median is marked in both.
    for (dist, from, to) in [
        (a, GAP, height - 20.0),
        (b, GAP + PLOT_HEIGHT + GAP, height - 20.0),
    ] {
        let x = axis.place(dist.quantile(0.5) as f64);
        let _ = write!(
            out,
            "<path class=\"mark\" d=\"M{x:.1} {from:.1}V{to:.1}\"/>"
        );
    }
    if axis.log {
        let _ = write!(
            out,
            "<text class=\"tick end\" x=\"{:.1}\" y=\"{:.1}\">logarithmic</text>",
            LEFT + PLOT_WIDTH,
            GAP - 8.0
        );
    }
    out + "</svg>"
}

fn axis(a: &Dist, b: &Dist) -> Axis {
    let min = a.min().min(b.min()) as f64;
    let max = a.max().max(b.max()) as f64;
    let p99 = a.quantile(0.99).max(b.quantile(0.99)) as f64;
    let log = min > 0.0 && max > 5.0 * p99.max(1.0);
    let pad = ((max - min) * 0.02).max(1.0);
    let (low, high) = match log {
        true => (min * 0.95, max * 1.05),
        false => ((min - pad).max(0.0), max + pad),
    };
    Axis {
        low,
        high,
        left: LEFT,
        width: PLOT_WIDTH,
        log,
    }
}

fn bars(out: &mut String, dist: &Dist, axis: &Axis, (bottom, class): (f64, &str)) {
    let mut bins = [0.0f64; BINS];
    let bin = |value: f64| {
        let share = (axis.place(value) - axis.left) / axis.width;
        ((share * BINS as f64) as usize).min(BINS - 1)
    };
    for (low, width, count) in dist.buckets() {
        let from = (low as f64).max(dist.min() as f64);
        let to = ((low + width) as f64).min(dist.max() as f64).max(from);
        let (first, last) = (bin(from), bin(to));
        for share in &mut bins[first..=last] {
            *share += count as f64 / (last - first + 1) as f64;
        }
    }
    let tallest = bins.iter().copied().fold(1e-9, f64::max);
    let width = PLOT_WIDTH / BINS as f64;
    for (i, count) in bins.iter().enumerate().filter(|(_, c)| **c > 0.0) {
        // Even a single outlier must be visible.
        let h = (PLOT_HEIGHT * count / tallest).max(1.5);
        let _ = write!(
            out,
            "<rect class=\"bar {class}\" x=\"{:.2}\" y=\"{:.2}\" width=\"{:.2}\" height=\"{h:.2}\"/>",
            LEFT + width * i as f64 + 0.4,
            bottom - h,
            width - 0.8
        );
    }
}
