//! The report's charts as inline SVG: histogram, box plots, share bar, growth over runs.

use crate::layout::fit_text;
use crate::schema::{Callback, RunExtremes, Share};
use crate::text::{duration, percent, xml};
use crate::Dist;
use std::fmt::Write as _;

/// An axis: values to pixels, linear or logarithmic.
struct Axis {
    low: f64,
    high: f64,
    left: f64,
    width: f64,
    log: bool,
}

impl Axis {
    fn place(&self, value: f64) -> f64 {
        let share = if self.log {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.left + self.width * share.clamp(0.0, 1.0)
    }

    /// Round values along the axis: at most about `count` of them on a linear one.
    fn ticks(&self, count: f64) -> Vec<f64> {
        if self.log {
            let (from, to) = (
                self.low.log10().floor() as i32,
                self.high.log10().ceil() as i32,
            );
            let steps: &[f64] = match to - from {
                0..=1 => &[1.0, 2.0, 3.0, 5.0],
                2..=3 => &[1.0, 3.0],
                _ => &[1.0],
            };
            return (from..=to)
                .flat_map(|e| steps.iter().map(move |s| s * 10f64.powi(e)))
                .filter(|v| *v >= self.low * 0.999 && *v <= self.high * 1.001)
                .collect();
        }
        let raw = (self.high - self.low) / count;
        let power = 10f64.powf(raw.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0]
            .iter()
            .map(|s| s * power)
            .find(|s| *s >= raw)
            .unwrap_or(raw);
        if !(step.is_finite() && step > 0.0) {
            return Vec::new();
        }
        let first = (self.low / step).ceil() as i64;
        (first..)
            .map(|k| k as f64 * step)
            .take_while(|v| *v <= self.high + step * 1e-6)
            .take(100)
            .collect()
    }
}

/// An axis label: like a duration, without more digits than a round value needs.
fn tick_label(ns: f64) -> String {
    if ns == 0.0 {
        return "0".into();
    }
    duration(ns)
}

/// Histogram of a distribution, with its percentiles marked.
pub fn histogram(dist: &Dist, what: &str) -> String {
    const W: f64 = 560.0;
    const PLOT: f64 = 116.0;
    const BINS: usize = 70;
    let (left, plot_w, plot_h) = (8.0, W - 16.0, PLOT);
    if dist.count() == 0 {
        return String::new();
    }
    let (min, max) = (dist.min() as f64, dist.max() as f64);
    let p99 = dist.quantile(0.99) as f64;
    // A tail many times longer than the rest would squeeze the rest into one bar.
    let log = max > 5.0 * p99.max(1.0) && min > 0.0;
    let pad = if max > min {
        (max - min) * 0.02
    } else {
        (min * 0.05).max(1.0)
    };
    let axis = if log {
        Axis {
            low: min * 0.95,
            high: max * 1.05,
            left,
            width: plot_w,
            log,
        }
    } else {
        Axis {
            low: (min - pad).max(0.0),
            high: max + pad,
            left,
            width: plot_w,
            log,
        }
    };
    let mut bins = vec![0.0f64; BINS];
    for (low, width, count) in dist.buckets() {
        // The extremes are exact; buckets reach a little beyond them.
        let from = (low as f64).max(min);
        let to = (low as f64 + width as f64).min(max).max(from);
        let (a, b) = (bin_of(&axis, from, BINS), bin_of(&axis, to, BINS));
        for bin in &mut bins[a..=b] {
            *bin += count as f64 / (b - a + 1) as f64;
        }
    }
    let tallest = bins.iter().copied().fold(0.0, f64::max).max(1.0);
    // Each marker's label has its own height or enough distance: they never overlap.
    let marks = [
        ("median", dist.quantile(0.5) as f64),
        ("99 %", p99),
        ("max", max),
    ];
    let mut ends = [f64::MIN; 3];
    let labels: Vec<(String, usize, f64, f64)> = marks
        .iter()
        .map(|&(name, value)| {
            let x = axis.place(value);
            let label = format!("{name} {}", duration(value));
            let w = crate::layout::text_width(&label, 10.5);
            let start = (x - w / 2.0).clamp(left, left + plot_w - w);
            let row = ends.iter().position(|e| start > *e + 8.0).unwrap_or(2);
            ends[row] = start + w;
            (label, row, start, x)
        })
        .collect();
    let rows = labels.iter().map(|l| l.1 + 1).max().unwrap_or(0);
    let top = 6.0 + 11.0 * rows as f64;
    let bottom = top + plot_h;
    let mut out = format!(
        "<svg class=\"chart\" viewBox=\"0 0 {W} {}\" role=\"img\" aria-label=\"{}\">",
        bottom + 22.0,
        xml(what)
    );
    for v in axis.ticks(8.0) {
        let x = axis.place(v);
        let _ = write!(
            out,
            "<path class=\"grid\" d=\"M{x:.1} {top}V{bottom}\"/>\
             <text class=\"tick\" x=\"{:.1}\" y=\"{}\">{}</text>",
            x.clamp(left + 14.0, left + plot_w - 16.0),
            bottom + 15.0,
            xml(&tick_label(v))
        );
    }
    let bar = plot_w / BINS as f64;
    for (i, count) in bins.iter().enumerate().filter(|(_, c)| **c > 0.0) {
        // A single value far out must still be seen.
        let h = (plot_h * count / tallest).max(1.5);
        let _ = write!(
            out,
            "<rect class=\"bar\" x=\"{:.2}\" y=\"{:.2}\" width=\"{:.2}\" height=\"{h:.2}\"/>",
            left + bar * i as f64 + 0.4,
            bottom - h,
            bar - 0.8
        );
    }
    let _ = write!(
        out,
        "<path class=\"axis\" d=\"M{left} {bottom}h{plot_w}\"/>"
    );
    for (label, row, start, x) in labels {
        let base = top - 4.0 - 11.0 * row as f64;
        let _ = write!(
            out,
            "<path class=\"mark\" d=\"M{x:.1} {:.1}V{bottom}\"/>\
             <text class=\"marktext\" x=\"{start:.1}\" y=\"{:.1}\">{}</text>",
            top - 2.0,
            base,
            xml(&label)
        );
    }
    if log {
        let _ = write!(
            out,
            "<text class=\"tick end\" x=\"{:.1}\" y=\"{:.1}\">logarithmic</text>",
            left + plot_w,
            bottom - plot_h + 9.0
        );
    }
    out.push_str("</svg>");
    out
}

fn bin_of(axis: &Axis, value: f64, bins: usize) -> usize {
    let share = (axis.place(value) - axis.left) / axis.width;
    ((share * bins as f64) as usize).min(bins - 1)
}

/// A callback's text beside its row: node, then what it is.
pub struct Named<'a> {
    /// The callback.
    pub callback: &'a Callback,
    /// What it waits for.
    pub caption: String,
    /// Name of its type.
    pub kind: &'static str,
}

