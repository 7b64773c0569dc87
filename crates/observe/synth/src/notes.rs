//! Counts notes while events pass.

use crate::index::{NameId, VertexId};
use crate::marks::Marks;
use std::collections::BTreeMap;

pub(super) type Note = onbeat_document::evidence::Note<VertexId, NameId>;

#[derive(Debug, Clone, Default)]
pub(super) struct Notes(BTreeMap<Note, u64>);

impl Notes {
    pub(super) fn count(&mut self, note: Note, n: u64) {
        if n > 0 {
            *self.0.entry(note).or_insert(0) += n;
        }
    }

    pub(super) fn forget(&mut self, vertices: &Marks, used: &Marks) {
        self.0.retain(|note, _| {
            let (mut vertex, mut name) = (None, None);
            let _ = note.clone().named(
                |v| {
                    vertex = Some(v);
                    Some(String::new())
                },
                |n| {
                    name = Some(n);
                    String::new()
                },
            );
            let is_kept = name.is_none_or(|n: NameId| used.has(n.index()));
            is_kept && vertex.is_none_or(|v: VertexId| !vertices.has(v.index()))
        });
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Note, u64)> {
        self.0.iter().map(|(note, &n)| (note, n))
    }
}
