//! Follows chains item by item (Algorithm 1): the paths that data took and the time that each part
//! took.
//!
//! A *path* is a sequence of callbacks, kept in a trie. A *step* is one execution of a callback
//! within a lineage. Each step refers to the step before it, so a lineage is a linked list, and
//! branches share their beginnings.
//!
//! A published item carries the steps of the execution that published it. The execution that takes
//! the item appends its own steps. When an execution ends, the steps before it give the latency and
//! the shares of all callbacks and edges.

use crate::followed::{Arrival, Asked, ChainEnd, ChainStep, Joined, PathStep, Shaped};
use crate::index::{NameId, OriginsId, PathId, StepId, VertexId};
use crate::marks::Marks;
use crate::mode_rules::{ModeId, PerMode, Switches};
use crate::origins::Origins;
use crate::values::ThreadId;
use onbeat_document::evidence::PathFigures;
use rustc_hash::{FxHashMap, FxHashSet};

pub(crate) const MAX_LINEAGES: usize = 16;

const MAX_PATHS: usize = 50_000;

/// The maximum number of remembered path extensions. An extension is an attempt to continue a path
/// by one more callback. Refused attempts are remembered, so they count as well.
const MAX_CHILDREN: usize = 4 * MAX_PATHS;

const MAX_EDGES: u32 = 64;

/// The number of paths from which on a graph counts as dense. The model does not list all chains of
/// a dense graph.
const DENSE: usize = 1024;

/// The maximum number of paths of a dense graph whose executions are counted while it is doubtful
/// whether a chain ends with the path. The end of the trace decides it.
const MAX_DOUBTED: usize = 192;

/// The paths on which the data of an execution or an item came, and the origins of the data. Each
/// path is given by its last step.
///
/// This value owns one reference to each step and to the origins. [`Steps::release_all`] gives the
/// references back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lineages {
    /// The origins of the data over all paths, also over those that are not followed because there
    /// are too many paths.
    origins: Option<OriginsId>,
    len: u8,
    /// The last step of each path that the data took. Only the first `len` entries are valid.
    steps: [StepId; MAX_LINEAGES],
}

impl Default for Lineages {
    fn default() -> Self {
        Lineages {
            origins: None,
            len: 0,
            steps: [StepId::new(0); MAX_LINEAGES],
        }
    }
}

impl Lineages {
    pub(crate) fn as_slice(&self) -> &[StepId] {
        &self.steps[..usize::from(self.len)]
    }

    pub(crate) fn origins(&self) -> Option<OriginsId> {
        self.origins
    }

    pub(crate) fn is_full(&self) -> bool {
        usize::from(self.len) == MAX_LINEAGES
    }

