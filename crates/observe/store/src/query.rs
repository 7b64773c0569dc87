//! Which objects of a store are asked for.

use crate::id::Id;
use crate::index::{Kind, Row};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// What is asked for. What is empty or None is not asked about; of several words one must fit.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// Models or traces only.
    pub kind: Option<Kind>,
    /// Builds.
    pub builds: Vec<String>,
    /// Modes.
    pub modes: Vec<String>,
    /// Hosts.
    pub hosts: Vec<String>,
    /// Runs that started at this time (ns since 1970) or later.
    pub from_ns: Option<u64>,
    /// Runs that started before this time.
    pub to_ns: Option<u64>,
    /// Objects that are left out.
    pub without: Vec<Id>,
}

/// Which of a store's objects fit a query.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Found {
    /// Rows of the objects of which every run fits.
    pub rows: Vec<Row>,
    /// Objects of which some runs fit and some do not. They are left out: their figures are of all their runs.
    pub partly: BTreeSet<Id>,
}

impl Found {
    /// The objects, each once.
    pub fn objects(&self) -> BTreeSet<Id> {
        self.rows.iter().map(|r| r.object).collect()
    }
}

impl Query {
    /// Whether a run fits.
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

    /// What of these rows fits. An object that was put under two builds fits where one of them does.
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
