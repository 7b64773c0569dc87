//! Chains, item by item (Algorithm 1): the paths that data took, and how long each part took.
//!
//! A *path* is a sequence of callbacks, kept in a trie. A *step* is one execution of a callback as
//! part of a lineage: it knows the step before it, so a lineage is a linked list that branches
//! share. A published item carries the steps of the execution that published it; the execution
//! that takes the item appends its own. When an execution ends, walking back from its step gives
//! the latency and every callback's and edge's part of it.

use crate::index::{NameId, PathId, StepId, VertexId};
use crate::mode_rules::{ModeId, PerMode, Switches};
use onbeat_document::evidence::PathFigures;
use rustc_hash::FxHashMap;

/// Most lineages that one execution or item carries.
pub(crate) const MAX_LINEAGES: usize = 16;

/// Most paths that are kept apart.
const MAX_PATHS: usize = 50_000;

/// Most extensions of paths that are remembered, refused ones included.
const MAX_CHILDREN: usize = 4 * MAX_PATHS;

/// Longest path, in edges.
const MAX_DEPTH: u32 = 64;

/// The steps of an execution or an item. Owns one reference on each; see [`Steps::release_all`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lineages {
    len: u8,
    /// Only the first `len` count.
    steps: [StepId; MAX_LINEAGES],
}

impl Default for Lineages {
    fn default() -> Self {
        Lineages {
            len: 0,
            steps: [StepId::new(0); MAX_LINEAGES],
        }
    }
}

impl Lineages {
    /// The steps.
    pub(crate) fn as_slice(&self) -> &[StepId] {
        &self.steps[..usize::from(self.len)]
    }

    /// Adds a step; false when there is no room.
    pub(crate) fn push(&mut self, step: StepId) -> bool {
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
    parent: Option<StepId>,
    path: PathId,
    /// When the parent published the item that this execution took.
    via_pub: u64,
    start: u64,
    /// Start of the lineage's first callback.
    origin: u64,
    refs: u32,
    /// Its data went on this way before: they were stored, and are read once more.
    again: bool,
}

/// Slab of steps with reference counts: no allocation in the steady state.
#[derive(Debug, Clone, Default)]
pub(crate) struct Steps {
    steps: Vec<Step>,
    free: Vec<StepId>,
}

impl Steps {
    fn insert(&mut self, step: Step) -> StepId {
        match self.free.pop() {
            Some(id) => {
                self.steps[id.index()] = step;
                id
            }
            None => {
                self.steps.push(step);
                StepId::new(self.steps.len() - 1)
            }
        }
    }

    /// A first step: the caller owns one reference.
    pub(crate) fn root(&mut self, path: PathId, start: u64) -> StepId {
        self.insert(Step {
            parent: None,
            path,
            via_pub: start,
            start,
            origin: start,
            refs: 1,
            again: false,
        })
    }

    /// A step after `parent`, which published at `via_pub`: the caller owns one reference.
    /// Times are kept in order, so that shares are never negative and add up.
    pub(crate) fn extend(
        &mut self,
        parent: StepId,
        path: PathId,
        via_pub: u64,
        start: u64,
    ) -> StepId {
        let p = &mut self.steps[parent.index()];
        p.refs += 1;
        let start = start.max(p.start);
        let step = Step {
            parent: Some(parent),
            path,
            via_pub: via_pub.clamp(p.start, start),
            start,
            origin: p.origin,
            refs: 1,
            again: p.again,
        };
        self.insert(step)
    }

    /// Marks a step whose data went on this way before.
    pub(crate) fn set_again(&mut self, step: StepId) {
        self.steps[step.index()].again = true;
    }

    /// Whether a step's data went on this way before.
    pub(crate) fn is_again(&self, step: StepId) -> bool {
        self.steps[step.index()].again
    }

    /// One more reference on a step.
    pub(crate) fn share_one(&mut self, step: StepId) -> StepId {
        self.steps[step.index()].refs += 1;
        step
    }

