//! Draws the wires of a placed graph: columns, tracks on which wires turn, and paths.

use super::{
    captions, text_width, CallbackBox, Layout, Net, NetPlan, NodeBox, Placing, Port, Rect, Wire,
    CALLBACK_WIDTH, LABEL_FONT, LABEL_LIMIT, MARGIN, PAD, SYNC_SIZE, TITLE_BOLD,
};
use crate::schema::{CallbackType, JunctionKind};
use crate::text;
use std::collections::{BTreeMap, HashMap};

/// Distance of parallel wires.
const TRACK: f64 = 7.0;
/// Radius of a wire's corners.
const CORNER: f64 = 6.0;

/// What a net does between two ranks: it comes at one height and leaves at others.
struct Passage {
    net: usize,
    from: f64,
    to: Vec<f64>,
}

impl Passage {
    fn span(&self) -> (f64, f64) {
        self.to
            .iter()
            .fold((self.from, self.from), |(a, b), &y| (a.min(y), b.max(y)))
    }

    fn is_straight(&self) -> bool {
        let (a, b) = self.span();
        b - a < 1.0
    }

    /// How bad it is that `self` turns left of `other`: crossings, and wires that would lie on one
    /// another.
    fn left_of(&self, other: &Passage) -> usize {
        let inside = |y: f64, (a, b): (f64, f64)| y > a + 1.0 && y < b - 1.0;
        self.to.iter().filter(|&&y| inside(y, other.span())).count()
            + usize::from(inside(other.from, self.span()))
            + 4 * self
                .to
                .iter()
                .filter(|&&y| (y - other.from).abs() < 4.0)
                .count()
    }
}

