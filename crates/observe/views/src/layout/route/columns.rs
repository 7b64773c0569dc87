//! The columns of a drawing: the horizontal positions of boxes, labels and bends, by rank.

use super::BEND_STEP;
use crate::layout::plan::{NetPlan, Plan};
use crate::layout::{captions, text_width, CALLBACK_WIDTH, LABEL_FONT, LABEL_LIMIT};
use crate::layout::{MARGIN, PAD, SYNC_SIZE, TITLE_BOLD};
use onbeat_document::schema::{Callback, CallbackType};
use onbeat_document::text::visible;
use std::collections::HashMap;

#[derive(Default)]
pub(super) struct Columns {
    pub(super) left: Vec<f64>,
    pub(super) width: Vec<f64>,
    pub(super) label_end: Vec<f64>,
    /// For each rank: the x of the first bend for wires that turn back to an earlier rank. These
    /// bends are to the right of the labels.
    pub(super) back_start: Vec<f64>,
    /// For each rank: the x of the first bend for wires that come from a later rank. These bends
    /// are to the left of the boxes.
    pub(super) back_end: Vec<f64>,
    /// For each rank: the x of the first bend of wires to the next rank.
    pub(super) channel: Vec<f64>,
    pub(super) right: f64,
}

struct Room {
    labels: Vec<f64>,
    back_ends: Vec<usize>,
    back_starts: Vec<usize>,
}

impl Columns {
    /// Computes the columns of all ranks. `bends` contains the number of bends to the right of each
    /// rank. `back` contains, for each net that leads back to an earlier rank, the number of its
    /// bend.
    pub(super) fn new(plan: &Plan, bends: &[usize], back: &HashMap<usize, usize>) -> Self {
        let room = Room::new(plan, back);
        let mut columns = Columns {
            width: callback_widths(plan),
            ..Columns::default()
        };
        let bent = |n: usize| match n {
            0 => 0.0,
            n => 8.0 + BEND_STEP * n as f64,
        };
        let mut x = MARGIN;
        for (r, &in_channel) in bends.iter().enumerate() {
            columns.back_end.push(x + 2.0);
            x += bent(room.back_ends[r]);
            columns.left.push(x);
            x += columns.width[r] + 2.0 * PAD + room.labels[r];
            columns.label_end.push(x);
            columns.back_start.push(x + 8.0);
            x += bent(room.back_starts[r]);
            columns.channel.push(x + 10.0);
            if r + 1 < plan.ranks {
                x += 22.0 + BEND_STEP * in_channel as f64;
            }
        }
        columns.right = x + MARGIN;
        columns
    }

    pub(super) fn callback(&self, rank: usize) -> f64 {
        self.left[rank] + PAD
    }

    pub(super) fn box_right(&self, rank: usize) -> f64 {
        self.left[rank] + self.width[rank] + 2.0 * PAD
    }
}

impl Room {
    fn new(plan: &Plan, back: &HashMap<usize, usize>) -> Self {
        let mut room = Room {
            labels: vec![0.0; plan.ranks],
            back_ends: vec![0; plan.ranks],
            back_starts: vec![0; plan.ranks],
        };
        for (i, net) in plan.nets.iter().enumerate() {
            let start = plan.rank[net.source];
            if net.labelled {
                let w = text_width(&label(plan, net), LABEL_FONT).min(LABEL_LIMIT);
                room.labels[start] = room.labels[start].max(w + 10.0);
            }
            if let Some(&bend) = back.get(&i) {
                room.back_starts[start] = room.back_starts[start].max(bend + 1);
                for line in net.lines.iter().map(|&l| &plan.lines[l]) {
                    if line.back {
                        let end = &mut room.back_ends[plan.rank[line.to]];
                        *end = (*end).max(bend + 1);
                    }
                }
            }
        }
        room
    }
}

fn callback_widths(plan: &Plan) -> Vec<f64> {
    let mut widths = vec![SYNC_SIZE; plan.ranks];
    for (callback, &rank) in plan.model.callbacks.iter().zip(&plan.rank) {
        if callback.kind != CallbackType::Sync {
            widths[rank] = widths[rank].max(callback_width(callback));
        }
    }
    widths
}

fn callback_width(callback: &Callback) -> f64 {
    let (caption, figures) = captions(callback);
    let inside = text_width(&caption, 11.0).max(text_width(&figures, 10.0)) + 26.0;
    let title = text_width(&visible(&callback.node), 11.5 * TITLE_BOLD);
    let (least, greatest) = CALLBACK_WIDTH;
    inside.max(title).clamp(least, greatest).ceil()
}

/// Returns the label of a net: its topic, shortened to `~/` below its own node, as ROS 2 does.
pub(super) fn label(plan: &Plan, net: &NetPlan) -> String {
    let node = &plan.model.callbacks[net.source].node;
    match net.topic.strip_prefix(node.as_str()) {
        Some(rest) if rest.starts_with('/') && node.len() > 1 => format!("~{}", visible(rest)),
        _ => visible(&net.topic),
    }
}
