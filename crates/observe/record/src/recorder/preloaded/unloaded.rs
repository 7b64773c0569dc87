//! Processes of the command that did not load the library: static ones, those with another C library,
//! and those with more rights than their caller, whose dynamic linker leaves it out.

use std::collections::{BTreeMap, BTreeSet};

/// Processes that are told apart, of each kind.
const LISTED_MAX: usize = 1 << 12;

/// Who loaded the library, and who did not.
pub struct Unloaded {
    library: String,
    /// Looked at, and they have it.
    loaded: BTreeSet<u32>,
    /// They had not loaded it when they were looked at last: perhaps not yet.
    doubtful: BTreeSet<u32>,
    /// They did not load it, with their names.
    without: BTreeMap<u32, String>,
}

impl Unloaded {
    /// Looks for a library of this path.
    pub fn new(library: String) -> Unloaded {
        Unloaded {
            library,
            loaded: BTreeSet::new(),
            doubtful: BTreeSet::new(),
            without: BTreeMap::new(),
        }
    }

    /// A process executes another program, which may be of another kind.
    pub fn executes(&mut self, pid: u32) {
        self.loaded.remove(&pid);
        self.doubtful.remove(&pid);
    }

    /// Looks at the process and all that descend from it: who had not loaded the library the last
    /// time either will not do so any more.
    pub fn look(&mut self, command: u32) {
        for pid in onbeat_proc::tree(command) {
            if self.loaded.contains(&pid) || self.without.contains_key(&pid) {
                continue;
            }
            if self.has_library(pid) {
                self.doubtful.remove(&pid);
                if self.loaded.len() < LISTED_MAX {
                    self.loaded.insert(pid);
                }
                continue;
            }
            let name = onbeat_proc::Stat::of(pid).filter(|stat| !stat.has_ended());
            let is_certain = !self.doubtful.insert(pid);
            if let Some(stat) = name.filter(|_| is_certain && self.without.len() < LISTED_MAX) {
                self.without.insert(pid, stat.name);
            }
        }
        if self.doubtful.len() > LISTED_MAX {
            self.doubtful.clear();
        }
    }

    /// Whether a process has mapped the library. What may not be looked at has more rights than we.
    fn has_library(&self, pid: u32) -> bool {
        let mapped = onbeat_proc::maps::mapped_paths(pid);
        mapped.is_ok_and(|m| m.files.iter().any(|p| p.to_str() == Some(&self.library)))
    }

    /// How many they are, in a sentence.
    pub fn sentence(&self) -> Option<String> {
        let names: BTreeSet<&str> = self.without.values().map(String::as_str).collect();
        let names: Vec<&str> = names.into_iter().take(8).collect();
        (!self.without.is_empty()).then(|| {
            format!(
                "{} processes did not load the library, and their calls are not recorded: {} (a static program, one with another C library, or one with more rights than its caller).",
                self.without.len(),
                names.join(", ")
            )
        })
    }
}
