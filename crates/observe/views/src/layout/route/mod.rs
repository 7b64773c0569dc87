//! Draws a graph whose boxes already have heights: columns, bends of wires, and paths.

mod bends;
mod columns;

use super::plan::{NetPlan, Plan, Port};
use super::rank::Line;
use super::{CallbackBox, Layout, Net, NodeBox, Rect, Wire, MARGIN, SYNC_SIZE};
use bends::{bends, Passage};
use columns::{label, Columns};
use onbeat_document::schema::{CallbackType, JunctionKind};
use std::collections::{BTreeMap, HashMap};

const BEND_STEP: f64 = 7.0;
const CORNER: f64 = 6.0;

pub(super) fn draw(plan: &Plan, tops: &[f64]) -> Layout {
    let mut low = f64::MAX;
    let mut high = f64::MIN;
    for (top, item) in tops.iter().zip(&plan.items()) {
        low = low.min(top - 6.0);
        high = high.max(top + plan.extent(item).2);
    }
    let shift = (MARGIN - low).round();
    let tops: Vec<f64> = tops.iter().map(|top| top + shift).collect();
    let drawing = Drawing::new(plan, &tops);
    Layout {
        width: drawing.columns.right,
        height: high + shift + MARGIN,
        nodes: drawing.nodes(),
        callbacks: drawing.callbacks(),
        nets: (0..plan.nets.len()).map(|i| drawing.net(i)).collect(),
    }
}

struct Drawing<'a> {
    plan: &'a Plan<'a>,
    tops: &'a [f64],
    columns: Columns,
    bends: HashMap<(usize, usize), usize>,
    back: HashMap<usize, usize>,
}

impl<'a> Drawing<'a> {
    fn new(plan: &'a Plan<'a>, tops: &'a [f64]) -> Self {
        let back = back_bends(plan);
        let mut counts = Vec::new();
        let mut bend_of = HashMap::new();
        for (rank, channel) in passages(plan, tops).iter().enumerate() {
            let (bends, count) = bends(channel);
            counts.push(count);
            let nets = channel.iter().map(|passage| (rank, passage.net));
            bend_of.extend(nets.zip(bends));
        }
        Drawing {
            plan,
            tops,
            columns: Columns::new(plan, &counts, &back),
            bends: bend_of,
            back,
        }
    }

    fn y(&self, port: Port) -> f64 {
        y(self.plan, self.tops, port)
    }

    fn bend(&self, rank: usize, net: usize) -> f64 {
        let bend = self.bends.get(&(rank, net)).copied().unwrap_or(0);
        self.columns.channel[rank] + BEND_STEP * bend as f64
    }

    fn nodes(&self) -> Vec<NodeBox> {
        let clusters = self.plan.clusters.iter().enumerate();
        let node = |(i, c): (usize, &super::plan::Cluster)| {
            let x = self.columns.left[c.first];
            NodeBox {
                name: c.name.clone(),
                rect: Rect {
                    x,
                    y: self.tops[i],
                    w: self.columns.box_right(c.last) - x,
                    h: self.plan.height[i],
                },
                title_width: self.columns.width[c.first],
            }
        };
        clusters.map(node).collect()
    }

    fn callbacks(&self) -> Vec<CallbackBox> {
        let model = self.plan.model;
        let junctions = model.junctions.iter();
        let junctions: HashMap<&str, JunctionKind> =
            junctions.map(|j| (j.callback.as_str(), j.kind)).collect();
        let callback = |v: usize| {
            let rank = self.plan.rank[v];
            let (w, h) = match model.callbacks[v].kind {
                CallbackType::Sync => (SYNC_SIZE, SYNC_SIZE),
                _ => (self.columns.width[rank], self.plan.callback_height(v)),
            };
            let id = model.callbacks[v].id.as_str();
            CallbackBox {
                callback: v,
                rect: Rect {
                    x: self.columns.callback(rank),
                    y: self.y(Port::In(v)) - h / 2.0,
                    w,
                    h,
                },
                junction: junctions.get(id).copied(),
            }
        };
        (0..model.callbacks.len()).map(callback).collect()
    }

    fn net(&self, index: usize) -> Net {
        let plan = &self.plan.nets[index];
        let start = self.plan.rank[plan.source];
        let out = self.y(Port::Out(index));
        let end = self.columns.label_end[start];
        let mut wires: Vec<Wire> = Vec::new();
        if plan.lines.is_empty() {
            wires.push(Wire {
                edges: Vec::new(),
                path: format!("M{:.1} {out:.1}H{end:.1}", self.leaves(plan)),
                arrow: true,
            });
        }
        for &l in &plan.lines {
            let line = &self.plan.lines[l];
            wires.push(Wire {
                edges: vec![line.edge],
                path: self.path(index, line),
                arrow: true,
            });
        }
        let label_start = self.columns.box_right(start) + 4.0;
        Net {
            source: plan.source,
            topic: plan.topic.clone(),
            text: label(self.plan, plan),
            label: plan.labelled.then_some((label_start, out)),
            label_width: end - label_start - 2.0,
            wires,
        }
    }

