//! The table of names, which keeps each name once.

use crate::index::NameId;
use crate::marks::Marks;
use rustc_hash::FxHashMap;

#[derive(Debug, Clone, Default)]
pub(crate) struct Names {
    index: FxHashMap<Box<str>, NameId>,
    list: Vec<Box<str>>,
    free: Vec<NameId>,
    unused: Marks,
}

impl Names {
    pub(crate) fn intern(&mut self, name: &str) -> NameId {
        if let Some(&id) = self.index.get(name) {
            return id;
        }
        let id = match self.free.pop() {
            Some(id) => {
                self.list[id.index()] = name.into();
                id
            }
            None => {
                self.list.push(name.into());
                NameId::new(self.list.len() - 1)
            }
        };
        self.index.insert(name.into(), id);
        id
    }

    pub(crate) fn count(&self) -> usize {
        self.index.len()
    }

    /// Forgets and returns the names that were unused in this call and in the previous call. `used`
    /// marks the names in use. A name that is new since the previous call therefore stays.
    pub(crate) fn forget_unused(&mut self, used: &Marks) -> Vec<NameId> {
        let mut unused = Marks::default();
        let mut forgotten = Vec::new();
        for id in self.index.values().copied() {
            if used.has(id.index()) {
                continue;
            }
            match self.unused.has(id.index()) {
                true => forgotten.push(id),
                false => {
                    unused.add(id.index());
                }
            }
        }
        for &id in &forgotten {
            let name = std::mem::take(&mut self.list[id.index()]);
            self.index.remove(&name);
        }
        self.free.extend_from_slice(&forgotten);
        self.unused = unused;
        forgotten
    }

    /// Returns a name, or the empty text if the index is unknown. The name is untrusted.
    pub(crate) fn get(&self, id: NameId) -> &str {
        self.list.get(id.index()).map_or("", |s| s)
    }

    pub(crate) fn text(&self, id: Option<NameId>) -> &str {
        id.map_or("", |id| self.get(id))
    }
}
