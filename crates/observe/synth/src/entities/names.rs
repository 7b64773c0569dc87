//! Names, each kept once.

use crate::index::NameId;
use rustc_hash::FxHashMap;

/// The table of names.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names {
    index: FxHashMap<Box<str>, NameId>,
    list: Vec<Box<str>>,
}

impl Names {
    /// The index of a name, which is added when it is new.
    pub(crate) fn intern(&mut self, name: &str) -> NameId {
        if let Some(&id) = self.index.get(name) {
            return id;
        }
        let id = NameId::new(self.list.len());
        self.list.push(name.into());
        self.index.insert(name.into(), id);
        id
    }

    /// A name (untrusted); empty when there is none of that index.
    pub(crate) fn get(&self, id: NameId) -> &str {
        self.list.get(id.index()).map_or("", |s| s)
    }

    /// A name, or the empty text for none.
    pub(crate) fn text(&self, id: Option<NameId>) -> &str {
        id.map_or("", |id| self.get(id))
    }
}
