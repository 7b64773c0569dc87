//! The report's graph with its legend, and buttons that highlight a chain in it.

use super::chains::{by_latency, names};
use crate::export::svg::{self, type_name};
use crate::layout;
use onbeat_document::schema::{Chain, JunctionKind, Model};
use onbeat_document::text::{shorten, xml};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// The scale below which nobody can read the graph's text. A graph that would be smaller scrolls
/// instead.
const READABLE: f64 = 0.72;

const PAGE_WIDTH: f64 = 1400.0;

pub(super) fn graph(out: &mut String, model: &Model) {
    let placed = layout::layout(model);
    let (w, h) = (placed.width.ceil(), placed.height.ceil());
    let _ = write!(
        out,
        "<h2 id=\"graph\">Graph</h2>\n<p class=\"note\">Boxes are nodes. They contain their callbacks with \
         the mean execution time (min–max) and the load on one CPU. Lines are topics, requests and \
         responses. A name that begins with ~ is relative to its node. Point at an element to see its \
         figures.</p>\n<div class=\"graphbox\"><svg class=\"graph\" viewBox=\"0 0 {w} {h}\" \
         style=\"width:100%;min-width:{:.0}px;max-width:{w}px\">{}</svg></div>\n",
        w * READABLE,
        svg::drawing(model, &placed)
    );
    legend(out, model);
    if w * READABLE > PAGE_WIDTH {
        out.push_str(
            "<fieldset class=\"pick size\"><span>Size:</span>\
             <input type=\"radio\" name=\"size\" id=\"g-read\" checked><label for=\"g-read\">readable</label>\
             <input type=\"radio\" name=\"size\" id=\"g-fit\"><label for=\"g-fit\">whole width</label></fieldset>\n",
        );
    }
    pick(out, model);
}

fn legend(out: &mut String, model: &Model) {
    out.push_str("<ul class=\"legend\">");
    let kinds: BTreeSet<&str> = model.callbacks.iter().map(|c| type_name(c.kind)).collect();
    for kind in ["timer", "subscription", "service", "client"]
        .iter()
        .filter(|k| kinds.contains(*k))
    {
        let _ = write!(out, "<li><i class=\"{kind}\"></i>{kind}</li>");
    }
    if model.junctions.iter().any(|j| j.kind == JunctionKind::And) || kinds.contains("sync") {
        out.push_str("<li><b>&amp;</b>fires when all inputs have new data</li>");
    }
    if model.junctions.iter().any(|j| j.kind == JunctionKind::Or) {
        out.push_str("<li><b>OR</b>fires on any of several publishers</li>");
    }
    if model.edges.iter().any(|e| e.assumed.is_some()) {
        out.push_str("<li>- - - assumed, not seen</li>");
    }
    out.push_str("</ul>\n");
}

fn pick(out: &mut String, model: &Model) {
    if model.chains.is_empty() {
        return;
    }
    out.push_str(
        "<fieldset class=\"pick chains\"><span>Show in the graph:</span>\
         <input type=\"radio\" name=\"pick\" id=\"k-all\" checked><label for=\"k-all\">everything</label>",
    );
    let names = names(model);
    for (k, chain) in by_latency(model).into_iter().enumerate() {
        let _ = write!(
            out,
            "<input type=\"radio\" name=\"pick\" id=\"k{k}\"><label for=\"k{k}\" title=\"{}\">{}</label>",
            xml(&shorten(&chain.callbacks.join(" → "), 600)),
            xml(&shorten(&names[chain.id.as_str()], 80))
        );
    }
    out.push_str("</fieldset>\n");
}

/// Returns the CSS rules that highlight a chain in the graph when the reader picks it. They work
/// without a script.
pub(super) fn pick_style(model: &Model) -> String {
    let mut css = String::new();
    if model.chains.is_empty() {
        return css;
    }
    let callbacks = model.callbacks.iter().enumerate();
    let index: BTreeMap<&str, usize> = callbacks.map(|(i, c)| (c.id.as_str(), i)).collect();
    css.push_str(
        "body:has(.chains input:not(#k-all):checked) .graph :is(.net>g,.callback){opacity:.16}\n\
         body:has(.chains input:not(#k-all):checked) .graph .label{opacity:.35}\n",
    );
    // The class is named three times so that these rules override the rules that dim.
    for (k, chain) in by_latency(model).into_iter().enumerate() {
        let _ = writeln!(
            css,
            "body:has(#k{k}:checked) .graph.graph.graph :is({}){{opacity:1}}",
            classes(model, chain, &index).join(",")
        );
    }
    css
}

fn classes(model: &Model, chain: &Chain, index: &BTreeMap<&str, usize>) -> Vec<String> {
    let callbacks = chain.callbacks.iter();
    let callbacks = callbacks.filter_map(|id| index.get(id.as_str()));
    let mut classes: Vec<String> = callbacks.map(|i| format!(".c{i}")).collect();
    for (i, pair) in chain.callbacks.windows(2).enumerate() {
        let edges = model.edges.iter().enumerate().filter(|(_, e)| {
            e.from == pair[0]
                && e.to == pair[1]
                && chain.topics.get(i).is_none_or(|t| *t == e.topic)
        });
        classes.extend(edges.map(|(e, _)| format!(".e{e}")));
    }
    classes
}