    /// One more reference on every step.
    pub(crate) fn share(&mut self, lineages: &Lineages) -> Lineages {
        for &s in lineages.as_slice() {
            self.steps[s.index()].refs += 1;
        }
        *lineages
    }

    /// Gives back one reference on a step.
    pub(crate) fn release(&mut self, step: StepId) {
        let mut next = Some(step);
        while let Some(id) = next {
            let s = &mut self.steps[id.index()];
            s.refs -= 1;
            if s.refs > 0 {
                return;
            }
            next = s.parent;
            self.free.push(id);
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
    pub(crate) fn path(&self, step: StepId) -> PathId {
        self.steps[step.index()].path
    }

    /// Start of the lineage's first callback.
    pub(crate) fn origin(&self, step: StepId) -> u64 {
        self.steps[step.index()].origin
    }

    /// Steps in use.
    #[cfg(test)]
    pub(crate) fn in_use(&self) -> usize {
        self.steps.len() - self.free.len()
    }
}

/// How a path goes on to its next vertex.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Via {
    /// With an item of this name.
    Item(NameId),
    /// Into a sync vertex, with the input of the callback that published, which came under this
    /// name. If the callback waits for no other, the same path leads past the sync vertex.
    Own(NameId),
}

impl Via {
    /// The item's name.
    pub(crate) fn name(self) -> NameId {
        match self {
            Via::Item(name) | Via::Own(name) => name,
        }
    }
}

/// Figures of the executions that ended with a path's last callback.
#[derive(Debug, Clone, Default)]
pub(crate) struct Terminal {
    /// By the mode in which they began.
    pub(crate) figures: PerMode<PathFigures>,
    /// Start of the lineage that ended last.
    last: Option<u64>,
    /// How often each topic was the last output; `None`: nothing was published.
    pub(crate) outputs: Vec<(Option<NameId>, u64)>,
}

/// A path.
#[derive(Debug, Clone)]
pub(crate) struct PathNode {
    /// The path without its last callback, and what led from it to that callback.
    pub(crate) parent: Option<(PathId, Via)>,
    /// Last callback.
    pub(crate) vertex: VertexId,
    /// Number of edges.
    pub(crate) depth: u32,
    /// Some execution went on from here.
    extended: bool,
    /// Executions end here whether others go on or not, with their first publication: the user cut
    /// the path. Start of the last callback in the execution that ended last.
    cut: Option<u64>,
    /// Items that were lost on the way from the parent to here.
    pub(crate) lost: PerMode<u64>,
    /// Lineages that were not followed to here, or not beyond, because there were too many.
    pub(crate) dropped: PerMode<u64>,
    /// Figures of executions that ended here.
    pub(crate) terminal: Option<Box<Terminal>>,
}

/// Every path that was taken.
#[derive(Debug, Clone, Default)]
pub(crate) struct Paths {
    nodes: Vec<PathNode>,
    /// Which mode was active when.
    pub(crate) switches: Switches,
    roots: FxHashMap<VertexId, PathId>,
    children: FxHashMap<(PathId, Via, VertexId), Next>,
}

/// What comes of extending a path by a callback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// It is this path.
    Path(PathId),
    /// The path has visited the callback already.
    Cycle,
    /// There are too many paths, or it would be too long.
    Full,
}

impl Paths {
    /// All paths.
    pub(crate) fn nodes(&self) -> &[PathNode] {
        &self.nodes
    }

    /// A path.
    pub(crate) fn node(&self, path: PathId) -> &PathNode {
        &self.nodes[path.index()]
    }

    /// A path and those that it extends, longest first.
    pub(crate) fn upwards(&self, path: PathId) -> impl Iterator<Item = &PathNode> {
        let parent = |node: &&PathNode| node.parent.map(|(path, _)| self.node(path));
        std::iter::successors(Some(self.node(path)), parent)
    }

