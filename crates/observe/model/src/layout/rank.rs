//! Gives each callback its rank: how far from the sources it stands.

use super::Line;
use crate::schema::{CallbackType, Model};
use std::collections::{BTreeMap, HashMap};

/// The lines of the model, with those that close a loop marked.
pub(super) fn lines(model: &Model) -> Vec<Line> {
    let index: HashMap<&str, usize> = model
        .callbacks
        .iter()
        .enumerate()
        .map(|(i, c)| (c.id.as_str(), i))
        .collect();
    let mut lines: Vec<Line> = model
        .edges
        .iter()
        .enumerate()
        .filter_map(|(edge, e)| {
            let (from, to) = (*index.get(e.from.as_str())?, *index.get(e.to.as_str())?);
            Some(Line {
                from,
                to,
                edge,
                back: from == to,
            })
        })
        .collect();
    let n = model.callbacks.len();
    let mut out: Vec<Vec<usize>> = vec![Vec::new(); n];
    let mut has_input = vec![false; n];
    for (i, l) in lines.iter().enumerate().filter(|(_, l)| !l.back) {
        out[l.from].push(i);
        has_input[l.to] = true;
    }
    // Depth first from the sources, without recursion: an edge to a vertex on the way is a loop.
    #[derive(Clone, Copy, PartialEq)]
    enum Seen {
        No,
        OnPath,
        Done,
    }
    let mut seen = vec![Seen::No; n];
    let mut starts: Vec<usize> = (0..n).collect();
    starts.sort_by_key(|&v| {
        (
            has_input[v],
            model.callbacks[v].kind != CallbackType::Timer,
            v,
        )
    });
    for start in starts {
        if seen[start] != Seen::No {
            continue;
        }
        seen[start] = Seen::OnPath;
        let mut stack = vec![(start, 0usize)];
        while let Some((v, k)) = stack.pop() {
            let Some(&line) = out[v].get(k) else {
                seen[v] = Seen::Done;
                continue;
            };
            stack.push((v, k + 1));
            let to = lines[line].to;
            match seen[to] {
                Seen::OnPath => lines[line].back = true,
                Seen::No => {
                    seen[to] = Seen::OnPath;
                    stack.push((to, 0));
                }
                Seen::Done => {}
            }
        }
    }
    lines
}

/// Ranks: longest path from the sources, then each callback moves to where its wires and its
/// node's box are shortest.
pub(super) fn ranks(model: &Model, lines: &[Line], cluster_of: &[usize]) -> Vec<usize> {
    let n = model.callbacks.len();
    let (mut ins, mut outs) = (vec![Vec::new(); n], vec![Vec::new(); n]);
    for l in lines.iter().filter(|l| !l.back) {
        ins[l.to].push(l.from);
        outs[l.from].push(l.to);
    }
    let mut rank = vec![0usize; n];
    let mut waiting: Vec<usize> = ins.iter().map(Vec::len).collect();
    let mut ready: Vec<usize> = (0..n).filter(|&v| waiting[v] == 0).collect();
    while let Some(v) = ready.pop() {
        for &w in &outs[v] {
            rank[w] = rank[w].max(rank[v] + 1);
            waiting[w] -= 1;
            if waiting[w] == 0 {
                ready.push(w);
            }
        }
    }
    let top = rank.iter().copied().max().unwrap_or(0);
    let mut members: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (v, &c) in cluster_of.iter().enumerate() {
        members.entry(c).or_default().push(v);
    }
    for _ in 0..20 {
        let mut moved = false;
        for v in 0..n {
            let low = ins[v].iter().map(|&u| rank[u] + 1).max().unwrap_or(0);
            let high = outs[v]
                .iter()
                .map(|&w| rank[w].saturating_sub(1))
                .min()
                .unwrap_or(top);
            if low >= high {
                continue;
            }
            let others: Vec<usize> = members[&cluster_of[v]]
                .iter()
                .filter(|&&u| u != v)
                .map(|&u| rank[u])
                .collect();
            let cost = |r: usize| {
                let wires: usize = ins[v].iter().map(|&u| r - rank[u]).sum::<usize>()
                    + outs[v].iter().map(|&w| rank[w] - r).sum::<usize>();
                let span = match (others.iter().min(), others.iter().max()) {
                    (Some(&a), Some(&b)) => b.max(r) - a.min(r),
                    _ => 0,
                };
                // Ties go to the left, where a reader looks for sources.
                2 * wires + 3 * span
            };
            let best = (low..=high)
                .min_by_key(|&r| (cost(r), r))
                .unwrap_or(rank[v]);
            if best != rank[v] && cost(best) < cost(rank[v]) {
                rank[v] = best;
                moved = true;
            }
        }
        if !moved {
            break;
        }
    }
    // Ranks that nobody is in any more are closed up.
    let mut used: Vec<usize> = rank.clone();
    used.sort_unstable();
    used.dedup();
    rank.iter()
        .map(|r| used.binary_search(r).unwrap_or(0))
        .collect()
}
