//! Finds the order of boxes and lanes from top to bottom, and their heights.

use super::{
    Cluster, Item, Lane, NetPlan, Placing, Port, CALLBACK_GAP, CALLBACK_HEIGHT, LABEL_STEP, PAD,
    SYNC_SIZE, TITLE_HEIGHT,
};
use crate::schema::{CallbackType, Model};
use std::collections::{BTreeMap, HashMap};

/// Weight with which everything is drawn towards the middle; a wire's is about 1.
const GRAVITY: f64 = 0.4;
/// What a pixel of height costs, against one of a wire's length.
const HEIGHT_COST: f64 = 3.0;
/// Steps that each of the two searches for a good order may take: keeps large graphs fast.
const SEARCH_BUDGET: usize = 20_000_000;

impl<'a> Placing<'a> {
    pub(super) fn new(model: &'a Model) -> Self {
        let n = model.callbacks.len();
        let mut names: Vec<&str> = Vec::new();
        let mut by_name: HashMap<&str, usize> = HashMap::new();
        let cluster_of: Vec<usize> = model
            .callbacks
            .iter()
            .map(|c| {
                *by_name.entry(c.node.as_str()).or_insert_with(|| {
                    names.push(&c.node);
                    names.len() - 1
                })
            })
            .collect();
        let lines = super::rank::lines(model);
        let rank = super::rank::ranks(model, &lines, &cluster_of);
        let mut clusters: Vec<Cluster> = names
            .iter()
            .map(|name| Cluster {
                name: name.to_string(),
                first: usize::MAX,
                last: 0,
                columns: Vec::new(),
            })
            .collect();
        for v in 0..n {
            let c = &mut clusters[cluster_of[v]];
            c.first = c.first.min(rank[v]);
            c.last = c.last.max(rank[v]);
        }
        for c in &mut clusters {
            c.columns = vec![Vec::new(); c.last - c.first + 1];
        }
        for v in 0..n {
            let c = &mut clusters[cluster_of[v]];
            c.columns[rank[v] - c.first].push(v);
        }
        let mut placing = Placing {
            model,
            ranks: rank.iter().max().map_or(0, |r| r + 1),
            rank,
            lines,
            nets: Vec::new(),
            outs: vec![Vec::new(); n],
            clusters,
            cluster_of,
            lanes: Vec::new(),
            inner: vec![0.0; n],
            height: Vec::new(),
            pulls: Vec::new(),
        };
        placing.make_nets();
        placing.make_pulls();
        placing.stack_callbacks();
        placing
    }

    /// Groups lines into nets, adds nets for topics that nobody takes, and lanes.
    fn make_nets(&mut self) {
        let mut of: BTreeMap<(usize, &str), usize> = BTreeMap::new();
        for (i, l) in self.lines.iter().enumerate() {
            let topic = self.model.edges[l.edge].topic.as_str();
            let net = *of.entry((l.from, topic)).or_insert_with(|| {
                self.nets.push(NetPlan {
                    source: l.from,
                    topic: topic.to_string(),
                    lines: Vec::new(),
                    forward: None,
                    backward: None,
                    labelled: false,
                });
                self.nets.len() - 1
            });
            self.nets[net].lines.push(i);
            // Into a synchroniser goes the input's own topic, which stands at the input already.
            self.nets[net].labelled |= self.model.callbacks[l.to].kind != CallbackType::Sync
                || self.cluster_of[l.from] != self.cluster_of[l.to];
        }
        for (source, callback) in self.model.callbacks.iter().enumerate() {
            // What members of a synchroniser publish leaves at its circle.
            let synchronised = self
                .lines
                .iter()
                .any(|l| l.from == source && self.model.callbacks[l.to].kind == CallbackType::Sync);
            for topic in &callback.outputs {
                if !synchronised && !of.contains_key(&(source, topic.as_str())) {
                    self.nets.push(NetPlan {
                        source,
                        topic: topic.clone(),
                        lines: Vec::new(),
                        forward: None,
                        backward: None,
                        labelled: true,
                    });
                }
            }
        }
        for (i, net) in self.nets.iter_mut().enumerate() {
            self.outs[net.source].push(i);
            let start = self.rank[net.source];
            let furthest = net.lines.iter().filter(|&&l| !self.lines[l].back);
            if let Some(last) = furthest.map(|&l| self.rank[self.lines[l].to]).max() {
                if last > start + 1 {
                    net.forward = Some(self.lanes.len());
                    self.lanes.push(Lane {
                        net: i,
                        first: start + 1,
                        last: last - 1,
                    });
                }
            }
            let back = net.lines.iter().filter(|&&l| self.lines[l].back);
            if let Some(first) = back.map(|&l| self.rank[self.lines[l].to]).min() {
                net.backward = Some(self.lanes.len());
                let (first, last) = (first.min(start), first.max(start));
                self.lanes.push(Lane {
                    net: i,
                    first,
                    last,
                });
            }
        }
    }

