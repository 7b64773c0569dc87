//! Gives each callback its rank: its distance from the sources.

use onbeat_document::schema::{CallbackType, Model};
use std::collections::{BTreeMap, HashMap};

pub(super) struct Line {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) edge: usize,
    pub(super) back: bool,
}

pub(super) fn lines(model: &Model) -> Vec<Line> {
    let callbacks = model.callbacks.iter().enumerate();
    let index: HashMap<&str, usize> = callbacks.map(|(i, c)| (c.id.as_str(), i)).collect();
    let line = |(edge, e): (usize, &onbeat_document::schema::Edge)| {
        let (from, to) = (*index.get(e.from.as_str())?, *index.get(e.to.as_str())?);
        Some(Line {
            from,
            to,
            edge,
            back: from == to,
        })
    };
    let mut lines: Vec<Line> = model.edges.iter().enumerate().filter_map(line).collect();
    mark_loops(model, &mut lines);
    lines
}

#[derive(Clone, Copy, PartialEq)]
enum Visit {
    NotYet,
    OnPath,
    Done,
}

/// Marks the lines that close a loop. Such a line leads to a callback that is on the current path
/// of a depth-first search from the sources.
fn mark_loops(model: &Model, lines: &mut [Line]) {
    let n = model.callbacks.len();
    let mut out: Vec<Vec<usize>> = vec![Vec::new(); n];
    let mut has_input = vec![false; n];
    for (i, l) in lines.iter().enumerate().filter(|(_, l)| !l.back) {
        out[l.from].push(i);
        has_input[l.to] = true;
    }
    let mut starts: Vec<usize> = (0..n).collect();
    let no_timer = |v: usize| model.callbacks[v].kind != CallbackType::Timer;
    starts.sort_by_key(|&v| (has_input[v], no_timer(v), v));
    let mut visits = vec![Visit::NotYet; n];
    for start in starts {
        if visits[start] != Visit::NotYet {
            continue;
        }
        visits[start] = Visit::OnPath;
        let mut stack = vec![(start, 0usize)];
        while let Some((v, k)) = stack.pop() {
            let Some(&line) = out[v].get(k) else {
                visits[v] = Visit::Done;
                continue;
            };
            stack.push((v, k + 1));
            let to = lines[line].to;
            match visits[to] {
                Visit::OnPath => lines[line].back = true,
                Visit::NotYet => {
                    visits[to] = Visit::OnPath;
                    stack.push((to, 0));
                }
                Visit::Done => {}
            }
        }
    }
}

/// Ranks callbacks by the longest path from the sources. Then moves each callback to the rank at
/// which its wires and the box of its node are shortest.
pub(super) fn ranks(model: &Model, lines: &[Line], cluster_of: &[usize]) -> Vec<usize> {
    let mut ranking = Ranking::new(model.callbacks.len(), lines, cluster_of);
    ranking.set_longest_paths();
    for _ in 0..20 {
        if !ranking.shorten() {
            break;
        }
    }
    // Ranks without callbacks are removed.
    let mut used: Vec<usize> = ranking.rank.clone();
    used.sort_unstable();
    used.dedup();
    let closed_up = |r: &usize| used.binary_search(r).unwrap_or(0);
    ranking.rank.iter().map(closed_up).collect()
}

struct Ranking<'a> {
    ins: Vec<Vec<usize>>,
    outs: Vec<Vec<usize>>,
    cluster_of: &'a [usize],
    members: BTreeMap<usize, Vec<usize>>,
    rank: Vec<usize>,
    last: usize,
}

impl<'a> Ranking<'a> {
    fn new(n: usize, lines: &[Line], cluster_of: &'a [usize]) -> Self {
        let (mut ins, mut outs) = (vec![Vec::new(); n], vec![Vec::new(); n]);
        for l in lines.iter().filter(|l| !l.back) {
            ins[l.to].push(l.from);
            outs[l.from].push(l.to);
        }
        let mut members: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (v, &c) in cluster_of.iter().enumerate() {
            members.entry(c).or_default().push(v);
        }
        Ranking {
            ins,
            outs,
            cluster_of,
            members,
            rank: vec![0; n],
            last: 0,
        }
    }

    fn set_longest_paths(&mut self) {
        let mut waiting: Vec<usize> = self.ins.iter().map(Vec::len).collect();
        let mut ready: Vec<usize> = (0..waiting.len()).filter(|&v| waiting[v] == 0).collect();
        while let Some(v) = ready.pop() {
            for &w in &self.outs[v] {
                self.rank[w] = self.rank[w].max(self.rank[v] + 1);
                waiting[w] -= 1;
                if waiting[w] == 0 {
                    ready.push(w);
                }
            }
        }
        self.last = self.rank.iter().copied().max().unwrap_or(0);
    }

    /// Moves each callback to its best rank between its neighbours. Returns false if no callback
    /// has moved.
    fn shorten(&mut self) -> bool {
        let mut moved = false;
        for v in 0..self.rank.len() {
            if let Some(best) = self.best_rank(v) {
                self.rank[v] = best;
                moved = true;
            }
        }
        moved
    }

    fn best_rank(&self, v: usize) -> Option<usize> {
        let rank = &self.rank;
        let (ins, outs) = (&self.ins[v], &self.outs[v]);
        let low = ins.iter().map(|&u| rank[u] + 1).max().unwrap_or(0);
        let high = outs.iter().map(|&w| rank[w].saturating_sub(1)).min();
        let high = high.unwrap_or(self.last);
        if low >= high {
            return None;
        }
        let others = self.members[&self.cluster_of[v]].iter();
        let others: Vec<usize> = others.filter(|&&u| u != v).map(|&u| rank[u]).collect();
        let cost = |r: usize| {
            let wires: usize = ins.iter().map(|&u| r - rank[u]).sum::<usize>()
                + outs.iter().map(|&w| rank[w] - r).sum::<usize>();
            let span = match (others.iter().min(), others.iter().max()) {
                (Some(&a), Some(&b)) => b.max(r) - a.min(r),
                _ => 0,
            };
            2 * wires + 3 * span
        };
        // Ties go to the left, because readers look for sources there.
        let best = (low..=high).min_by_key(|&r| (cost(r), r))?;
        (best != rank[v] && cost(best) < cost(rank[v])).then_some(best)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(from: usize, to: usize) -> Line {
        Line {
            from,
            to,
            edge: 0,
            back: false,
        }
    }

    #[test]
    fn a_callback_is_drawn_beside_the_callback_that_takes_its_topic_if_there_is_space() {
        // The lines are 0 -> 1 -> 2, and 3 -> 2. Source 3 moves right before its reader.
        let mut ranking = Ranking::new(4, &[line(0, 1), line(1, 2), line(3, 2)], &[0, 1, 2, 3]);
        ranking.set_longest_paths();
        assert_eq!(ranking.rank, [0, 1, 2, 0]);
        assert!(ranking.shorten());
        assert_eq!(ranking.rank, [0, 1, 2, 1]);
        assert!(!ranking.shorten());
    }
}
