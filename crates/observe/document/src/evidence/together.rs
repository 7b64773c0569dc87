//! The callbacks that ran on one thread, from which the executors of a run are concluded.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A set of callbacks and the threads of one run that ran exactly these.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Together {
    /// The ids of the callbacks that each of the threads ran.
    pub callbacks: BTreeSet<String>,
    /// The number of threads that ran exactly these callbacks.
    pub threads: usize,
}

impl Together {
    /// Groups the threads of a run by the callbacks that each ran, and counts them.
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