    fn leaves(&self, net: &NetPlan) -> f64 {
        let rank = self.plan.rank[net.source];
        let width = match self.plan.model.callbacks[net.source].kind {
            CallbackType::Sync => SYNC_SIZE,
            _ => self.columns.width[rank],
        };
        self.columns.callback(rank) + width
    }

    fn path(&self, index: usize, line: &Line) -> String {
        let (plan, columns) = (&self.plan.nets[index], &self.columns);
        let (start, to) = (self.plan.rank[plan.source], self.plan.rank[line.to]);
        let (from, last) = (self.leaves(plan), columns.callback(to));
        let (out, target) = (self.y(Port::Out(index)), self.y(Port::In(line.to)));
        match (line.back, plan.forward, plan.backward) {
            (true, _, Some(track)) => {
                let ty = self.y(Port::Track(track));
                let bend = self.back.get(&index).map_or(0.0, |&b| BEND_STEP * b as f64);
                let first = columns.back_start[start] + bend;
                let second = columns.back_end[to] + bend;
                let middle = (first + second) / 2.0;
                step(from, out, first, ty, middle) + &step(middle, ty, second, target, last)
            }
            (false, Some(track), _) if to > start + 1 => {
                let ty = self.y(Port::Track(track));
                let middle = columns.left[start + 1];
                step(from, out, self.bend(start, index), ty, middle)
                    + &step(middle, ty, self.bend(to - 1, index), target, last)
            }
            _ => step(from, out, self.bend(start, index), target, last),
        }
    }
}

fn y(plan: &Plan, tops: &[f64], port: Port) -> f64 {
    let (item, offset) = plan.place(port);
    tops[item] + offset
}

fn passages(plan: &Plan, tops: &[f64]) -> Vec<Vec<Passage>> {
    let y = |port| y(plan, tops, port);
    let mut channels: Vec<BTreeMap<usize, Passage>> =
        (0..plan.ranks).map(|_| BTreeMap::new()).collect();
    for (i, net) in plan.nets.iter().enumerate() {
        let start = plan.rank[net.source];
        let track = net.forward.map(|t| y(Port::Track(t)));
        for line in net.lines.iter().map(|&l| &plan.lines[l]) {
            if line.back {
                continue;
            }
            let to = plan.rank[line.to];
            // The net has a passage in every channel on its way. It only passes through up to the
            // last one.
            for (channel, passages) in channels.iter_mut().enumerate().take(to).skip(start) {
                let from = match track {
                    Some(ty) if channel > start => ty,
                    _ => y(Port::Out(i)),
                };
                let end = match track {
                    Some(ty) if channel + 1 < to => ty,
                    _ => y(Port::In(line.to)),
                };
                let passage = passages.entry(i).or_insert_with(|| Passage {
                    net: i,
                    from,
                    to: Vec::new(),
                });
                passage.to.push(end);
            }
        }
    }
    let nets = |channel: BTreeMap<usize, Passage>| channel.into_values().collect();
    channels.into_iter().map(nets).collect()
}

/// Returns, for each net that leads back to an earlier rank, the number of its bend to the right of
/// its callback. The numbers begin at 0 in each rank.
fn back_bends(plan: &Plan) -> HashMap<usize, usize> {
    let mut used = vec![0; plan.ranks];
    let mut bends = HashMap::new();
    for (i, net) in plan.nets.iter().enumerate() {
        if net.backward.is_some() {
            let rank = plan.rank[net.source];
            bends.insert(i, used[rank]);
            used[rank] += 1;
        }
    }
    bends
}

/// Returns a path with round corners from `(x0, y0)` to the vertical line at `bend`, along this
/// line to height `y1`, and on to `x1`.
fn step(x0: f64, y0: f64, bend: f64, y1: f64, x1: f64) -> String {
    let r = CORNER.min((y1 - y0).abs() / 2.0);
    if r < 0.5 {
        return format!("M{x0:.1} {y0:.1}H{x1:.1}");
    }
    let down = (y1 - y0).signum() * r;
    let come = (bend - x0).signum() * r;
    let leave = (x1 - bend).signum() * r;
    format!(
        "M{x0:.1} {y0:.1}H{:.1}Q{bend:.1} {y0:.1} {bend:.1} {:.1}V{:.1}Q{bend:.1} {y1:.1} {:.1} {y1:.1}H{x1:.1}",
        bend - come,
        y0 + down,
        y1 - down,
        bend + leave
    )
}
