//! The graph for Graphviz: nodes as clusters, callbacks and synchronisers as vertices.

use super::svg::type_name;
use crate::layout::captions;
use crate::schema::{CallbackType, JunctionKind, Model};
use crate::text::{duration, visible};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A quoted string of the DOT language, of several lines. Backslashes begin escapes there, and
/// ampersands begin entities.
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

/// The graph as text.
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
            let c = &model.callbacks[i];
            if c.kind == CallbackType::Sync {
                let tooltip = quoted(std::slice::from_ref(&c.id));
                let _ = writeln!(
                    out,
                    "    c{i} [shape=circle, style=solid, label=\"&amp;\", tooltip={tooltip}];"
                );
                continue;
            }
            let (caption, figures) = captions(c);
            let or = model
                .junctions
                .iter()
                .any(|j| j.callback == c.id && j.kind == JunctionKind::Or);
            let first = format!("{}{}", if or { "OR  " } else { "" }, type_name(c.kind));
            let lines = match c.kind {
                CallbackType::Timer => vec![caption, figures],
                _ => vec![first, caption, figures],
            };
            let tooltip = quoted(std::slice::from_ref(&c.id));
            let _ = writeln!(
                out,
                "    c{i} [label={}, tooltip={tooltip}];",
                quoted(&lines)
            );
        }
        out.push_str("  }\n");
    }
    let index: BTreeMap<&str, usize> = model
        .callbacks
        .iter()
        .enumerate()
        .map(|(i, c)| (c.id.as_str(), i))
        .collect();
    for e in &model.edges {
        let (Some(from), Some(to)) = (index.get(e.from.as_str()), index.get(e.to.as_str())) else {
            continue;
        };
        let l = &e.figures.latency_ns;
        let median = if l.count() > 0 {
            duration(l.quantile(0.5) as f64)
        } else {
            String::new()
        };
        let lost = if e.figures.lost > 0 {
            format!("{} lost", e.figures.lost)
        } else {
            String::new()
        };
        let _ = writeln!(
            out,
            "  c{from} -> c{to} [label={}{}];",
            quoted(&[e.topic.clone(), median, lost]),
            if e.assumed { ", style=dashed" } else { "" }
        );
    }
    out.push_str("}\n");
    out
}