/// Box plots of execution times on one logarithmic axis, one row per callback.
pub fn box_plots(rows: &[Named]) -> String {
    const W: f64 = 1240.0;
    const ROW: f64 = 20.0;
    const NAMES: f64 = 430.0;
    let low = rows
        .iter()
        .map(|r| r.callback.figures.exec_ns.min())
        .min()
        .unwrap_or(1)
        .max(1) as f64;
    let high = rows
        .iter()
        .map(|r| r.callback.figures.exec_ns.max())
        .max()
        .unwrap_or(10) as f64;
    let axis = Axis {
        low: low * 0.85,
        high: (high * 1.15).max(low * 2.0),
        left: NAMES + 12.0,
        width: W - NAMES - 12.0 - 30.0,
        log: true,
    };
    let (top, height) = (24.0, ROW * rows.len() as f64);
    let total = top + height + 6.0;
    let mut out = format!(
        "<svg class=\"chart wide\" viewBox=\"0 0 {W} {total}\" role=\"img\" \
         aria-label=\"Execution times\">"
    );
    for (i, _) in rows.iter().enumerate().filter(|(i, _)| i % 2 == 1) {
        let _ = write!(
            out,
            "<rect class=\"stripe\" x=\"0\" y=\"{:.1}\" width=\"{W}\" height=\"{ROW}\"/>",
            top + ROW * i as f64
        );
    }
    for v in axis.ticks(10.0) {
        let x = axis.place(v);
        let _ = write!(
            out,
            "<path class=\"grid\" d=\"M{x:.1} {top}v{height}\"/>\
             <text class=\"tick\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
            top - 8.0,
            xml(&tick_label(v))
        );
    }
    for (i, row) in rows.iter().enumerate() {
        let d = &row.callback.figures.exec_ns;
        let y = top + ROW * (i as f64 + 0.5);
        let q = |q: f64| axis.place(d.quantile(q) as f64);
        let (x0, x1) = (axis.place(d.min() as f64), axis.place(d.max() as f64));
        let node = fit_text(&row.callback.node, 11.5, 190.0);
        let caption = fit_text(&row.caption, 11.5, 215.0);
        let _ = write!(
            out,
            "<g><title>{}\nmin {}, 25 % {}, median {}, mean {}, 75 % {}, max {}</title>\
             <rect class=\"hover\" x=\"0\" y=\"{:.1}\" width=\"{W}\" height=\"{ROW}\"/>\
             <text class=\"rowname strong\" x=\"4\" y=\"{:.1}\">{}</text>\
             <rect class=\"{}\" x=\"203\" y=\"{:.1}\" width=\"4\" height=\"11\" rx=\"1\"/>\
             <text class=\"rowname\" x=\"212\" y=\"{:.1}\">{}</text>",
            xml(&crate::text::shorten(&row.callback.id, 300)),
            duration(d.min() as f64),
            duration(d.quantile(0.25) as f64),
            duration(d.quantile(0.5) as f64),
            duration(d.mean()),
            duration(d.quantile(0.75) as f64),
            duration(d.max() as f64),
            y - ROW / 2.0,
            y + 4.0,
            xml(&node),
            row.kind,
            y - 5.5,
            y + 4.0,
            xml(&caption)
        );
        let (a, b) = (q(0.25), q(0.75));
        let _ = write!(
            out,
            "<path class=\"whisker\" d=\"M{x0:.1} {y:.1}H{a:.1}M{b:.1} {y:.1}H{x1:.1}M{x0:.1} {:.1}v8M{x1:.1} {:.1}v8\"/>\
             <rect class=\"box\" x=\"{a:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"10\"/>\
             <path class=\"median\" d=\"M{:.1} {:.1}v10\"/>\
             <circle class=\"mean\" cx=\"{:.1}\" cy=\"{y:.1}\" r=\"2\"/></g>",
            y - 4.0,
            y - 4.0,
            y - 5.0,
            (b - a).max(1.0),
            q(0.5),
            y - 5.0,
            axis.place(d.mean())
        );
    }
    out.push_str("</svg>");
    out
}

