//! Finds middlewares that onbeat has no probes for, and that applications use beside ROS 2's own. A
//! sentence names those that observed processes have loaded.

use crate::names::file_name;
use onbeat_proc::maps::MappedFile;
use std::collections::{BTreeMap, BTreeSet};

/// The beginnings of the names of middleware libraries, each with the name of its middleware.
/// onbeat does not record these middlewares.
const NAMES: &[(&str, &str)] = &[
    ("libagnocast", "agnocast"),
    ("libiceoryx2", "iceoryx2"),
    ("_iceoryx2.", "iceoryx2"),
    ("libzenohc", "Zenoh"),
    ("libzenohpico", "Zenoh"),
    ("zenoh.abi3", "Zenoh"),
];

const RMW_ZENOH: &str = "librmw_zenoh";

const PROCESSES_MAX: usize = 4;

const NOTED_MAX: usize = 4096;

fn middleware(path: &str) -> Option<&'static str> {
    let name = file_name(path);
    let known = NAMES.iter().find(|(start, _)| name.starts_with(start));
    known.map(|(_, middleware)| *middleware)
}

pub fn is_unseen(path: &str) -> bool {
    middleware(path).is_some() || file_name(path).starts_with(RMW_ZENOH)
}

/// The middlewares that onbeat has no probes for and that observed processes have loaded. For each:
/// the name of the library, and the processes that have loaded the library.
#[derive(Debug, Default)]
pub struct Unseen(BTreeMap<&'static str, (String, BTreeSet<u32>)>);

impl Unseen {
    pub fn note(&mut self, pid: u32, files: &[MappedFile]) {
        self.note_paths(pid, files.iter().map(|file| file.path.as_str()));
    }

    fn note_paths<'a>(&mut self, pid: u32, paths: impl Iterator<Item = &'a str> + Clone) {
        let zenoh_by_rmw = paths
            .clone()
            .any(|path| file_name(path).starts_with(RMW_ZENOH));
        for path in paths {
            let Some(name) = middleware(path) else {
                continue;
            };
            if name == "Zenoh" && zenoh_by_rmw {
                continue;
            }
            let new = || (file_name(path).to_owned(), BTreeSet::new());
            let (_, pids) = self.0.entry(name).or_insert_with(new);
            if pids.len() < NOTED_MAX {
                pids.insert(pid);
            }
        }
    }

    pub fn sentences(&self) -> Vec<String> {
        let sentence = |(name, (library, pids)): (&&str, &(String, BTreeSet<u32>))| {
            let named: Vec<String> = pids
                .iter()
                .take(PROCESSES_MAX)
                .map(u32::to_string)
                .collect();
            let more = match pids.len().saturating_sub(PROCESSES_MAX) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let process = if pids.len() == 1 {
                "Process"
            } else {
                "Processes"
            };
            let has = if pids.len() == 1 { "has" } else { "have" };
            format!(
                "{process} {}{more} {has} loaded {name} ({library}), which onbeat does not record. Items of {name} have no edges or chains, and callbacks that take these items appear without an input or not at all.",
                named.join(", ")
            )
        };
        self.0.iter().map(sentence).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_names_the_library_of_a_middleware_that_is_not_recorded() {
        let mut unseen = Unseen::default();
        unseen.note_paths(
            7,
            ["/opt/lib/libagnocast.so", "/usr/lib/libc.so.6"].into_iter(),
        );
        for pid in 10..16 {
            unseen.note_paths(pid, ["/venv/zenoh/zenoh.abi3.so"].into_iter());
        }
        let sentences = unseen.sentences();
        assert_eq!(sentences.len(), 2);
        let first = "Processes 10, 11, 12, 13 and 2 more have loaded Zenoh (zenoh.abi3.so), ";
        assert!(sentences[0].starts_with(first), "{}", sentences[0]);
        let second = "Process 7 has loaded agnocast (libagnocast.so), ";
        assert!(sentences[1].starts_with(second), "{}", sentences[1]);
    }

    #[test]
    fn the_middleware_of_ros_2_that_uses_zenoh_is_recorded() {
        let mut unseen = Unseen::default();
        let paths = ["/opt/lib/libzenohc.so", "/opt/lib/librmw_zenoh_cpp.so"];
        unseen.note_paths(7, paths.into_iter());
        assert_eq!(unseen.sentences(), [] as [String; 0]);
        unseen.note_paths(8, ["/opt/lib/libzenohc.so"].into_iter());
        assert_eq!(unseen.sentences().len(), 1);
    }
}