    /// The callbacks of a path, last to first, as far back as it is certain that data came from
    /// them: to a sync vertex that it reaches from another callback than the one that published.
    pub(crate) fn certain<'a>(
        &'a self,
        path: PathId,
        is_sync: impl Fn(VertexId) -> bool + 'a,
    ) -> impl Iterator<Item = VertexId> + 'a {
        let mut certain = true;
        self.upwards(path).map_while(move |node| {
            let joins = matches!(node.parent, Some((_, Via::Item(_)))) && is_sync(node.vertex);
            let reached = std::mem::replace(&mut certain, !joins);
            reached.then_some(node.vertex)
        })
    }

    /// The callbacks of a path, first to last.
    pub(crate) fn vertices(&self, path: PathId) -> Vec<VertexId> {
        let mut vertices: Vec<_> = self.upwards(path).map(|node| node.vertex).collect();
        vertices.reverse();
        vertices
    }

    /// The path that consists of one callback; none where there are too many paths.
    pub(crate) fn root(&mut self, vertex: VertexId) -> Option<PathId> {
        if let Some(&root) = self.roots.get(&vertex) {
            return Some(root);
        }
        let root = self.insert(None, vertex, 0)?;
        self.roots.insert(vertex, root);
        Some(root)
    }

    /// `parent` and then, by `via`, `vertex`.
    pub(crate) fn child(&mut self, parent: PathId, via: Via, vertex: VertexId) -> Next {
        if let Some(&next) = self.children.get(&(parent, via, vertex)) {
            return next;
        }
        let next = if self.upwards(parent).any(|node| node.vertex == vertex) {
            Next::Cycle
        } else {
            let depth = self.node(parent).depth + 1;
            let path = self.insert(Some((parent, via)), vertex, depth);
            path.map_or(Next::Full, Next::Path)
        };
        if self.children.len() < MAX_CHILDREN {
            self.children.insert((parent, via, vertex), next);
        }
        next
    }

    /// The extensions that would have visited a callback twice: the path, and the callback.
    pub(crate) fn cycles(&self) -> impl Iterator<Item = (PathId, VertexId)> + '_ {
        let children = self.children.iter();
        children.filter_map(|(&(path, _, vertex), next)| {
            (*next == Next::Cycle).then_some((path, vertex))
        })
    }

    /// Counts a lineage that began at `origin` as dropped at the end of a path.
    pub(crate) fn drop_at(&mut self, path: PathId, origin: u64) {
        let mode = self.switches.at(origin);
        *self.nodes[path.index()].dropped.of(mode) += 1;
    }

    fn insert(
        &mut self,
        parent: Option<(PathId, Via)>,
        vertex: VertexId,
        depth: u32,
    ) -> Option<PathId> {
        if self.nodes.len() >= MAX_PATHS || depth > MAX_DEPTH {
            return None;
        }
        self.nodes.push(PathNode {
            parent,
            vertex,
            depth,
            extended: false,
            cut: None,
            lost: PerMode::default(),
            dropped: PerMode::default(),
            terminal: None,
        });
        Some(PathId::new(self.nodes.len() - 1))
    }

    /// Marks that a path goes on, so that executions need no longer be counted as ending there.
    pub(crate) fn set_extended(&mut self, path: PathId) {
        let node = &mut self.nodes[path.index()];
        if node.extended {
            return;
        }
        node.extended = true;
        if node.cut.is_none() {
            node.terminal = None;
        }
        // Where the publishing callback waits for no other, it is the one that goes on.
        if let Some((parent, Via::Own(_))) = node.parent {
            self.set_extended(parent);
        }
    }

    /// Counts `n` (or takes back, if negative) items lost after `step` on the way to a vertex.
    pub(crate) fn lose(
        &mut self,
        steps: &Steps,
        step: StepId,
        (via, vertex): (NameId, VertexId),
        n: i64,
    ) {
        let mode = self.switches.at(steps.origin(step));
        if let Next::Path(child) = self.child(steps.path(step), Via::Item(via), vertex) {
            let lost = self.nodes[child.index()].lost.of(mode);
            *lost = lost.saturating_add_signed(n);
        }
    }

    /// An execution's lineage ended with `step`, its output left at `time`.
    pub(crate) fn finish(
        &mut self,
        steps: &Steps,
        step: StepId,
        time: u64,
        output: Option<NameId>,
    ) {
        let last = steps.steps[step.index()];
        let modes = [last.origin, time].map(|t| self.switches.at(t));
        let node = &mut self.nodes[last.path.index()];
        if !node.extended && node.cut.is_none() {
            node.end(steps, last, (time, modes), output);
        }
    }

    /// The same at a place where the user cut the path: whatever goes on, the first output of an
    /// execution of its last callback counts.
    pub(crate) fn finish_cut(&mut self, steps: &Steps, step: StepId, time: u64, output: NameId) {
        let last = steps.steps[step.index()];
        let modes = [last.origin, time].map(|t| self.switches.at(t));
        let node = &mut self.nodes[last.path.index()];
        match node.cut.replace(last.start) {
            Some(counted) if counted == last.start => return,
            Some(_) => {}
            // Executions that ended before had no such output.
            None => node.terminal = None,
        }
        node.end(steps, last, (time, modes), Some(output));
    }
}