    fn make_pulls(&mut self) {
        let mut pulls = Vec::new();
        for (i, net) in self.nets.iter().enumerate() {
            let start = self.rank[net.source];
            for lane in [net.forward, net.backward].into_iter().flatten() {
                pulls.push((Port::Out(i), Port::Lane(lane), 1.5));
            }
            for &l in &net.lines {
                let line = &self.lines[l];
                let from = match (line.back, net.forward, net.backward) {
                    (true, _, Some(lane)) => Port::Lane(lane),
                    (false, Some(lane), _) if self.rank[line.to] > start + 1 => Port::Lane(lane),
                    _ => Port::Out(i),
                };
                let weight = if line.back { 0.3 } else { 1.0 };
                pulls.push((from, Port::In(line.to), weight));
            }
        }
        self.pulls = pulls;
    }

    /// Height that a callback takes in its column.
    pub(super) fn callback_height(&self, v: usize) -> f64 {
        let labels = self.outs[v]
            .iter()
            .filter(|&&n| self.nets[n].labelled)
            .count();
        let own = if self.model.callbacks[v].kind == CallbackType::Sync {
            SYNC_SIZE
        } else {
            CALLBACK_HEIGHT
        };
        own.max(LABEL_STEP * labels as f64)
    }

    /// Stacks each box's columns, each in the middle of the box.
    fn stack_callbacks(&mut self) {
        self.height = vec![0.0; self.clusters.len()];
        for (i, c) in self.clusters.iter().enumerate() {
            let heights: Vec<f64> = c
                .columns
                .iter()
                .map(|col| {
                    col.iter()
                        .map(|&v| self.callback_height(v) + CALLBACK_GAP)
                        .sum::<f64>()
                        - CALLBACK_GAP
                })
                .collect();
            let tallest = heights.iter().copied().fold(CALLBACK_HEIGHT, f64::max);
            self.height[i] = TITLE_HEIGHT + tallest + PAD;
            for (col, h) in c.columns.iter().zip(&heights) {
                let mut y = TITLE_HEIGHT + (tallest - h) / 2.0;
                for &v in col {
                    let own = self.callback_height(v);
                    self.inner[v] = y + own / 2.0;
                    y += own + CALLBACK_GAP;
                }
            }
        }
    }

    pub(super) fn items(&self) -> Vec<Item> {
        (0..self.clusters.len())
            .map(Item::Cluster)
            .chain((0..self.lanes.len()).map(Item::Lane))
            .collect()
    }

    pub(super) fn extent(&self, item: &Item) -> (usize, usize, f64) {
        match *item {
            Item::Cluster(c) => (
                self.clusters[c].first,
                self.clusters[c].last,
                self.height[c],
            ),
            Item::Lane(l) => (self.lanes[l].first, self.lanes[l].last, 2.0),
        }
    }

    /// Index of the item that a port belongs to, and the port's offset in it.
    pub(super) fn place(&self, port: Port) -> (usize, f64) {
        match port {
            Port::In(v) => (self.cluster_of[v], self.inner[v]),
            Port::Out(net) => {
                let v = self.nets[net].source;
                (self.cluster_of[v], self.inner[v] + self.out_offset(net))
            }
            Port::Lane(l) => (self.clusters.len() + l, 1.0),
        }
    }