/// Colours that the style sheet has for callbacks in share bars.
const COLOURS: usize = 8;

/// The bar of a chain's shares: callbacks in colours, edges in grey.
pub fn share_bar(shares: &[Share]) -> String {
    const W: f64 = 1000.0;
    let mut out = format!(
        "<svg class=\"shares\" viewBox=\"0 0 {W} 26\" preserveAspectRatio=\"none\" role=\"img\" \
         aria-label=\"Shares of the latency\">"
    );
    let mut x = 0.0;
    for (share, class) in shares.iter().zip(share_classes(shares)) {
        let w = (share.fraction.clamp(0.0, 1.0) * W).min(W - x);
        let _ = write!(
            out,
            "<rect class=\"{class}\" x=\"{x:.2}\" y=\"0\" width=\"{w:.2}\" height=\"26\"><title>{}\n{} on average, {}</title></rect>",
            xml(&crate::text::shorten(&share.name, 300)),
            duration(share.mean_ns),
            percent(share.fraction)
        );
        x += w;
    }
    out.push_str("</svg>");
    out
}

/// The style class of each share.
pub fn share_classes(shares: &[Share]) -> Vec<String> {
    let mut next = 0;
    shares
        .iter()
        .map(|s| {
            if s.element == "edge" {
                return "s-edge".to_string();
            }
            next += 1;
            format!("s{}", (next - 1) % COLOURS)
        })
        .collect()
}

