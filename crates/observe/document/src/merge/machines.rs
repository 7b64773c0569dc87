//! Finds runs of two different machines among many, without comparing each pair.

use super::ModelMergeError;
use crate::schema::Run;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
pub(super) struct Machines {
    /// The known boots of each known host, by host name. The entry `""` has the boots of unknown
    /// hosts.
    hosts: BTreeMap<String, BTreeSet<String>>,
    starts: BTreeMap<u64, BTreeSet<String>>,
    longest_ns: u64,
}

impl Machines {
    pub fn add(&mut self, run: &Run) {
        if !run.host.is_empty() {
            let boots = self.hosts.entry(run.host.clone()).or_default();
            boots.insert(run.boot.clone());
        }
        if !run.boot.is_empty() {
            let ids = self.starts.entry(run.start).or_default();
            ids.insert(run.id.clone());
            self.longest_ns = self.longest_ns.max(run.duration_ns);
        }
    }

    /// Returns the error for the first of `runs` that is from another machine than `new`. Each of
    /// `runs` must have been added to this value before.
    pub fn conflict(&self, runs: &BTreeMap<String, Run>, new: &Run) -> Option<ModelMergeError> {
        let with = |run: &Run| two_hosts(run, new);
        if self.is_of_another_host(new) {
            return runs.values().find_map(with);
        }
        if new.boot.is_empty() {
            return None;
        }
        let from = new.start.saturating_sub(self.longest_ns);
        let overlapping = self.starts.range(from..=until(new));
        let mut ids = overlapping.flat_map(|(_, ids)| ids);
        ids.find_map(|id| runs.get(id).and_then(with))
    }

    /// Reports whether an earlier run came from another host than `new`. The host name and the boot
    /// must both differ, because two names in one boot belong to one machine that was renamed.
    fn is_of_another_host(&self, new: &Run) -> bool {
        let same_boot = |boots: &BTreeSet<String>| {
            !new.boot.is_empty() && boots.len() == 1 && boots.contains(&new.boot)
        };
        let mut others = self.hosts.iter().filter(|(name, _)| **name != new.host);
        !new.host.is_empty() && others.any(|(_, boots)| !same_boot(boots))
    }
}

/// Returns an error if two runs are from two hosts. A run of an unknown host fits any host. Runs of
/// one boot are from one machine, even if its name changed.
fn two_hosts(a: &Run, b: &Run) -> Option<ModelMergeError> {
    let known = |of: fn(&Run) -> &String| !of(a).is_empty() && !of(b).is_empty();
    let boots = known(|r| &r.boot);
    if boots && a.boot == b.boot {
        return None;
    }
    if known(|r| &r.host) && a.host != b.host {
        let (a, b) = (
            a.host.clone().min(b.host.clone()),
            a.host.clone().max(b.host.clone()),
        );
        return Some(ModelMergeError::Hosts(a, b));
    }
    let at_once = a.start < until(b) && b.start < until(a);
    let (a, b) = (
        a.id.clone().min(b.id.clone()),
        a.id.clone().max(b.id.clone()),
    );
    (boots && at_once).then_some(ModelMergeError::Boots(a, b))
}

fn until(run: &Run) -> u64 {
    run.start.saturating_add(run.duration_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(id: usize, (host, boot, start, duration_ns): (u8, u8, u64, u64)) -> Run {
        let name = |n: u8| ["", "a", "b"][usize::from(n)].to_string();
        Run {
            id: format!("{id}"),
            host: name(host),
            boot: name(boot),
            mode: String::new(),
            distribution: Vec::new(),
            start,
            duration_ns,
            lost: BTreeMap::new(),
            events: 0,
        }
    }

    proptest! {
        #[test]
        fn the_search_for_host_conflicts_finds_the_same_as_comparing_all_pairs(
            drawn in prop::collection::vec((0u8..3, 0u8..3, 0u64..40, 0u64..6), 0..12),
        ) {
            let mut machines = Machines::default();
            let mut runs = BTreeMap::new();
            for (id, of) in drawn.into_iter().enumerate() {
                let new = run(id, of);
                let each = runs.values().any(|r| two_hosts(r, &new).is_some());
                prop_assert_eq!(machines.conflict(&runs, &new).is_some(), each);
                if !each {
                    machines.add(&new);
                    runs.insert(new.id.clone(), new);
                }
            }
        }
    }
}
