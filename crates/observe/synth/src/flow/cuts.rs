//! Cuts chains where the user asks for it: they begin with a given callback or end with a given
//! topic. The whole chains are followed too.

use super::lineage::Lineage;
use super::naming::Ids;
use super::Flow;
use crate::chains::{Began, Lineages};
use crate::index::{NameId, StepId, VertexId};
use crate::marks::Marks;
use crate::notes::Note;
use crate::Context;
use onbeat_document::cuts::Cut;

#[derive(Debug, Clone, Default)]
pub(super) struct Cuts {
    from: Vec<String>,
    to: Vec<NameId>,
}

impl Cuts {
    pub(super) fn end_at(&self, name: NameId) -> bool {
        self.to.contains(&name)
    }

    pub(super) fn mark_names(&self, names: &mut Marks) {
        for name in &self.to {
            names.add(name.index());
        }
    }
}

impl Lineage {
    /// Ends the lineages in `all` at an output on the topic `name`, because the user cuts chains at
    /// this topic. `all` contains the callback's own lineages and its lineages through a
    /// synchroniser.
    pub(super) fn end_cut(&mut self, all: [&[StepId]; 3], name: NameId, time: u64) {
        for &step in all.into_iter().flatten() {
            self.paths.finish_cut(&self.steps, step, time, name);
        }
    }
}

impl Flow {
    pub(crate) fn ends_at(&self, name: NameId) -> bool {
        self.cuts.end_at(name)
    }

    /// Sets the callbacks and topics at which the user cuts chains. The caller must do this before
    /// the first event.
    pub(crate) fn cut(&mut self, cx: &mut Context, cuts: &[Cut]) {
        let from = cuts.iter().filter_map(|c| c.from.clone());
        let to = cuts.iter().filter_map(|c| c.to.as_ref());
        self.cuts = Cuts {
            from: from.collect(),
            to: to.map(|t| cx.entities.names.intern(t)).collect(),
        };
    }

    pub(super) fn tie_cuts(&mut self, cx: &Context, v: VertexId) {
        if self.cuts.from.is_empty() {
            return;
        }
        let ids = Ids {
            entities: &cx.entities,
            vertices: &self.graph.vertices,
        };
        let is_one = match self.ways.links.known_id(v) {
            Some(id) => self.cuts.from.iter().any(|f| f == id),
            None => self.cuts.from.contains(&ids.provisional(v)),
        };
        self.graph.vertex_mut(v).links.cut = is_one;
    }

    pub(super) fn begin_cut(
        &mut self,
        cx: &mut Context,
        vertex: VertexId,
        began: Began,
        lineages: &mut Lineages,
    ) {
        let start = began.time;
        let Lineage { paths, steps, .. } = &mut self.lineage;
        let has_origin = |id| steps.origins.get(id).iter().any(|o| o.root == vertex);
        if !lineages.origins().is_some_and(has_origin) {
            steps.begin(lineages, vertex, start);
        }
        let Some(root) = paths.root(vertex) else {
            cx.notes.count(Note::Capped(vertex), 1);
            return;
        };
        if lineages.as_slice().iter().any(|&s| steps.path(s) == root) {
            return;
        }
        let step = steps.root(root, start, began);
        if !lineages.push(step) {
            paths.drop_at(root, start);
            steps.release(step);
            cx.notes.count(Note::Capped(vertex), 1);
        }
    }
}