/// Figure 3.9: how the measured best, average and worst case of a callback settle as runs are
/// added, in the order of the runs' starts.
pub fn growth(callback: &Callback) -> String {
    const W: f64 = 380.0;
    const H: f64 = 150.0;
    let mut runs: Vec<&RunExtremes> = callback.per_run.values().filter(|r| r.count > 0).collect();
    runs.sort_by_key(|r| r.start);
    if runs.len() < 2 {
        return String::new();
    }
    let (mut low, mut high, mut sum, mut count) = (u64::MAX, 0u64, 0.0, 0.0);
    let points: Vec<(f64, f64, f64)> = runs
        .iter()
        .map(|r| {
            low = low.min(r.min_ns);
            high = high.max(r.max_ns);
            sum += r.mean_ns * r.count as f64;
            count += r.count as f64;
            (low as f64, sum / count, high as f64)
        })
        .collect();
    let (left, top, plot_w, plot_h) = (52.0, 8.0, W - 52.0 - 62.0, H - 8.0 - 34.0);
    let scale = Axis {
        low: 0.0,
        high: (high as f64 * 1.06).max(1.0),
        left: 0.0,
        width: plot_h,
        log: false,
    };
    let y = |v: f64| top + plot_h - scale.place(v);
    let x = |i: usize| left + plot_w * i as f64 / (points.len() - 1) as f64;
    let mut out = format!(
        "<svg class=\"chart\" viewBox=\"0 0 {W} {H}\" role=\"img\" aria-label=\"Growth over runs\">"
    );
    for v in scale.ticks(4.6) {
        let _ = write!(
            out,
            "<path class=\"grid\" d=\"M{left} {0:.1}h{plot_w}\"/>\
             <text class=\"tick end\" x=\"{1}\" y=\"{2:.1}\">{3}</text>",
            y(v),
            left - 6.0,
            y(v) + 3.5,
            xml(&tick_label(v))
        );
    }
    let n = points.len();
    let step = n.div_ceil(6).max(1);
    // The last run's number always stands there; one just before it would run into it.
    let shown = (0..n - 1)
        .step_by(step)
        .filter(|i| (n - 1 - i) * 2 > step)
        .chain([n - 1]);
    for i in shown {
        let _ = write!(
            out,
            "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            x(i),
            top + plot_h + 14.0,
            i + 1
        );
    }
    let _ = write!(
        out,
        "<path class=\"axis\" d=\"M{left} {0}h{plot_w}\"/>\
         <text class=\"tick\" x=\"{1:.1}\" y=\"{2:.1}\">runs</text>",
        top + plot_h,
        left + plot_w / 2.0,
        top + plot_h + 28.0
    );
    let series = [
        (
            "mWCET",
            "g-max",
            points.iter().map(|p| p.2).collect::<Vec<f64>>(),
        ),
        ("mACET", "g-mean", points.iter().map(|p| p.1).collect()),
        ("mBCET", "g-min", points.iter().map(|p| p.0).collect()),
    ];
    let mut label_y = f64::MIN;
    // From top to bottom, each label at least a line below the one before.
    for (name, class, values) in series {
        let path: String = values
            .iter()
            .enumerate()
            .map(|(i, p)| format!("{}{:.1} {:.1}", if i == 0 { "M" } else { "L" }, x(i), y(*p)))
            .collect();
        label_y = (y(values[n - 1]) + 3.5).max(label_y + 11.0);
        let _ = write!(
            out,
            "<path class=\"line {class}\" d=\"{path}\"/>\
             <text class=\"linename {class}\" x=\"{:.1}\" y=\"{label_y:.1}\">{name}</text>",
            left + plot_w + 6.0
        );
    }
    out.push_str("</svg>");
    out
}
