//! Finds heights for boxes and tracks in a given order, so that wires become straight.

use super::plan::{Item, Plan, Port};

/// The weight with which every item is pulled to the middle of the drawing. A wire pulls an item
/// with a weight of about 1.
const GRAVITY: f64 = 0.4;

impl Plan<'_> {
    pub(super) fn settle(
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

    /// Returns for each item the best position of its top edge, if all other items stay where they
    /// are.
    pub(super) fn wishes(&self, tops: &[f64]) -> Vec<f64> {
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
        // A slight pull towards the middle keeps the drawing compact.
        let middle = tops.iter().sum::<f64>() / tops.len().max(1) as f64;
        sum.iter()
            .map(|&(s, w)| (s + GRAVITY * middle) / (w + GRAVITY))
            .collect()
    }

    /// Returns the y position of each item's top. The positions are close to those in `wished` and
    /// keep the order of the items and the smallest allowed gaps between them. Computes one
    /// solution from top to bottom and one from bottom to top, and returns their mean.
    pub(super) fn resolve(&self, items: &[Item], order: &[usize], wished: &[f64]) -> Vec<f64> {
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
                // The upward solution mirrors everything.
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

    /// Moves items by a few pixels where this makes a wire straight, if there is space.
    pub(super) fn straighten(&self, items: &[Item], tops: &mut [f64]) {
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
        // Items with the fewest wires move first. A straight wire already holds both ends.
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
}
