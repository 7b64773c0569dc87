//! Draws executors for graphviz.

use std::fmt::Write as _;

/// A group of boxes in a drawing of tasks. A group with an empty label is not framed.
pub(crate) struct Group {
    pub(crate) label: String,
    pub(crate) boxes: Vec<(usize, String)>,
}

pub(crate) struct Arrow {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) input: usize,
}

pub(crate) fn dot(title: &str, groups: &[Group], arrows: impl Iterator<Item = Arrow>) -> String {
    let escape = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
    let mut dot = format!("digraph {title} {{\n  rankdir=LR;\n  node [shape=box];\n");
    for (number, Group { label, boxes }) in groups.iter().enumerate() {
        let indent = if label.is_empty() { "  " } else { "    " };
        if !label.is_empty() {
            let label = escape(label);
            let _ = writeln!(
                dot,
                "  subgraph cluster_{number} {{\n    label=\"{label}\";"
            );
        }
        for (index, text) in boxes {
            let _ = writeln!(dot, "{indent}t{index} [label=\"{}\"];", escape(text));
        }
        if !label.is_empty() {
            dot.push_str("  }\n");
        }
    }
    for Arrow { from, to, input } in arrows {
        let _ = writeln!(dot, "  t{from} -> t{to} [headlabel=\"{input}\"];");
    }
    dot.push_str("}\n");
    dot
}
