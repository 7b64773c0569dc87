//! Chains, item by item (Algorithm 1): the paths that data took, and how long each part took.
//!
//! A *path* is a sequence of callbacks, kept in a trie. A *step* is one execution of a callback as
//! part of a lineage: it knows the step before it, so a lineage is a linked list that branches
//! share. Published items carry the steps of the execution that published them; whoever takes the
//! item appends its own. When an execution ends, walking back from its step gives the latency and
//! every callback's and edge's part of it.

use crate::dist::Dist;
use rustc_hash::FxHashMap;

/// "No such thing" for indices.
pub(crate) const NONE: u32 = u32::MAX;

/// Most lineages that one execution or item carries.
pub(crate) const MAX_LINEAGES: usize = 16;

/// Most paths that are told apart.
const MAX_PATHS: usize = 50_000;

/// Longest path.
const MAX_DEPTH: u32 = 64;

/// The steps of an execution or an item. Holds one reference on each; see [`Steps::release_all`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lineages {
    len: u8,
    steps: [u32; MAX_LINEAGES],
}

impl Default for Lineages {
    fn default() -> Self {
        Lineages {
            len: 0,
            steps: [NONE; MAX_LINEAGES],
        }
    }
}

impl Lineages {
    /// The steps.
    pub(crate) fn as_slice(&self) -> &[u32] {
        &self.steps[..usize::from(self.len)]
    }

    /// Adds a step; false when there is no room.
    pub(crate) fn push(&mut self, step: u32) -> bool {
        if usize::from(self.len) == MAX_LINEAGES {
            return false;
        }
        self.steps[usize::from(self.len)] = step;
        self.len += 1;
        true
    }
}

/// One execution of a callback within a lineage.
#[derive(Debug, Clone, Copy)]
struct Step {
    parent: u32,
    path: u32,
    /// When the parent published what this execution took.
    via_pub: u64,
    start: u64,
    /// Start of the lineage's first callback.
    origin: u64,
    refs: u32,
}

/// Slab of steps with reference counts: no allocation in the steady state.
#[derive(Debug, Clone, Default)]
pub(crate) struct Steps {
    steps: Vec<Step>,
    free: Vec<u32>,
}

impl Steps {
    fn insert(&mut self, step: Step) -> u32 {
        match self.free.pop() {
            Some(i) => {
                self.steps[i as usize] = step;
                i
            }
            None => {
                self.steps.push(step);
                (self.steps.len() - 1) as u32
            }
        }
    }

    /// A first step: the caller owns one reference.
    pub(crate) fn root(&mut self, path: u32, start: u64) -> u32 {
        self.insert(Step {
            parent: NONE,
            path,
            via_pub: start,
            start,
            origin: start,
            refs: 1,
        })
    }

    /// A step after `parent`, which published at `via_pub`: the caller owns one reference.
    /// Times are kept in order, so that shares are never negative and add up.
    pub(crate) fn extend(&mut self, parent: u32, path: u32, via_pub: u64, start: u64) -> u32 {
        let p = &mut self.steps[parent as usize];
        p.refs += 1;
        let start = start.max(p.start);
        let step = Step {
            parent,
            path,
            via_pub: via_pub.clamp(p.start, start),
            start,
            origin: p.origin,
            refs: 1,
        };
        self.insert(step)
    }

    /// One more reference on every step.
    pub(crate) fn share(&mut self, lineages: &Lineages) -> Lineages {
        for &s in lineages.as_slice() {
            self.steps[s as usize].refs += 1;
        }
        *lineages
    }

    /// Gives back one reference on a step.
    pub(crate) fn release(&mut self, step: u32) {
        let mut next = step;
        while next != NONE {
            let s = &mut self.steps[next as usize];
            s.refs -= 1;
            if s.refs > 0 {
                return;
            }
            let parent = s.parent;
            self.free.push(next);
            next = parent;
        }
    }

    /// Gives back one reference on every step.
    pub(crate) fn release_all(&mut self, lineages: &mut Lineages) {
        for &s in lineages.as_slice() {
            self.release(s);
        }
        lineages.len = 0;
    }

    /// The path that a step ends.
    pub(crate) fn path(&self, step: u32) -> u32 {
        self.steps[step as usize].path
    }

    /// Start of the lineage's first callback.
    pub(crate) fn origin(&self, step: u32) -> u64 {
        self.steps[step as usize].origin
    }

    /// Steps in use.
    #[cfg(test)]
    pub(crate) fn in_use(&self) -> usize {
        self.steps.len() - self.free.len()
    }
}

/// Figures of the executions that ended with a path's last callback.
#[derive(Debug, Clone, Default)]
pub(crate) struct Terminal {
    /// End-to-end latency.
    pub(crate) latency: Dist,
    /// Sum per callback and edge, alternating.
    pub(crate) sums: Vec<u128>,
    /// How often each topic (name index, NONE: nothing) was the last output.
    pub(crate) outputs: Vec<(u32, u64)>,
}