    /// Where a net leaves its callback, from the callback's middle.
    fn out_offset(&self, net: usize) -> f64 {
        let v = self.nets[net].source;
        let labelled: Vec<usize> = self.outs[v]
            .iter()
            .copied()
            .filter(|&n| self.nets[n].labelled)
            .collect();
        match labelled.iter().position(|&n| n == net) {
            Some(k) => LABEL_STEP * (k as f64 - (labelled.len() as f64 - 1.0) / 2.0),
            None => 0.0,
        }
    }

    /// Tops that are as near to the wished ones as the order allows: the mean of the solution
    /// that pushes down and the one that pushes up (both fulfil all distances, so does the mean).
    fn resolve(&self, items: &[Item], order: &[usize], wished: &[f64]) -> Vec<f64> {
        let gap = |a: bool, b: bool| match (a, b) {
            (true, true) => 20.0,
            (false, false) => 9.0,
            _ => 13.0,
        };
        let sweep = |order: &mut dyn Iterator<Item = usize>, sign: f64| {
            let mut edge: Vec<Option<(f64, bool)>> = vec![None; self.ranks];
            let mut tops = vec![0.0; items.len()];
            for i in order {
                let (first, last, h) = self.extent(&items[i]);
                let cluster = matches!(items[i], Item::Cluster(_));
                // Upwards, everything is mirrored.
                let mut near = if sign > 0.0 {
                    wished[i]
                } else {
                    -(wished[i] + h)
                };
                for (e, c) in edge[first..=last].iter().flatten() {
                    near = near.max(e + gap(*c, cluster));
                }
                for e in &mut edge[first..=last] {
                    *e = Some((near + h, cluster));
                }
                tops[i] = if sign > 0.0 { near } else { -(near + h) };
            }
            tops
        };
        let down = sweep(&mut order.iter().copied(), 1.0);
        let up = sweep(&mut order.iter().rev().copied(), -1.0);
        down.iter().zip(&up).map(|(a, b)| (a + b) / 2.0).collect()
    }

    /// Where each item would like to be, given where the others are.
    fn wishes(&self, tops: &[f64]) -> Vec<f64> {
        let mut sum = vec![(0.0, 0.0); tops.len()];
        for &(a, b, weight) in &self.pulls {
            let ((ia, oa), (ib, ob)) = (self.place(a), self.place(b));
            if ia == ib {
                continue;
            }
            let (ya, yb) = (tops[ia] + oa, tops[ib] + ob);
            sum[ia].0 += weight * (yb - oa);
            sum[ia].1 += weight;
            sum[ib].0 += weight * (ya - ob);
            sum[ib].1 += weight;
        }
        // Everything is drawn a little towards the middle: that keeps the drawing compact.
        let middle = tops.iter().sum::<f64>() / tops.len().max(1) as f64;
        sum.iter()
            .map(|&(s, w)| (s + GRAVITY * middle) / (w + GRAVITY))
            .collect()
    }

    /// Sorts the callbacks in each column of each box, and the nets of each callback, by where
    /// their wires come from and go to.
    fn sort_inside(&mut self, tops: &[f64]) {
        let n = self.model.callbacks.len();
        let mut sum = vec![(0.0, 0.0); n];
        let mut net_sum = vec![(0.0, 0.0); self.nets.len()];
        let height = |(item, offset): (usize, f64), tops: &[f64]| tops[item] + offset;
        for &(a, b, weight) in &self.pulls {
            let (ya, yb) = (height(self.place(a), tops), height(self.place(b), tops));
            for (own, other) in [(a, yb), (b, ya)] {
                let v = match own {
                    Port::In(v) => v,
                    Port::Out(net) => {
                        net_sum[net].0 += weight * other;
                        net_sum[net].1 += weight;
                        self.nets[net].source
                    }
                    Port::Lane(_) => continue,
                };
                sum[v].0 += weight * other;
                sum[v].1 += weight;
            }
        }
        let mean = |(s, w): (f64, f64), or: f64| if w > 0.0 { s / w } else { or };
        let wish: Vec<f64> = (0..n)
            .map(|v| mean(sum[v], tops[self.cluster_of[v]] + self.inner[v]))
            .collect();
        for c in &mut self.clusters {
            for column in &mut c.columns {
                column.sort_by(|&a, &b| wish[a].total_cmp(&wish[b]).then(a.cmp(&b)));
            }
        }
        for nets in &mut self.outs {
            nets.sort_by(|&a, &b| {
                let key = |i: usize| mean(net_sum[i], f64::MAX);
                key(a).total_cmp(&key(b)).then(a.cmp(&b))
            });
        }
        self.stack_callbacks();
    }

