//! Follows lineages: the origin of data and the paths that it took. Counts them on vertices and
//! edges.

use super::ends::{ChainEnd, Ends};
use super::graph::{Hop, Route};
use super::seen::{ItemTimes, Way};
use super::Flow;
use crate::chains::{Began, Extension, Lineages, Paths, Steps, Via};
use crate::detail::Fate;
use crate::events::Owner;
use crate::ids::NodeId;
use crate::index::{NameId, PathId, VertexId};
use crate::marks::Marks;
use crate::notes::{Note, Notes};
use crate::Context;
use onbeat_document::schema::CallbackType;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone)]
pub(crate) struct Lineage {
    pub(crate) paths: Paths,
    pub(crate) steps: Steps,
    pub(crate) ends: Ends,
    pub(super) inputs: Inputs,
    pub(super) ignored: Vec<NameId>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Incoming {
    pub(super) vertex: Option<VertexId>,
    pub(super) time: u64,
    pub(super) name: NameId,
    pub(super) route: Route,
    /// The lineages of the item's data. The receiver owns a reference to each of their steps.
    pub(super) lineages: Lineages,
    pub(super) ambiguous: bool,
}

pub(super) struct Awaited {
    pub(super) from: VertexId,
    pub(super) time: u64,
    pub(super) name: NameId,
    pub(super) route: Route,
    pub(super) lineages: Lineages,
    /// `Some` if the subscription took a later item before this one. `true`: this item was then
    /// counted as overwritten. `false`: it was counted as lost.
    pub(super) skipped: Option<bool>,
}

/// The topics at which chains begin, as stated by the user. Each topic comes with the number of its
/// items that callbacks took.
#[derive(Debug, Clone, Default)]
pub(super) struct Inputs(Vec<(NameId, u64)>);

impl Inputs {
    pub(super) fn mark_names(&self, names: &mut Marks) {
        for (name, _) in &self.0 {
            names.add(name.index());
        }
    }

    pub(super) fn counts(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.iter().map(|i| i.1)
    }

    fn count(&mut self, name: NameId) -> bool {
        let input = self.0.iter_mut().find(|i| i.0 == name);
        input.map(|(_, taken)| *taken += 1).is_some()
    }
}

impl Lineage {
    pub(super) fn new(inputs: impl Iterator<Item = NameId>) -> Self {
        Lineage {
            paths: Paths::default(),
            steps: Steps::default(),
            ends: Ends::default(),
            inputs: Inputs(inputs.map(|name| (name, 0)).collect()),
            ignored: Vec::new(),
        }
    }

    pub(super) fn ignores(&self, topic: NameId) -> bool {
        self.ignored.contains(&topic)
    }

    /// Ends lineages at `time`. `output` is the topic of the execution's last publication, and
    /// `time` the time of that publication. If the execution published nothing, `output` is `None`
    /// and `time` is its end.
    pub(super) fn finish(&mut self, lineages: &Lineages, time: u64, output: Option<NameId>) {
        for &step in lineages.as_slice() {
            self.paths.finish(&self.steps, step, time, output);
        }
    }

    pub(super) fn end_at(&mut self, end: ChainEnd, lineages: &Lineages) {
        self.ends.count((&self.paths, &self.steps), end, lineages);
    }

    /// Continues each lineage in `data` by the callback in `next`, and appends the results to `to`.
    /// `data` is the lineages, the topic, and the time of the publication. `next` is the callback,
    /// its start, and further details. `reread` is set if the callback had already read the same
    /// data.
    pub(super) fn extend(
        &mut self,
        notes: &mut Notes,
        to: &mut Lineages,
        data: (&Lineages, NameId, u64),
        next: (VertexId, u64, Began),
        reread: bool,
    ) {
        let before = to.as_slice().len();
        self.follow(notes, to, data, next, Route::Topic);
        if reread {
            for &step in &to.as_slice()[before..] {
                self.steps.mark_reread(step);
            }
        }
        self.steps.enter(to, data.0, next.0, reread);
    }

    fn extend_by(
        &mut self,
        notes: &mut Notes,
        to: &mut Lineages,
        data: (&Lineages, NameId, u64),
        next: (VertexId, u64, Began),
        route: Route,
    ) {
        self.follow(notes, to, data, next, route);
        self.steps.enter(to, data.0, next.0, false);
    }

