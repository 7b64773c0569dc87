//! Exports the graph for Graphviz, with nodes as clusters and callbacks and synchronisers as
//! vertices.

use super::svg::type_name;
use crate::layout::captions;
use onbeat_document::schema::{CallbackType, Edge, Junction, JunctionKind, Model};
use onbeat_document::text::{duration, visible};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Quotes lines as one DOT string. Escapes backslashes and ampersands, which have a meaning in DOT.
fn quoted(lines: &[String]) -> String {
    let lines: Vec<String> = lines
        .iter()
        .filter(|l| !l.is_empty())
        .map(|l| {
            visible(l)
                .replace('&', "&amp;")
                .replace('\\', "\\\\")
                .replace('"', "\\\"")
        })
        .collect();
    format!("\"{}\"", lines.join("\\n"))
}

/// Returns the graph as a DOT file for Graphviz.
pub fn dot(model: &Model) -> String {
    let mut out = String::from(
        "digraph onbeat {\n  rankdir=LR;\n  node [shape=box, style=rounded, fontname=\"Helvetica\", fontsize=10];\n  \
         edge [fontname=\"Helvetica\", fontsize=9];\n",
    );
    let mut nodes: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (i, c) in model.callbacks.iter().enumerate() {
        nodes.entry(&c.node).or_default().push(i);
    }
    for (k, (node, callbacks)) in nodes.iter().enumerate() {
        let _ = writeln!(
            out,
            "  subgraph cluster_{k} {{\n    label={};",
            quoted(&[node.to_string()])
        );
        for &i in callbacks {
            vertex(&mut out, model, i);
        }
        out.push_str("  }\n");
    }
    let callbacks = model.callbacks.iter().enumerate();
    let index: BTreeMap<&str, usize> = callbacks.map(|(i, c)| (c.id.as_str(), i)).collect();
    for e in &model.edges {
        if let (Some(from), Some(to)) = (index.get(e.from.as_str()), index.get(e.to.as_str())) {
            let _ = write!(out, "  c{from} -> c{to} ");
            edge(&mut out, e);
        }
    }
    out.push_str("}\n");
    out
}

fn vertex(out: &mut String, model: &Model, i: usize) {
    let c = &model.callbacks[i];
    let tooltip = quoted(std::slice::from_ref(&c.id));
    if c.kind == CallbackType::Sync {
        let _ = writeln!(
            out,
            "    c{i} [shape=circle, style=solid, label=\"&amp;\", tooltip={tooltip}];"
        );
        return;
    }
    let (caption, figures) = captions(c);
    let is_or = |j: &Junction| j.callback == c.id && j.kind == JunctionKind::Or;
    let or = match model.junctions.iter().any(is_or) {
        true => "OR  ",
        false => "",
    };
    let lines = match c.kind {
        CallbackType::Timer => vec![caption, figures],
        kind => vec![format!("{or}{}", type_name(kind)), caption, figures],
    };
    let _ = writeln!(
        out,
        "    c{i} [label={}, tooltip={tooltip}];",
        quoted(&lines)
    );
}

fn edge(out: &mut String, e: &Edge) {
    let l = &e.figures.latency_ns;
    let median = match l.count() {
        0 => String::new(),
        _ => duration(l.quantile(0.5) as f64),
    };
    let lost = match e.figures.lost {
        0 => String::new(),
        n => format!("{n} lost"),
    };
    let _ = writeln!(
        out,
        "[label={}{}];",
        quoted(&[e.topic.clone(), median, lost]),
        if e.assumed.is_some() {
            ", style=dashed"
        } else {
            ""
        }
    );
}