/// Gives each passage of a channel the track on which it turns; the number of tracks comes too.
fn tracks(passages: &[Passage]) -> (Vec<usize>, usize) {
    let mut order: Vec<usize> = (0..passages.len())
        .filter(|&i| !passages[i].is_straight())
        .collect();
    // Those that go up: the topmost turns first. Those that go down: the lowest first.
    order.sort_by(|&a, &b| {
        let key = |i: usize| {
            let p = &passages[i];
            let mean = p.to.iter().sum::<f64>() / p.to.len().max(1) as f64;
            if mean < p.from {
                p.from
            } else {
                -p.from
            }
        };
        key(a).total_cmp(&key(b)).then(a.cmp(&b))
    });
    // Neighbours change places as long as that is better; bounded for very full channels.
    for _ in 0..order.len().min(50) {
        let mut changed = false;
        for k in 1..order.len() {
            let (a, b) = (&passages[order[k - 1]], &passages[order[k]]);
            if b.left_of(a) < a.left_of(b) {
                order.swap(k - 1, k);
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    let mut track = vec![0; passages.len()];
    let mut count = 0;
    for (k, &i) in order.iter().enumerate() {
        let (a, b) = passages[i].span();
        let mine = order[..k]
            .iter()
            .filter(|&&j| {
                let (c, d) = passages[j].span();
                c < b + 8.0 && d > a - 8.0
            })
            .map(|&j| track[j] + 1)
            .max()
            .unwrap_or(0);
        track[i] = mine;
        count = count.max(mine + 1);
    }
    (track, count)
}

/// From `(x0, y0)` to the track, along it, and on to `x1` at height `y1`, with round corners.
fn step(x0: f64, y0: f64, track: f64, y1: f64, x1: f64) -> String {
    let r = CORNER.min((y1 - y0).abs() / 2.0);
    if r < 0.5 {
        return format!("M{x0:.1} {y0:.1}H{x1:.1}");
    }
    let down = (y1 - y0).signum() * r;
    let come = (track - x0).signum() * r;
    let leave = (x1 - track).signum() * r;
    format!(
        "M{x0:.1} {y0:.1}H{:.1}Q{track:.1} {y0:.1} {track:.1} {:.1}V{:.1}Q{track:.1} {y1:.1} {:.1} {y1:.1}H{x1:.1}",
        track - come,
        y0 + down,
        y1 - down,
        track + leave
    )
}

/// Where the columns stand, by rank.
#[derive(Default)]
struct Columns {
    /// Left edge of boxes.
    left: Vec<f64>,
    /// Width of callbacks.
    width: Vec<f64>,
    /// Where labels end.
    label_end: Vec<f64>,
    /// Where wires that go back to the left turn, behind the labels: first track.
    turn_right: Vec<f64>,
    /// Where they turn before the boxes: first track.
    turn_left: Vec<f64>,
    /// Where wires to the next rank turn: first track.
    channel: Vec<f64>,
    /// Right end of everything.
    right: f64,
}

impl Columns {
    /// Left edge of callbacks.
    fn callback(&self, rank: usize) -> f64 {
        self.left[rank] + PAD
    }
    /// Right edge of boxes.
    fn box_right(&self, rank: usize) -> f64 {
        self.left[rank] + self.width[rank] + 2.0 * PAD
    }
}

impl Placing<'_> {
    /// What passes between each rank and the next.
    fn passages(&self, y: &dyn Fn(Port) -> f64) -> Vec<Vec<Passage>> {
        let mut channels: Vec<BTreeMap<usize, Passage>> =
            (0..self.ranks).map(|_| BTreeMap::new()).collect();
        for (i, net) in self.nets.iter().enumerate() {
            let start = self.rank[net.source];
            let lane = net.forward.map(|l| (y(Port::Lane(l)), self.lanes[l].last));
            for &l in net.lines.iter().filter(|&&l| !self.lines[l].back) {
                let to = self.rank[self.lines[l].to];
                // Every channel on the way: up to the last one the net only passes through.
                for (channel, passages) in channels.iter_mut().enumerate().take(to).skip(start) {
                    let from = match lane {
                        Some((ly, _)) if channel > start => ly,
                        _ => y(Port::Out(i)),
                    };
                    let end = match lane {
                        Some((ly, _)) if channel + 1 < to => ly,
                        _ => y(Port::In(self.lines[l].to)),
                    };
                    passages
                        .entry(i)
                        .or_insert_with(|| Passage {
                            net: i,
                            from,
                            to: Vec::new(),
                        })
                        .to
                        .push(end);
                }
            }
        }
        channels
            .into_iter()
            .map(|c| c.into_values().collect())
            .collect()
    }

    /// For each net that has a lane back: on which track it turns behind its source.
    fn turns(&self) -> HashMap<usize, usize> {
        let mut used = vec![0; self.ranks];
        let mut turns = HashMap::new();
        for (i, net) in self
            .nets
            .iter()
            .enumerate()
            .filter(|(_, n)| n.backward.is_some())
        {
            let rank = self.rank[net.source];
            turns.insert(i, used[rank]);
            used[rank] += 1;
        }
        turns
    }

    fn columns(&self, counts: &[usize], turns: &HashMap<usize, usize>) -> Columns {
        let mut c = Columns {
            width: vec![SYNC_SIZE; self.ranks],
            ..Columns::default()
        };
        for (v, callback) in self.model.callbacks.iter().enumerate() {
            if callback.kind != CallbackType::Sync {
                let (caption, figures) = captions(callback);
                let needed = (text_width(&caption, 11.0).max(text_width(&figures, 10.0)) + 26.0)
                    .max(text_width(
                        &text::visible(&callback.node),
                        11.5 * TITLE_BOLD,
                    ))
                    .clamp(CALLBACK_WIDTH.0, CALLBACK_WIDTH.1);
                let width = &mut c.width[self.rank[v]];
                *width = width.max(needed.ceil());
            }
        }
        let mut labels = vec![0.0f64; self.ranks];
        let (mut left_turns, mut right_turns) = (vec![0; self.ranks], vec![0; self.ranks]);
        for (i, net) in self.nets.iter().enumerate() {
            let start = self.rank[net.source];
            if net.labelled {
                let w = text_width(&self.label(net), LABEL_FONT).min(LABEL_LIMIT);
                labels[start] = labels[start].max(w + 10.0);
            }
            if let Some(&turn) = turns.get(&i) {
                right_turns[start] = right_turns[start].max(turn + 1);
                for &l in net.lines.iter().filter(|&&l| self.lines[l].back) {
                    let to = self.rank[self.lines[l].to];
                    left_turns[to] = left_turns[to].max(turn + 1);
                }
            }
        }
        let mut x = MARGIN;
        for r in 0..self.ranks {
            c.turn_left.push(x + 2.0);
            if left_turns[r] > 0 {
                x += 8.0 + TRACK * left_turns[r] as f64;
            }
            c.left.push(x);
            x += c.width[r] + 2.0 * PAD + labels[r];
            c.label_end.push(x);
            c.turn_right.push(x + 8.0);
            if right_turns[r] > 0 {
                x += 8.0 + TRACK * right_turns[r] as f64;
            }
            c.channel.push(x + 10.0);
            if r + 1 < self.ranks {
                x += 22.0 + TRACK * counts[r] as f64;
            }
        }
        c.right = x + MARGIN;
        c
    }

    /// What stands beside a net: its topic, shortened as ROS 2 does for a node's private names.
    fn label(&self, net: &NetPlan) -> String {
        let node = &self.model.callbacks[net.source].node;
        match net.topic.strip_prefix(node.as_str()) {
            Some(rest) if rest.starts_with('/') && node.len() > 1 => {
                format!("~{}", text::visible(rest))
            }
            _ => text::visible(&net.topic),
        }
    }

    pub(super) fn draw(&self, tops: &[f64]) -> Layout {
        let mut low = f64::MAX;
        let mut high = f64::MIN;
        for (i, item) in self.items().iter().enumerate() {
            low = low.min(tops[i] - 6.0);
            high = high.max(tops[i] + self.extent(item).2);
        }
        let shift = (MARGIN - low).round();
        let y = |p: Port| {
            let (i, o) = self.place(p);
            tops[i] + shift + o
        };
        let passages = self.passages(&y);
        let turns = self.turns();
        let mut counts = Vec::new();
        let mut track_of: HashMap<(usize, usize), usize> = HashMap::new();
        for (rank, channel) in passages.iter().enumerate() {
            let (track, count) = tracks(channel);
            counts.push(count);
            for (passage, t) in channel.iter().zip(track) {
                track_of.insert((rank, passage.net), t);
            }
        }
        let columns = self.columns(&counts, &turns);
        let nodes = self
            .clusters
            .iter()
            .enumerate()
            .map(|(i, c)| {
                let x = columns.left[c.first];
                NodeBox {
                    name: c.name.clone(),
                    rect: Rect {
                        x,
                        y: tops[i] + shift,
                        w: columns.box_right(c.last) - x,
                        h: self.height[i],
                    },
                    title_width: columns.width[c.first],
                }
            })
            .collect();
        let mut junctions: HashMap<&str, JunctionKind> = HashMap::new();
        for j in &self.model.junctions {
            junctions.insert(&j.callback, j.kind);
        }
        let callbacks = (0..self.model.callbacks.len())
            .map(|v| {
                let callback = &self.model.callbacks[v];
                let r = self.rank[v];
                let (w, h) = match callback.kind {
                    CallbackType::Sync => (SYNC_SIZE, SYNC_SIZE),
                    _ => (columns.width[r], self.callback_height(v)),
                };
                CallbackBox {
                    callback: v,
                    rect: Rect {
                        x: columns.callback(r),
                        y: y(Port::In(v)) - h / 2.0,
                        w,
                        h,
                    },
                    junction: junctions.get(callback.id.as_str()).copied(),
                }
            })
            .collect();
        let track = |rank: usize, net: usize| {
            let t = track_of.get(&(rank, net)).copied().unwrap_or(0);
            columns.channel[rank] + TRACK * t as f64
        };
        let nets = (0..self.nets.len())
            .map(|i| {
                let turn = turns.get(&i).map_or(0.0, |&t| TRACK * t as f64);
                self.draw_net(i, &columns, turn, &y, &track)
            })
            .collect();
        Layout {
            width: columns.right,
            height: high + shift + MARGIN,
            nodes,
            callbacks,
            nets,
        }
    }

    fn draw_net(
        &self,
        index: usize,
        columns: &Columns,
        turn: f64,
        y: &dyn Fn(Port) -> f64,
        track: &dyn Fn(usize, usize) -> f64,
    ) -> Net {
        let plan = &self.nets[index];
        let start = self.rank[plan.source];
        let own_width = match self.model.callbacks[plan.source].kind {
            CallbackType::Sync => SYNC_SIZE,
            _ => columns.width[start],
        };
        let from = columns.callback(start) + own_width;
        let end = columns.label_end[start];
        let out = y(Port::Out(index));
        let mut wires = Vec::new();
        if plan.lines.is_empty() {
            let path = format!("M{from:.1} {out:.1}H{end:.1}");
            wires.push(Wire {
                edges: Vec::new(),
                path,
                arrow: true,
            });
        }
        for &l in &plan.lines {
            let line = &self.lines[l];
            let to = self.rank[line.to];
            let target = y(Port::In(line.to));
            let last = columns.callback(to);
            let path = match (line.back, plan.forward, plan.backward) {
                (true, _, Some(lane)) => {
                    let ly = y(Port::Lane(lane));
                    let first = columns.turn_right[start] + turn;
                    let second = columns.turn_left[to] + turn;
                    let middle = (first + second) / 2.0;
                    step(from, out, first, ly, middle) + &step(middle, ly, second, target, last)
                }
                (false, Some(lane), _) if to > start + 1 => {
                    let ly = y(Port::Lane(lane));
                    let middle = columns.left[start + 1];
                    step(from, out, track(start, index), ly, middle)
                        + &step(middle, ly, track(to - 1, index), target, last)
                }
                _ => step(from, out, track(start, index), target, last),
            };
            wires.push(Wire {
                edges: vec![line.edge],
                path,
                arrow: true,
            });
        }
        let label = columns.box_right(start) + 4.0;
        Net {
            source: plan.source,
            topic: plan.topic.clone(),
            text: self.label(plan),
            label: plan.labelled.then_some((label, out)),
            label_width: end - label - 2.0,
            wires,
        }
    }
}