/// A path.
#[derive(Debug, Clone)]
pub(crate) struct PathNode {
    /// The path without its last callback.
    pub(crate) parent: u32,
    /// Last callback.
    pub(crate) vertex: u32,
    /// Topic that led to it (name index).
    pub(crate) via: u32,
    /// Number of edges.
    pub(crate) depth: u32,
    /// Some execution went on from here.
    extended: bool,
    /// Items that were lost on the way from the parent to here.
    pub(crate) lost: u64,
    /// Figures of executions that ended here.
    pub(crate) terminal: Option<Box<Terminal>>,
}

/// Every path that was taken.
#[derive(Debug, Clone, Default)]
pub(crate) struct Paths {
    nodes: Vec<PathNode>,
    /// NONE where the path may not be extended by that callback.
    children: FxHashMap<(u32, u32, u32), u32>,
    /// Extensions that were refused because there were too many paths, or too long ones.
    pub(crate) capped: u64,
}

impl Paths {
    /// All paths.
    pub(crate) fn nodes(&self) -> &[PathNode] {
        &self.nodes
    }

    /// The path that consists of one callback.
    pub(crate) fn root(&mut self, vertex: u32) -> u32 {
        self.child(NONE, NONE, vertex)
    }

    /// `parent` and then, by topic `via`, `vertex`. NONE where it would visit a callback twice,
    /// or where there are too many paths.
    pub(crate) fn child(&mut self, parent: u32, via: u32, vertex: u32) -> u32 {
        if let Some(&child) = self.children.get(&(parent, via, vertex)) {
            if child == NONE && self.nodes.len() >= MAX_PATHS {
                self.capped += 1;
            }
            return child;
        }
        let mut up = parent;
        let mut cycle = false;
        while up != NONE {
            let node = &self.nodes[up as usize];
            cycle |= node.vertex == vertex;
            up = node.parent;
        }
        let depth = match self.nodes.get(parent as usize) {
            Some(p) => p.depth + 1,
            None => 0,
        };
        let full = self.nodes.len() >= MAX_PATHS || depth > MAX_DEPTH;
        if full && !cycle {
            self.capped += 1;
            return NONE;
        }
        let child = if cycle {
            NONE
        } else {
            self.nodes.push(PathNode {
                parent,
                vertex,
                via,
                depth,
                extended: false,
                lost: 0,
                terminal: None,
            });
            (self.nodes.len() - 1) as u32
        };
        if self.children.len() < 4 * MAX_PATHS {
            self.children.insert((parent, via, vertex), child);
        }
        child
    }

    /// Marks that a path goes on, so that executions need no longer be counted as ending there.
    pub(crate) fn set_extended(&mut self, path: u32) {
        let node = &mut self.nodes[path as usize];
        if !node.extended {
            node.extended = true;
            node.terminal = None;
        }
    }

    /// Counts `n` (or takes back, if negative) items lost after `path` on the way to `vertex`.
    pub(crate) fn lose(&mut self, path: u32, via: u32, vertex: u32, n: i64) {
        let child = self.child(path, via, vertex);
        if child != NONE {
            let node = &mut self.nodes[child as usize];
            node.lost = node.lost.saturating_add_signed(n);
        }
    }

    /// An execution's lineage ended with `step`, its output left at `time`.
    pub(crate) fn finish(&mut self, steps: &Steps, step: u32, time: u64, output: u32) {
        let last = steps.steps[step as usize];
        let node = &mut self.nodes[last.path as usize];
        if node.extended {
            return;
        }
        let terminal = node.terminal.get_or_insert_with(|| {
            Box::new(Terminal {
                sums: vec![0; 2 * node.depth as usize + 1],
                ..Terminal::default()
            })
        });
        let time = time.max(last.start);
        terminal.latency.record(time - last.origin);
        match terminal.outputs.iter_mut().find(|o| o.0 == output) {
            Some(o) => o.1 += 1,
            None => terminal.outputs.push((output, 1)),
        }
        let (mut out, mut at) = (time, step);
        for sum in terminal.sums.rchunks_mut(2) {
            let s = steps.steps[at as usize];
            if let Some(callback) = sum.last_mut() {
                *callback += u128::from(out - s.start);
            }
            if let [edge, _] = sum {
                *edge += u128::from(s.start - s.via_pub);
                (out, at) = (s.via_pub, s.parent);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_and_nothing_is_kept() {
        let (mut paths, mut steps) = (Paths::default(), Steps::default());
        let a = paths.root(0);
        let ab = paths.child(a, 7, 1);
        let abc = paths.child(ab, 8, 2);
        assert_eq!(
            paths.child(abc, 9, 1),
            NONE,
            "a path visits a callback once"
        );
        let s0 = steps.root(a, 100);
        let s1 = steps.extend(s0, ab, 150, 170);
        let s2 = steps.extend(s1, abc, 200, 190); // start before publication: kept in order
        paths.finish(&steps, s2, 260, NONE);
        let terminal = paths.nodes()[abc as usize].terminal.as_ref().unwrap();
        assert_eq!(terminal.sums, [50, 20, 20, 0, 70]);
        assert_eq!(terminal.latency.sum(), 160);
        for s in [s0, s1, s2] {
            steps.release(s);
        }
        assert_eq!(steps.in_use(), 0);
    }
}
