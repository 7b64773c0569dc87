//! Follows links: data that passes from one callback to another through a node's memory, as the
//! user states.

use super::graph::{Hop, Route};
use super::instances::Instance;
use super::naming::Ids;
use super::Flow;
use crate::chains::{Began, Lineages};
use crate::index::{NameId, VertexId};
use crate::links::Link;
use crate::marks::Marks;
use crate::Context;

#[derive(Debug, Clone)]
struct Carried {
    time: u64,
    from: VertexId,
    /// The data already counts as published: the callback that takes it was known when the data was
    /// written.
    counted: bool,
    /// The callback at the end of the link has read the data. The data stays until newer data
    /// replaces it.
    read: bool,
    lineages: Lineages,
}

#[derive(Debug, Clone)]
pub(super) struct Links {
    links: Vec<Link>,
    /// The vertex ids that an earlier pass over the same events found. Empty if there was no
    /// earlier pass.
    ids: Vec<Option<String>>,
    carried: Vec<Option<Carried>>,
    pub(super) memory: NameId,
}

impl Links {
    pub(super) fn new(links: Vec<Link>, ids: Vec<Option<String>>, memory: NameId) -> Self {
        Links {
            carried: vec![None; links.len()],
            links,
            ids,
            memory,
        }
    }

    pub(super) fn known_id(&self, v: VertexId) -> Option<&str> {
        self.ids.get(v.index())?.as_deref()
    }

    /// Returns the end of an edge that leads through a node's memory to the callback `to`. `route`
    /// says whether the user stated this edge or the callback waited for the data.
    pub(super) fn hop(&self, to: VertexId, route: Route) -> Hop {
        Hop {
            to,
            name: self.memory,
            route,
        }
    }
}

impl Links {
    pub(super) fn mark_vertices(&self, marks: &mut Marks) {
        for carried in self.carried.iter().flatten() {
            marks.add(carried.from.index());
        }
    }

    pub(super) fn mark_names(&self, names: &mut Marks) {
        names.add(self.memory.index());
    }
}

impl Flow {
    pub(super) fn tie_links(&mut self, cx: &Context, v: VertexId) {
        if self.ways.links.links.is_empty() {
            return;
        }
        let ids = Ids {
            entities: &cx.entities,
            vertices: &self.graph.vertices,
        };
        let id = match self.ways.links.known_id(v) {
            Some(id) => id.to_string(),
            None => ids.provisional(v),
        };
        let ends = &mut self.graph.vertex_mut(v).links;
        for (i, link) in self.ways.links.links.iter().enumerate() {
            if link.from == id {
                ends.from.push(i);
            }
            if link.to == id {
                ends.to.push(i);
            }
        }
    }

    /// Adds the data that came over links of the user to the callback `vertex`, which starts. The
    /// data stays until newer data replaces it, but the edge counts only the first read of each
    /// data.
    pub(super) fn take_links(
        &mut self,
        cx: &mut Context,
        vertex: VertexId,
        began: Began,
        lineages: &mut Lineages,
    ) {
        let start = began.time;
        for i in 0..self.graph.vertex(vertex).links.to.len() {
            let link = self.graph.vertex(vertex).links.to[i];
            let memory = self.ways.links.memory;
            let Some(carried) = &mut self.ways.links.carried[link] else {
                continue;
            };
            let again = std::mem::replace(&mut carried.read, true);
            let carried = carried.clone();
            let data = (&carried.lineages, memory, carried.time);
            self.lineage
                .extend(&mut cx.notes, lineages, data, (vertex, start, began), again);
            if again {
                continue;
            }
            let hop = self.ways.links.hop(vertex, Route::Link);
            let figures = self.graph.sent(carried.from, hop, carried.time);
            figures.published += u64::from(!carried.counted);
            figures.taken += 1;
            figures
                .latency_ns
                .record(start.saturating_sub(carried.time));
        }
    }

    pub(super) fn carry(&mut self, it: &Instance, time: u64) {
        for i in 0..self.graph.vertex(it.vertex).links.from.len() {
            let link = self.graph.vertex(it.vertex).links.from[i];
            let to = self.link_end(link);
            let carried = Carried {
                time,
                from: it.vertex,
                counted: to.is_some(),
                read: false,
                lineages: self.lineage.steps.share(&it.lineages),
            };
            let old = self.ways.links.carried[link].replace(carried);
            if let Some(to) = to {
                let hop = self.ways.links.hop(to, Route::Link);
                self.graph.count_published(it.vertex, hop, time);
                if let Some(old) = old.as_ref().filter(|o| o.counted && !o.read) {
                    self.lose((Some(old.from), old.lineages, old.time), hop, 1, true);
                }
            }
            if let Some(mut old) = old {
                self.lineage.steps.release_all(&mut old.lineages);
            }
        }
    }

    fn link_end(&self, link: usize) -> Option<VertexId> {
        let mut vertices = self.graph.vertices.iter();
        let end = vertices.position(|v| v.links.to.contains(&link))?;
        Some(VertexId::new(end))
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{listen, talk, Harness, PAIR};

    #[test]
    fn a_link_carries_the_data_of_the_latest_execution_and_overwrites_earlier_data() {
        let trace = [
            PAIR,
            &listen(10_500, 1),
            &talk(11_000),
            &listen(11_500, 11_000),
            &talk(21_000),
            &listen(21_300, 21_000),
            &listen(21_500, 2),
            &talk(31_000),
        ];
        let harness = Harness::with(&trace.concat(), |options| {
            let link = "/listener:subscription(/t) -> /talker:timer(10ms)";
            options.links = vec![link.parse().unwrap()];
        });
        let edges = harness.edges();
        let link = "/listener:subscription(/t) -> /talker:timer(10ms)";
        // The first data was carried before the timer was known, and counts as published when it is
        // taken.
        assert!(edges.contains(&format!("{link}: 4/3/0/1")), "{edges:?}");
    }
}
