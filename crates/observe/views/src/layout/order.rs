//! Finds the order of boxes and tracks from top to bottom.

use super::plan::{Item, Plan, Port};

/// The cost of one pixel of the drawing's height when orders of boxes are compared. One pixel of a
/// wire's length costs 1.
const HEIGHT_COST: f64 = 3.0;

/// The maximum number of steps for each of the two searches for a good order of boxes. It limits
/// the time for large graphs.
const SEARCH_BUDGET: usize = 20_000_000;

#[derive(Clone)]
struct Placed {
    cost: f64,
    order: Vec<usize>,
    tops: Vec<f64>,
}

impl Plan<'_> {
    pub(super) fn order_and_place(&mut self) -> Vec<f64> {
        let items = self.items();
        let mut best = self.pull_into_order(&items);
        self.sort_inside(&best.tops);
        best.tops = self.settle(&items, &best.order, best.tops, 6);
        self.move_items(&items, &mut best);
        let mut tops = self.settle(&items, &best.order, best.tops, 120);
        self.straighten(&items, &mut tops);
        tops
    }

    fn pull_into_order(&mut self, items: &[Item]) -> Placed {
        // The first order is by name, which is the order of callbacks. Tracks stand beside their
        // sources.
        let start = |item: &Item| match *item {
            Item::Cluster(c) => c as f64 * 80.0,
            Item::Track(t) => {
                self.cluster_of[self.nets[self.tracks[t].net].source] as f64 * 80.0 + 1.0
            }
        };
        let mut tops: Vec<f64> = items.iter().map(start).collect();
        let mut best = Placed {
            cost: f64::INFINITY,
            order: (0..items.len()).collect(),
            tops: tops.clone(),
        };
        for round in 0..(SEARCH_BUDGET / (7 * self.work())).clamp(4, 40) {
            let wished = self.wishes(&tops);
            // Items move only half way, because two columns that move towards each other would
            // otherwise swap for ever.
            let half_way = |(a, b): (&f64, &f64)| (a + b) / 2.0;
            let aim: Vec<f64> = match round {
                0 => tops.clone(),
                _ => tops.iter().zip(&wished).map(half_way).collect(),
            };
            let mut order: Vec<usize> = (0..items.len()).collect();
            order.sort_by(|&a, &b| aim[a].total_cmp(&aim[b]).then(a.cmp(&b)));
            tops = self.resolve(items, &order, &aim);
            self.sort_inside(&tops);
            tops = self.settle(items, &order, tops, 6);
            let cost = self.cost(&tops);
            if cost < best.cost {
                let tops = tops.clone();
                best = Placed { cost, order, tops };
            }
        }
        best
    }

    fn move_items(&mut self, items: &[Item], best: &mut Placed) {
        let mut left = SEARCH_BUDGET / (4 * self.work());
        let mut improved = true;
        while improved && left > 0 {
            improved = false;
            for from in 0..items.len() {
                if let Some(better) = self.move_item(items, best, from, &mut left) {
                    *best = better;
                    improved = true;
                }
            }
            self.sort_inside(&best.tops);
            best.tops = self.settle(items, &best.order, std::mem::take(&mut best.tops), 10);
            best.cost = self.cost(&best.tops);
        }
    }

    /// Returns a better placement in which the item at `from` has moved up or down. Returns `None`
    /// if there is none. Reduces `left` by one for each try.
    fn move_item(
        &self,
        items: &[Item],
        now: &Placed,
        from: usize,
        left: &mut usize,
    ) -> Option<Placed> {
        for step in [-1isize, 1, -2, 2, -4, 4, -8, 8] {
            let to = from.checked_add_signed(step);
            let Some(to) = to.filter(|&to| to < items.len() && *left > 0) else {
                continue;
            };
            *left -= 1;
            let mut order = now.order.clone();
            let item = order.remove(from);
            order.insert(to, item);
            let tops = self.settle(items, &order, now.tops.clone(), 3);
            let cost = self.cost(&tops);
            if cost + 1.0 < now.cost {
                return Some(Placed { cost, order, tops });
            }
        }
        None
    }

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
                    Port::Track(_) => continue,
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

    /// Returns the cost of a placement. The number of crossings has the largest weight, then the
    /// lengths of the wires.
    fn cost(&self, tops: &[f64]) -> f64 {
        let (channels, length) = self.wires(tops);
        let crossings: usize = channels.iter().map(|c| crossings(c)).sum();
        let bottom = tops.iter().copied().fold(f64::MIN, f64::max);
        let top = tops.iter().copied().fold(f64::MAX, f64::min);
        crossings as f64 * 60.0 + length + HEIGHT_COST * (bottom - top)
    }

    /// Returns the wires in the space to the right of each rank (the channel), and the sum of the
    /// vertical lengths of all wires.
    fn wires(&self, tops: &[f64]) -> (Vec<Vec<Crosser>>, f64) {
        let y = |p: Port| {
            let (i, o) = self.place(p);
            tops[i] + o
        };
        let mut channels: Vec<Vec<Crosser>> = vec![Vec::new(); self.ranks + 1];
        let mut length = 0.0;
        for (i, net) in self.nets.iter().enumerate() {
            let start = self.rank[net.source];
            let out = y(Port::Out(i));
            if let Some(track) = net.forward {
                let t = y(Port::Track(track));
                channels[start].push((out, t, i));
                length += (out - t).abs();
            }
            if let Some(track) = net.backward {
                length += (out - y(Port::Track(track))).abs();
            }
            for &l in &net.lines {
                let line = &self.lines[l];
                let target = y(Port::In(line.to));
                let to = self.rank[line.to];
                if line.back {
                    let back = net.backward.map(|t| y(Port::Track(t)));
                    length += back.map_or(0.0, |t| (t - target).abs());
                } else {
                    let from = match net.forward {
                        Some(track) if to > start + 1 => y(Port::Track(track)),
                        _ => out,
                    };
                    channels[to - 1].push((from, target, i));
                    length += (from - target).abs();
                }
            }
        }
        (channels, length)
    }

    /// Estimates the number of steps that the evaluation of one order of the boxes needs. Computes
    /// it from the numbers of wires, of boxes, and of pairs of wires between two ranks.
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
}

/// A wire in the channel between two ranks: its heights at both ends, and its net.
type Crosser = (f64, f64, usize);

fn crossings(channel: &[Crosser]) -> usize {
    let mut crossings = 0;
    for (k, a) in channel.iter().enumerate() {
        for b in &channel[k + 1..] {
            if a.2 != b.2 && (a.0 - b.0) * (a.1 - b.1) < 0.0 {
                crossings += 1;
            }
        }
    }
    crossings
}