    /// What is bad about a placement: crossings first, then lengths.
    fn cost(&self, tops: &[f64]) -> f64 {
        let y = |p: Port| {
            let (i, o) = self.place(p);
            tops[i] + o
        };
        let mut channels: Vec<Vec<(f64, f64, usize)>> = vec![Vec::new(); self.ranks + 1];
        let mut length = 0.0;
        for (i, net) in self.nets.iter().enumerate() {
            let start = self.rank[net.source];
            let out = y(Port::Out(i));
            if let Some(lane) = net.forward {
                let l = y(Port::Lane(lane));
                channels[start].push((out, l, i));
                length += (out - l).abs();
            }
            if let Some(lane) = net.backward {
                length += (out - y(Port::Lane(lane))).abs();
            }
            for &l in &net.lines {
                let line = &self.lines[l];
                let target = y(Port::In(line.to));
                let to = self.rank[line.to];
                if line.back {
                    length += net
                        .backward
                        .map_or(0.0, |b| (y(Port::Lane(b)) - target).abs());
                } else {
                    let from = match net.forward {
                        Some(lane) if to > start + 1 => y(Port::Lane(lane)),
                        _ => out,
                    };
                    channels[to - 1].push((from, target, i));
                    length += (from - target).abs();
                }
            }
        }
        let mut crossings = 0usize;
        for channel in &channels {
            for (k, a) in channel.iter().enumerate() {
                for b in &channel[k + 1..] {
                    if a.2 != b.2 && (a.0 - b.0) * (a.1 - b.1) < 0.0 {
                        crossings += 1;
                    }
                }
            }
        }
        let bottom = (0..tops.len()).map(|i| tops[i]).fold(f64::MIN, f64::max);
        let top = (0..tops.len()).map(|i| tops[i]).fold(f64::MAX, f64::min);
        crossings as f64 * 60.0 + length + HEIGHT_COST * (bottom - top)
    }

    /// About how many steps one try at an order takes: wires, boxes over their ranks, and pairs of
    /// wires between two ranks.
    fn work(&self) -> usize {
        let items = self.items();
        let spans: usize = items
            .iter()
            .map(|i| self.extent(i).1 - self.extent(i).0 + 1)
            .sum();
        let mut wires = vec![0usize; self.ranks];
        for line in self.lines.iter().filter(|l| !l.back) {
            wires[self.rank[line.to]] += 1;
        }
        1 + self.pulls.len() + spans + wires.iter().map(|w| w * w / 4).sum::<usize>()
    }

