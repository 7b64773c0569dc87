//! Notes counted while events pass.

use crate::index::{NameId, VertexId};
use std::collections::BTreeMap;

/// A note with indices of vertices and names, which have no ids and texts yet.
pub(super) type Note = onbeat_document::evidence::Note<VertexId, NameId>;

/// Counts of notes.
#[derive(Debug, Clone, Default)]
pub(super) struct Notes(BTreeMap<Note, u64>);

impl Notes {
    /// Counts a note `n` times.
    pub(super) fn count(&mut self, note: Note, n: u64) {
        if n > 0 {
            *self.0.entry(note).or_insert(0) += n;
        }
    }

    /// All notes with their counts.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Note, u64)> {
        self.0.iter().map(|(note, &n)| (note, n))
    }
}
