//! Draws the graph as a picture: an SVG file, or a part of a report.

use crate::layout::{
    captions, fit_text, layout, CallbackBox, Layout, Net, Rect, LABEL_FONT, PAD, TITLE_BOLD,
    TITLE_HEIGHT,
};
use onbeat_document::schema::{Callback, CallbackType, Edge, JunctionKind, Model};
use onbeat_document::text::{duration, percent, visible, xml};
use std::fmt::Write as _;

/// The style sheet of the graph, for light and dark backgrounds.
pub const STYLE: &str = "\
.graph{--bg:#fff;--ink:#1b2027;--soft:#5d6773;--node:#f4f6f8;--rim:#cbd3db;--cell:#fff;\
--cellrim:#b9c3cd;--wire:#7d8894;--timer:#b45a06;--subscription:#0f62ae;--service:#7b42b3;\
--client:#0b7a69;--sync:#3c4652;--mark:#c2255c;\
font-family:\"Helvetica Neue\",Arial,\"Liberation Sans\",\"DejaVu Sans\",sans-serif}
@media (prefers-color-scheme:dark){.graph{--bg:#14181d;--ink:#e4e9ee;--soft:#97a3af;--node:#1c2229;\
--rim:#38424d;--cell:#262e37;--cellrim:#46525e;--wire:#7f8c99;--timer:#f0953f;\
--subscription:#5aa9f2;--service:#bd8bf0;--client:#3fc4ad;--sync:#c4ced8;--mark:#ff6b97}}
.graph .bg{fill:var(--bg)}
.graph .node{fill:var(--node);stroke:var(--rim)}
.graph .title{font-size:11.5px;font-weight:600;fill:var(--ink)}
.graph .cell{fill:var(--cell);stroke:var(--cellrim)}
.graph .name{font-size:11px;fill:var(--ink)}
.graph .fig{font-size:10px;fill:var(--soft)}
.graph .label{font-size:10.5px;fill:var(--soft)}
.graph .wire{fill:none;stroke:var(--wire);stroke-width:1.2}
.graph .hit{fill:none;stroke:transparent;stroke-width:9}
.graph .assumed .wire{stroke-dasharray:5 3}
.graph .head{fill:var(--wire)}
.graph .net:hover .wire{stroke:var(--mark);stroke-width:2}
.graph .net:hover .label{fill:var(--mark)}
.graph .timer{fill:var(--timer)}.graph .subscription{fill:var(--subscription)}
.graph .service{fill:var(--service)}.graph .client{fill:var(--client)}
.graph .sync{fill:var(--cell);stroke:var(--sync);stroke-width:1.6}
.graph .sign{font-weight:700;fill:var(--sync);text-anchor:middle}
@media print{.graph{--bg:#fff;--ink:#1b2027;--soft:#5d6773;--node:#f4f6f8;--rim:#cbd3db;\
--cell:#fff;--cellrim:#b9c3cd;--wire:#7d8894;--timer:#b45a06;--subscription:#0f62ae;\
--service:#7b42b3;--client:#0b7a69;--sync:#3c4652}}
";

/// Returns the graph as an SVG file.
pub fn svg(model: &Model) -> String {
    let placed = layout(model);
    let (w, h) = (placed.width.ceil(), placed.height.ceil());
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"graph\" width=\"{w}\" height=\"{h}\" \
         viewBox=\"0 0 {w} {h}\">\n<style>{STYLE}</style>\n\
         <rect class=\"bg\" width=\"100%\" height=\"100%\"/>\n{}</svg>\n",
        drawing(model, &placed)
    )
}

/// Returns the name of a callback type as the model file has it, for example `subscription`.
pub fn type_name(kind: CallbackType) -> &'static str {
    match kind {
        CallbackType::Timer => "timer",
        CallbackType::Subscription => "subscription",
        CallbackType::Service => "service",
        CallbackType::Client => "client",
        CallbackType::Task => "task",
        CallbackType::Sync => "sync",
        CallbackType::Thread => "thread",
    }
}

/// Returns the SVG elements of a placed graph, without an `svg` element around them.
pub fn drawing(model: &Model, placed: &Layout) -> String {
    let mut out = String::new();
    for node in &placed.nodes {
        let r = node.rect;
        let _ = writeln!(
            out,
            "<g><title>{}</title><rect class=\"node\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" \
             height=\"{:.1}\" rx=\"6\"/><text class=\"title\" x=\"{:.1}\" y=\"{:.1}\">{}</text></g>",
            xml(&onbeat_document::text::shorten(&node.name, 300)),
            r.x + 0.5,
            r.y + 0.5,
            r.w,
            r.h,
            r.x + PAD,
            r.y + TITLE_HEIGHT - 6.0,
            xml(&fit_text(&node.name, 11.5 * TITLE_BOLD, node.title_width))
        );
    }
    for net in &placed.nets {
        draw_net(&mut out, model, net);
    }
    for cell in &placed.callbacks {
        draw_callback(&mut out, model, cell);
    }
    out
}

fn edge_title(edge: &Edge) -> String {
    let l = &edge.figures.latency_ns;
    let mut text = format!(
        "{}\n{} → {}\n",
        visible(&edge.topic),
        visible(&edge.from),
        visible(&edge.to)
    );
    if l.count() > 0 {
        let _ = writeln!(
            text,
            "latency {} (median), {} (99 %), {} (max)",
            duration(l.quantile(0.5) as f64),
            duration(l.quantile(0.99) as f64),
            duration(l.max() as f64)
        );
    }
    let f = &edge.figures;
    let _ = write!(
        text,
        "published {}, taken {}, lost {}",
        f.published, f.taken, f.lost
    );
    if edge.assumed.is_some() {
        text.push_str("\nassumed edge: stated by the user, or inferred by onbeat");
    }
    if edge.intra_process {
        text.push_str("\nintra-process");
    }
    text
}

/// Escapes the text of a `title` element. Keeps the line ends that the caller has put in, and
/// escapes line ends within names.
fn title(text: &str) -> String {
    text.lines().map(xml).collect::<Vec<_>>().join("\n")
}

fn draw_net(out: &mut String, model: &Model, net: &Net) {
    out.push_str("<g class=\"net\">");
    for wire in &net.wires {
        let edges: Vec<&Edge> = wire
            .edges
            .iter()
            .filter_map(|&e| model.edges.get(e))
            .collect();
        let assumed = !edges.is_empty() && edges.iter().all(|e| e.assumed.is_some());
        let classes: String = wire.edges.iter().map(|e| format!(" e{e}")).collect();
        let _ = write!(
            out,
            "<g class=\"wires{}{classes}\">",
            if assumed { " assumed" } else { "" }
        );
        let lines = match edges.as_slice() {
            [] => format!("{}\nno recorded callback takes it", visible(&net.topic)),
            [edge] => edge_title(edge),
            many => format!("{}\nto {} callbacks", visible(&net.topic), many.len()),
        };
        let _ = write!(
            out,
            "<title>{}</title><path class=\"hit\" d=\"{}\"/><path class=\"wire\" d=\"{}\"/>",
            title(&lines),
            wire.path,
            wire.path
        );
        if wire.arrow {
            // The path ends with "H<x>" at the height of its last point.
            if let Some((x, y)) = end_of(&wire.path) {
                let _ = write!(
                    out,
                    "<path class=\"head\" d=\"M{x:.1} {y:.1}l-7 -3.5v7z\"/>"
                );
            }
        }
        out.push_str("</g>");
    }
    if let Some((x, y)) = net.label {
        let _ = write!(
            out,
            "<text class=\"label\" x=\"{x:.1}\" y=\"{:.1}\">{}<title>{}</title></text>",
            y - 3.5,
            xml(&fit_text(&net.text, LABEL_FONT, net.label_width)),
            xml(&onbeat_document::text::shorten(&net.topic, 300))
        );
    }
    out.push_str("</g>\n");
}

fn end_of(path: &str) -> Option<(f64, f64)> {
    let (before, x) = path.rsplit_once('H')?;
    let y = before.rsplit(' ').next()?;
    Some((x.parse().ok()?, y.parse().ok()?))
}

fn callback_title(callback: &Callback) -> String {
    let f = &callback.figures;
    let mut text = format!("{}\n", visible(&callback.id));
    if f.exec_ns.count() > 0 {
        let _ = writeln!(
            text,
            "{} executions\nexecution time {} / {} / {} (min / mean / max)",
            f.executions(),
            duration(f.exec_ns.min() as f64),
            duration(f.exec_ns.mean()),
            duration(f.exec_ns.max() as f64)
        );
    }
    if f.response_ns.count() > 0 {
        let _ = writeln!(
            text,
            "response up to {}",
            duration(f.response_ns.max() as f64)
        );
    }
    let load = match f.is_untimed() {
        true => "unknown".into(),
        false => percent(f.load),
    };
    let _ = write!(text, "load {load}");
    text
}

fn draw_callback(out: &mut String, model: &Model, cell: &CallbackBox) {
    let Some(callback) = model.callbacks.get(cell.callback) else {
        return;
    };
    let _ = write!(
        out,
        "<g class=\"callback c{}\"><title>{}</title>",
        cell.callback,
        title(&callback_title(callback))
    );
    if callback.kind == CallbackType::Sync {
        draw_sync(out, cell.rect);
    } else {
        draw_cell(out, callback, cell);
    }
    out.push_str("</g>\n");
}

fn draw_sync(out: &mut String, r: Rect) {
    let (cx, cy) = (r.x + r.w / 2.0, r.y + r.h / 2.0);
    let _ = write!(
        out,
        "<circle class=\"sync\" cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"{:.1}\"/>\
         <text class=\"sign\" x=\"{cx:.1}\" y=\"{:.1}\" font-size=\"15\">&amp;</text>",
        r.w / 2.0 - 1.0,
        cy + 5.3
    );
}

fn draw_cell(out: &mut String, callback: &Callback, cell: &CallbackBox) {
    let r = cell.rect;
    let (caption, figures) = captions(callback);
    let middle = r.y + r.h / 2.0;
    let text_x = r.x + if cell.junction.is_some() { 19.0 } else { 11.0 };
    let text_w = r.x + r.w - text_x - 5.0;
    let _ = write!(
        out,
        "<rect class=\"cell\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"3\"/>\
         <rect class=\"{}\" x=\"{:.1}\" y=\"{:.1}\" width=\"4\" height=\"{:.1}\" rx=\"1.5\"/>\
         <text class=\"name\" x=\"{text_x:.1}\" y=\"{:.1}\">{}</text>",
        r.x + 0.5,
        r.y + 0.5,
        r.w - 1.0,
        r.h - 1.0,
        type_name(callback.kind),
        r.x + 0.5,
        r.y + 0.5,
        r.h - 1.0,
        middle - 3.0,
        xml(&fit_text(&caption, 11.0, text_w))
    );
    if !figures.is_empty() {
        let _ = write!(
            out,
            "<text class=\"fig\" x=\"{text_x:.1}\" y=\"{:.1}\">{}</text>",
            middle + 11.0,
            xml(&fit_text(&figures, 10.0, text_w))
        );
    }
    if let Some(junction) = cell.junction {
        let sign = match junction {
            JunctionKind::And => "&amp;",
            JunctionKind::Or => "OR",
        };
        let _ = write!(
            out,
            "<circle class=\"sync\" cx=\"{:.1}\" cy=\"{middle:.1}\" r=\"9\"/>\
             <text class=\"sign\" x=\"{:.1}\" y=\"{:.1}\" font-size=\"8\">{sign}</text>",
            r.x + 3.0,
            r.x + 3.0,
            middle + 2.9
        );
    }
}