    /// Continues the paths of `from` by the callback `vertex`, and appends the new steps to `to`.
    /// Does not continue the origins of the data: the caller must do that.
    fn follow(
        &mut self,
        notes: &mut Notes,
        to: &mut Lineages,
        (from, name, via): (&Lineages, NameId, u64),
        (vertex, start, began): (VertexId, u64, Began),
        route: Route,
    ) {
        for &step in from.as_slice() {
            let parent = self.steps.path(step);
            let path = match self.paths.child(parent, Via::Item(name), vertex) {
                Extension::Path(path) => path,
                Extension::Cycle => {
                    self.steps.origins.close(vertex, start);
                    continue;
                }
                Extension::Full => {
                    self.paths.extend_vertex(self.paths.node(parent).vertex);
                    self.paths.drop_at(parent, self.steps.origin(step));
                    notes.count(Note::Capped(vertex), 1);
                    continue;
                }
            };
            // Data handed to a thread may not continue there, so the lineage may also end here.
            if route != Route::HandedOver {
                self.paths.set_extended(parent);
            }
            let next = self.steps.extend(step, path, via, (start, began));
            if let Some(left_out) = self.steps.push(to, next) {
                let path = self.steps.path(left_out);
                self.paths.drop_at(path, self.steps.origin(left_out));
                self.steps.release(left_out);
                notes.count(Note::Capped(vertex), 1);
            }
        }
    }
}

impl Flow {
    /// Returns for each subscription A the subscriptions of the same node from whose data the
    /// inputs of A were computed. The set contains A itself if the output of A comes back to A as
    /// an input.
    pub(crate) fn descents(&self) -> BTreeMap<VertexId, BTreeSet<VertexId>> {
        let mut groups: FxHashMap<VertexId, NodeId> = FxHashMap::default();
        for (&node, group) in &self.groups {
            groups.extend(group.members.iter().map(|m| (m.vertex, node)));
        }
        let paths = &self.lineage.paths;
        let mut descents: BTreeMap<VertexId, BTreeSet<VertexId>> = BTreeMap::new();
        let mut add = |vertex, before: Option<PathId>| {
            let (Some(node), Some(before)) = (groups.get(&vertex), before) else {
                return;
            };
            let is_sync = |v| self.graph.vertex(v).kind() == CallbackType::Sync;
            for ancestor in paths.certain(before, is_sync) {
                if groups.get(&ancestor) == Some(node) {
                    descents.entry(vertex).or_default().insert(ancestor);
                }
            }
        };
        for node in paths.nodes() {
            add(node.vertex, node.parent.map(|p| p.0));
        }
        for (path, vertex) in paths.cycles() {
            add(vertex, Some(path));
        }
        descents
    }

    /// Counts an output of an instance as a result of the sources of its data. `cut` is set if the
    /// user cuts chains at the output's topic.
    pub(super) fn end_output(
        &mut self,
        owner: Owner,
        (name, cut): (NameId, bool),
        time: u64,
        lineages: &Lineages,
    ) {
        let Owner::Instance(instance) = owner else {
            return;
        };
        if let Some(it) = self.instances.get(instance) {
            let end = ChainEnd {
                vertex: it.vertex,
                output: Some(name),
                time,
                cut: cut.then_some(it.start),
            };
            self.lineage.end_at(end, lineages);
        }
    }

    /// Counts an item of `from` as lost or overwritten if `n` is 1. An `n` of -1 takes an earlier
    /// count back, because the item arrived after all.
    pub(super) fn lose(
        &mut self,
        (from, lineages, time): (Option<VertexId>, Lineages, u64),
        hop: Hop,
        n: i64,
        overwritten: bool,
    ) {
        let Some(from) = from else {
            return;
        };
        if let Some(details) = &mut self.details {
            let fate = match (n > 0, overwritten) {
                (true, false) => Fate::Lost,
                (true, true) => Fate::Overwritten,
                (false, false) => Fate::NotLost,
                (false, true) => Fate::NotOverwritten,
            };
            let way = Way {
                from: Some(from),
                to: hop.to,
                name: hop.name,
                route: Some(hop.route),
            };
            let times = ItemTimes {
                published: Some(time),
                ..ItemTimes::default()
            };
            details.item(way, times, fate);
        }
        let figures = self.graph.sent(from, hop, time);
        if overwritten {
            // The queue keeps only the latest items, so overwriting is not an error.
            figures.overwritten = figures.overwritten.saturating_add_signed(n);
            return;
        }
        figures.lost = figures.lost.saturating_add_signed(n);
        let Lineage { paths, steps, .. } = &mut self.lineage;
        for &step in lineages.as_slice() {
            paths.lose(steps, step, (hop.name, hop.to), n);
        }
    }

    pub(super) fn lineages_of(
        &mut self,
        cx: &mut Context,
        vertex: VertexId,
        began: Began,
        incoming: Option<Incoming>,
    ) -> Lineages {
        let start = began.time;
        let mut lineages = Lineages::default();
        let begins = incoming.is_some_and(|from| self.lineage.inputs.count(from.name));
        match incoming {
            Some(mut from) if self.lineage.ignores(from.name) => {
                self.lineage.steps.release_all(&mut from.lineages);
                cx.notes.count(Note::Ignored(from.name), 1);
            }
            Some(mut from) if from.vertex.is_some() && !begins => {
                if from.route == Route::HandedOver {
                    // The work of the thread may also have another origin.
                    let root = self.lineage.paths.root(vertex);
                    let root = root.map(|path| self.lineage.steps.root(path, start, began));
                    let _ = root.is_none_or(|step| lineages.push(step));
                    self.lineage.steps.begin(&mut lineages, vertex, start);
                }
                let data = (&from.lineages, from.name, from.time);
                let next = (vertex, start, began);
                self.lineage
                    .extend_by(&mut cx.notes, &mut lineages, data, next, from.route);
                self.lineage.steps.release_all(&mut from.lineages);
            }
            Some(mut from) if from.ambiguous && !begins => {
                // The item has an unknown publisher, so no chain begins here.
                self.lineage.steps.release_all(&mut from.lineages);
            }
            other => {
                // A chain that begins at an input topic includes the transport to its first
                // callback.
                let mut begin = start;
                if let Some(mut from) = other {
                    self.lineage.steps.release_all(&mut from.lineages);
                    if begins {
                        begin = from.time.min(start);
                    }
                }
                self.graph.vertex_mut(vertex).runs.sourced += 1;
                self.lineage.steps.begin(&mut lineages, vertex, begin);
                match self.lineage.paths.root(vertex) {
                    Some(path) => {
                        lineages.push(self.lineage.steps.root(path, begin, began));
                    }
                    None => cx.notes.count(Note::Capped(vertex), 1),
                }
            }
        }
        self.take_links(cx, vertex, began, &mut lineages);
        if self.graph.vertex(vertex).links.cut {
            self.begin_cut(cx, vertex, began, &mut lineages);
        }
        lineages
    }
}
