//! Groups the callbacks that ever shared a thread, directly or through other callbacks, into
//! executors.

use super::graph::Graph;
use crate::evidence::{Evidence, Together};
use crate::schema::Executor;
use std::collections::BTreeMap;

pub(super) fn executors(evidence: &Evidence, graph: &Graph) -> Vec<Executor> {
    let ids: Vec<&String> = graph.callbacks.keys().collect();
    let number: BTreeMap<&String, usize> = ids.iter().enumerate().map(|(i, id)| (*id, i)).collect();
    let runs: Vec<&Vec<Together>> = evidence.together.values().collect();
    let members = |t: &Together| -> Vec<usize> {
        let known = t.callbacks.iter().filter_map(|id| number.get(id));
        known.copied().collect()
    };
    let mut groups = Groups((0..ids.len()).collect());
    for together in runs.iter().copied().flatten() {
        let members = members(together);
        members.windows(2).for_each(|w| groups.unite(w[0], w[1]));
    }
    // The most threads that a group had in one run.
    let mut threads: BTreeMap<usize, usize> = BTreeMap::new();
    for run in runs {
        let mut of_run: BTreeMap<usize, usize> = BTreeMap::new();
        for together in run {
            if let Some(&first) = members(together).first() {
                *of_run.entry(groups.root(first)).or_default() += together.threads;
            }
        }
        for (group, count) in of_run {
            let most = threads.entry(group).or_default();
            *most = count.max(*most);
        }
    }
    let executor = |(group, threads)| Executor {
        callbacks: (0..ids.len())
            .filter(|&i| groups.root(i) == group)
            .map(|i| ids[i].clone())
            .collect(),
        threads,
    };
    threads.into_iter().map(executor).collect()
}

/// Disjoint sets of callbacks, which have numbers from 0 on. Entry `i` is the parent of number `i`
/// in its set; the root is the least number of a set.
struct Groups(Vec<usize>);

impl Groups {
    fn root(&self, mut of: usize) -> usize {
        while self.0[of] != of {
            of = self.0[of];
        }
        of
    }

    fn unite(&mut self, a: usize, b: usize) {
        let (a, b) = (self.root(a), self.root(b));
        self.0[a.max(b)] = a.min(b);
    }
}