    /// Finds an order of the items from top to bottom, and their tops.
    pub(super) fn order_and_place(&mut self) -> Vec<f64> {
        let items = self.items();
        let n = items.len();
        // Start in the order of names, which is that of callbacks; lanes beside their sources.
        let mut tops: Vec<f64> = items
            .iter()
            .map(|item| match *item {
                Item::Cluster(c) => c as f64 * 80.0,
                Item::Lane(l) => {
                    self.cluster_of[self.nets[self.lanes[l].net].source] as f64 * 80.0 + 1.0
                }
            })
            .collect();
        let mut best: Option<(f64, Vec<usize>, Vec<f64>)> = None;
        for round in 0..(SEARCH_BUDGET / (7 * self.work())).clamp(4, 40) {
            let mut order: Vec<usize> = (0..n).collect();
            let wished = self.wishes(&tops);
            // Move half way: two columns that swap to meet each other would swap for ever.
            let aim: Vec<f64> = if round == 0 {
                tops.clone()
            } else {
                tops.iter()
                    .zip(&wished)
                    .map(|(a, b)| (a + b) / 2.0)
                    .collect()
            };
            order.sort_by(|&a, &b| aim[a].total_cmp(&aim[b]).then(a.cmp(&b)));
            tops = self.resolve(&items, &order, &aim);
            self.sort_inside(&tops);
            tops = self.settle(&items, &order, tops, 6);
            let cost = self.cost(&tops);
            if best.as_ref().is_none_or(|b| cost < b.0) {
                best = Some((cost, order, tops.clone()));
            }
        }
        let Some((mut cost, mut order, mut tops)) = best else {
            return tops;
        };
        self.sort_inside(&tops);
        tops = self.settle(&items, &order, tops, 6);
        // Then try to move single items, as long as it helps and the budget lasts.
        let mut left = SEARCH_BUDGET / (4 * self.work());
        let mut improved = true;
        while improved && left > 0 {
            improved = false;
            for from in 0..n {
                for step in [-1isize, 1, -2, 2, -4, 4, -8, 8] {
                    let to = from as isize + step;
                    if to < 0 || to >= n as isize || left == 0 {
                        continue;
                    }
                    left -= 1;
                    let mut tried = order.clone();
                    let item = tried.remove(from);
                    tried.insert(to as usize, item);
                    let placed = self.settle(&items, &tried, tops.clone(), 3);
                    let c = self.cost(&placed);
                    if c + 1.0 < cost {
                        (cost, order, tops, improved) = (c, tried, placed, true);
                        break;
                    }
                }
            }
            self.sort_inside(&tops);
            tops = self.settle(&items, &order, tops, 10);
            cost = self.cost(&tops);
        }
        let mut tops = self.settle(&items, &order, tops, 120);
        self.straighten(&items, &mut tops);
        tops
    }

    /// Moves items by the few pixels that make a wire straight, where there is room.
    fn straighten(&self, items: &[Item], tops: &mut [f64]) {
        for top in tops.iter_mut() {
            *top = top.round();
        }
        let mut wires: Vec<Vec<(Port, Port)>> = vec![Vec::new(); items.len()];
        for &(a, b, _) in &self.pulls {
            let (ia, ib) = (self.place(a).0, self.place(b).0);
            if ia != ib {
                wires[ia].push((a, b));
                wires[ib].push((b, a));
            }
        }
        let y = |p: Port, tops: &[f64]| {
            let (i, o) = self.place(p);
            tops[i] + o
        };
        // What has fewest wires gives way; a wire that is straight already holds both ends.
        let mut order: Vec<usize> = (0..items.len()).collect();
        order.sort_by_key(|&i| (wires[i].len(), i));
        for &i in &order {
            let off = |&(own, other): &(Port, Port)| y(other, tops) - y(own, tops);
            if wires[i].iter().any(|w| off(w).abs() < 0.01) {
                continue;
            }
            let Some(move_by) = wires[i]
                .iter()
                .map(off)
                .min_by(|a, b| a.abs().total_cmp(&b.abs()))
            else {
                continue;
            };
            let (first, last, h) = self.extent(&items[i]);
            let wished = tops[i] + move_by;
            let free = move_by.abs() < 12.0
                && (0..items.len()).filter(|&j| j != i).all(|j| {
                    let (f, l, height) = self.extent(&items[j]);
                    l < first
                        || f > last
                        || wished + h + 8.0 < tops[j]
                        || tops[j] + height + 8.0 < wished
                });
            if free {
                tops[i] = wished;
            }
        }
    }

    /// Lets wires pull items straight, within the order.
    fn settle(
        &self,
        items: &[Item],
        order: &[usize],
        mut tops: Vec<f64>,
        rounds: usize,
    ) -> Vec<f64> {
        for _ in 0..rounds {
            let wished = self.wishes(&tops);
            tops = self.resolve(items, order, &wished);
        }
        tops
    }
}