    pub(crate) fn push(&mut self, step: StepId) -> bool {
        if usize::from(self.len) == MAX_LINEAGES {
            return false;
        }
        self.steps[usize::from(self.len)] = step;
        self.len += 1;
        true
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Began {
    pub(crate) thread: ThreadId,
    /// The start of the execution. If the chain begins at the publication of an input, the chain
    /// begins before this time.
    pub(crate) time: u64,
    /// The time at which the callback's timer was due. `None` for other callbacks, or if the time
    /// is unknown.
    pub(crate) released: Option<u64>,
    /// At a synchroniser: the callback whose input completed the set of inputs. `None` at other
    /// callbacks.
    pub(crate) last_input: Option<VertexId>,
}

#[derive(Debug, Clone, Copy)]
struct Step {
    parent: Option<StepId>,
    path: PathId,
    /// The time at which the previous step published the item that this step took. In a first step:
    /// the step's own start.
    via_pub: u64,
    start: u64,
    /// The start of the lineage's first callback.
    origin: u64,
    refs: u32,
    began: Began,
    /// The step repeats an earlier one: a callback had stored the data and now reads it again.
    reread: bool,
    /// The sum of the degrees of doubt, 0 to 2, of all junctions on this path. The higher the sum,
    /// the less certain it is that the data came on this path.
    doubts: u8,
}

/// A table of steps with reference counts. Freed entries are used again, so the table does not
/// allocate memory in the steady state.
#[derive(Debug, Clone, Default)]
pub(crate) struct Steps {
    steps: Vec<Step>,
    free: Vec<StepId>,
    pub(crate) origins: Origins,
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

    /// Creates the first step of a lineage. The caller owns one reference to the step.
    pub(crate) fn root(&mut self, path: PathId, start: u64, began: Began) -> StepId {
        self.insert(Step {
            parent: None,
            path,
            via_pub: start,
            start,
            origin: start,
            refs: 1,
            began,
            reread: false,
            doubts: 0,
        })
    }

    /// Creates a step after `parent`. `via_pub` is the time at which `parent` published the item.
    /// The caller owns one reference to the new step.
    ///
    /// Times that are out of order are corrected. The callbacks' shares of the latency are then
    /// never negative and add up to the latency.
    pub(crate) fn extend(
        &mut self,
        parent: StepId,
        path: PathId,
        via_pub: u64,
        (start, began): (u64, Began),
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
            began,
            reread: p.reread,
            doubts: p.doubts,
        };
        self.insert(step)
    }

    pub(crate) fn doubt(&mut self, step: StepId, more: u8) {
        let doubts = &mut self.steps[step.index()].doubts;
        *doubts = doubts.saturating_add(more);
    }

    pub(crate) fn doubts(&self, step: StepId) -> u8 {
        self.steps[step.index()].doubts
    }

    pub(crate) fn most_doubts(&self, lineages: &Lineages) -> u8 {
        let doubts = lineages.as_slice().iter().map(|&s| self.doubts(s));
        doubts.max().unwrap_or(0)
    }

    /// Adds `step` to `lineages`. If `lineages` is full, leaves out the most doubtful step, which
    /// may be `step`, and returns it. The caller then owns the reference to the returned step.
    pub(crate) fn push(&self, lineages: &mut Lineages, step: StepId) -> Option<StepId> {
        if lineages.push(step) {
            return None;
        }
        let most = lineages.steps.iter_mut().max_by_key(|s| self.doubts(**s));
        match most {
            Some(worst) if self.doubts(*worst) > self.doubts(step) => {
                Some(std::mem::replace(worst, step))
            }
            _ => Some(step),
        }
    }

    pub(crate) fn mark_reread(&mut self, step: StepId) {
        self.steps[step.index()].reread = true;
    }

    pub(crate) fn is_reread(&self, step: StepId) -> bool {
        self.steps[step.index()].reread
    }

    pub(crate) fn share_one(&mut self, step: StepId) -> StepId {
        self.steps[step.index()].refs += 1;
        step
    }

    pub(crate) fn share(&mut self, lineages: &Lineages) -> Lineages {
        for &s in lineages.as_slice() {
            self.steps[s.index()].refs += 1;
        }
        if let Some(origins) = lineages.origins {
            self.origins.share(origins);
        }
        *lineages
    }

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

    pub(crate) fn release_all(&mut self, lineages: &mut Lineages) {
        for &s in lineages.as_slice() {
            self.release(s);
        }
        lineages.len = 0;
        if let Some(origins) = lineages.origins.take() {
            self.origins.release(origins);
        }
    }

    pub(crate) fn begin(&mut self, lineages: &mut Lineages, root: VertexId, start: u64) {
        let before = lineages.origins.take();
        lineages.origins = Some(self.origins.begin(before, root, start));
    }

    pub(crate) fn enter(
        &mut self,
        lineages: &mut Lineages,
        from: &Lineages,
        callback: VertexId,
        reread: bool,
    ) {
        if let Some(from) = from.origins {
            let before = lineages.origins.take();
            lineages.origins = self.origins.enter(before, from, callback, reread);
        }
    }

    pub(crate) fn mark_early(&mut self, lineages: &mut Lineages) {
        let origins = lineages.origins.take();
        lineages.origins = origins.map(|id| self.origins.mark_early(id));
    }

    pub(crate) fn retain(
        &mut self,
        lineages: &mut Lineages,
        paths: &Paths,
        keep: impl Fn(&Steps, StepId) -> bool,
    ) {
        let mut kept = Lineages::default();
        for &step in lineages.as_slice() {
            if keep(self, step) {
                self.share_one(step);
                kept.push(step);
                if let Some(first) = paths.upwards(self.path(step)).last() {
                    self.begin(&mut kept, first.vertex, self.origin(step));
                }
            }
        }
        self.release_all(lineages);
        *lineages = kept;
    }

    pub(crate) fn path(&self, step: StepId) -> PathId {
        self.steps[step.index()].path
    }

    pub(crate) fn origin(&self, step: StepId) -> u64 {
        self.steps[step.index()].origin
    }

    pub(crate) fn lead_through(
        &self,
        lineages: &Lineages,
        paths: &Paths,
        is_it: impl Fn(VertexId) -> bool,
    ) -> bool {
        let mut steps = lineages.as_slice().iter();
        let mut origins = lineages.origins.iter().flat_map(|&id| self.origins.get(id));
        steps.any(|&step| paths.upwards(self.path(step)).any(|n| is_it(n.vertex)))
            || origins.any(|origin| is_it(origin.root))
    }

    pub(crate) fn mark_vertices(&self, paths: &Paths, marks: &mut Marks) {
        let mut free = Marks::default();
        for step in &self.free {
            free.add(step.index());
        }
        let mut seen = Marks::default();
        for (i, step) in self.steps.iter().enumerate() {
            if free.has(i) {
                continue;
            }
            if let Some(vertex) = step.began.last_input {
                marks.add(vertex.index());
            }
            if seen.add(step.path.index()) {
                for node in paths.upwards(step.path) {
                    marks.add(node.vertex.index());
                }
            }
        }
        self.origins.mark_vertices(marks);
    }

    #[cfg(test)]
    pub(crate) fn in_use(&self) -> usize {
        self.steps.len() - self.free.len()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Via {
    Item(NameId),
    /// The path ends at a synchroniser. The callback before it published the synchroniser's output.
    /// The output was computed from the input of that callback, among others. The name is the topic
    /// of this input.
    ///
    /// The path without the synchroniser is followed as well, because the callback may publish
    /// without waiting for other inputs.
    Own(NameId),
}

impl Via {
    pub(crate) fn name(self) -> NameId {
        match self {
            Via::Item(name) | Via::Own(name) => name,
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Terminal {
    pub(crate) figures: PerMode<PathFigures>,
    last_origin: Option<u64>,
    /// The number of executions for each topic of their last output. The topic `None` stands for
    /// executions that published nothing.
    pub(crate) outputs: Vec<(Option<NameId>, u64)>,
}

#[derive(Debug, Clone)]
pub(crate) struct PathNode {
    /// The path without its last callback, and the connection from there to the last callback.
    /// `None` for a path of one callback.
    pub(crate) parent: Option<(PathId, Via)>,
    pub(crate) vertex: VertexId,
    pub(crate) depth: u32,
    /// The data of at least one execution went on to a further callback, so no chain ends with this
    /// path.
    extended: bool,
    /// `Some` if the user cut the path at its last callback. Each execution then ends with the
    /// first publication of that callback, even if the data continues. The value is the start of
    /// that callback in the latest execution.
    cut: Option<u64>,
    pub(crate) lost: PerMode<u64>,
    /// The number of lineages that were dropped because there were too many, and that count for
    /// this path. They were dropped when they reached the path's last callback, or when they were
    /// to continue from there.
    pub(crate) dropped: PerMode<u64>,
    /// At least one of these lineages did not reach the path's last callback, or would certainly have
    /// continued from there.
    incomplete: bool,
    /// It was doubtful in an execution that a chain ends with this path.
    doubted: bool,
    pub(crate) terminal: Option<Box<Terminal>>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Followed {
    /// The list `ends` also contains repeated outputs, whose data were published before.
    pub(crate) ages: bool,
    pub(crate) ends: Vec<ChainEnd>,
    pub(crate) joined: Vec<Joined>,
    pub(crate) arrivals: Vec<Arrival>,
    pub(crate) asked: Vec<Asked>,
    pub(crate) shaped: Vec<Shaped>,
    pub(crate) spare: Vec<Vec<ChainStep>>,
}

impl Followed {
    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
            && self.joined.is_empty()
            && self.arrivals.is_empty()
            && self.asked.is_empty()
            && self.shaped.is_empty()
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Paths {
    pub(crate) followed: Option<Followed>,
    nodes: Vec<PathNode>,
    free: Vec<PathId>,
    pub(crate) switches: Switches,
    roots: FxHashMap<VertexId, PathId>,
    children: FxHashMap<(PathId, Via, VertexId), Extension>,
    /// For each callback, by its number: whether at least one path continues from it.
    extended: Vec<bool>,
    /// For each callback, by its number: whether it seemed to only store inputs for outputs of other
    /// callbacks.
    stored: Vec<bool>,
    /// The number of paths that are `doubted`.
    doubted: usize,
    /// For each callback, by its number: whether executions that ended there were not counted,
    /// because too many paths are doubted.
    uncounted: Vec<bool>,
    capped: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extension {
    Path(PathId),
    Cycle,
    Full,
}

impl Paths {
    pub(crate) fn nodes(&self) -> &[PathNode] {
        &self.nodes
    }

    pub(crate) fn node(&self, path: PathId) -> &PathNode {
        &self.nodes[path.index()]
    }

    pub(crate) fn count(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    /// Forgets the paths through `vertices`, and returns them. The caller must have dropped all
    /// steps on these paths.
    pub(crate) fn forget(&mut self, vertices: &Marks) -> Vec<PathId> {
        let mut free = Marks::default();
        for path in &self.free {
            free.add(path.index());
        }
        let is_gone = |node: &PathNode| vertices.has(node.vertex.index());
        let kept = (0..self.nodes.len()).filter(|&path| !free.has(path));
        let paths = kept.map(PathId::new);
        let gone: Vec<PathId> = paths.filter(|&p| self.upwards(p).any(is_gone)).collect();
        let mut is_free = free;
        for &path in &gone {
            is_free.add(path.index());
            // Without figures, the free place is not reported as a path.
            let node = &mut self.nodes[path.index()];
            (node.parent, node.terminal, node.cut) = (None, None, None);
            (node.lost, node.dropped) = (PerMode::default(), PerMode::default());
            (node.depth, node.extended, node.incomplete) = (0, true, false);
            self.doubted -= usize::from(std::mem::take(&mut node.doubted));
        }
        self.free.extend_from_slice(&gone);
        self.roots.retain(|v, _| !vertices.has(v.index()));
        self.children.retain(|(path, _, vertex), next| {
            let next_is_gone = matches!(next, Extension::Path(p) if is_free.has(p.index()));
            !is_free.has(path.index()) && !vertices.has(vertex.index()) && !next_is_gone
        });
        for vertex in vertices.iter() {
            for flags in [&mut self.extended, &mut self.stored, &mut self.uncounted] {
                flags
                    .get_mut(vertex)
                    .into_iter()
                    .for_each(|flag| *flag = false);
            }
        }
        gone
    }

    pub(crate) fn forget_outputs(&mut self, is_kept: impl Fn(Option<NameId>) -> bool) {
        let terminals = self
            .nodes
            .iter_mut()
            .filter_map(|node| node.terminal.as_mut());
        for terminal in terminals {
            terminal.outputs.retain(|output| is_kept(output.0));
        }
    }

    pub(crate) fn mark_names(&self, names: &mut Marks) {
        for (_, via, _) in self.children.keys() {
            names.add(via.name().index());
        }
        for node in &self.nodes {
            if let Some((_, via)) = node.parent {
                names.add(via.name().index());
            }
            let outputs = node.terminal.iter().flat_map(|t| &t.outputs);
            for name in outputs.filter_map(|o| o.0) {
                names.add(name.index());
            }
        }
    }

    pub(crate) fn upwards(&self, path: PathId) -> impl Iterator<Item = &PathNode> {
        let parent = |node: &&PathNode| node.parent.map(|(path, _)| self.node(path));
        std::iter::successors(Some(self.node(path)), parent)
    }

    /// Returns those callbacks of a path from which the data certainly came, last to first.
    ///
    /// If the path enters a synchroniser by an input whose callback did not publish the output, the
    /// list ends at the synchroniser.
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

    pub(crate) fn vertices(&self, path: PathId) -> Vec<VertexId> {
        let mut vertices: Vec<_> = self.upwards(path).map(|node| node.vertex).collect();
        vertices.reverse();
        vertices
    }

    pub(crate) fn root(&mut self, vertex: VertexId) -> Option<PathId> {
        if let Some(&root) = self.roots.get(&vertex) {
            return Some(root);
        }
        let root = self.insert(None, vertex, 0)?;
        self.roots.insert(vertex, root);
        Some(root)
    }

    pub(crate) fn child(&mut self, parent: PathId, via: Via, vertex: VertexId) -> Extension {
        if let Some(&next) = self.children.get(&(parent, via, vertex)) {
            return next;
        }
        let next = if self.upwards(parent).any(|node| node.vertex == vertex) {
            Extension::Cycle
        } else {
            let depth = self.node(parent).depth + 1;
            let path = self.insert(Some((parent, via)), vertex, depth);
            path.map_or(Extension::Full, Extension::Path)
        };
        if self.children.len() < MAX_CHILDREN {
            self.children.insert((parent, via, vertex), next);
        }
        next
    }

    /// Returns the paths that were not extended because a callback would have appeared twice. Each
    /// path comes with that callback.
    pub(crate) fn cycles(&self) -> impl Iterator<Item = (PathId, VertexId)> + '_ {
        let children = self.children.iter();
        children.filter_map(|(&(path, _, vertex), next)| {
            (*next == Extension::Cycle).then_some((path, vertex))
        })
    }

    pub(crate) fn is_capped(&self) -> bool {
        self.capped
    }

    /// Counts one more dropped lineage for `path`. `origin` is the start of the lineage's first
    /// callback. The lineage counts for the mode that was active at that time.
    pub(crate) fn drop_at(&mut self, path: PathId, origin: u64) {
        self.drop_from(path, origin);
        self.nodes[path.index()].incomplete = true;
    }

    /// Like [`Paths::drop_at`], for a lineage that reached the path's last callback. onbeat does not
    /// know whether the lineage would have continued from there, so a chain may end with the path.
    pub(crate) fn drop_from(&mut self, path: PathId, origin: u64) {
        let mode = self.switches.at(origin);
        self.capped = true;
        *self.nodes[path.index()].dropped.of(mode) += 1;
    }

    fn insert(
        &mut self,
        parent: Option<(PathId, Via)>,
        vertex: VertexId,
        depth: u32,
    ) -> Option<PathId> {
        if self.count() >= MAX_PATHS || depth > MAX_EDGES {
            return None;
        }
        let node = PathNode {
            parent,
            vertex,
            depth,
            extended: false,
            cut: None,
            lost: PerMode::default(),
            dropped: PerMode::default(),
            incomplete: false,
            doubted: false,
            terminal: None,
        };
        Some(match self.free.pop() {
            Some(path) => {
                self.nodes[path.index()] = node;
                path
            }
            None => {
                self.nodes.push(node);
                PathId::new(self.nodes.len() - 1)
            }
        })
    }

    pub(crate) fn set_extended(&mut self, path: PathId) {
        let node = &mut self.nodes[path.index()];
        if node.extended {
            return;
        }
        node.extended = true;
        if node.cut.is_none() {
            node.terminal = None;
        }
        self.doubted -= usize::from(std::mem::take(&mut node.doubted));
        let (parent, vertex) = (node.parent, node.vertex);
        self.extend_vertex(vertex);
        // If the publishing callback does not wait for other inputs, the path past the sync vertex
        // continues too.
        if let Some((parent, Via::Own(_))) = parent {
            self.set_extended(parent);
        }
    }

    pub(crate) fn extend_vertex(&mut self, vertex: VertexId) {
        set(&mut self.extended, vertex);
    }

    pub(crate) fn is_extended(&self, vertex: VertexId) -> bool {
        is_set(&self.extended, vertex)
    }

    pub(crate) fn set_stored(&mut self, vertex: VertexId) {
        self.extend_vertex(vertex);
        set(&mut self.stored, vertex);
    }

    /// Returns for each path, by its number, whether the model leaves out the chain of this path.
    ///
    /// A chain can have several paths, with and without a synchroniser on whose output its own
    /// callback publishes. The chain's figures are those of all its paths, so if one of the paths is
    /// left out, all are.
    pub(crate) fn unlisted(&self) -> Vec<bool> {
        let paths = || (0..self.nodes.len()).map(PathId::new);
        let mut unlisted: Vec<bool> = paths().map(|path| self.is_unlisted(path)).collect();
        let ends = |path: &PathId| !self.node(*path).extended;
        let left_out = paths().filter(ends).filter(|path| unlisted[path.index()]);
        let chains: FxHashSet<Vec<VertexId>> = left_out.map(|path| self.chain(path)).collect();
        if !chains.is_empty() {
            for path in paths().filter(ends) {
                unlisted[path.index()] |= chains.contains(&self.chain(path));
            }
        }
        unlisted
    }

    /// Returns the callbacks of a path, last to first, without the synchronisers that the callback
    /// before them may not wait for.
    fn chain(&self, path: PathId) -> Vec<VertexId> {
        let is_own = |node: &PathNode| matches!(node.parent, Some((_, Via::Own(_))));
        let nodes = self.upwards(path).filter(|node| !is_own(node));
        nodes.map(|node| node.vertex).collect()
    }

    /// Reports whether the model leaves out the chain of this path, although executions ended
    /// there.
    ///
    /// The model leaves out chains only in a dense graph in which lineages were dropped. It never
    /// leaves out a path that the user cut. It leaves out a path in two cases:
    ///
    /// - The data continues from the path's last callback, and lineages of the path were dropped.
    /// - Some executions that ended at the path's last callback were not counted, on this path or
    ///   another one.
    fn is_unlisted(&self, path: PathId) -> bool {
        let node = self.node(path);
        let is_incomplete = || node.incomplete && self.is_extended(node.vertex);
        let is_uncounted = is_set(&self.uncounted, node.vertex);
        node.cut.is_none() && (is_uncounted || self.is_dense() && is_incomplete())
    }

    fn is_dense(&self) -> bool {
        self.capped && self.count() >= DENSE
    }

    /// Reports whether an execution that ends with `path` enters the figures of the path.
    ///
    /// In a dense graph, it is doubtful that a chain ends with a path if the last callback seems to
    /// only store its inputs, or if lineages may have continued from there.
    fn counts(&mut self, path: PathId) -> bool {
        let node = self.node(path);
        if node.doubted || node.cut.is_some() {
            return true;
        }
        if is_set(&self.uncounted, node.vertex) {
            return false;
        }
        let may_continue =
            || node.dropped.iter().any(|d| *d.1 > 0) && self.is_extended(node.vertex);
        let is_stored = || is_set(&self.stored, node.vertex);
        if !self.is_dense() || !may_continue() && !is_stored() {
            return true;
        }
        let has_room = self.doubted < MAX_DOUBTED;
        let node = &mut self.nodes[path.index()];
        node.doubted = has_room;
        self.doubted += usize::from(has_room);
        if !has_room {
            node.terminal = None;
            set(&mut self.uncounted, node.vertex);
        }
        has_room
    }

    /// Counts `n` items as lost on the way from `step` to `vertex`. A negative `n` takes back
    /// earlier losses.
    pub(crate) fn lose(
        &mut self,
        steps: &Steps,
        step: StepId,
        (via, vertex): (NameId, VertexId),
        n: i64,
    ) {
        let mode = self.switches.at(steps.origin(step));
        if let Extension::Path(child) = self.child(steps.path(step), Via::Item(via), vertex) {
            let lost = self.nodes[child.index()].lost.of(mode);
            *lost = lost.saturating_add_signed(n);
        }
    }

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
        if node.extended || node.cut.is_some() || !self.counts(last.path) {
            return;
        }
        self.nodes[last.path.index()].end(steps, last, (time, modes), output);
        self.follow_end(steps, step, time, false);
    }

    fn follow_end(&mut self, steps: &Steps, step: StepId, time: u64, cut: bool) {
        let last = steps.steps[step.index()];
        let Some(followed) = self.followed.as_mut().filter(|f| !last.reread || f.ages) else {
            return;
        };
        let room = followed.spare.pop().unwrap_or_default();
        let end = ChainEnd {
            path: last.path.index() as u32,
            end_ns: time.max(last.start),
            cut,
            reread: last.reread,
            steps: self.steps_to(steps, step, room),
        };
        if let Some(followed) = &mut self.followed {
            followed.ends.push(end);
        }
    }

    /// Records that the synchroniser `sync` joined its inputs at `time`. Does nothing if the caller
    /// of the synthesis has not asked for joins. `by` contains the lineages of the input that came
    /// last.
    pub(crate) fn follow_join(
        &mut self,
        steps: &Steps,
        (sync, time): (VertexId, u64),
        by: &Lineages,
    ) {
        let (Some(followed), Some(&step)) = (&mut self.followed, by.as_slice().first()) else {
            return;
        };
        let room = followed.spare.pop().unwrap_or_default();
        let joined = Joined {
            synchroniser: sync.index() as u32,
            time_ns: time,
            steps: self.steps_to(steps, step, room),
        };
        if let Some(followed) = &mut self.followed {
            followed.joined.push(joined);
        }
    }

    pub(crate) fn steps_of(&self, path: PathId) -> Vec<PathStep> {
        let step = |node: &PathNode| {
            let via = node.parent.map(|p| p.1);
            PathStep {
                callback: node.vertex.index() as u32,
                name: via.map(|via| via.name().index() as u32),
                own: matches!(via, Some(Via::Own(_))),
            }
        };
        let mut all: Vec<PathStep> = self.upwards(path).map(step).collect();
        all.reverse();
        all
    }

    /// Returns all steps of the lineage that ends with `step`, first to last. The list reuses the
    /// memory of the empty list `room`.
    fn steps_to(&self, steps: &Steps, step: StepId, room: Vec<ChainStep>) -> Vec<ChainStep> {
        let first = Some(steps.steps[step.index()]);
        let parent = |s: &Step| Some(steps.steps[s.parent?.index()]);
        let seen = std::iter::successors(first, parent).map(|s| {
            let node = self.node(s.path);
            let via = node.parent.map(|p| p.1);
            ChainStep {
                callback: node.vertex.index() as u32,
                name: via.map(|via| via.name().index() as u32),
                own: matches!(via, Some(Via::Own(_))),
                published_ns: s.via_pub,
                start_ns: s.start,
                began_ns: s.began.time.max(s.start),
                released_ns: s.began.released,
                last_input: s.began.last_input.map(|v| v.index() as u32),
                pid: s.began.thread.pid,
                tid: s.began.thread.tid,
            }
        });
        let mut all = room;
        all.extend(seen);
        all.reverse();
        all
    }

    /// Records that a lineage ended at an output where the user cut the path. For each execution of
    /// the last callback, only the first output counts.
    pub(crate) fn finish_cut(&mut self, steps: &Steps, step: StepId, time: u64, output: NameId) {
        let last = steps.steps[step.index()];
        let modes = [last.origin, time].map(|t| self.switches.at(t));
        let node = &mut self.nodes[last.path.index()];
        match node.cut.replace(last.start) {
            Some(counted) if counted == last.start => return,
            Some(_) => {}
            // Executions that ended here before had no publication.
            None => node.terminal = None,
        }
        node.end(steps, last, (time, modes), Some(output));
        self.follow_end(steps, step, time, true);
    }
}

fn set(flags: &mut Vec<bool>, vertex: VertexId) {
    if flags.len() <= vertex.index() {
        flags.resize(vertex.index() + 1, false);
    }
    flags[vertex.index()] = true;
}

fn is_set(flags: &[bool], vertex: VertexId) -> bool {
    flags.get(vertex.index()).copied().unwrap_or(false)
}

impl PathNode {
    /// Adds a lineage that ended with the step `last` to the figures of this path. `mode` was
    /// active when the lineage began, and `now` when its output left at `time`.
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
        if last.reread {
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
        match terminal.last_origin {
            Some(before) if before >= last.origin => {}
            before => {
                // Data that came just after the earlier start appears first in this output.
                if let Some(before) = before {
                    figures.reaction_ns.record(time.saturating_sub(before));
                }
                terminal.last_origin = Some(last.origin);
            }
        }
        match terminal.outputs.iter_mut().find(|o| o.0 == output) {
            Some(o) => o.1 += 1,
            None => terminal.outputs.push((output, 1)),
        }
        // From the last callback back to the first: the share of the callback, then the share of
        // its edge.
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
    fn the_shares_of_a_chains_steps_add_up_to_the_latency_and_all_steps_are_freed() {
        let (mut paths, mut steps) = (Paths::default(), Steps::default());
        let (vertex, topic) = (VertexId::new, |n| Via::Item(NameId::new(n)));
        let a = paths.root(vertex(0)).unwrap();
        let path_of = |next: Extension| match next {
            Extension::Path(path) => path,
            other => panic!("{other:?}"),
        };
        let ab = path_of(paths.child(a, topic(7), vertex(1)));
        let abc = path_of(paths.child(ab, topic(8), vertex(2)));
        assert_eq!(
            paths.child(abc, topic(9), vertex(1)),
            Extension::Cycle,
            "a path visits a callback once"
        );
        assert_eq!(paths.vertices(abc), [vertex(0), vertex(1), vertex(2)]);
        let began = |time| Began {
            thread: ThreadId { pid: 1, tid: 2 },
            time,
            released: None,
            last_input: None,
        };
        paths.followed = Some(Followed::default());
        let s0 = steps.root(a, 100, began(100));
        let s1 = steps.extend(s0, ab, 150, (170, began(170)));
        // start before publication: kept in order
        let s2 = steps.extend(s1, abc, 200, (190, began(190)));
        paths.finish(&steps, s2, 260, None);
        let ends = &paths.followed.as_ref().unwrap().ends;
        let seen: Vec<_> = ends[0].steps.iter().collect();
        let times: Vec<_> = seen.iter().map(|s| (s.published_ns, s.start_ns)).collect();
        assert_eq!(times, [(100, 100), (150, 170), (190, 190)]);
        assert_eq!((ends.len(), ends[0].end_ns), (1, 260));
        let terminal = paths.node(abc).terminal.as_ref().unwrap();
        let figures = terminal.figures.get(ModeId::default()).unwrap();
        assert_eq!(figures.sums, [50, 20, 20, 0, 70]);
        assert_eq!(figures.latency_ns.sum(), 160);
        for s in [s0, s1, s2] {
            steps.release(s);
        }
        assert_eq!(steps.in_use(), 0);
    }

    #[test]
    fn a_full_list_of_lineages_drops_the_most_doubtful_lineage() {
        let (mut paths, mut steps) = (Paths::default(), Steps::default());
        let path = paths.root(VertexId::new(0)).unwrap();
        let began = Began {
            thread: ThreadId { pid: 1, tid: 2 },
            time: 0,
            released: None,
            last_input: None,
        };
        let mut step = |doubts| {
            let step = steps.root(path, 0, began);
            steps.doubt(step, doubts);
            step
        };
        let kept: Vec<_> = (0..MAX_LINEAGES).map(|i| step((i % 3) as u8)).collect();
        let [sure, doubtful] = [0, 2].map(step);
        let mut lineages = Lineages::default();
        for &step in &kept {
            assert_eq!(steps.push(&mut lineages, step), None);
        }
        assert_eq!(steps.most_doubts(&lineages), 2);
        assert_eq!(steps.push(&mut lineages, doubtful), Some(doubtful));
        let left_out = steps.push(&mut lineages, sure).unwrap();
        assert_eq!(steps.doubts(left_out), 2);
        assert!(lineages.as_slice().contains(&sure));
        assert!(!lineages.as_slice().contains(&left_out));
        assert!(lineages.is_full());
    }

    fn began() -> Began {
        Began {
            thread: ThreadId { pid: 1, tid: 2 },
            time: 0,
            released: None,
            last_input: None,
        }
    }

    /// Ends one execution with `path`. Returns how many its figures contain, and whether the path is
    /// unlisted.
    fn end(paths: &mut Paths, path: PathId) -> (u64, bool) {
        let mut steps = Steps::default();
        let step = steps.root(path, 100, began());
        paths.finish(&steps, step, 260, None);
        let figures = paths
            .node(path)
            .terminal
            .iter()
            .flat_map(|t| t.figures.iter());
        let count = figures.map(|f| f.1.latency_ns.count()).sum();
        (count, paths.is_unlisted(path))
    }

    /// A graph with so many paths that chains can be left out, and its last path.
    fn dense() -> (Paths, PathId) {
        let mut paths = Paths::default();
        for n in 0..DENSE {
            paths.root(VertexId::new(n)).unwrap();
        }
        let sink = paths.root(VertexId::new(DENSE)).unwrap();
        (paths, sink)
    }

    #[test]
    fn a_dense_graph_lists_a_chain_with_all_executions_although_its_end_was_doubtful() {
        let (mut paths, path) = dense();
        paths.set_stored(VertexId::new(DENSE));
        assert_eq!(end(&mut paths, path), (1, false));
        paths.drop_from(path, 100);
        assert_eq!(end(&mut paths, path), (2, false));
        paths.drop_at(path, 100);
        assert_eq!(end(&mut paths, path), (3, true));
    }

    #[test]
    fn all_paths_of_a_chain_are_left_out_if_one_of_them_is() {
        let (mut paths, path) = dense();
        let (sync, last) = (VertexId::new(1), VertexId::new(2));
        let name = NameId::new(0);
        let mut child = |parent, via, vertex| match paths.child(parent, via, vertex) {
            Extension::Path(path) => path,
            _ => panic!("the graph has no room"),
        };
        let joined = child(path, Via::Own(name), sync);
        let ends = [
            child(path, Via::Item(name), last),
            child(joined, Via::Item(name), last),
            child(PathId::new(0), Via::Item(name), last),
        ];
        paths.extend_vertex(last);
        for path in ends {
            assert_eq!(end(&mut paths, path), (1, false));
        }
        assert_eq!(ends.map(|path| paths.unlisted()[path.index()]), [false; 3]);
        paths.drop_at(ends[1], 100);
        let unlisted = ends.map(|path| paths.unlisted()[path.index()]);
        assert_eq!(unlisted, [true, true, false]);
    }

    #[test]
    fn no_path_to_a_callback_is_listed_if_executions_that_ended_there_were_not_counted() {
        let (mut paths, path) = dense();
        let (last, name) = (VertexId::new(DENSE), NameId::new(0));
        let root = paths.root(VertexId::new(0)).unwrap();
        let Extension::Path(other) = paths.child(root, Via::Item(name), last) else {
            panic!("the graph has no room");
        };
        paths.drop_from(path, 100);
        assert_eq!(end(&mut paths, other), (1, false));
        for n in 1..=MAX_DOUBTED {
            paths.set_stored(VertexId::new(n));
            assert_eq!(end(&mut paths, PathId::new(n)), (1, false));
        }
        paths.set_stored(last);
        assert_eq!(end(&mut paths, path), (0, true));
        assert_eq!(end(&mut paths, other), (1, true));
        // A path from which data goes on makes room, but not for a path with missing executions.
        paths.set_extended(PathId::new(1));
        assert_eq!(end(&mut paths, path), (0, true));
        let next = MAX_DOUBTED + 1;
        paths.set_stored(VertexId::new(next));
        assert_eq!(end(&mut paths, PathId::new(next)), (1, false));
    }
}
