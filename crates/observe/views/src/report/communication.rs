//! The report's section on communication between callbacks: edges, and junctions of several edges.

use super::html::{grouped, in_words, time};
use crate::export::svg::type_name;
use onbeat_document::schema::{CallbackType, Edge, EdgeFigures, JunctionKind, Model};
use onbeat_document::text::{percent, shorten, xml};
use std::fmt::Write as _;

pub(super) fn edges(out: &mut String, model: &Model) {
    if model.edges.is_empty() {
        return;
    }
    out.push_str(
        "<h2 id=\"edges\">Communication</h2>\n<p class=\"note\">Latency runs from publication to the \
         start of the callback that takes the item: transport, then waiting for the executor. Lost items \
         were published and never taken. They include items that a content filter held back or that \
         exceeded their lifespan, because no event shows these. Items that a later item displaced from a \
         queue (overwritten), or that a synchroniser skipped (not selected), are counted separately.</p>\n\
         <div class=\"scroll\"><table><thead><tr><th rowspan=\"2\">Topic</th>\
         <th rowspan=\"2\">From</th><th rowspan=\"2\">To</th>\
         <th class=\"n\" rowspan=\"2\">Published</th><th class=\"n\" rowspan=\"2\">Taken</th>\
         <th class=\"n\" rowspan=\"2\">Lost</th><th class=\"g\" colspan=\"3\">Latency</th>\
         <th class=\"n\">Transport</th><th class=\"n\">Waiting</th></tr><tr><th class=\"n\">median</th>\
         <th class=\"n\">99 %</th><th class=\"n\">max</th><th class=\"n\">median</th>\
         <th class=\"n\">median</th></tr></thead><tbody>",
    );
    let mut sorted: Vec<&Edge> = model.edges.iter().collect();
    sorted.sort_by(|a, b| (&a.topic, &a.from, &a.to).cmp(&(&b.topic, &b.from, &b.to)));
    for e in sorted {
        row(out, model, e);
    }
    out.push_str("</tbody></table></div>\n");
}

pub(super) fn losses(out: &mut String, lost: &[String]) {
    if lost.is_empty() {
        return;
    }
    out.push_str("<h3 id=\"losses\">Causes of losses</h3>\n<ul>\n");
    for sentence in lost {
        let _ = writeln!(out, "<li>{}</li>", xml(&shorten(sentence, 2000)));
    }
    out.push_str("</ul>\n");
}

pub(super) fn actions(out: &mut String, model: &Model) {
    if model.actions.is_empty() {
        return;
    }
    out.push_str(
        "<h2 id=\"actions\">Actions</h2>\n<p class=\"note\">Times run from the sending of a goal to the taking \
         of its result. Untimed results are those whose goal is unknown.</p>\n\
         <div class=\"scroll\"><table><thead><tr><th>Action</th><th>Servers</th><th>Clients</th>\
         <th class=\"n\">Goals</th><th class=\"n\">Results</th><th class=\"n\">Untimed</th>\
         <th class=\"n\">Cancels</th><th class=\"n\">Feedback</th><th class=\"n\">median</th>\
         <th class=\"n\">99 %</th><th class=\"n\">max</th></tr></thead><tbody>",
    );
    for a in &model.actions {
        let (f, l) = (&a.figures, &a.figures.goal_to_result_ns);
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            xml(&shorten(&a.name, 100)),
            xml(&shorten(&a.servers.join(", "), 200)),
            xml(&shorten(&a.clients.join(", "), 200)),
            grouped(f.goals.max(f.served)),
            grouped(f.results),
            grouped(f.untimed),
            grouped(f.cancels),
            grouped(f.feedback),
            time(l.count(), l.quantile(0.5) as f64),
            time(l.count(), l.quantile(0.99) as f64),
            time(l.count(), l.max() as f64),
        );
    }
    out.push_str("</tbody></table></div>\n");
}

fn passed_over(f: &EdgeFigures) -> String {
    let of = |n: u64, what| match n {
        0 => String::new(),
        n => format!("<br>{} {what}", grouped(n)),
    };
    of(f.overwritten, "overwritten") + &of(f.unselected, "not selected")
}

fn row(out: &mut String, model: &Model, e: &Edge) {
    let f = &e.figures;
    let (l, t, w) = (&f.latency_ns, &f.transport_ns, &f.waiting_ns);
    let mut marks = String::new();
    if e.assumed.is_some() {
        marks.push_str(" <span class=\"bad\">assumed</span>");
    }
    if e.intra_process {
        marks.push_str(" <span class=\"note\">intra-process</span>");
    }
    let _ = writeln!(
        out,
        "<tr><td title=\"{}\">{}{marks}</td>{}{}<td class=\"n\">{}</td><td class=\"n\">{}</td>\
         <td class=\"n{}\">{}{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
         <td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
        xml(&shorten(&e.topic, 300)),
        xml(&shorten(&e.topic, 52)),
        end(model, &e.from),
        end(model, &e.to),
        grouped(f.published),
        grouped(f.taken),
        if f.lost > 0 { " bad" } else { "" },
        grouped(f.lost),
        passed_over(f),
        time(l.count(), l.quantile(0.5) as f64),
        time(l.count(), l.quantile(0.99) as f64),
        time(l.count(), l.max() as f64),
        time(t.count(), t.quantile(0.5) as f64),
        time(w.count(), w.quantile(0.5) as f64),
    );
}

fn end(model: &Model, id: &str) -> String {
    let callback = model.callbacks.iter().find(|c| c.id == id);
    let text = callback.map_or(id.to_string(), |c| match c.kind {
        CallbackType::Sync => format!("{} &", c.node),
        CallbackType::Subscription => c.node.clone(),
        kind => format!("{} ({})", c.node, type_name(kind)),
    });
    format!(
        "<td title=\"{}\">{}</td>",
        xml(&shorten(id, 300)),
        xml(&shorten(&text, 46))
    )
}

pub(super) fn junctions(out: &mut String, model: &Model) {
    if model.junctions.is_empty() {
        return;
    }
    out.push_str(
        "<h2 id=\"junctions\">Junctions</h2>\n<div class=\"scroll\"><table><thead><tr><th>Where</th>\
         <th>Kind</th><th>Inputs</th><th>Recognised by</th><th class=\"n\">Confidence</th></tr></thead><tbody>",
    );
    for j in &model.junctions {
        let inputs: Vec<String> = j
            .inputs
            .iter()
            .map(|i| xml(&shorten(&in_words(model, i), 110)))
            .collect();
        let _ = write!(
            out,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"n\">{}</td></tr>",
            xml(&shorten(&in_words(model, &j.callback), 110)),
            match j.kind {
                JunctionKind::And => "AND",
                JunctionKind::Or => "OR",
            },
            inputs.join("<br>"),
            xml(&shorten(&j.criterion.replace('_', " "), 60)),
            percent(j.confidence)
        );
    }
    out.push_str("</tbody></table></div>\n");
}