impl PathNode {
    /// An execution's lineage ended with the step `last`, its output left at `time`. Which modes were
    /// active when it began and then.
    fn end(
        &mut self,
        steps: &Steps,
        last: Step,
        (time, [mode, now]): (u64, [ModeId; 2]),
        output: Option<NameId>,
    ) {
        let terminal = self.terminal.get_or_insert_default();
        let figures = terminal.figures.of(mode);
        figures.sums.resize(2 * self.depth as usize + 1, 0);
        let time = time.max(last.start);
        let latency = time - last.origin;
        if last.again {
            let latencies = &figures.latency_ns;
            let age = figures.age_ns.get_or_insert_with(|| latencies.clone());
            age.record(latency);
            return;
        }
        if let Some(age) = &mut figures.age_ns {
            age.record(latency);
        }
        figures.latency_ns.record(latency);
        figures.crossed += u64::from(now != mode);
        match terminal.last {
            Some(before) if before >= last.origin => {}
            before => {
                // Something new that came just after the start before shows first in this output.
                if let Some(before) = before {
                    figures.reaction_ns.record(time.saturating_sub(before));
                }
                terminal.last = Some(last.origin);
            }
        }
        match terminal.outputs.iter_mut().find(|o| o.0 == output) {
            Some(o) => o.1 += 1,
            None => terminal.outputs.push((output, 1)),
        }
        // From the last callback back to the first: its own share, then its edge's.
        let (mut out, mut at) = (time, Some(last));
        for sum in figures.sums.rchunks_mut(2) {
            let Some(s) = at else { break };
            if let Some(callback) = sum.last_mut() {
                *callback += u128::from(out - s.start);
            }
            if let [edge, _] = sum {
                *edge += u128::from(s.start - s.via_pub);
                out = s.via_pub;
                at = s.parent.map(|parent| steps.steps[parent.index()]);
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
        let (vertex, topic) = (VertexId::new, |n| Via::Item(NameId::new(n)));
        let a = paths.root(vertex(0)).unwrap();
        let next = |next: Next| match next {
            Next::Path(path) => path,
            other => panic!("{other:?}"),
        };
        let ab = next(paths.child(a, topic(7), vertex(1)));
        let abc = next(paths.child(ab, topic(8), vertex(2)));
        assert_eq!(
            paths.child(abc, topic(9), vertex(1)),
            Next::Cycle,
            "a path visits a callback once"
        );
        assert_eq!(paths.vertices(abc), [vertex(0), vertex(1), vertex(2)]);
        let s0 = steps.root(a, 100);
        let s1 = steps.extend(s0, ab, 150, 170);
        let s2 = steps.extend(s1, abc, 200, 190); // start before publication: kept in order
        paths.finish(&steps, s2, 260, None);
        let terminal = paths.node(abc).terminal.as_ref().unwrap();
        let figures = terminal.figures.get(ModeId::default()).unwrap();
        assert_eq!(figures.sums, [50, 20, 20, 0, 70]);
        assert_eq!(figures.latency_ns.sum(), 160);
        for s in [s0, s1, s2] {
            steps.release(s);
        }
        assert_eq!(steps.in_use(), 0);
    }
}
