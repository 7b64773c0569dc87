//! Box plots of execution times.

use super::{tick_label, Axis};
use crate::layout::fit_text;
use onbeat_document::schema::Callback;
use onbeat_document::text::{duration, shorten, xml};
use onbeat_document::Dist;
use std::fmt::Write as _;

const WIDTH: f64 = 1240.0;
const ROW: f64 = 20.0;
const NAMES: f64 = 430.0;
const TOP: f64 = 24.0;

pub(crate) struct Named<'a> {
    pub(crate) callback: &'a Callback,
    pub(crate) caption: String,
    pub(crate) kind: &'static str,
}

pub(crate) fn box_plots(rows: &[Named]) -> String {
    let axis = axis(rows);
    let height = ROW * rows.len() as f64;
    let total = TOP + height + 6.0;
    let mut out = format!(
        "<svg class=\"chart wide\" viewBox=\"0 0 {WIDTH} {total}\" role=\"img\" \
         aria-label=\"Execution times\">"
    );
    for (i, _) in rows.iter().enumerate().filter(|(i, _)| i % 2 == 1) {
        let _ = write!(
            out,
            "<rect class=\"stripe\" x=\"0\" y=\"{:.1}\" width=\"{WIDTH}\" height=\"{ROW}\"/>",
            TOP + ROW * i as f64
        );
    }
    for v in axis.ticks(10.0) {
        let x = axis.place(v);
        let _ = write!(
            out,
            "<path class=\"grid\" d=\"M{x:.1} {TOP}v{height}\"/>\
             <text class=\"tick\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
            TOP - 8.0,
            xml(&tick_label(v))
        );
    }
    for (i, row) in rows.iter().enumerate() {
        let y = TOP + ROW * (i as f64 + 0.5);
        out.push_str("<g>");
        draw_names(&mut out, row, y);
        draw_box(&mut out, &axis, &row.callback.figures.exec_ns, y);
        out.push_str("</g>");
    }
    out.push_str("</svg>");
    out
}

fn axis(rows: &[Named]) -> Axis {
    let exec = |r: &Named| {
        (
            r.callback.figures.exec_ns.min(),
            r.callback.figures.exec_ns.max(),
        )
    };
    let low = rows.iter().map(|r| exec(r).0).min();
    let high = rows.iter().map(|r| exec(r).1).max();
    let low = low.unwrap_or(1).max(1) as f64;
    let high = high.unwrap_or(10) as f64;
    Axis {
        low: low * 0.85,
        high: (high * 1.15).max(low * 2.0),
        left: NAMES + 12.0,
        width: WIDTH - NAMES - 12.0 - 30.0,
        log: true,
    }
}

fn draw_names(out: &mut String, row: &Named, y: f64) {
    let d = &row.callback.figures.exec_ns;
    let node = fit_text(&row.callback.node, 11.5, 190.0);
    let caption = fit_text(&row.caption, 11.5, 215.0);
    let _ = write!(
        out,
        "<title>{}\nmin {}, 25 % {}, median {}, mean {}, 75 % {}, max {}</title>\
         <rect class=\"hover\" x=\"0\" y=\"{:.1}\" width=\"{WIDTH}\" height=\"{ROW}\"/>\
         <text class=\"rowname strong\" x=\"4\" y=\"{:.1}\">{}</text>\
         <rect class=\"{}\" x=\"203\" y=\"{:.1}\" width=\"4\" height=\"11\" rx=\"1\"/>\
         <text class=\"rowname\" x=\"212\" y=\"{:.1}\">{}</text>",
        xml(&shorten(&row.callback.id, 300)),
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
}

fn draw_box(out: &mut String, axis: &Axis, d: &Dist, y: f64) {
    let q = |q: f64| axis.place(d.quantile(q) as f64);
    let (x0, x1) = (axis.place(d.min() as f64), axis.place(d.max() as f64));
    let (a, b) = (q(0.25), q(0.75));
    let _ = write!(
        out,
        "<path class=\"whisker\" d=\"M{x0:.1} {y:.1}H{a:.1}M{b:.1} {y:.1}H{x1:.1}M{x0:.1} {:.1}v8M{x1:.1} {:.1}v8\"/>\
         <rect class=\"box\" x=\"{a:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"10\"/>\
         <path class=\"median\" d=\"M{:.1} {:.1}v10\"/>\
         <circle class=\"mean\" cx=\"{:.1}\" cy=\"{y:.1}\" r=\"2\"/>",
        y - 4.0,
        y - 4.0,
        y - 5.0,
        (b - a).max(1.0),
        q(0.5),
        y - 5.0,
        axis.place(d.mean())
    );
}
