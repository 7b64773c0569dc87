//! The callbacks that ran on one thread, from which the executors of a run are concluded.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Together {
    pub callbacks: BTreeSet<String>,
    pub threads: usize,
}

impl Together {
    pub fn of(threads: impl Iterator<Item = BTreeSet<String>>) -> Vec<Together> {
        let mut counts: BTreeMap<BTreeSet<String>, usize> = BTreeMap::new();
        for callbacks in threads {
            *counts.entry(callbacks).or_default() += 1;
        }
        let counts = counts.into_iter();
        let together = |(callbacks, threads)| Together { callbacks, threads };
        counts.map(together).collect()
    }
}
