//! Which callbacks ran on one thread: what the threads of a run show of its executors.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Threads of one run that ran exactly these callbacks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Together {
    /// Ids.
    pub callbacks: BTreeSet<String>,
    /// How many threads.
    pub threads: usize,
}

impl Together {
    /// Of the callbacks of each thread of a run; threads with the same ones are counted.
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
