//! Counts notes while events pass.

use crate::index::{NameId, VertexId};
use std::collections::BTreeMap;

/// A note that refers to vertices and names by their indices, because their ids and texts can still
/// change.
pub(super) type Note = onbeat_document::evidence::Note<VertexId, NameId>;

#[derive(Debug, Clone, Default)]
pub(super) struct Notes(BTreeMap<Note, u64>);

impl Notes {
    pub(super) fn count(&mut self, note: Note, n: u64) {
        if n > 0 {
            *self.0.entry(note).or_insert(0) += n;
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Note, u64)> {
        self.0.iter().map(|(note, &n)| (note, n))
    }
}
