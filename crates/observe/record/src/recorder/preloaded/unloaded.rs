//! Finds processes of the command that did not load the preloaded library.
//!
//! These are static programs, programs with another C library, and programs with more rights than
//! their caller: their dynamic linker ignores preloading.

use std::collections::{BTreeMap, BTreeSet};

const LISTED_MAX: usize = 1 << 12;

pub struct Unloaded {
    library: String,
    loaded: BTreeSet<u32>,
    undecided: BTreeSet<u32>,
    without_library: BTreeMap<u32, String>,
}

impl Unloaded {
    pub fn new(library: String) -> Unloaded {
        Unloaded {
            library,
            loaded: BTreeSet::new(),
            undecided: BTreeSet::new(),
            without_library: BTreeMap::new(),
        }
    }

    pub fn forget(&mut self, pid: u32) {
        self.loaded.remove(&pid);
        self.undecided.remove(&pid);
    }

    /// Checks `command` and its descendants. A process that lacks the library at two checks counts
    /// as a process that never loads it.
    pub fn check_tree(&mut self, command: u32) {
        for pid in onbeat_proc::tree(command) {
            if self.loaded.contains(&pid) || self.without_library.contains_key(&pid) {
                continue;
            }
            if self.has_library(pid) {
                self.undecided.remove(&pid);
                if self.loaded.len() < LISTED_MAX {
                    self.loaded.insert(pid);
                }
                continue;
            }
            let name = onbeat_proc::Stat::of(pid).filter(|stat| !stat.has_ended());
            let is_certain = !self.undecided.insert(pid);
            if let Some(stat) =
                name.filter(|_| is_certain && self.without_library.len() < LISTED_MAX)
            {
                self.without_library.insert(pid, stat.name);
            }
        }
        if self.undecided.len() > LISTED_MAX {
            self.undecided.clear();
        }
    }

    /// Returns whether a process has mapped the library. A process that onbeat may not inspect has
    /// more rights than onbeat, and counts as a process without the library.
    fn has_library(&self, pid: u32) -> bool {
        let mapped = onbeat_proc::maps::mapped_paths(pid);
        mapped.is_ok_and(|m| m.files.iter().any(|p| p.to_str() == Some(&self.library)))
    }

    pub fn sentence(&self) -> Option<String> {
        let names: BTreeSet<&str> = self.without_library.values().map(String::as_str).collect();
        let names: Vec<&str> = names.into_iter().take(8).collect();
        (!self.without_library.is_empty()).then(|| {
            format!(
                "{} processes did not load onbeat's library, so their calls are not recorded: {}. These processes are static programs, use another C library, or have more rights than their caller.",
                self.without_library.len(),
                names.join(", ")
            )
        })
    }
}
