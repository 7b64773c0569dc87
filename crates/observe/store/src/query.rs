//! Finds the objects of a store that fit a query.

use crate::id::Id;
use crate::index::{Kind, Row};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The conditions that a run must meet to be found. An empty list or `None` sets no condition. A
/// run meets the condition of a list if it matches one of the list's words.
#[allow(missing_docs)] // the names say what they are
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// The kind of objects to find. `None` finds models and traces.
    pub kind: Option<Kind>,
    /// The build names to find, as given with `onbeat store put --build`.
    pub builds: Vec<String>,
    pub modes: Vec<String>,
    pub hosts: Vec<String>,
    /// The earliest start of a run, in ns since 1970. Runs that start at this time fit.
    pub from_ns: Option<u64>,
    /// The end of the range of starts, in ns since 1970. Runs that start at this time do not fit.
    pub to_ns: Option<u64>,
    /// The ids of objects to leave out of the result, even if their runs fit.
    pub without: Vec<Id>,
}

/// The objects of a store that fit a query.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Found {
    /// The index rows of the objects whose runs all fit the query.
    pub rows: Vec<Row>,
    /// The objects of which only some runs fit the query. They are left out, because their figures
    /// cover all their runs.
    pub partly: BTreeSet<Id>,
}

impl Found {
    /// Returns the ids of the objects in `rows`, each once.
    pub fn objects(&self) -> BTreeSet<Id> {
        self.rows.iter().map(|r| r.object).collect()
    }
}

impl Query {
    fn fits(&self, row: &Row) -> bool {
        let one_of =
            |words: &[String], word: &str| words.is_empty() || words.iter().any(|w| w == word);
        self.kind.is_none_or(|kind| kind == row.kind)
            && one_of(&self.builds, &row.build)
            && one_of(&self.modes, &row.mode)
            && one_of(&self.hosts, &row.host)
            && self.from_ns.is_none_or(|from| from <= row.start_ns)
            && self.to_ns.is_none_or(|to| row.start_ns < to)
            && !self.without.contains(&row.object)
    }

    /// Returns the rows that fit the query. An object that was put under two build names fits if
    /// one of the names fits.
    pub fn of(&self, rows: &[Row]) -> Found {
        let mut objects: BTreeMap<(Id, &str), (Vec<&Row>, usize)> = BTreeMap::new();
        for row in rows {
            let (fit, all) = objects.entry((row.object, &row.build)).or_default();
            *all += 1;
            if self.fits(row) {
                fit.push(row);
            }
        }
        let mut found = Found::default();
        for ((object, _), (fit, all)) in objects {
            match fit.len() {
                0 => {}
                n if n == all => found.rows.extend(fit.into_iter().cloned()),
                _ => {
                    found.partly.insert(object);
                }
            }
        }
        found
            .rows
            .sort_by(|a, b| (a.start_ns, a).cmp(&(b.start_ns, b)));
        found
    }
}
