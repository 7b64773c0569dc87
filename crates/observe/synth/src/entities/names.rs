//! The table of names, which keeps each name once.

use crate::index::NameId;
use rustc_hash::FxHashMap;

#[derive(Debug, Clone, Default)]
pub(crate) struct Names {
    index: FxHashMap<Box<str>, NameId>,
    list: Vec<Box<str>>,
}

impl Names {
    pub(crate) fn intern(&mut self, name: &str) -> NameId {
        if let Some(&id) = self.index.get(name) {
            return id;
        }
        let id = NameId::new(self.list.len());
        self.list.push(name.into());
        self.index.insert(name.into(), id);
        id
    }

    /// Returns a name, or the empty text if the index is unknown. The name is untrusted.
    pub(crate) fn get(&self, id: NameId) -> &str {
        self.list.get(id.index()).map_or("", |s| s)
    }

    pub(crate) fn text(&self, id: Option<NameId>) -> &str {
        id.map_or("", |id| self.get(id))
    }
}
